"""Passes over a loader, and over several of one pruner: what each delivers, and what is told."""

import warnings
from itertools import islice

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, SubsetRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, PrunedataError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, loader_of, losses_of, make_pruner, pass_over, pruned
from tests.common.programs import WORKERS

# Who passes over pruned data more than once in an epoch: for a figure, or by mistake.


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("sampler", [None, SubsetRandomSampler(range(SAMPLES))])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_pass_says_that_it_delivers_what_is_kept(kind, sampler, workers):
    run = make_pruner()
    loader = wrap(kind(Items(), BATCH, shuffle=sampler is None, sampler=sampler, num_workers=workers), run)
    told = []
    for epoch in run.epochs():
        pass_over(loader, epoch.number)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            came = sorted(int(one) for _, ids in loader for one in ids)
        assert came == np.flatnonzero(epoch.keep).tolist()
        told.append([str(each.message) for each in caught if "second one" in str(each.message)])
    assert [len(each) for each in told] == [0, 1, 0, 0, 0]  # once, in the first epoch that leaves out
    assert "73 kept samples of 103" in told[1][0]


def test_in_a_resumed_epoch_a_second_pass_says_that_it_delivers_what_remained():
    run = make_pruner()
    run.begin_epoch()
    run.observe(np.ones(40), np.arange(40))
    again = make_pruner()
    again.load_state_dict(run.state_dict())
    loader = wrap(loader_of(), again)
    again.begin_epoch()
    pass_over(loader, 0)
    with pytest.warns(UserWarning, match="the 63 remaining samples of 103 once more"):
        assert sum(len(ids) for _, ids in loader) == 63


def test_where_accelerate_iterates_it_is_said_too():
    run, loader = pruned(with_ids=True)
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
        pass_over(loader, epoch.number)
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
        pass_over(first, epoch.number)
        with pytest.raises(LossError, match="a second one"):
            pass_over(second, epoch.number)
    run.begin_epoch()
    pass_over(second, 0)  # what remains
    run.end_epoch()
    assert run.history[0]["observed"] == SAMPLES


def test_two_loaders_take_turns_and_one_may_be_looked_at():
    run = make_pruner()
    small, large = wrap(loader_of(), run), wrap(DataLoader(Items(), 16, shuffle=True), run)
    for epoch in run.epochs():
        pass_over((small, large)[epoch.number % 2], epoch.number)
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


# Several loaders of one run, each over a part of the samples: the epoch is whole when each was observed whole.


FIRST, SECOND = range(60), range(60, 100)
"""Parts. The last three samples are in none."""


def make(parts=(FIRST, SECOND), workers=0, policy=None, **options):
    pruner = make_pruner(**({} if policy is None else {"policy": policy}))
    return pruner, [
        wrap(DataLoader(Items(), BATCH, sampler=SubsetRandomSampler(part), num_workers=workers, **options), pruner)
        for part in parts
    ]


def observe(pruner, batches, loader):
    for _, index in batches:
        if pruner.policy.needs_losses:
            loader.observe(losses_of(index, pruner.next_epoch))


@WORKERS
@pytest.mark.parametrize("policy", [None, Random()], ids=["DroppingCount", "Random"])
@pytest.mark.parametrize("left", [0, 1])
def test_one_that_is_left_early_is_told(left, policy, workers):
    pruner, loaders = make(workers=workers, policy=policy)
    pruner.begin_epoch()
    for number, loader in enumerate(loaders):
        observe(pruner, islice(loader, 3 if number == left else None), loader)
    absent = SAMPLES - 24 - (40, 60)[left]
    # Workers may have asked the sampler for all that it gives: then it is known to leave out three.
    with pytest.raises(SkippedSamples, match=rf"Got ({absent}|{absent - 3}) that .* did not deliver \1 of them"):
        pruner.end_epoch()


def test_batches_that_are_forgotten_are_told_wherever_they_came_from():
    pruner, loaders = make()
    pruner.begin_epoch()
    for loader in loaders:
        for number, (_, index) in enumerate(loader):
            if number:
                loader.observe(losses_of(index, 0), index)
    with pytest.raises(SkippedSamples, match=r"Expected all 100 kept .* Got 16 that .* 16 of them were delivered, but"):
        pruner.end_epoch()


@WORKERS
@pytest.mark.parametrize("policy", [None, Random()], ids=["DroppingCount", "Random"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_what_none_of_them_gives_may_be_missing(drop_last, policy, workers):
    pruner, loaders = make(workers=workers, policy=policy, drop_last=drop_last)
    for epoch in pruner.epochs():
        delivered = 0
        for loader in loaders:
            observe(pruner, loader, loader)
            kept = sum(bool(epoch.keep[index]) for index in (FIRST, SECOND)[loaders.index(loader)])
            delivered += kept - kept % BATCH * drop_last
        if epoch.number and pruner.policy.needs_losses:
            assert delivered < epoch.kept
    assert pruner.next_epoch == 5


def test_they_may_be_iterated_in_turns():
    pruner, loaders = make()
    for epoch in pruner.epochs():
        waiting = [iter(loader) for loader in loaders]
        for batches, loader in zip(waiting, loaders, strict=True):
            observe(pruner, islice(batches, 2), loader)
        for batches, loader in zip(waiting, loaders, strict=True):
            observe(pruner, batches, loader)
        assert epoch.number == pruner.next_epoch
    assert pruner.history[0]["observed"] == 100


def test_a_pass_that_only_looks_at_a_batch_gives_way_to_the_next():
    pruner, loaders = make()
    for _ in pruner.epochs():
        for loader in loaders:
            next(iter(loader))
            observe(pruner, loader, loader)
    assert pruner.history[0]["observed"] == 100


@pytest.mark.parametrize("again", [lambda pruner: pruner.begin_epoch(), lambda pruner: None], ids=["begun", "loaded"])
def test_a_loop_that_was_left_gives_what_remains(again):
    pruner, loaders = make()
    pruner.begin_epoch()
    observe(pruner, islice(loaders[0], 3), loaders[0])
    observe(pruner, loaders[1], loaders[1])
    if again(pruner) is None:
        state = pruner.state_dict()
        pruner, loaders = make()
        pruner.load_state_dict(state)
        pruner.begin_epoch()
    for loader in loaders:
        observe(pruner, loader, loader)
    pruner.end_epoch()
    assert pruner.history[0]["observed"] == 100
    assert pruner.visits[:100].tolist() == [1] * 100


def test_what_the_whole_order_keeps_is_not_skipped_by_a_part():
    pruner, (part, _) = make()
    whole = wrap(DataLoader(Items(), BATCH, shuffle=True), pruner)
    pruner.begin_epoch()
    observe(pruner, islice(whole, 3), whole)
    observe(pruner, part, part)
    with pytest.raises(SkippedSamples):
        pruner.end_epoch()
