"""``pruner.wrap(loader)`` and ``pruner.observe(losses)``: what they do is what the adapter's own functions do."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner
from prunedata.adapters import torch as adapter
from prunedata.errors import LossError
from prunedata.policies import LossRanked, Random

SAMPLES = 24
DATA = TensorDataset(torch.arange(SAMPLES, dtype=torch.float32)[:, None], torch.arange(SAMPLES) % 3)


def loader_of(**options):
    return DataLoader(DATA, batch_size=5, shuffle=True, **options)


def train(pruner, loader, observe, *, with_ids=False):
    torch.manual_seed(0)
    model = nn.Linear(1, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in pruner.epochs():
        for batch in loader:
            ids, (inputs, targets) = batch if with_ids else (None, batch)
            losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            optimizer.zero_grad()
            (observe(losses) if ids is None else observe(losses, ids)).backward()
            optimizer.step()
    return [each.detach().clone() for each in model.parameters()], pruner.history


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"policy": Random()}, {"policy": LossRanked()}, {"policy": "auto", "holdout": 0.25},
        {"leave_out": "weight", "policy": Random()},
    ],
)  # fmt: skip
def test_it_trains_as_the_adapters_own_functions_do(workers, with_ids, options):
    options = {"epochs": 4, "prune": 6, **options}
    torch.manual_seed(1)
    own = Pruner(SAMPLES, **options)
    loader = adapter.wrap(loader_of(num_workers=workers), own, with_ids=with_ids)
    weights, history = train(own, loader, loader.observe, with_ids=with_ids)
    torch.manual_seed(1)
    run = Pruner(**options)
    wrapped = run.wrap(loader_of(num_workers=workers), with_ids=with_ids)
    again, repeated = train(run, wrapped, run.observe, with_ids=with_ids)
    assert all(torch.equal(one, other) for one, other in zip(weights, again, strict=True))
    told = ("kept", "observed", "mean_loss", "pruned")
    assert [[one[key] for key in told] for one in history] == [[one[key] for key in told] for one in repeated]


def test_of_two_loaders_it_is_the_one_that_waits():
    run = Pruner(SAMPLES, epochs=2)
    first, second = run.wrap(loader_of()), run.wrap(loader_of())
    for loader in (first, second):
        run.begin_epoch()
        for inputs, _ in loader:
            assert run.observe(inputs[:, 0]) == inputs.mean()
        run.end_epoch()


def test_two_loaders_that_wait_are_told_apart_by_themselves():
    run = Pruner(SAMPLES, epochs=2)
    first, second = run.wrap(loader_of()), run.wrap(loader_of())
    run.begin_epoch()
    kept = iter(first), iter(second)
    batches = [next(one) for one in kept]
    with pytest.raises(LossError, match="2 wrapped loaders that wait"):
        run.observe(batches[0][0][:, 0])


def test_with_none_that_waits_it_says_so():
    run = Pruner(SAMPLES, epochs=2)
    loader = run.wrap(loader_of())
    run.begin_epoch()
    with pytest.raises(LossError, match="Expected a batch that waits"):
        run.observe(torch.ones(5))
    assert len(loader) == 5


def test_watched_batches_are_known_as_well():
    run = Pruner(SAMPLES, epochs=2, leave_out="weight")
    batches = [(torch.arange(at, at + 8), torch.ones(8)) for at in range(0, SAMPLES, 8)]
    watched = adapter.watch(batches, run, ids=0)
    for _ in run.epochs():
        for _, losses in watched:
            assert run.observe(losses) == 1
    assert [record["observed"] for record in run.history] == [SAMPLES] * 2
