"""The traps of map-style PyTorch data: what reaches the loop, and which losses are recorded for which samples."""

import copy
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
import webdataset as wds
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, NotInEpoch, PrunedataError
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
    second,
    train,
)

Pair = namedtuple("Pair", "features index")

HOW = {
    "0 workers": {},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "prefetch": {"num_workers": 2, "prefetch_factor": 5},
    "spawn": {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "spawn"},
    "forkserver": {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "forkserver"},
}


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        *((DataLoader, workers) for workers in ("0 workers", "persistent", "prefetch")),
        (StatefulDataLoader, "persistent"),
        # Their workers import PyTorch anew.
        *(pytest.param(DataLoader, method, marks=pytest.mark.slow) for method in ("spawn", "forkserver")),
    ],
)
def test_each_epoch_has_its_kept_samples_once_in_the_order_of_the_core(kind, workers):
    pruner = make_pruner()
    seen = train(wrap(loader_of(kind=kind, **HOW[workers]), pruner), pruner)
    kept, batches = by_the_core(make_pruner())
    assert seen == batches
    assert [len(ids) for ids in kept] == [103, 73, 103, 73, 103]
    assert kept[1] != kept[3], "a loader that goes on with its first mask is seen"


def test_sequential_loaders_stay_sequential():
    pruner = make_pruner()
    seen = train(wrap(loader_of(shuffle=False), pruner), pruner)
    assert seen[0][0] == list(range(BATCH))
    assert all(flat(batches) == sorted(flat(batches)) for batches in seen)


def test_out_of_order_workers_cannot_part_a_batch_from_its_ids():
    """A queue of sampler indices beside the loader would be wrong here."""
    pruner = make_pruner()
    seen = train(wrap(loader_of(Items(slow=True), num_workers=2, in_order=False), pruner), pruner)
    assert seen[0] != by_the_core(make_pruner())[1][0]


@pytest.mark.parametrize(
    ("ahead", "message"),
    [
        (0, r"Got 2: the loop fetches batches ahead or leaves some unobserved.* with_ids=True"),
        (1, r"Expected at most 2 batches that wait for their losses\. Got 3"),
    ],
)
def test_more_batches_that_wait_than_are_fetched_ahead_are_told(ahead, message):
    pruner, loader = pruned(ahead=ahead)
    pruner.begin_epoch()
    batches = iter(loader)
    for _ in range(ahead + 2):
        _, index = next(batches)
    with pytest.raises(LossError, match=message):
        loader.observe(losses_of(index, 0))
    assert pruner.counts.sum() == 0


def test_ids_that_were_delivered_are_asked_for():
    pruner, loader = pruned(with_ids=True)
    pruner.begin_epoch()
    ids, (_, index) = next(iter(loader))
    assert ids.dtype == np.int64
    assert ids.tolist() == index.tolist()
    with pytest.raises(LossError, match=r"Expected observe\(losses, ids\)"):
        loader.observe(losses_of(ids, 0))


def test_ids_of_the_users_own_are_refused_where_they_are_other_samples():
    pruner, loader = pruned()
    pruner.begin_epoch()
    batches = iter(loader)
    (_, index), (_, later) = next(batches), next(batches)  # a loop that fetches ahead
    with pytest.raises(LossError, match=r"Expected the ids of samples that the loader has delivered.*Got others for "):
        pruner.observe(losses_of(index, 0), (index + 1) % SAMPLES)
    assert pruner.visits.sum() == 0
    for ids in (index[1:], later):  # of a batch, or of some of its samples
        pruner.observe(losses_of(ids, 0), ids)
    assert pruner.visits.sum() == 2 * BATCH - 1


def as_dict(items):
    return {"nested": {"index": torch.tensor([index for _, index in items])}}


class Dicts(Items):
    def __getitem__(self, index):
        return {"index": super().__getitem__(index)[1]}


class Many(Dicts):
    def __getitems__(self, indices):
        return [{"index": index} for index in indices]

    def __getitem__(self, index):
        raise AssertionError("Expected a call of __getitems__.")


class Pairs(Items):
    def __getitem__(self, index):
        return Pair(*super().__getitem__(index))


class Ids(Items):
    def __getitem__(self, index):
        return super().__getitem__(index)[1]


@pytest.mark.parametrize(
    ("dataset", "options", "read"),
    [
        (Dicts(), {}, lambda batch: batch["index"]),
        (Many(), {}, lambda batch: batch["index"]),
        (Items(), {"collate_fn": as_dict}, lambda batch: batch["nested"]["index"]),
        (Pairs(), {}, lambda batch: batch.index),
        (Ids(), {}, lambda batch: batch),
        (Ids(), {"collate_fn": list}, lambda batch: batch),
        (TensorDataset(torch.arange(SAMPLES)), {}, lambda batch: batch[0]),
        (ConcatDataset([Items(60), Items(43, first=60)]), {}, second),
        (Subset(Items(500), range(400, 400 - SAMPLES, -1)), {}, lambda batch: 400 - batch[1]),
    ],
    ids=["dict", "getitems", "collate", "namedtuple", "bare", "list", "tensors", "concat", "subset"],
)
def test_batches_keep_their_structure_and_ids_are_positions(dataset, options, read):
    pruner, kinds = make_pruner(), set()
    plain = loader_of(dataset, **options)

    def reading(batch):
        kinds.add(type(batch))
        return read(batch)

    assert train(wrap(plain, pruner), pruner, reading) == by_the_core(make_pruner())[1]
    assert kinds == {type(next(iter(plain)))}


class Moving:
    """As many a loader that moves its batches to a device."""

    def __init__(self, *args, note, **options):
        super().__init__(*args, **options)
        self.note = note

    def __iter__(self):
        for features, index in super().__iter__():
            yield features.double(), index

    def noted(self):
        return f"{self.note}, {len(self)}"


class MovingPlain(Moving, DataLoader):
    pass


class MovingStateful(Moving, StatefulDataLoader):
    pass


class TestTheLoader:
    @pytest.mark.parametrize("kind", [MovingPlain, MovingStateful])
    def test_is_of_its_own_class(self, kind):
        pruner, loader = pruned(kind=kind, note="mine")
        assert isinstance(loader, kind)
        assert loader.noted() == "mine, 13"

        def read(batch):
            assert batch[0].dtype == torch.float64
            return batch[1]

        assert train(loader, pruner, read) == by_the_core(make_pruner())[1]

    def test_given_is_left_as_it_was(self):
        given = loader_of(num_workers=2, persistent_workers=True)
        next(iter(given))  # its workers have begun
        before = dict(vars(given))
        pruner = make_pruner()
        train(wrap(given, pruner), pruner)
        assert {name: value for name, value in vars(given).items() if name != "_iterator"} == {
            name: value for name, value in before.items() if name != "_iterator"
        }
        assert sorted(index for _, indices in given for index in indices.tolist()) == list(range(SAMPLES))

    def test_given_may_have_a_position(self):
        given = loader_of(kind=StatefulDataLoader)
        next(iter(given))
        given.load_state_dict(given.state_dict())
        pruner = make_pruner()
        assert train(wrap(given, pruner), pruner) == by_the_core(make_pruner())[1]
        given.load_state_dict({})
        given.state_dict()  # begins an iterator that its next iter() would take
        pruner = make_pruner()
        assert train(wrap(given, pruner), pruner) == by_the_core(make_pruner())[1]

    def test_reaches_the_users_dataset(self):
        items = Items()
        loader = wrap(loader_of(items), make_pruner())
        assert loader.dataset.classes is items.classes
        assert len(loader.dataset) == SAMPLES
        assert not hasattr(loader.dataset, "transform")
        loader.dataset.scale = 2.0
        assert items.scale == 2.0

    def test_starts_its_workers_as_the_user_says(self):
        pruner, loader = pruned(num_workers=2, worker_init_fn=double)
        pruner.begin_epoch()
        assert all((features[:, 2] == 2).all() for features, _ in loader)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_its_workers_find_the_users_dataset(self, method):
        dataset = Subset(Items(), range(SAMPLES))
        loader = loader_of(dataset, num_workers=1, multiprocessing_context=method, worker_init_fn=double_the_innermost)
        pruner = make_pruner()
        loader = wrap(loader, pruner)
        assert isinstance(loader.dataset, Subset)
        assert isinstance(loader.dataset.dataset, Items)
        pruner.begin_epoch()
        assert all((features[:, 2] == 2).all() for features, _ in loader)


def double(worker):
    get_worker_info().dataset.scale = 2.0


def double_the_innermost(worker):
    dataset = get_worker_info().dataset
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    dataset.scale = 2.0


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(SAMPLES))


class Unsized(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return index


class TestErrors:
    def test_a_pruner_that_does_not_know_its_samples_names_the_loader_to_wrap(self):
        with pytest.raises(PrunedataError, match=r"Got a tests\..*\.Items: wrap the loader, not its dataset"):
            Pruner(epochs=3).wrap(Items())

    def test_outside_an_epoch(self):
        pruner, loader = pruned()
        with pytest.raises(NotInEpoch, match=r"for epoch in pruner\.epochs"):
            iter(loader)
        with pytest.raises(NotInEpoch):
            next(iter(loader))
        train(loader, pruner)
        with pytest.raises(NotInEpoch):
            iter(loader)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (Items, r"DataLoader\. Got a tests\..*\.Items: wrap the loader, not its dataset"),
            (lambda: iter(loader_of()), r"Got a torch\..*\._SingleProcessDataLoaderIter: wrap the loader"),
            (type("DataLoader", (), {"__module__": "grain"}), r"Got a grain\.DataLoader, of another library"),
            (lambda: wds.WebLoader(Items()), r"Got a webdataset\..*\.WebLoader, .* make the DataLoader yourself"),
            (lambda: DataLoader(Stream()), "Expected a map-style dataset.* Got the IterableDataset Stream"),
            (lambda: loader_of(Items(104)), "Expected a dataset of 103 samples.* Got one of 104"),
            (lambda: DataLoader(Unsized(), sampler=range(9)), "Expected a dataset of 103 samples.* Got one of None"),
            (lambda: wrap(loader_of(), make_pruner()), r"Got the result of wrap\(\)"),
        ],
        ids=["dataset", "iterator", "another library's", "WebLoader", "iterable", "number", "unsized", "twice"],
    )
    def test_at_once(self, given, message):
        with pytest.raises(PrunedataError, match=message):
            wrap(given(), make_pruner())


def test_a_pickle_is_refused_and_a_copy_is_the_same_loader():
    """As for the Pruner, without which it means nothing."""
    pruner, loader = pruned()
    for refused in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"stays with its Pruner, in one process"):
            refused(loader)
    twin = copy.copy(loader)
    pruner.begin_epoch()
    assert type(twin) is type(loader)
    assert [second(batch).tolist() for batch in twin] == [second(batch).tolist() for batch in loader]
