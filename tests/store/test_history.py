"""A long history in a store: each record is encoded once, and no commit holds another than the run's."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from prunedata import Schedule
from prunedata.store import pointer as pointers
from prunedata.store.durable import DurableStore
from prunedata.store.run_store import RunStore
from tests.store.stored_runs import observe, outcome, start

LONG = Schedule(40, window=4, start=1, block=2, pruned_per_block=1)


def record(number, **more):
    return {"number": number, "mean_loss": 0.5, **more}


def records(count):
    return [record(number) for number in range(count)]


def state(history):
    return {"epoch": len(history), "history": history}


def read(store):
    return RunStore(store, mode="r").read()[0]


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else DurableStore(tmp_path / "run")


@pytest.fixture
def encoded(monkeypatch):
    """The numbers of the records that are encoded."""
    told = []

    def text(record, _text=pointers._text):
        told.append(record["number"])
        return _text(record)

    monkeypatch.setattr(pointers, "_text", text)
    return told


def test_a_commit_encodes_as_many_records_after_many_epochs_as_after_few(encoded):
    run, history = RunStore(MemoryStore()), []
    run.create(state([]))
    for number in range(200):
        history.append(record(number))
        encoded.clear()
        run.write(state(history), {})
        assert len(encoded) <= 2
    assert read(run._store) == state(history)


@given(st.lists(st.integers(0, 200), max_size=12), st.integers(1, 5))
def test_whatever_their_length_records_are_read_as_they_were_written(lengths, step):
    place, history = MemoryStore(), [record(n, text="é" * length) for n, length in enumerate(lengths)]
    run = RunStore(place)
    run.create(state([]))
    for count in range(0, len(history) + step, step):
        run.write(state(history[:count]), {})
        assert read(place) == state(history[:count])


def test_the_last_record_may_still_change(store):
    """Its seconds are complete only after its commit."""
    run, history = RunStore(store), []
    run.create(state([]))
    for number in range(30):
        history.append(record(number, overhead=0.0))
        run.write(state(history), {})
        history[-1]["overhead"] = 1.5
    run.write(state(history), {})
    assert [found["overhead"] for found in read(store)["history"]] == [1.5] * 30


def test_so_may_the_sketch_of_an_older_one(store):
    run, history = RunStore(store), records(30)
    history[2]["sketch"], history[20]["sketch"] = "first", "second"
    run.create(state([]))
    run.write(state(history), {})
    assert read(store) == state(history)
    del history[2]["sketch"]
    run.write(state(history), {})
    assert read(store) == state(history)
    again = RunStore(store)
    history = again.read()[0]["history"]
    del history[20]["sketch"]
    again.write(state(history), {})
    assert read(store) == state(records(30))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8))
def test_a_run_that_goes_back_has_the_history_that_it_has(turns):
    """By copies, as from a checkpoint; or by the records themselves."""
    place, history = MemoryStore(), []
    run = RunStore(place)
    run.create(state([]))
    for turn, (count, copied) in enumerate(turns):
        history = [dict(one) for one in history] if copied else list(history)
        history = [*history[:count], *(record(number, turn=turn) for number in range(len(history), count))]
        run.write(state(history), {})
        assert read(place) == state(history)


def test_a_run_of_many_epochs_goes_on_as_if_it_had_never_stopped(store):
    whole, first = start(None, schedule=LONG), start(store, schedule=LONG)
    for _ in range(40):
        observe(whole)
        whole.end_epoch()
    for _ in range(25):
        observe(first)
        first.end_epoch()
    second = start(store, schedule=LONG, resume=True)
    for _ in range(15):
        observe(second)
        second.end_epoch()
    assert outcome(second) == outcome(start(store, schedule=LONG, resume=True)) == outcome(whole)


def test_zarr_finds_nothing_strange_in_it(tmp_path):
    run = RunStore(tmp_path)
    run.create(state([]))
    run.write(state(records(30)), {"counts": np.arange(3, dtype=np.uint8)})
    found = zarr.open_group(tmp_path, mode="r")
    assert found.attrs["prunedata"]["state"] == state(records(30))
    assert {name: array[:].tolist() for name, array in found.arrays()} == {"counts-1": [0, 1, 2]}
