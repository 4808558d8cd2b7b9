"""The lines of docs/first-run.md that resume a run: they begin it at first, and go on with it after a kill."""

import contextlib
from pathlib import Path

import pytest

from prunedata import Pruner
from prunedata.adapters.torch import wrap
from prunedata.findings.inspection import inspect
from tests.docs.test_pages import blocks

torch = pytest.importorskip("torch")
PAGE = Path(__file__).parents[2] / "docs" / "first-run.md"
EPOCHS = 4


class Killed(BaseException):
    """What ends the program."""


def resume_lines():
    """The block that resumes, and the loop after it."""
    found = [one.text for one in blocks(PAGE.read_text()) if one.kind == "python"]
    (at,) = [number for number, text in enumerate(found) if "resume=True" in text]
    assert "torch.save" in found[at + 1]
    return "\n".join(found[at : at + 2])


@pytest.fixture
def program(monkeypatch, tmp_path):
    """The program of the page, with few samples and epochs; it may end when the model of an epoch has been saved."""
    monkeypatch.chdir(tmp_path)
    data = torch.utils.data.TensorDataset(torch.randn(300, 2), torch.randint(0, 2, (300,)))
    save = torch.save

    def run(killed_in=None):
        def save_or_die(state, name):
            save(state, name)
            if name == f"model-{killed_in}.pt":
                raise Killed

        monkeypatch.setattr(torch, "save", save_or_die)
        model = torch.nn.Linear(2, 2)
        names = {
            "Pruner": Pruner,
            "DataLoader": torch.utils.data.DataLoader,
            "F": torch.nn.functional,
            "wrap": wrap,
            "torch": torch,
            "train_set": data,
            "epochs": EPOCHS,
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        }
        loaded = []
        model.register_load_state_dict_post_hook(lambda *_: loaded.append(True))
        with contextlib.suppress(Killed):
            exec(resume_lines(), names)
        return len(loaded)

    return run


@pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")
def test_they_work_on_the_first_start_and_after_a_kill(program):
    assert program(killed_in=1) == 0  # nothing to load
    assert inspect("run.zarr")["epoch"] in (0, 1)
    program(killed_in=3)
    assert program() == 1
    assert inspect("run.zarr")["epoch"] == EPOCHS
    assert Path(f"model-{EPOCHS}.pt").exists()
