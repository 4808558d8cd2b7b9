"""Grain: what its datasets would do to an epoch's length, order and ids, in threads and in processes."""

import json

import grain
import numpy as np
import pytest
from absl import flags

from prunedata import Pruner, Schedule
from prunedata.adapters.grain import wrap
from prunedata.errors import LossError, NotInEpoch, OtherData, PrunedataError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.rows import check_rows_are_followed

SAMPLES, BATCH = 61, 6
CHANGING = Schedule(4, window=4, start=1, block=3, pruned_per_block=2)  # 61, 43, 43, 61


@pytest.fixture(autouse=True, scope="module")
def parsed_flags():
    """Grain asks for flags of its own before it starts processes, and a test need not be the first to do so."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def start(**options):
    return Pruner(SAMPLES, CHANGING, **{"prune": 0.3, "seed": 5, **options})


def load(number, random):
    return {"number": np.int64(number), "noise": random.random()}


def source():
    return grain.MapDataset.source(list(range(SAMPLES))).seed(3).random_map(load)


def in_batches(kept):
    return kept.batch(BATCH)


def in_processes(kept):
    return kept.batch(BATCH).to_iter_dataset().mp_prefetch(grain.MultiprocessingOptions(num_workers=2))


def train(dataset, pruner, epochs=None):
    """Train, check that each sample came with its id, and return each epoch's ids and random numbers, in order."""
    seen = []
    while pruner.next_epoch < (pruner.schedule.epochs if epochs is None else epochs):
        epoch = pruner.begin_epoch()
        ids, noise = np.empty(0, np.int64), np.empty(0)
        for numbers, batch in dataset:
            np.testing.assert_array_equal(numbers, batch["number"])
            pruner.observe(np.cos(numbers + epoch.number), numbers)
            ids, noise = np.append(ids, numbers), np.append(noise, batch["noise"])
        np.testing.assert_array_equal(np.sort(ids), np.flatnonzero(epoch.remaining))
        seen.append((ids.tolist(), noise.tolist()))
        pruner.end_epoch()
    return seen


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_order_is_the_pruners(shuffle):
    pruner, alone = start(), start()
    dataset = wrap(source(), pruner, in_batches, shuffle=shuffle)
    for ids, _ in train(dataset, pruner):
        batches = list(alone.begin_epoch().batches(BATCH, shuffle=shuffle))
        assert ids == np.concatenate(batches).tolist()
        for batch in batches:
            alone.observe(np.cos(batch + alone.next_epoch), batch)
        alone.end_epoch()


@pytest.mark.slow
def test_two_processes_give_what_threads_give_and_a_stopped_run_goes_on():
    threads, processes = start(), start()
    expected = train(wrap(source(), threads, in_batches), threads)
    assert train(wrap(source(), processes, in_batches), processes, 1) == expected[:1]
    epoch = processes.begin_epoch()
    batches = iter(wrap(source(), processes, in_processes))
    seen = [next(batches)[0] for _ in range(3)]
    for ids in seen:
        processes.observe(np.cos(ids + epoch.number), ids)
    batches.close()
    state = processes.state_dict()
    resumed = start()
    resumed.load_state_dict(state)
    rest = train(wrap(source(), resumed, in_processes), resumed, 2)
    assert np.concatenate(seen).tolist() + rest[0][0] == expected[1][0]


@pytest.mark.slow
@pytest.mark.parametrize(("in_each", "delivered"), [(False, 48), (True, 32)])
def test_processes_may_drop_what_makes_no_batch(in_each, delivered):
    def build(kept):
        pairs = kept.to_iter_dataset() if in_each else kept
        batches = pairs.batch(16, drop_remainder=True)
        batches = batches if in_each else batches.to_iter_dataset()
        return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))

    pruner = start()
    dataset = wrap(source(), pruner, build)
    pruner.begin_epoch()
    for ids, _ in dataset:
        pruner.observe(np.cos(ids), ids)
    pruner.end_epoch()
    assert pruner.history[0]["observed"] == delivered


def test_without_build_the_elements_come_one_by_one_and_go_on_as_grains():
    pruner = start()
    assert len(train(wrap(source(), pruner).batch(BATCH), pruner)) == 4
    pruner = start()
    dataset = wrap(source(), pruner)
    pruner.begin_epoch()
    number, sample = next(iter(dataset))
    assert number == sample["number"]


def test_pruned_samples_are_not_loaded():
    loaded, pruner = [], start()
    dataset = grain.MapDataset.source(list(range(SAMPLES))).map(lambda number: loaded.append(number) or number)
    for epoch in pruner.epochs():
        loaded.clear()
        for ids, _ in wrap(dataset, pruner, in_batches):
            pruner.observe(np.cos(ids), ids)
        assert sorted(loaded) == np.flatnonzero(epoch.keep).tolist()


def test_each_epoch_draws_other_random_numbers_and_a_resumed_one_the_same():
    pruner = start()
    whole = train(wrap(source(), pruner, in_batches), pruner)
    first, last = (dict(zip(*whole[epoch], strict=True)) for epoch in (0, 3))
    assert len({*first.values(), *last.values()}) == 2 * SAMPLES

    stopped = start()
    dataset = wrap(source(), stopped, in_batches)
    train(dataset, stopped, 1)
    stopped.begin_epoch()
    batches = iter(dataset)
    ids, batch = next(batches)
    stopped.observe(np.cos(ids + 1), ids)
    state = json.loads(json.dumps(batches.get_state()))

    resumed = start()
    resumed.load_state_dict(stopped.state_dict())
    resumed.begin_epoch()
    dataset = wrap(source(), resumed, in_batches)
    iter(dataset).set_state(state)
    again = [(ids.tolist(), batch["noise"].tolist()), *train(dataset, resumed)]
    assert again[0][0] + again[1][0] == whole[1][0]
    assert again[0][1] + again[1][1] == whole[1][1]
    assert again[2:] == whole[2:]


def test_the_state_of_another_epoch_is_refused():
    pruner = start()
    dataset = wrap(source(), pruner, in_batches)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="Expected a new iterator of epoch 2"):
        iter(dataset).set_state({"epoch": 2})
    for forged in (None, {}, {"epoch": 10**5000}):
        with pytest.raises(PrunedataError, match="Expected a new iterator"):
            iter(dataset).set_state(forged)
    batches = iter(dataset)
    next(batches)
    with pytest.raises(PrunedataError, match="that has delivered 6 samples"):
        batches.set_state({"epoch": 0})


def test_what_moves_samples_is_refused():
    plain = grain.MapDataset.range(SAMPLES)
    moving = {
        "ShuffleMapDataset": plain.shuffle(1).map(str),
        "RepeatMapDataset": plain.repeat(2)[:SAMPLES],
        "FilterMapDataset": plain.filter(bool),
        "MixedMapDataset": grain.MapDataset.mix([plain, plain])[:SAMPLES],
    }
    for name, dataset in moving.items():
        with pytest.raises(PrunedataError, match=f"Got {name} in it"):
            wrap(dataset, start())
    pruner = start()
    joined = grain.MapDataset.concatenate([plain[:20], grain.MapDataset.range(20, SAMPLES)])
    for epoch in pruner.epochs():
        for ids, batch in wrap(joined, pruner, in_batches):
            np.testing.assert_array_equal(ids, batch)
            pruner.observe(np.cos(ids + epoch.number), ids)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (grain.MapDataset.range(SAMPLES).batch(2), "Got one of 31"),
        (grain.MapDataset.range(SAMPLES).to_iter_dataset(), "Got a PrefetchIterDataset: wrap the MapDataset"),
        (list(range(SAMPLES)), r"Got a list: wrap it by grain.MapDataset.source\(...\)"),
        (grain.load(list(range(SAMPLES))), "Got a DataLoader, whose sampler and length are fixed"),
    ],
)
def test_what_is_no_map_dataset_of_the_samples_is_refused(given, told):
    with pytest.raises(PrunedataError, match=told):
        wrap(given, start())
    if not isinstance(given, list):  # which another adapter wraps
        with pytest.raises(PrunedataError, match=told.replace("one of 31", "one of batches")):
            Pruner(epochs=2).wrap(given)  # it would take the number of batches for that of samples


def test_none_is_no_sample():
    pruner = start()
    dataset = wrap(grain.MapDataset.range(SAMPLES).map(lambda number: number or None), pruner, in_batches)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="Got None for 0"):
        list(dataset)


@pytest.mark.parametrize(
    ("build", "kind", "told"),
    [
        (lambda kept: kept.repeat().batch(BATCH), LossError, "is there a repeat"),
        (lambda kept: kept.map(lambda pair: pair[1]).batch(BATCH), PrunedataError, "Expected pairs"),
        (lambda kept: 3, PrunedataError, "Got a int"),
        (lambda kept: kept.batch(62, drop_remainder=True), PrunedataError, "at least one batch"),
    ],
)
def test_a_pipeline_that_cannot_be_right_is_refused(build, kind, told):
    pruner = start()
    dataset = wrap(source(), pruner, build)
    pruner.begin_epoch()
    with pytest.raises(kind, match=told):
        list(dataset)


@pytest.mark.parametrize("policy", [None, Random()])
def test_samples_that_the_pipeline_loses_are_missed(policy):
    pruner = start(**({} if policy is None else {"policy": policy}))
    dataset = wrap(source(), pruner, lambda kept: kept.slice(slice(0, None, 2)).batch(BATCH))
    pruner.begin_epoch()
    for ids, _ in dataset:
        if policy is None:
            pruner.observe(np.cos(ids), ids)
    with pytest.raises(SkippedSamples, match="30 that were not"):
        pruner.end_epoch()


def test_another_dataset_that_is_iterated_instead_is_noticed():
    pruner = start(policy=Random())
    wrap(source(), pruner, in_batches)
    pruner.begin_epoch()
    for _ in source().batch(BATCH):
        pass
    with pytest.raises(SkippedSamples, match="is the dataset that was given to wrap"):
        pruner.end_epoch()


def test_processes_behind_prune_are_refused():
    pruner = start()
    dataset = wrap(source(), pruner, in_batches)
    pruner.begin_epoch()
    options = grain.MultiprocessingOptions(num_workers=2)
    with pytest.raises(PrunedataError, match=r"Expected mp_prefetch\(\) in build="):
        list(dataset.mp_prefetch(options))


def test_outside_of_an_epoch_there_is_nothing_to_iterate():
    with pytest.raises(NotInEpoch):
        iter(wrap(source(), start()))


def test_rows_in_another_order_are_noticed(tmp_path):
    def wrapped(rows):
        run = start(store=tmp_path, resume=True)
        return run, run.wrap(grain.MapDataset.source(rows), in_batches)

    run, dataset = wrapped(list(range(SAMPLES)))
    run.begin_epoch()
    for ids, _ in dataset:
        run.observe(np.cos(ids), ids)
    run.end_epoch()
    del run, dataset
    assert wrapped(list(range(SAMPLES)))[0].next_epoch == 1
    with pytest.raises(OtherData):
        wrapped(list(range(SAMPLES))[::-1])


def test_rows_are_followed_by_their_keys(tmp_path):
    def wrapped(pruner, rows):
        data = pruner.wrap(grain.MapDataset.source(rows), in_batches)
        return lambda: iter(data)

    check_rows_are_followed(wrapped, tmp_path)
