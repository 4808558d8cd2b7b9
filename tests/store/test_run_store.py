"""A store as its run uses it: which commit is read, who may write the next, and what is said where that is refused."""

import gc
import json
import zlib

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from zarr.storage import MemoryStore

import prunedata.store.run_store
from prunedata.errors import DamagedStore, ForeignStore, StoreError
from prunedata.store import slots
from prunedata.store.durable import DurableStore, list_names, read_bytes, write_bytes
from prunedata.store.pointer import Records, encode_pointer
from prunedata.store.run_store import RunStore, read_run
from prunedata.store.slots import Slots
from tests.store.stored_runs import observe, start

TAKEN = np.arange(3, dtype=np.uint8)


def test_who_looks_while_the_run_goes_on_sees_a_commit_of_it(tmp_path, monkeypatch):
    """Two commits later the slot that its pointer named is written over: then it looks again."""
    store, reader = RunStore(tmp_path), RunStore(tmp_path, mode="r")
    store.create({})
    store.write({"epoch": 1, "history": []}, {"counts": TAKEN})
    read, commits = Slots.read, [2, 3]

    def overtaken(self, *arguments):
        while commits:
            store.write({"epoch": commits[0], "history": []}, {"counts": TAKEN + commits.pop(0)})
        return read(self, *arguments)

    monkeypatch.setattr(Slots, "read", overtaken)
    state, arrays = reader.read()
    assert (state, arrays["counts"].tolist(), reader.generation) == ({"epoch": 3, "history": []}, [3, 4, 5], 3)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_commit_that_stands_though_it_ended_in_an_error_is_not_written_over(tmp_path, monkeypatch, error):
    """Ctrl-C, or a folder that cannot be synchronised, just when the new pointer stands; then a kill in the next."""
    store = RunStore(tmp_path)
    store.create({})
    store.write({"epoch": 1, "history": []}, {"counts": TAKEN})

    def late(*arguments):
        write_bytes(*arguments)
        raise error

    def killed(*_):
        raise SystemExit

    for cut_short, raised, epoch in ((late, (error, StoreError), 2), (killed, SystemExit, 3), (killed, SystemExit, 3)):
        monkeypatch.setattr(prunedata.store.run_store, "write_bytes", cut_short)
        with pytest.raises(raised):
            store.write({"epoch": epoch, "history": []}, {"counts": TAKEN + epoch})
        state, arrays = RunStore(tmp_path, mode="r").read()
        assert (state, arrays["counts"].tolist()) == ({"epoch": 2, "history": []}, [2, 3, 4])
    monkeypatch.undo()
    store.write({"epoch": 3, "history": []}, {"counts": TAKEN + 3})
    reader = RunStore(tmp_path, mode="r")
    assert (reader.read()[0], reader.generation) == ({"epoch": 3, "history": []}, 3)


def test_a_refused_run_goes_on_when_its_own_commit_is_put_back(tmp_path):
    first = RunStore(tmp_path)
    first.create({"epoch": 0, "history": []})
    first.release()
    store = RunStore(tmp_path)
    store.read()
    own = (tmp_path / "zarr.json").read_bytes()
    (tmp_path / "zarr.json").write_bytes(encode_pointer(1, "somebody", {}, {}, Records())[1])
    with pytest.raises(StoreError, match="Another process has written to it"):
        store.write({"epoch": 1, "history": []}, {})
    (tmp_path / "zarr.json").write_bytes(own)
    store.write({"epoch": 1, "history": []}, {})
    assert RunStore(tmp_path, mode="r").read()[0] == {"epoch": 1, "history": []}


def test_a_run_is_read_without_touching_it(tmp_path):
    place = tmp_path / "run"
    run = start(place)
    for _ in range(2):
        observe(run)
        run.end_epoch()
    (place / "zarr.1.partial").write_bytes(b"")
    del run
    gc.collect()
    found = read_run(place)
    assert (found.generation, found.state.epoch, found.state.visits.tolist()) == (
        2,
        2,
        found.state.arrays["visits"].tolist(),
    )
    assert (place / "zarr.1.partial").exists()
    with pytest.raises(ForeignStore, match=f"Expected a run at {tmp_path}/none. Got nothing"):
        read_run(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ForeignStore, match=f"Expected a run at {tmp_path}/empty. Got nothing"):
        read_run(tmp_path / "empty")
    RunStore(tmp_path / "other").create({"epoch": 3, "history": []})
    with pytest.raises(DamagedStore, match="Expected the state of a run"):
        read_run(tmp_path / "other")


def test_who_has_released_a_store_leaves_it_to_others(tmp_path):
    store = RunStore(tmp_path)
    RunStore(MemoryStore()).release()
    store.release()
    store.create({})
    store.release()
    (tmp_path / "zarr.1.partial").write_bytes(b"")
    other = RunStore(tmp_path)
    other.read()
    assert not (tmp_path / "zarr.1.partial").exists()  # it is alone here, and sweeps
    other.write({}, {})


NUMBERS = np.array([1, 2, 258], np.dtype(">u2"))
KINDS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")


@pytest.fixture
def short(monkeypatch):
    """Chunks of two numbers."""
    monkeypatch.setattr(slots, "CHUNK", 2)


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else DurableStore(tmp_path)


def write(store, values, generation=4):
    return Slots(store, "here").write(generation, {"loss": values})["loss"]


def read(store, about, generation=4):
    return Slots(store, "here").read("loss", generation, about)


def metadata(store, place="loss-0"):
    return json.loads(read_bytes(store, f"{place}/zarr.json", 1 << 16))


def refused(store, about, generation=4):
    with pytest.raises(DamagedStore):
        read(store, about, generation)


@given(
    st.sampled_from(KINDS).flatmap(lambda kind: hnp.arrays(kind, st.integers(0, 9))),
    st.sampled_from("<>"),
    st.integers(0, 5),
    st.integers(1, 4),
)
def test_what_is_written_is_read_in_the_machines_byte_order(values, order, generation, chunk):
    little = values.astype(values.dtype.newbyteorder("<"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "CHUNK", chunk)
        store = MemoryStore()
        about = write(store, values.astype(values.dtype.newbyteorder(order)), generation)
        assert about == {"shape": [values.size], "dtype": little.dtype.str, "crc32": zlib.crc32(little.tobytes())}
        assert f"loss-{generation % 2}" in list_names(store)
        found = read(store, about, generation)
        assert (found.dtype, found.tobytes()) == (values.dtype, values.tobytes())
        refused(store, about, generation + 1)
        refused(store, about | {"crc32": about["crc32"] ^ 1}, generation)


def test_part_of_a_larger_array_is_written_as_it_reads():
    store = MemoryStore()
    about = write(store, np.arange(12, dtype=np.int32).reshape(4, 3)[:, 1])
    assert read(store, about).tolist() == [1, 4, 7, 10]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_missing_chunk_would_read_as_is_written_like_all_else(kind, store):
    values = np.full(5, np.nan if kind[0] == "f" else np.iinfo(kind).max, kind)
    assert read(store, write(store, values)).tobytes() == values.tobytes()


def test_all_chunks_are_files_of_one_size(short, store):
    write(store, NUMBERS)
    assert [len(read_bytes(store, f"loss-0/c/{n}", 9) or b"") for n in range(3)] == [4, 4, 0]


def test_a_chunk_holds_as_many_numbers_as_there_are_up_to_a_limit():
    assert slots.CHUNK == 1 << 24  # it belongs to the format
    for samples, size in ((0, 1), (1, 1), (5, 5)):
        store = MemoryStore()
        write(store, np.zeros(samples))
        assert metadata(store)["chunk_grid"]["configuration"]["chunk_shape"] == [size]


@pytest.mark.parametrize("kind", KINDS)
def test_zarr_reads_what_it_wrote_for_us(kind, tmp_path, short):
    values = np.arange(5).astype(kind)
    write(DurableStore(tmp_path), values)
    found = zarr.open_array(tmp_path, path="loss-0", mode="r")
    assert (found.dtype, found[:].tolist(), found.compressors) == (values.dtype, values.tolist(), ())


@pytest.mark.parametrize("kind", KINDS)
def test_another_release_of_zarr_may_name_an_order_where_there_is_none(kind, store):
    """Those before 3.1 do for numbers of one byte: runs go on after zarr was upgraded, or downgraded."""
    about = write(store, np.arange(5).astype(kind))
    found = metadata(store)
    for codec in ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "bytes"}):
        write_bytes(store, "loss-0/zarr.json", json.dumps(found | {"codecs": [codec]}).encode())
        if np.dtype(kind).itemsize == 1 or "configuration" in codec:
            assert read(store, about).tolist() == [0, 1, 2, 3, 4]
        else:
            refused(store, about)


def test_metadata_are_made_anew_where_they_must(tmp_path):
    store = DurableStore(tmp_path)
    one, small = Slots(store, "here"), np.zeros(3, np.uint8)
    for values, generation in (
        (small, 2),
        (small, 3),
        (np.zeros(4, np.uint8), 4),
        (np.zeros(4, np.int8), 6),
        (small, 8),
    ):
        about = one.write(generation, {"loss": values})["loss"]
        assert read(store, about, generation).tolist() == values.tolist()
    for gone in ("zarr.json", "c/0"):
        (tmp_path / "loss-0" / gone).unlink()
        about = one.write(10, {"loss": small})["loss"]
        assert read(store, about, 10).tolist() == small.tolist()


@pytest.mark.parametrize("folder", ["loss-0", "loss-1", "loss-0/c", "loss-1/c"])
def test_nothing_is_written_through_a_link(tmp_path, folder):
    store, elsewhere = DurableStore(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run" / folder).parent.mkdir(parents=True)
    (tmp_path / "run" / folder).symlink_to(elsewhere)
    generation = int(folder[5])
    Slots(store, "here").check_own_folders(["hits"])
    for call in (
        lambda: Slots(store, "here").check_own_folders(["hits", "loss"]),
        lambda: write(store, NUMBERS, generation),
    ):
        with pytest.raises(StoreError):
            call()
    write(store, NUMBERS, generation + 1)
    assert not list(elsewhere.iterdir())


def test_one_that_fails_is_waited_for_with_all_others(tmp_path, monkeypatch):
    """None goes on to write while the next commit does."""
    store, done = DurableStore(tmp_path), []

    async def put(self, key, value, _set=DurableStore.set):
        if key == "bad-0/c/0":
            raise OSError(5, "Input/output error")
        await _set(self, key, value)
        done.append(key)

    monkeypatch.setattr(DurableStore, "set", put)
    with pytest.raises(OSError, match="Input/output"):
        Slots(store, "here").write(4, dict.fromkeys(("bad", "one", "two", "three"), NUMBERS))
    assert {f"{name}-0/c/0" for name in ("one", "two", "three")} <= set(done)


@pytest.mark.parametrize("samples", [10**9, 1 << 53])
def test_memory_for_an_array_is_not_taken_before_a_chunk_of_it_is_there(store, samples):
    about = write(store, NUMBERS)
    found = metadata(store)
    found["shape"] = [samples]
    found["chunk_grid"]["configuration"]["chunk_shape"] = [slots.CHUNK]
    write_bytes(store, "loss-0/zarr.json", json.dumps(found).encode())
    refused(store, about | {"shape": [samples]})
