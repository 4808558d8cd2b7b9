"""Who passes over pruned data more than once in an epoch: for a figure, or by mistake."""

import warnings

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, PrunedataError
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, loader_of, losses_of, make_pruner


def observed(loader, epoch):
    for _, ids in loader:
        loader.observe(losses_of(ids, epoch.number))


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("sampler", [None, SubsetRandomSampler(range(SAMPLES))])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_pass_says_that_it_delivers_what_is_kept(kind, sampler, workers):
    run = make_pruner()
    loader = wrap(kind(Items(), BATCH, shuffle=sampler is None, sampler=sampler, num_workers=workers), run)
    told = []
    for epoch in run.epochs():
        observed(loader, epoch)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            came = sorted(int(one) for _, ids in loader for one in ids)
        assert came == np.flatnonzero(epoch.keep).tolist()
        told.append([str(each.message) for each in caught if "second one" in str(each.message)])
    assert [len(each) for each in told] == [0, 1, 0, 0, 0]  # once, in the first epoch that leaves out
    assert "73 kept samples of 103" in told[1][0]


@pytest.mark.parametrize("workers", [0, 2])
def test_looking_at_a_batch_first_says_nothing(workers):
    run = make_pruner()
    loader = wrap(loader_of(num_workers=workers), run)
    for epoch in run.epochs():
        next(iter(loader))
        observed(loader, epoch)


def test_where_accelerate_iterates_it_is_said_too():
    run = make_pruner()
    loader = wrap(DataLoader(TensorDataset(torch.arange(SAMPLES)), BATCH, shuffle=True), run, with_ids=True)
    prepared = Accelerator(cpu=True).prepare(loader)

    def passed_over_twice():
        for epoch in run.epochs():
            for ids, _ in prepared:
                loader.observe(losses_of(ids, epoch.number), ids)
            assert sum(len(ids) for ids, _ in prepared) == epoch.kept

    with pytest.warns(UserWarning, match="73 kept samples of 103") as told:
        passed_over_twice()
    assert len(told) == 1


def test_by_weight_all_come():
    run = make_pruner(leave_out="weight")
    loader = wrap(loader_of(), run)
    for epoch in run.epochs():
        epoch.apply_weights()  # nothing is trained here
        observed(loader, epoch)
        assert sum(len(ids) for _, ids in loader) == SAMPLES


@pytest.mark.parametrize("together", [False, True])
def test_two_loaders_that_each_deliver_all_are_not_both_trained_on(together):
    run = make_pruner()
    first, second = (wrap(loader_of(), run) for _ in range(2))
    epoch = run.begin_epoch()
    if together:
        (_, one), (_, other) = next(iter(first)), next(iter(second))
        first.observe(losses_of(one, 0))
        with pytest.raises(LossError, match="a second one"):
            second.observe(losses_of(other, 0))
    else:
        observed(first, epoch)
        with pytest.raises(LossError, match="a second one"):
            observed(second, epoch)
    run.begin_epoch()
    observed(second, run.current)  # what remains
    run.end_epoch()
    assert run.history[0]["observed"] == SAMPLES


def test_two_loaders_take_turns_and_one_may_be_looked_at():
    run = make_pruner()
    small, large = wrap(loader_of(), run), wrap(DataLoader(Items(), 16, shuffle=True), run)
    for epoch in run.epochs():
        observed((small, large)[epoch.number % 2], epoch)
        assert sum(len(ids) for _, ids in (large, small)[epoch.number % 2]) == epoch.kept
    assert run.visits.max() == 5


@pytest.mark.parametrize("size", [7, 16, 12])
def test_another_batch_size_than_the_pruners_is_refused(size):
    with pytest.raises(PrunedataError, match=f"batch_size={size}"):
        wrap(loader_of(), make_pruner(batch_size=size))


def test_the_batch_size_of_all_ranks_is_not(monkeypatch):
    wrap(loader_of(), make_pruner(batch_size=BATCH))
    sampler = torch.utils.data.DistributedSampler(Items(), 3, 0)
    wrap(loader_of(shuffle=False, sampler=sampler), make_pruner(batch_size=3 * BATCH))
    wrap(DataLoader(Items(), batch_sampler=[range(SAMPLES)]), make_pruner(batch_size=BATCH))
    wrap(DataLoader(Items(), batch_size=None), make_pruner(batch_size=BATCH))
    monkeypatch.setenv("WORLD_SIZE", "2")
    wrap(loader_of(), make_pruner(batch_size=2 * BATCH))
