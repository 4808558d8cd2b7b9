"""A long history in a store: each record is written once, and no commit depends on what may be written over."""

import itertools
import json
import shutil
import warnings

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import prunedata.store.history
import prunedata.store.pointer
import prunedata.store.run_store
from prunedata.errors import DamagedStore, StoreError
from prunedata.findings.inspection import inspect
from prunedata.store.durable import DurableStore, read_bytes, write_bytes
from prunedata.store.reading import read_run
from prunedata.store.run_store import RunStore
from tests.store.stored_runs import contents, observe, outcome, pointer, start
from tests.store.test_strangers import sign

CHUNK = 160
LONG = prunedata.Schedule(40, window=4, start=1, block=2, pruned_per_block=1)
TAKEN = {"counts": np.arange(3, dtype=np.uint8)}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Chunks of a few records, so that a short history has many."""
    monkeypatch.setattr(prunedata.store.pointer, "HISTORY_CHUNK", CHUNK)


def record(number, **more):
    return {"number": number, "mean_loss": 0.5, **more}


def records(count):
    return [record(number) for number in range(count)]


def state(history):
    return {"epoch": len(history), "history": history}


def read(store):
    return RunStore(store, mode="r").read()[0]


def about(store):
    raw = read_bytes(store, "zarr.json", 1 << 20)
    return json.loads(raw)["attributes"]["prunedata"]


def written(monkeypatch):
    """The keys that are written from now on."""
    keys = []

    def write(store, key, value):
        keys.append(key)
        write_bytes(store, key, value)

    for module in (prunedata.store.history, prunedata.store.run_store):
        monkeypatch.setattr(module, "write_bytes", write)
    return keys


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else DurableStore(tmp_path / "run")


class TestOfManyEpochs:
    def test_a_record_is_written_to_a_file_once_and_the_pointer_stays_short(self, store, monkeypatch):
        run, keys = RunStore(store), written(monkeypatch)
        run.create(state([]))
        history, lengths = [], []
        for number in range(250):
            history.append(record(number))
            run.write(state(history), {})
            lengths.append(len(read_bytes(store, "zarr.json", 1 << 20)))
        assert read(store) == state(history)
        chunks = [key for key in keys if "/c/" in key]
        assert chunks == [f"past-epochs-0/c/{number}" for number in range(len(chunks))]
        assert len(chunks) > 50
        assert max(lengths[150:]) - max(lengths[20:120]) < 20  # of numbers that have a digit more

    def test_what_fits_into_the_pointer_stays_there(self, store, monkeypatch):
        monkeypatch.undo()
        run = RunStore(store)
        run.create(state([]))
        run.write(state(records(100)), {})
        assert about(store)["history"] is None
        assert about(store)["state"] == state(records(100))

    @given(st.lists(st.integers(0, 200), max_size=12), st.integers(1, 5))
    def test_whatever_their_length_records_are_read_as_they_were_written(self, lengths, step):
        """Also one that is longer than a chunk: it and all after it stay in the pointer."""
        place, history = MemoryStore(), [record(n, text="é" * length) for n, length in enumerate(lengths)]
        run = RunStore(place)
        run.create(state([]))
        for count in range(0, len(history) + step, step):
            run.write(state(history[:count]), {})
            assert read(place) == state(history[:count])

    def test_the_last_record_may_still_change(self, store):
        """Its seconds are complete only after its commit."""
        run, history = RunStore(store), []
        run.create(state([]))
        for number in range(30):
            history.append(record(number, overhead=0.0))
            run.write(state(history), {})
            history[-1]["overhead"] = 1.5
        run.write(state(history), {})
        assert [found["overhead"] for found in read(store)["history"]] == [1.5] * 30

    def test_so_may_the_sketch_of_an_older_one(self, store):
        run, history = RunStore(store), records(30)
        history[2]["sketch"], history[20]["sketch"] = "first", "second"
        run.create(state([]))
        run.write(state(history), {})
        assert about(store)["history"]["changing"] == [20, "second"]
        del history[2]["sketch"]
        assert read(store) == state(history)
        again = RunStore(store)
        history = again.read()[0]["history"]
        assert history.pop(20) == record(20, sketch="second")
        history.insert(20, record(20))
        again.write(state(history), {})
        assert about(store)["history"]["changing"] is None
        assert read(store) == state(history)

    def test_a_run_of_many_epochs_goes_on_as_if_it_had_never_stopped(self, store, monkeypatch):
        monkeypatch.setattr(prunedata.store.pointer, "HISTORY_CHUNK", 512)
        whole, first = start(None, schedule=LONG), start(store, schedule=LONG)
        for _ in range(40):
            observe(whole)
            whole.end_epoch()
        for _ in range(25):
            observe(first)
            first.end_epoch()
        second = start(store, schedule=LONG, resume=True)
        chunks = about(store)["history"]["chunks"]
        for _ in range(15):
            observe(second)
            second.end_epoch()
        assert about(store)["history"]["chunks"] > chunks
        assert about(store)["history"]["slot"] == 0
        assert outcome(second) == outcome(start(store, schedule=LONG, resume=True)) == outcome(whole)
        assert inspect(store)["epoch"] == 40

    def test_zarr_finds_nothing_strange_in_it(self, tmp_path):
        run = RunStore(tmp_path)
        run.create(state([]))
        run.write(state(records(30)), TAKEN)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = dict(zarr.open_group(tmp_path, mode="r").members(max_depth=None))
        assert found.keys() == {"counts-1", "past-epochs-0"}
        text = bytes(found["past-epochs-0"][:CHUNK])
        assert json.loads(text) == records(len(json.loads(text)))


class TestAStepBack:
    """A run that goes on from an earlier checkpoint has another history."""

    def test_it_writes_to_the_other_slot_and_back(self, store):
        run = RunStore(store)
        run.create(state([]))
        for turn, count in enumerate((30, 20, 25, 10)):
            history = [record(number, turn=turn) for number in range(count)]
            run.write(state(history), {})
            assert about(store)["history"]["slot"] == turn % 2
            assert read(store) == state(history)

    def test_the_same_records_made_anew_are_known(self, store, monkeypatch):
        run, keys = RunStore(store), written(monkeypatch)
        run.create(state([]))
        run.write(state(records(30)), {})
        keys.clear()
        run.write(state(records(30)), {})
        RunStore(store).read()
        other = RunStore(store)
        other.read()
        other.write(state(records(30)), {})
        assert keys == ["zarr.json"] * 2

    def test_killed_at_any_write_the_last_commit_stands(self, monkeypatch):
        """Also where the run goes on in the same process, and goes back once more."""
        histories = [
            [record(number, turn=turn) for number in range(count)]
            for turn, count in enumerate((12, 20, 9, 9, 30, 14))
        ]  # fmt: skip
        last, left = None, [0]

        def write(store, key, value):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            write_bytes(store, key, value)

        for module in (prunedata.store.history, prunedata.store.run_store):
            monkeypatch.setattr(module, "write_bytes", write)
        for at in itertools.count():
            place, finished = MemoryStore(), True
            left[0] = 1 << 30
            run = RunStore(place)
            run.create(state([]))
            last, left[0] = state([]), at
            for history in histories:
                try:
                    run.write(state(history), {})
                    last = state(history)
                except KeyboardInterrupt:
                    finished, left[0] = False, 3 + at % 5
                assert read(place) == last
            if finished:
                assert at > 20
                return


class TestACleaner:
    """It takes what is old from scratch space."""

    @pytest.mark.parametrize("what", ["c/0", "c/3", "c", "zarr.json", ""])
    def test_what_is_gone_is_written_again(self, tmp_path, what):
        run, history = RunStore(tmp_path), records(30)
        run.create(state([]))
        run.write(state(history), {})
        before, path = contents(tmp_path / "past-epochs-0"), tmp_path / "past-epochs-0" / what
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        run.write(state(history), {})
        assert read(tmp_path) == state(history)
        assert contents(tmp_path / "past-epochs-0") == before

    def test_a_linked_folder_is_not_written_through(self, tmp_path):
        run, elsewhere = RunStore(tmp_path / "run"), tmp_path / "elsewhere"
        run.create(state([]))
        elsewhere.mkdir()
        (tmp_path / "run" / "past-epochs-0").symlink_to(elsewhere)
        with pytest.raises(StoreError, match="Got past-epochs-0, which is a link"):
            run.write(state(records(30)), {})
        assert not list(elsewhere.iterdir())


class TestDamage:
    """Nothing else passes for the history."""

    @pytest.fixture
    def place(self, tmp_path):
        run = start(tmp_path, schedule=LONG)
        for _ in range(12):
            observe(run)
            run.end_epoch()
        return tmp_path

    @pytest.fixture(autouse=True)
    def short(self, monkeypatch):
        monkeypatch.setattr(prunedata.store.pointer, "HISTORY_CHUNK", 512)

    def refused(self, place, told):
        for call in (lambda: read_run(place), lambda: start(place, schedule=LONG, resume=True)):
            with pytest.raises(DamagedStore, match=told):
                call()

    def test_every_byte_counts(self, place):
        path = place / "past-epochs-0" / "c" / "1"
        whole = path.read_bytes()
        for at in range(0, 512, 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            self.refused(place, "Expected the records of past epochs to match their digest")
        path.write_bytes(whole)
        assert read_run(place).state.epoch == 12

    def test_files_that_are_swapped_missing_or_cut_short(self, place):
        one, other = (place / "past-epochs-0" / "c" / str(number) for number in (0, 1))
        raw = one.read_bytes()
        one.write_bytes(other.read_bytes())
        self.refused(place, "match their digest")
        one.write_bytes(raw[:-1])
        self.refused(place, "Expected a file of 512 bytes at past-epochs-0/c/0")
        one.unlink()
        self.refused(place, "Expected a file of 512 bytes at past-epochs-0/c/0")

    def test_elsewhere_they_are_missed_when_they_are_read(self):
        store = MemoryStore()
        run = RunStore(store)
        run.create(state([]))
        run.write(state(records(60)), {})
        write_bytes(store, "past-epochs-0/c/0", b"[]")
        with pytest.raises(DamagedStore, match="Expected whole chunks of past epochs"):
            read(store)
        del store._store_dict["past-epochs-0/c/0"]
        with pytest.raises(DamagedStore, match="Expected whole chunks of past epochs"):
            read(store)

    @pytest.mark.parametrize(
        "change",
        [{"slot": 2}, {"slot": True}, {"chunks": 0}, {"chunks": 1 << 40}, {"chunks": 1.0}, {"crc32": None},
         {"changing": 3}, {"changing": [1]}, {"changing": ["1", 2]}, {"more": 1}],
        ids=str,
    )  # fmt: skip
    def test_what_a_pointer_cannot_say(self, place, change):
        found = pointer(place)
        found["history"] |= change
        sign(place, found)
        self.refused(place, "Expected number and digest of the files of past epochs in ")

    @pytest.mark.parametrize("state", [[], {}, {"history": {}}], ids=str)
    def test_nor_of_a_run_without_a_history(self, place, state):
        sign(place, pointer(place) | {"state": state})
        self.refused(place, "Expected number and digest of the files of past epochs in ")

    def test_what_a_pointer_can_say_of_no_such_history(self, place):
        found = pointer(place)
        for change, told in (
            ({"slot": 1}, "Expected a file of 512 bytes at past-epochs-1/c/0"),
            ({"chunks": found["history"]["chunks"] + 1}, "Expected a file of 512 bytes"),
            ({"chunks": found["history"]["chunks"] - 1}, "match their digest"),
            ({"changing": [1000, "x"]}, "list index out of range"),
            ({"crc32": 0}, "match their digest"),
        ):
            sign(place, found | {"history": found["history"] | change})
            self.refused(place, told)

    @pytest.mark.parametrize("text", [b"[", b"{}", b"3", b"[3]", b"[" * 512, b"[{}]"], ids=str)
    def test_files_of_something_else_under_the_right_digest(self, place, text):
        found, raw = pointer(place), text.ljust(512)
        (place / "past-epochs-0" / "c" / "0").write_bytes(raw)
        about = found["history"] | {"chunks": 1, "crc32": prunedata.store.history.zlib.crc32(raw), "changing": None}
        sign(place, found | {"history": about})
        self.refused(place, "^Expected ")

    def test_more_than_is_read_again_is_not_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(prunedata.store.pointer, "MOST", 3000)
        run, history = RunStore(tmp_path), []
        run.create(state([]))

        def grow():
            history.append(record(len(history)))
            run.write(state(history), {})

        for _ in range(40):
            grow()
        with pytest.raises(StoreError, match=r"at most 3,000 bytes.*Got [23],"):
            list(iter(grow, 0))
        assert read(tmp_path) == state(history[:-1])
