"""Two and three real processes keep what one process keeps of what the network takes samples for."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch import wrap
from tests.adapters.helpers.ranks import group, start
from tests.adapters.helpers.torch import SAMPLES, Items, losses_of, make_pruner

CLASSES = 5
LABELS = np.arange(SAMPLES) % CLASSES


def logits_of(ids, epoch):
    rows = [np.random.default_rng((epoch, int(one))).normal(size=CLASSES) for one in ids]
    return torch.from_numpy(np.stack(rows))


def trained(rank, world, *, alone):
    """Three epochs; with `alone` only the first rank gives logits, and none in the first epoch."""
    pruner = make_pruner(labels=LABELS)
    sampler = DistributedSampler(Items(), num_replicas=world, rank=rank)
    loader = wrap(DataLoader(Items(), batch_size=4, sampler=sampler), pruner, with_ids=True)
    for epoch in pruner.epochs():
        for ids, _ in loader:
            own = ids[ids >= 0] % SAMPLES
            silent = alone and (rank or not epoch.number)
            logits = None if silent or len(own) != len(ids) else logits_of(own, epoch.number)
            loader.observe(losses_of(ids % SAMPLES, epoch.number), ids, logits=logits)
    guess = pruner.arrays["guess"]
    return {"guess": guess.tolist(), "counts": pruner.counts.tolist()}


def go(rank, folder, world, alone):
    with group(rank, folder, world=world):
        (folder / f"{rank}.json").write_text(json.dumps(trained(rank, world, alone=alone)))


def of_two(rank, folder):
    go(rank, folder, 2, alone=False)


def of_three_with_one_that_knows(rank, folder):
    go(rank, folder, 3, alone=True)


def test_ranks_keep_what_one_process_keeps(tmp_path):
    expected = trained(0, 1, alone=False)
    for found in start(of_two, tmp_path, 2):
        same = np.array(found["guess"]) == expected["guess"]
        assert same.mean() > 0.9  # but for what padded the last batches, in whose place no logits were given
        assert (np.array(found["guess"]) != LABELS).all()


@pytest.mark.parametrize("work", [of_two, of_three_with_one_that_knows])
def test_all_ranks_have_the_same(tmp_path, work):
    first, *rest = start(work, tmp_path, 2 if work is of_two else 3)
    assert all(each == first for each in rest)
    assert max(first["guess"]) > 0
