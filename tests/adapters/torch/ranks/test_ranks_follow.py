"""Two real processes go on with rows that have moved: each knows of each row what one process knows."""

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.policies import BoundedLoss
from tests.adapters.helpers.ranks import WORLD, group, start, told
from tests.adapters.helpers.torch import losses_of

ROWS, NOW = list(range(40)), [41, *range(33, 3, -1), 40]
SCHEDULE = Schedule(5, window=5, start=1, block=2, pruned_per_block=1)


def build(rows, rank, world, **options):
    pruner = Pruner(len(rows), SCHEDULE, prune=8, policy=BoundedLoss(), keys=[f"row {row}" for row in rows], **options)
    sampler = DistributedSampler(rows, num_replicas=world, rank=rank, seed=1)
    return pruner, wrap(DataLoader(torch.tensor(rows), batch_size=4, sampler=sampler), pruner, uneven="weights")


def train(pruner, loader, epochs):
    for epoch in pruner.epochs():
        for rows in loader:
            loader.observe(losses_of(rows, epoch.number))
        epochs -= 1
        if not epochs:
            pruner.end_epoch()
            break


def followed(rank, world):
    """Two epochs, and with other rows all the rest."""
    before, loader = build(ROWS, rank, world)
    train(before, loader, 2)
    pruner, loader = build(NOW, rank, world, follow=True)
    pruner.load_state_dict(before.state_dict())
    begun = {"visits": pruner.visits.tolist(), "doubt": pruner.arrays["doubt"].tolist()}
    train(pruner, loader, 3)
    ended = {"visits": pruner.visits.tolist(), "doubt": pruner.arrays["doubt"].tolist()}
    return {"begun": begun, "ended": ended, "kept": [record["kept"] for record in pruner.history]}


def other_keys(rank):
    pruner, loader = build(NOW if rank else NOW[::-1], rank, WORLD)
    return told(lambda: train(pruner, loader, 1))


def go(rank, folder):
    with group(rank, folder):
        return followed(rank, WORLD) | {"other keys": other_keys(rank)}


def test_ranks_follow_their_rows_as_one_process_does(tmp_path):
    expected = followed(0, 1)
    assert {row for row, visits in zip(NOW, expected["begun"]["visits"], strict=True) if not visits} == {40, 41}
    for found in start(go, tmp_path):
        assert "checksum of keys" in found["other keys"]  # refused
        assert found["kept"] == expected["kept"]
        for when in ("begun", "ended"):
            assert found[when]["visits"] == expected[when]["visits"]
            assert np.array_equal(found[when]["doubt"], expected[when]["doubt"])
