"""policy="auto" behind a DataLoader: its length and what it delivers follow the advice from the epoch on."""

import pytest
import torch
from torch.utils.data import DataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import prune

SAMPLES, WRONG, WATCHED = 120, 36, 5


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_follows_the_advice(workers):
    pruner = Pruner(SAMPLES, Schedule(8, 8, 7, 1, 0), prune=0.5, policy="auto", classes=10)
    persistent = {"persistent_workers": True} if workers else {}
    loader = prune(DataLoader(Numbers(), batch_size=10, shuffle=True, num_workers=workers, **persistent), pruner)
    delivered, lengths = [], []
    for epoch in pruner.epochs():
        lengths.append(len(loader))
        seen = []
        for ids in loader:
            seen += ids.tolist()
            loader.observe(torch.where(ids < WRONG, 3.0, 1.0 / (1 + epoch.number)) + 0.001 * ids)
        delivered.append(sorted(seen))
    pruned = pruner.advice.prune
    assert pruner.advice.verdict == "prune"
    assert [len(ids) for ids in delivered] == [SAMPLES] * WATCHED + [SAMPLES - pruned] * 3
    assert lengths == [12] * WATCHED + [-(-(SAMPLES - pruned) // 10)] * 3
    assert all(len(set(ids)) == len(ids) for ids in delivered)
    assert not set(delivered[-1]) & set(range(WRONG))
