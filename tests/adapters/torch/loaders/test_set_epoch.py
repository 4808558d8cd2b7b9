"""A sampler of the user's own that is told the epoch, by whoever trains: its attributes are those of the loader's."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Sampler

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, flat, losses_of, make_pruner
from tests.adapters.lightning.helpers import QUIET, Net, data, trainer_of
from tests.common.programs import WORKERS


class Seeded(Sampler):
    """Another order in each epoch that it is told."""

    def __init__(self, samples=SAMPLES):
        self.samples, self.epoch, self.told = samples, 0, []

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.told.append(epoch)

    def order(self):
        return np.random.default_rng(self.epoch).permutation(self.samples).tolist()

    def __len__(self):
        return self.samples

    def __iter__(self):
        return iter(self.order())


class SeededBatches(Seeded):
    """The same, as a batch sampler."""

    batch_size, drop_last = BATCH, False

    def __len__(self):
        return (self.samples + BATCH - 1) // BATCH

    def __iter__(self):
        order = self.order()
        return (order[first : first + BATCH] for first in range(0, self.samples, BATCH))


class Around(SeededBatches):
    """A batch sampler that knows nothing of epochs, but has a sampler that does."""

    set_epoch = property()  # hasattr says no

    def __init__(self, sampler):
        self.sampler, self.samples = sampler, sampler.samples

    def order(self):
        return self.sampler.order()


def options_of(kind, samples=SAMPLES):
    """The loader's options, and the object that is to be told."""
    source = Seeded(samples) if kind in ("sampler", "around") else SeededBatches(samples)
    if kind == "sampler":
        return {"sampler": source, "batch_size": BATCH}, source
    if kind == "no batches":
        return {"sampler": source, "batch_size": None}, source
    return {"batch_sampler": Around(source) if kind == "around" else source}, source


def kept_of(source, epoch, keep):
    return [index for index in np.random.default_rng(epoch).permutation(source.samples).tolist() if keep[index]]


@WORKERS
@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "around"])
def test_a_loop_that_tells_what_the_loader_has(kind, workers):
    options, source = options_of(kind)
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), num_workers=workers, **options), pruner)
    orders = []
    for epoch in pruner.epochs():
        for sampler in (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch.number)
        seen = []
        for _, index in loader:
            seen.append(index.tolist())
            loader.observe(losses_of(index, epoch.number))
        orders.append(flat(seen))
        assert orders[-1] == kept_of(source, epoch.number, epoch.keep)
    assert orders[0] != orders[2]


@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "around"])
def test_accelerate_tells_it(kind):
    options, source = options_of(kind)
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), **options), pruner, with_ids=True)
    prepared = Accelerator(cpu=True).prepare(loader)
    for epoch in pruner.epochs():
        seen = []
        for ids, (_, index) in prepared:
            seen += ids.tolist()
            loader.observe(losses_of(index, epoch.number), ids)
        assert seen == kept_of(source, epoch.number, epoch.keep)
    assert set(source.told) == set(range(5))


@pytest.mark.parametrize("kind", ["sampler", "around"])
def test_lightning_tells_it(kind):
    """It looks at a loader's sampler, and at its batch sampler's."""
    options, source = options_of(kind, 48)
    pruner, net = Pruner(48, Schedule(4, 4, 1, 2, 1), prune=0.25, seed=5), Net(schedule=False)
    masks, begin = [], pruner.begin_epoch

    def noted():
        masks.append(begin().keep)
        return pruner.current

    pruner.begin_epoch = noted
    trainer_of(pruner, max_epochs=4).fit(net, wrap(DataLoader(data(48), **options), pruner))
    for epoch, batches in net.epochs.items():
        assert flat(batches) == kept_of(source, epoch, masks[epoch])
    assert set(source.told) == set(range(4))


test_lightning_tells_it.pytestmark += QUIET


class TestAttributes:
    def test_are_those_of_the_users_own(self):
        options, source = options_of("batch sampler")
        loader = wrap(DataLoader(Items(), **options), make_pruner())
        loader.batch_sampler.epoch = 7
        loader.batch_sampler.new = "mine"
        assert (source.epoch, source.new) == (7, "mine")
        assert loader.batch_sampler.batch_size == BATCH
        assert loader.batch_sampler.order() == source.order()

    def test_that_it_lacks_are_not_there(self):
        pruner = make_pruner()
        plain = [DataLoader(Items(), batch_size=BATCH, sampler=list(range(SAMPLES)))]
        plain += [DataLoader(Items(), batch_size=BATCH, sampler=RandomSampler(Items()))]
        for loader in (*plain, *(wrap(each, pruner) for each in plain)):
            for sampler in (loader.sampler, loader.batch_sampler, loader.batch_sampler.sampler):
                assert not hasattr(sampler, "set_epoch")
        options, _ = options_of("around")
        loader = wrap(DataLoader(Items(), **options), pruner)
        assert not hasattr(loader.batch_sampler, "set_epoch")
        with pytest.raises(AttributeError, match=r"'StandIn' object has no attribute 'other'"):
            _ = wrap(plain[1], pruner).sampler.other

    def test_of_a_batch_sampler_in_the_place_of_the_sampler(self):
        options, source = options_of("no batches")
        loader = wrap(DataLoader(Items(), **options, collate_fn=list), make_pruner())
        loader.sampler.set_epoch(3)
        assert source.told == [3]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_distributed_sampler_may_be_told_and_the_order_is_ours(ranks):
    sampler = DistributedSampler(Items(), num_replicas=ranks, rank=0)
    pruner, quiet = make_pruner(), make_pruner()
    loaders = [wrap(DataLoader(Items(), batch_size=BATCH, sampler=sampler), each) for each in (pruner, quiet)]
    for epoch in (pruner.begin_epoch(), quiet.begin_epoch()):
        assert epoch.number == 0
    loaders[0].sampler.set_epoch(4)
    assert torch.equal(*(torch.cat([index for _, index in loader]) for loader in loaders))
