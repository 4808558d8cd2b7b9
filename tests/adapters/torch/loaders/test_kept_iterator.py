"""Loaders that keep one iterator, and with it their workers, for all epochs: refused, and what does the same works."""

import pytest
from torch.utils.data import DataLoader

from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError
from tests.adapters.helpers.torch import BATCH, Items, by_the_core, make_pruner, train
from tests.common.marks import WORKERS


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
