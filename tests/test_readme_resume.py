"""The lines of README.md that resume a run: they work on the first start, and after a kill."""

from pathlib import Path

import pytest

from prunedata import Pruner, Schedule
from tests.test_docs import blocks

torch = pytest.importorskip("torch")
README = Path(__file__).parents[1] / "README.md"


def resume_lines():
    found = [one.text for one in blocks(README.read_text()) if one.kind == "python" and "resume=True" in one.text]
    assert len(found) == 1
    return found[0]


def program(data, epochs):
    """A program as the page has it, up to so many epochs; return its model as it was resumed, and as it was left."""
    names = {
        "Pruner": Pruner,
        "DataLoader": torch.utils.data.DataLoader,
        "prune": lambda loader, pruner: loader,  # the loader is no matter here
        "torch": torch,
        "train_set": data,
        "schedule": Schedule.steady(30),  # long enough that no advice comes in its first epochs
        "model": torch.nn.Linear(2, 2),
    }
    exec(resume_lines(), names)
    model, pruner = names["model"], names["pruner"]
    resumed = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in pruner.epochs():
        for ids in epoch.batches(50):
            images, labels = data[ids]
            losses = torch.nn.functional.cross_entropy(model(images), labels, reduction="none")
            pruner.observe(ids, losses.detach().numpy())
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
        torch.save(model.state_dict(), f"model-{epoch.number + 1}.pt")
        if epoch.number + 1 == epochs:
            break
    return resumed, model.state_dict(), pruner.next_epoch


def test_they_work_on_the_first_start_and_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = torch.utils.data.TensorDataset(torch.randn(300, 2), torch.randint(0, 2, (300,)))
    _, left, epochs = program(data, 2)
    assert epochs == 2
    resumed, _, epochs = program(data, 4)
    assert epochs == 4
    assert all(torch.equal(resumed[name], left[name]) for name in left)
