"""A policy that weighs samples: what observe() returns, and what several processes know of it."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import wrap
from prunedata.policies import LossRanked
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, losses_of, make_pruner


def run_of():
    return make_pruner(policy=LossRanked(), classes=2)


def by_the_core():
    """Each epoch's mask and weights, and the arrays at the end, of a run without a loader."""
    run, epochs = run_of(), []
    for epoch in run.epochs():
        epoch.apply_weights()
        epochs.append((np.flatnonzero(epoch.keep).tolist(), None if epoch.weights is None else epoch.weights.tolist()))
        for ids in epoch.batches(BATCH):
            run.observe(losses_of(ids, epoch.number).numpy(), ids)
    return epochs, _of_policies(run)


def _of_policies(run):
    """Without the mean excess, which is held against batches: these are cut by a sampler's order on ranks."""
    return {name: array.tolist() for name, array in run.arrays.items() if name != "mean_excess"}


@pytest.mark.parametrize("kind", ["map-style", "stream"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_observe_returns_the_weighted_mean_and_records_the_losses_as_they_are(kind, dtype):
    run = run_of()
    items = [{"n": number} for number in range(SAMPLES)]
    loader = DataLoader(Items(), batch_size=BATCH, shuffle=True)
    if kind == "stream":
        loader = DataLoader(prune_stream(items, run, id="n", then=lambda item: (0, item["n"])), batch_size=BATCH)
    loader, weighted = wrap(loader, run), 0
    for number in range(run.schedule.epochs):
        epoch = run.begin_epoch()
        for _, ids in loader:
            losses = losses_of(ids, epoch.number).to(dtype).requires_grad_()
            mean = loader.observe(losses)
            expected = torch.ones(len(ids), dtype=dtype)
            if epoch.weights is not None:
                expected = torch.from_numpy(epoch.weights[ids.numpy()])  # of float32 also beside losses of bfloat16
            assert mean.item() == pytest.approx((expected * losses).mean().item())
            mean.backward()
            assert torch.allclose(losses.grad, (expected / len(ids)).to(dtype))
            weighted += bool((expected > 1).any())
        kept = np.flatnonzero(epoch.keep)
        run.end_epoch()
        recorded = losses_of(kept, epoch.number).to(dtype).double()
        assert run.history[number]["mean_loss"] == pytest.approx(recorded.mean().item())
        assert run.arrays["loss"][kept].tolist() == recorded.tolist()
    assert weighted > 5


def work(rank, folder):
    with group(rank, folder):
        run, epochs = run_of(), []
        sampler = DistributedSampler(Items(), num_replicas=WORLD, rank=rank)
        loader = wrap(DataLoader(Items(), batch_size=BATCH, sampler=sampler), run)
        for epoch in run.epochs():
            weights = None if epoch.weights is None else epoch.weights.tolist()
            epochs.append((np.flatnonzero(epoch.keep).tolist(), weights))
            for _, ids in loader:
                loader.observe(losses_of(ids, epoch.number).requires_grad_()).backward()
    found = [epochs, _of_policies(run)]
    (folder / f"{rank}.json").write_text(json.dumps(found))


def test_all_ranks_select_and_weigh_as_one_process_does(tmp_path):
    expected = json.loads(json.dumps(by_the_core()))
    assert start(work, tmp_path) == [expected] * WORLD
