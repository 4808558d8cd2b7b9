"""Left out by weight from a WebDataset: every sample of the shards comes, and the mean is over those that count."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prunedata.adapters.torch import wrap as prune_loader
from prunedata.adapters.webdataset import ShardIndex, wrap
from tests.adapters.helpers.shards import SAMPLES, SIZES, dataset, start, write_shards
from tests.adapters.helpers.torch import losses_of

LEFT = 5
"""Batches after which a pruned epoch is left."""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return ShardIndex.scan(write_shards(tmp_path_factory.mktemp("shards"), SIZES))


def loader_of(run, index, workers, *, batched=False):
    pairs = wrap(dataset(index), run, index).shuffle(20, seed=1).decode().to_tuple("uid").map_tuple(int)
    if batched:
        return prune_loader(DataLoader(pairs.batched(8), batch_size=None, num_workers=workers), run)
    return prune_loader(DataLoader(pairs, batch_size=8, num_workers=workers), run)


def train(run, loader, leave=None):
    """Check the mean of each batch, and return the batches of each epoch."""
    came = {}
    for epoch in run.epochs():
        counted = np.ones(SAMPLES, bool) if not epoch.zero_weights else epoch.trained
        of = came.setdefault(epoch.number, [])
        for number, (uids,) in enumerate(loader, 1):
            losses = torch.as_tensor(losses_of(uids, epoch.number)).requires_grad_()
            mean = loader.observe(losses)
            mean.backward()
            expected = torch.from_numpy(counted[uids]) / max(1, counted[uids].sum())
            torch.testing.assert_close(losses.grad, expected, check_dtype=False)
            assert mean.item() == pytest.approx((losses.detach() * expected).sum().item())
            of.append(uids.numpy())
            if epoch.zero_weights and number == leave:
                return came
    return came


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_all_samples_come_and_the_masks_are_those_of_leaving_out(index, workers, batched):
    run, shorter = start(leave_out="weight"), start()
    came = train(run, loader_of(run, index, workers, batched=batched))
    assert [sorted(np.concatenate(batches)) for batches in came.values()] == [list(range(SAMPLES))] * 5
    for epoch in shorter.epochs():  # the same batches, less what is left out
        for ids in (ids[epoch.keep[ids]] for ids in came[epoch.number]):
            if len(ids):
                shorter.observe(losses_of(ids, epoch.number), ids)
    assert [record["observed"] for record in run.history] == [record["kept"] for record in shorter.history]
    assert run.visits.tolist() == shorter.visits.tolist()
    assert run.counts.tolist() == shorter.counts.tolist()
    assert run.saved["visits_by_weight"] == shorter.saved["visits_saved"] == 2 * 36


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_was_left_gives_what_was_not_observed(index, workers):
    run = start(leave_out="weight")
    first = train(run, loader_of(run, index, workers), leave=LEFT)
    state, number = run.state_dict(), max(first)
    assert len(first[number]) == LEFT
    later = start(leave_out="weight")
    later.load_state_dict(state)
    rest = train(later, loader_of(later, index, workers))
    assert sorted(np.concatenate(first[number] + rest[number])) == list(range(SAMPLES))
    assert [record["observed"] for record in later.history] == [90, 54, 90, 54, 90]
