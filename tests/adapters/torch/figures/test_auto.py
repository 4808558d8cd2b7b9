"""policy="auto" behind a DataLoader: its length and what it delivers follow the turn from the next epoch on."""

import pytest
import torch
from torch.utils.data import DataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

SAMPLES, WRONG, EPOCHS = 120, 36, 14


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_follows_the_advice(workers):
    pruner = Pruner(SAMPLES, Schedule.steady(EPOCHS), prune=0.5, policy="auto")
    persistent = {"persistent_workers": True} if workers else {}
    loader = wrap(DataLoader(Numbers(), batch_size=10, shuffle=True, num_workers=workers, **persistent), pruner)
    delivered, lengths = [], []
    for epoch in pruner.epochs():
        lengths.append(len(loader))
        seen = []
        for ids in loader:
            seen += ids.tolist()
            loader.observe(torch.where(ids < WRONG, 3.0, 1.0 / (1 + epoch.number)) + 0.001 * ids)
        delivered.append(sorted(seen))
        pruner.validated(50 + epoch.number - 4 * max(0, epoch.number - 5))
    assert pruner.advice.verdict == "prune"
    pruned, watched = pruner.advice.prune, pruner.advice.onset + 1
    rest = EPOCHS - watched
    assert rest > 2
    assert [len(ids) for ids in delivered] == [SAMPLES] * watched + [SAMPLES - pruned] * rest
    assert lengths == [12] * watched + [-(-(SAMPLES - pruned) // 10)] * rest
    assert all(len(set(ids)) == len(ids) for ids in delivered)
    assert not set(delivered[-1]) & set(range(WRONG))
