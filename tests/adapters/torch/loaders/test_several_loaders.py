"""Several loaders of one run, each over a part of the samples: the epoch is whole when each was observed whole."""

from itertools import islice

import pytest
from torch.utils.data import DataLoader, SubsetRandomSampler

from prunedata.adapters.torch import wrap
from prunedata.errors import SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, losses_of, make_pruner
from tests.common.marks import WORKERS

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
