"""The store of a run: against a plain model, on every kind of place, cut short at any operation."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import prunedata.store.run_store
import prunedata.store.slots
from prunedata import Pruner, Schedule
from prunedata.errors import ForeignStore, PrunedataError, RunExists, StoreError
from prunedata.policies import DroppingCount
from prunedata.store.durable import DurableStore
from prunedata.store.run_store import RunStore
from tests.common.programs import FEWER
from tests.store.stored_runs import outcome

SAMPLES = 60
SCHEDULE = Schedule(6, window=3, start=1, block=2, pruned_per_block=1)


def start(store, *, schedule=SCHEDULE, **arguments):
    return Pruner(SAMPLES, schedule, **{"prune": 0.25, "store": store, **arguments})


def train(pruner, epochs):
    """Train so many epochs on losses that follow from sample and epoch; return their masks and orders."""
    seen = []
    for _ in range(epochs):
        epoch = pruner.begin_epoch()
        for ids in epoch.batches(16):
            pruner.observe(np.abs(np.sin(ids * 12.9 + epoch.number * 7.3)), ids)
            seen.append(ids.tolist())
        seen.append(epoch.keep.tolist())
        pruner.end_epoch()
    return seen


def contents(store):
    """Every key of a zarr store, with its bytes."""

    async def read():
        keys = [key async for key in store.list()]
        return {key: (await store.get(key, prototype=default_buffer_prototype())).to_bytes() for key in keys}

    return sync(read())


PLACES = {
    "memory": lambda folder: MemoryStore(),
    "text": lambda folder: str(folder / "deep" / "run.zarr"),
    "path": lambda folder: folder / "run.zarr",
    "URL of a file": lambda folder: f"file://{folder}/run.zarr",
    "LocalStore": lambda folder: LocalStore(folder / "run.zarr"),
    "wrapped": lambda folder: WrapperStore(LocalStore(folder / "run.zarr")),
    "empty folder": lambda folder: folder,
}


class OnAnyPlace:
    """What holds wherever a run is kept."""

    def test_a_run_goes_on_as_if_it_had_never_stopped(self, store):
        whole = start(None)
        seen = train(whole, 6)
        again = train(start(store), 2)
        again += train(start(store, resume=True), 3)
        last = start(store, resume=True)
        assert last.next_epoch == 5
        again += train(last, 1)
        assert again == seen
        assert outcome(last) == outcome(whole)
        assert outcome(start(store, resume=True)) == outcome(whole)

    def test_a_run_goes_on_within_an_epoch(self, store):
        whole = start(None)
        train(whole, 6)
        first = start(store)
        train(first, 3)
        epoch = first.begin_epoch()
        for ids in list(epoch.batches(16))[:2]:
            first.observe(np.abs(np.sin(ids * 12.9 + epoch.number * 7.3)), ids)
        first.commit()
        second = start(store, resume=True)
        assert second.next_epoch == 3
        assert outcome(second) == outcome(first)
        train(second, 3)
        assert outcome(second) == outcome(whole)

    def test_an_existing_run_is_never_overwritten_unasked(self, store):
        for epochs in (0, 1, 2):  # not yet committed, in the one slot, in the other
            train(start(store, resume=epochs > 0), min(epochs, 1))
            before = contents(RunStore(store)._store)
            told = f"reached epoch {epochs}" if epochs else "saved nothing"
            with pytest.raises(RunExists, match=rf"has {told}.*resume=True") as caught:
                start(store)
            assert isinstance(caught.value, FileExistsError)
            assert contents(RunStore(store)._store) == before

    def test_a_second_writer_stops_the_first(self, store):
        first = start(store)
        train(first, 1)
        second = start(store, resume=True)
        train(second, 1)
        before = contents(RunStore(store)._store)
        with pytest.raises(StoreError, match=r"Another (process|Pruner of this process)"):
            train(first, 1)
        assert contents(RunStore(store)._store) == before
        train(second, 1)
        assert start(store, resume=True).next_epoch == 3


class TestPlaces(OnAnyPlace):
    @pytest.fixture(params=PLACES)
    def store(self, request, tmp_path):
        return PLACES[request.param](tmp_path)


def test_a_new_window_is_in_the_store(tmp_path):
    runs = [start(store, schedule=Schedule(300, 3, 1, 2, 1)) for store in (None, tmp_path)]
    for run in runs:
        train(run, 2)
        run.rewindow(280)
    resumed = start(tmp_path, schedule=Schedule(300, 3, 1, 2, 1), resume=True)
    assert resumed.schedule == runs[0].schedule
    assert train(resumed, 3) == train(runs[0], 3)


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("leftover", [None, "zarr.json.partial", "zarr.1c0ffee.partial"])
def test_what_a_killed_creation_leaves_is_begun_on(tmp_path, leftover, resume):
    if leftover:
        (tmp_path / leftover).write_text('{"zarr_format": 3, "node_ty')
    run = start(tmp_path, resume=resume)
    train(run, 2)
    assert start(tmp_path, resume=True).next_epoch == 2


def test_leftovers_of_killed_writes_do_not_matter(tmp_path):
    run = start(tmp_path)
    train(run, 3)
    (tmp_path / "zarr.json.partial").write_text("{")
    (tmp_path / "counts-0" / "zarr.json").unlink()  # slot 0 was being deleted
    (tmp_path / "hits-0" / "c" / "0.partial").write_bytes(b"?")
    (tmp_path / "visits-0" / "c" / "0").write_bytes(b"")
    resumed = start(tmp_path, resume=True)
    assert outcome(resumed) == outcome(run)
    train(resumed, 3)
    whole = start(None)
    train(whole, 6)
    assert outcome(start(tmp_path, resume=True)) == outcome(whole)


def test_a_store_that_cannot_be_written_is_refused_before_training(tmp_path):
    train(start(tmp_path / "run.zarr"), 1)
    for store in (LocalStore(tmp_path / "run.zarr", read_only=True), MemoryStore(read_only=True)):
        with pytest.raises(StoreError, match="read-only"):
            start(store, resume=True)
    with pytest.raises(StoreError, match="Got int"):
        start(3)
    with pytest.raises(PrunedataError, match="without store="):
        start(None, resume=True)


class Crash(Exception):
    """What a Failing store raises where a kill would have struck."""


class Failing(WrapperStore):
    """A store whose process ends after so many operations, before or after the last of them took effect."""

    left: int | None = None
    late = False

    def tick(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash

    async def set(self, key, value):
        if not self.late:
            self.tick()
        await super().set(key, value)
        if self.late:
            self.tick()

    async def delete(self, key):
        self.tick()
        await super().delete(key)

    async def delete_dir(self, prefix):
        for key in [key async for key in self.list_prefix(f"{prefix}/")]:
            await self.delete(key)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
STATES = st.dictionaries(st.text(max_size=8).filter(lambda name: name != "history"), JSON, max_size=4)
DTYPES = st.sampled_from(["u1", "<u2", "<u4", "<u8", "i1", "<i4"])
ARRAYS = st.dictionaries(
    st.sampled_from(["counts", "hits", "tally", "more-0"]),
    st.builds(str, DTYPES).flatmap(lambda dtype: numpy_arrays(dtype, st.integers(0, 40))),
    max_size=3,
)


class Machine(RuleBasedStateMachine):
    """RunStore beside a plain variable that holds what was committed last."""

    def __init__(self):
        super().__init__()
        self.whole_chunk, prunedata.store.slots.CHUNK = (
            prunedata.store.slots.CHUNK,
            16,
        )  # so that arrays have several
        self.place = Failing(self.new_place())
        self.store = RunStore(self.place)
        self.model = None

    def new_place(self):
        return MemoryStore()

    def teardown(self):
        prunedata.store.slots.CHUNK = self.whole_chunk

    def reopened(self):
        self.store = RunStore(self.place)
        return self.store.read()

    @initialize(state=STATES, crash=st.none() | st.booleans())
    def create(self, state, crash):
        if crash is not None:
            self.place.left, self.place.late = 0, crash
            with pytest.raises(StoreError):
                self.store.create(state)
            self.place.left = None
            assert (self.reopened() is not None) == crash
        if not crash:
            self.store.create(state)
        self.model = (state, {})

    @rule(state=STATES, arrays=ARRAYS)
    def write(self, state, arrays):
        self.store.write(state, arrays)
        self.model = (state, {name: array.copy() for name, array in arrays.items()})
        for array in arrays.values():  # what the run does with its own arrays afterwards is its own affair
            np.add(array, 1, out=array)

    @rule()
    def reopen(self):
        self.reopened()

    @rule(state=STATES, arrays=ARRAYS, operations=st.integers(0, 12), late=st.booleans(), again=st.booleans())
    def crash(self, state, arrays, operations, late, again):
        new = (state, {name: array.copy() for name, array in arrays.items()})
        self.place.left, self.place.late = operations, late
        try:
            self.store.write(state, arrays)
        except StoreError:
            self.place.left = None
        else:  # it needed no more operations
            self.place.left, self.model = None, new
            return
        pointed = RunStore(self.place).read()
        if late and not same(pointed, self.model):  # it died just after the pointer was written
            assert same(pointed, new)
            self.model = new
            self.reopened()
        elif again and not late:  # it did not die, but goes on after the error
            self.write(state, arrays)
        else:
            self.reopened()

    @rule(state=STATES)
    def create_again(self, state):
        before = contents(self.place)
        with pytest.raises(RunExists):
            RunStore(self.place).create(state)
        assert contents(self.place) == before

    @rule(state=STATES, arrays=ARRAYS)
    def second_writer(self, state, arrays):
        second = RunStore(self.place)
        second.read()
        second.write(state, arrays)
        before = contents(self.place)
        with pytest.raises(StoreError, match="Another process"):
            self.store.write({}, arrays)
        assert contents(self.place) == before
        self.store, self.model = second, (state, {name: array.copy() for name, array in arrays.items()})

    @precondition(lambda self: self.model is not None)
    @invariant()
    def holds_what_was_committed_last(self):
        assert same(RunStore(self.place, mode="r").read(), self.model)


def same(found, expected):
    """Whether two states are the same to the bit, dtypes and signs of zero included."""
    state, arrays = found
    if (
        json.dumps(state, sort_keys=True) != json.dumps({"history": []} | expected[0], sort_keys=True)
        or arrays.keys() != expected[1].keys()
    ):
        return False
    pairs = [(arrays[name], expected[1][name]) for name in arrays]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


class DiskMachine(Machine):
    def new_place(self):
        self.folder = tempfile.TemporaryDirectory()
        return DurableStore(Path(self.folder.name) / "run.zarr")

    def teardown(self):
        super().teardown()
        self.folder.cleanup()


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=15)
TestDiskMachine = DiskMachine.TestCase
TestDiskMachine.settings = settings(FEWER, stateful_step_count=12)


def test_a_store_is_read_or_created_before_it_is_written():
    with pytest.raises(StoreError, match="before it is written"):
        RunStore(MemoryStore()).write({}, {})
    with pytest.raises(ForeignStore):
        RunStore("no/such/run.zarr", mode="r")


def test_a_run_recognizes_itself_whatever_numbers_describe_it(tmp_path):
    for number, seed in enumerate((0, -(1 << 63), (1 << 64) - 1, np.int64(3))):
        place = tmp_path / str(number)
        train(start(place, seed=seed, policy=DroppingCount(), batch_size=np.int32(16)), 1)
        words = {"seed": seed, "policy": DroppingCount(tolerance=0), "batch_size": 16, "prune": 15}
        assert start(place, resume=True, **words).next_epoch == 1
