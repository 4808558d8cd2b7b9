"""``watch``: batches of whoever made them, with ids in them; and loops that fetch ahead."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prunedata.adapters.torch import watch, wrap
from prunedata.errors import LossError, PrunedataError
from tests.adapters.helpers.loops import plain, run_of
from tests.adapters.helpers.ranks import losses_of, model_of, weights_of
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, make_pruner


class Foreign:
    """A loader that is nothing of PyTorch's."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return len(range(0, SAMPLES, BATCH))

    def __iter__(self):
        order = np.random.default_rng(self.passes).permutation(SAMPLES)
        self.passes += 1
        for first in range(0, SAMPLES, BATCH):
            yield {"x": order[first : first + BATCH], "uid": order[first : first + BATCH].tolist()}


def batches(epoch):
    order = np.random.default_rng(epoch.number).permutation(SAMPLES)
    return [order[first : first + BATCH] for first in range(0, SAMPLES, BATCH)]


def looking(source, ahead):
    """Give the batches as late as a loop does that fetches ahead."""
    waiting = []
    for batch in source:
        waiting.append(batch)
        if len(waiting) > ahead:
            yield waiting.pop(0)
    yield from waiting


@pytest.mark.parametrize("ids", ["uid", lambda batch: torch.tensor(batch["uid"])])
@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("policy", ["running", "weighs"])
def test_it_trains_as_a_plain_weighted_loop(policy, ahead, ids):
    run, model = run_of(policy), model_of()
    loader = watch(Foreign(), run, ids=ids, ahead=ahead)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    assert len(loader) == 13
    for _ in run.epochs():
        for batch in looking(loader, ahead):
            loader.observe(losses_of(model, batch["x"])).backward()
            optimizer.step()
            optimizer.zero_grad()
    expected = plain(run_of(policy), batches)
    np.testing.assert_allclose(weights_of(model), expected["weights"], rtol=1e-12)
    assert run.counts.tolist() == expected["counts"]
    assert run.visits.tolist() == expected["visits"]


def test_an_epoch_that_goes_on_counts_what_is_new():
    run = run_of()
    loader = watch(Foreign(), run, ids="uid")
    run.begin_epoch()
    for number, batch in enumerate(loader):
        loader.observe(torch.rand(len(batch["x"])))
        if number == 4:
            break
    again = run_of()
    again.load_state_dict(run.state_dict())
    loader = watch(Foreign(), again, ids="uid")
    zeros = 0
    for epoch in again.epochs():
        for batch in loader:
            losses = torch.rand(len(batch["x"]), requires_grad=True)
            mean = loader.observe(losses)
            mean.backward()
            zeros += not losses.grad.any()
        assert epoch.kept == SAMPLES
    assert again.visits.max() == 5
    assert zeros == 5  # the same order came again
    assert [record["observed"] for record in again.history] == [103, 73, 103, 73, 103]


def test_what_is_refused():
    with pytest.raises(PrunedataError, match='Expected a Pruner with leave_out="weight"'):
        watch(Foreign(), make_pruner(), ids="uid")
    with pytest.raises(PrunedataError, match="ahead"):
        wrap(DataLoader(Items(), BATCH), make_pruner(), ahead=-1)
    with pytest.raises(PrunedataError, match="Got a generator"):
        watch((batch for batch in Foreign()), run_of(), ids="uid")
    run = run_of()
    run.begin_epoch()
    loader = watch([{"uid": [0, SAMPLES]}], run, ids="uid")
    with pytest.raises(PrunedataError, match="Expected the ids of a batch"):
        next(iter(loader))
    loader = watch(Foreign(), run, ids="uid", ahead=1)
    with pytest.raises(LossError, match="Expected 1 to 2 batches that wait"):
        loader.observe(torch.rand(3))
    given = iter(loader)
    for _ in range(3):
        next(given)
    with pytest.raises(LossError, match="Got 3: observe each batch once"):
        loader.observe(torch.rand(8))


@pytest.mark.parametrize("leave_out", ["delivery", "weight"])
@pytest.mark.parametrize(("ahead", "workers"), [(1, 0), (3, 2)])
def test_a_pruned_loader_may_be_looked_into(ahead, workers, leave_out):
    def trained(ahead):
        run, model = make_pruner(leave_out=leave_out), model_of()
        loader = wrap(DataLoader(Items(), BATCH, shuffle=True, num_workers=workers), run, ahead=ahead)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        for _ in run.epochs():
            for _, index in looking(loader, ahead):
                optimizer.zero_grad()
                loader.observe(losses_of(model, index)).backward()
                optimizer.step()
        return weights_of(model), run.counts.tolist()

    assert trained(ahead) == trained(0)


class Prefetcher:
    """Around a DataLoader, as timm's and Apex's."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return looking(self.loader, 1)


def test_a_prefetcher_gets_a_pruned_loader_inside():
    run, prefetcher = make_pruner(), Prefetcher(DataLoader(Items(), BATCH, shuffle=True, num_workers=2))
    with pytest.raises(PrunedataError, match=r"Prefetcher, which has a DataLoader inside.*ahead=n"):
        wrap(prefetcher, run)
    prefetcher.loader = loader = wrap(prefetcher.loader, run, ahead=1)
    for epoch in run.epochs():
        came = []
        for _, index in prefetcher:
            loader.observe((index % 7).double())
            came += index.tolist()
        assert sorted(came) == np.flatnonzero(epoch.keep).tolist()
    assert [record["observed"] for record in run.history] == [103, 73, 103, 73, 103]
