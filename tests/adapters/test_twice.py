"""Batches that are kept from an earlier epoch, and a pass that is left and begun again: told, or exact."""

from itertools import islice

import numpy as np
import pytest
import tensorflow as tf
import torch
from torch.utils.data import DataLoader

from prunedata import Pruner
from prunedata.adapters import iterable, tensorflow, webdataset
from prunedata.adapters import torch as adapter
from prunedata.errors import LossError
from tests.adapters.helpers.shards import CHANGING, SIZES, dataset, write_shards
from tests.adapters.helpers.torch import losses_of
from tests.common.programs import WORKERS

SAMPLES = sum(SIZES)


def start():
    return Pruner(SAMPLES, CHANGING, prune=0.4, seed=5)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return webdataset.ShardIndex.scan(write_shards(tmp_path_factory.mktemp("shards"), SIZES))


def of_torch(pruner, index, workers):
    data = torch.utils.data.TensorDataset(torch.arange(SAMPLES))
    return adapter.wrap(DataLoader(data, batch_size=8, num_workers=workers), pruner, with_ids=True)


def of_iterable(pruner, index, workers):
    stream = iterable.wrap([{"uid": number} for number in range(SAMPLES)], pruner, id="uid")
    return DataLoader(stream, batch_size=8, num_workers=workers)


def of_stream_in_torch(pruner, index, workers):
    stream = iterable.wrap([{"uid": number} for number in range(SAMPLES)], pruner, id="uid")
    return adapter.wrap(DataLoader(stream, batch_size=8, num_workers=workers), pruner, with_ids=True)


def of_webdataset(pruner, index, workers):
    pruned = webdataset.wrap(dataset(index), pruner, index).to_tuple("uid", "cls").map_tuple(int, int)
    return DataLoader(pruned, batch_size=8, num_workers=workers)


def of_tensorflow(pruner, index, workers):
    pairs = tensorflow.wrap(tf.data.Dataset.range(SAMPLES), pruner)
    return pairs.map(lambda number, item: (number, item), num_parallel_calls=workers or None).batch(8)


ADAPTERS = (of_torch, of_iterable, of_stream_in_torch, of_webdataset, of_tensorflow)


@pytest.fixture(scope="module", params=ADAPTERS, ids=lambda make: make.__name__)
def make(request):
    """How an adapter's loader is made: each runs all tests before the next one, and TensorFlow is the last."""
    return request.param


@pytest.fixture
def case(request, make, index):
    """A pruner, what is iterated, and a function that observes a batch of it."""
    pruner = start()
    workers = getattr(request.node, "callspec", None)
    workers = 0 if workers is None else workers.params.get("workers", 0)
    loader = make(pruner, index, workers)

    def observe(batch):
        ids = np.array(np.asarray(batch[0]))
        losses = losses_of(ids, pruner.next_epoch)
        loader.observe(losses, ids) if hasattr(loader, "observe") else pruner.observe(losses, ids)

    return pruner, loader, observe


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_kept_from_the_first_epoch_are_told_in_the_first_that_is_pruned(case, workers):
    pruner, loader, observe = case
    kept = []

    def train():
        for _ in pruner.epochs():
            kept[:] = kept or list(loader)
            for batch in kept:
                observe(batch)

    with pytest.raises(LossError, match=r"36 (that are pruned|pruned samples)"):
        train()
    assert [record["kept"] for record in pruner.history] == [SAMPLES]


@WORKERS
def test_a_pass_that_is_left_and_begun_again_in_one_epoch_is_told(case, workers):
    pruner, loader, observe = case

    def train():
        for _ in pruner.epochs():
            for batch in islice(loader, 3):
                observe(batch)
            for batch in loader:
                observe(batch)

    with pytest.raises(LossError, match=r"several passes|passes over the stream|Expected one pass over the loader"):
        train()
    assert pruner.history == []


def test_a_run_that_is_left_and_gone_on_with_counts_each_sample_once(case):
    pruner, loader, observe = case
    for stop in (0, 1, 2, 3):
        for epoch in pruner.epochs():
            if epoch.number == stop:
                for batch in islice(loader, 2):
                    observe(batch)
                break
            for batch in loader:
                observe(batch)
        assert pruner.next_epoch == stop
    kept = np.zeros(SAMPLES, dtype=int)
    for epoch in pruner.epochs():
        for batch in loader:
            observe(batch)
        kept += epoch.keep
    whole = 3  # epochs that were done before the last loop began
    assert [record["observed"] for record in pruner.history] == [record["kept"] for record in pruner.history]
    assert pruner.visits.sum() == sum(record["kept"] for record in pruner.history)
    assert (pruner.visits >= kept).all()
    assert (pruner.visits <= kept + whole).all()


def test_a_look_at_the_first_batch_costs_nothing(case):
    pruner, loader, observe = case
    for _ in pruner.epochs():
        next(iter(loader))
        for batch in loader:
            observe(batch)
    assert [record["observed"] for record in pruner.history] == [record["kept"] for record in pruner.history]
