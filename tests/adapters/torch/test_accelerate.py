"""Accelerate rebuilds a loader around its samplers and fetches one batch ahead of the loop."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from prunedata import PrunedataError, Pruner, Schedule
from prunedata.adapters.torch import prune

SAMPLES = 103


@pytest.mark.parametrize("settings", [{}, {"num_workers": 2}, {"drop_last": True}], ids=str)
def test_a_prepared_loader_delivers_ids_with_their_batches(settings):
    data = TensorDataset(torch.arange(SAMPLES).float(), torch.arange(SAMPLES))
    pruner = Pruner(SAMPLES, Schedule(4, 4, 1, 2, 1), prune=0.3)
    loader = prune(DataLoader(data, batch_size=16, shuffle=True, **settings), pruner, with_ids=True)
    prepared = Accelerator(cpu=True).prepare(loader)
    for epoch in pruner.epochs():
        seen = []
        assert len(prepared) == len(loader)
        for ids, (values, labels) in prepared:
            assert np.array_equal(ids, labels.numpy())
            seen += ids.tolist()
            loader.observe(torch.sin(values), ids)
        cut = epoch.kept % 16 if "drop_last" in settings else 0
        assert len(set(seen)) == len(seen) == epoch.kept - cut
        assert epoch.keep[seen].all()
    assert [record["pruned"] for record in pruner.history] == [False, True, False, True]


def test_what_accelerate_prepared_before_is_refused_with_the_way_to_go():
    data = TensorDataset(torch.arange(SAMPLES).float())
    pruner = Pruner(SAMPLES, Schedule(4, 4, 1, 2, 1), prune=0.3)
    with pytest.raises(PrunedataError, match="prune the loader first, with with_ids=True"):
        prune(Accelerator(cpu=True).prepare(DataLoader(data)), pruner)
