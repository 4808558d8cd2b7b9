"""A loader that others iterate, copy or keep: iterators that wait, lengths, and one iterator for all epochs."""

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters import iterable
from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import PrunedataError
from tests.adapters.helpers.torch import (
    BATCH,
    SAMPLES,
    Items,
    by_the_core,
    flat,
    loader_of,
    losses_of,
    make_pruner,
    pruned,
    train,
)
from tests.common.programs import WORKERS

# What trainers do with a loader that owns no loop: iterators that are never used, lengths before the run, copies.


class Counted(Items):
    read = 0

    def __getitem__(self, index):
        Counted.read += 1
        return super().__getitem__(index)


def test_an_iterator_that_is_never_used_costs_nothing_and_one_may_be_left():
    pruner, Counted.read = make_pruner(), 0
    loader = wrap(loader_of(Counted()), pruner)

    def with_strays(loader):
        iter(loader)
        next(iter(loader))
        used = iter(loader)
        iter(loader)
        return used

    epochs = train(loader, pruner, batches=with_strays)
    assert [len(flat(epoch)) for epoch in epochs] == [103, 73, 103, 73, 103]
    assert Counted.read == sum(len(flat(epoch)) + BATCH for epoch in epochs)


@WORKERS
def test_a_position_waits_for_the_iterator_that_is_used(workers):
    def build():
        pruner = make_pruner()
        return pruner, wrap(loader_of(kind=StatefulDataLoader, num_workers=workers), pruner)

    pruner, loader = build()
    whole, states = [], None
    pruner.begin_epoch()
    for number, (_, index) in enumerate(loader):
        whole.append(index.tolist())
        loader.observe(losses_of(index, 0))
        if number == 4:
            states = pruner.state_dict(), loader.state_dict()
    pruner, loader = build()
    pruner.load_state_dict(states[0])
    loader.load_state_dict(states[1])
    pruner.begin_epoch()
    iter(loader)
    assert [index.tolist() for _, index in loader] == whole[5:]


def test_a_stream_has_no_lengths():
    pruner = make_pruner()
    stream = iterable.wrap([{"uid": number} for number in range(SAMPLES)], pruner, id="uid")
    with pytest.raises(TypeError, match="has no length"):
        wrap(torch.utils.data.DataLoader(stream, batch_size=BATCH), pruner).lengths()


def test_a_copy_by_its_class_is_refused():
    loader = wrap(loader_of(), make_pruner())
    with pytest.raises(PrunedataError, match="build it anew"):
        type(loader)(loader.dataset, batch_size=BATCH, sampler=loader.sampler)


def test_a_trainer_may_deal_our_own_order():
    """All ranks' shares, one after another: each has as many batches, and together they have what is kept."""
    shares = []
    for rank in range(2):
        pruner, loader = pruned()
        assert not isinstance(loader.sampler, DistributedSampler)
        pruner.attach(TorchRun(pruner)).place = (rank, 2)
        assert isinstance(loader.sampler, DistributedSampler)
        assert len(loader.sampler) == 52
        assert len(loader) == 7
        assert loader.lengths() == [7, 5, 7, 5, 7]
        pruner.begin_epoch()
        shares.append([index.tolist() for _, index in loader])
        assert list(loader.sampler) == flat(shares[-1])
    assert [len(batch) for batch in shares[0]] == [len(batch) for batch in shares[1]]
    assert sorted({*flat(shares[0]), *flat(shares[1])}) == list(range(SAMPLES))


# Loaders that keep one iterator, and with it their workers, for all epochs: refused, and what does the same works.


class Forever:
    """A batch sampler that begins again when it has come to its end."""

    def __init__(self, source):
        self.sampler = source

    def __iter__(self):
        while True:
            yield from self.sampler


class Endless(DataLoader):
    """As in timm and ultralytics: the iterator is made with the loader, and an epoch is a number of its batches."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Forever(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Lazy(Endless):
    """As in newer releases of timm: it is made when the loader is iterated first."""

    def __init__(self, *args, **options):
        DataLoader.__init__(self, *args, **options)
        object.__setattr__(self, "batch_sampler", Forever(self.batch_sampler))
        self.iterator = None

    def __iter__(self):
        self.iterator = DataLoader.__iter__(self) if self.iterator is None else self.iterator
        return super().__iter__()


def test_one_that_is_made_later_is_refused_too():
    loader = Lazy(Items(), batch_size=BATCH, shuffle=True)
    assert [len(list(loader)) for _ in range(2)] == [13, 13]
    with pytest.raises(PrunedataError, match=r"Lazy, which has one for all epochs.*watch\(\)"):
        wrap(Lazy(Items(), batch_size=BATCH, shuffle=True), make_pruner())


@WORKERS
def test_one_iterator_for_all_epochs_is_refused(workers):
    loader = Endless(Items(), batch_size=BATCH, shuffle=True, num_workers=workers)
    assert len(list(loader)) == 13
    with pytest.raises(PrunedataError, match=r"Endless, which has one, in .*'iterator'.*persistent_workers=True"):
        wrap(loader, make_pruner())


class Counting(DataLoader):
    """Has an iterator that is none of a loader."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches = iter(range(3))


def test_the_way_on_works():
    pruner = make_pruner()
    options = {"num_workers": 2, "persistent_workers": True}
    seen = train(wrap(Counting(Items(), batch_size=BATCH, shuffle=True, **options), pruner), pruner)
    assert seen == by_the_core(make_pruner())[1]


class Filtered(DataLoader):
    """As in PyTorch Geometric: what the workers return goes through a function of the loader's own."""

    def _get_iterator(self):
        return (batch * 2 for batch in super()._get_iterator())


def test_an_iterator_that_changes_batches_is_refused_as_it_would_change_ids():
    with pytest.raises(PrunedataError, match=r"Filtered.* ids"):
        wrap(Filtered(Items(), batch_size=BATCH), make_pruner())
