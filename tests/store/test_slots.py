"""The arrays of a store alone: what is written is read, wherever it is cut, and nothing else passes for it."""

import json
import re
import zlib

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from zarr.storage import LocalStore, MemoryStore

from prunedata.errors import DamagedStore, StoreError
from prunedata.store import slots
from prunedata.store.documents import KINDS, group_document
from prunedata.store.durable import DurableStore, list_names, read_bytes, write_bytes
from prunedata.store.slots import Slots, check_about

ABOUT = {"shape": [3], "dtype": "<u2", "crc32": 7}
NUMBERS = np.array([1, 2, 258], np.dtype(">u2"))
METADATA = (
    "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "attributes", "zarr_format",
    "node_type", "storage_transformers",
)  # fmt: skip


@pytest.fixture
def short(monkeypatch):
    """Chunks of two numbers."""
    monkeypatch.setattr(slots, "CHUNK", 2)


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else DurableStore(tmp_path)


def metadata(store, place="loss-0"):
    return json.loads(read_bytes(store, f"{place}/zarr.json", 1 << 16))


def refused(store, about, told, generation=4):
    with pytest.raises(DamagedStore, match=rf"^Expected to read loss-{generation % 2} in here\. Got damage: {told}"):
        Slots(store, "here").read("loss", generation, about)


ARRAYS = st.sampled_from(sorted(KINDS)).flatmap(lambda kind: hnp.arrays(kind, st.integers(0, 9)))


@given(ARRAYS, st.sampled_from("<>"), st.integers(0, 5), st.integers(1, 4))
def test_what_is_written_is_read_in_the_machines_byte_order(values, order, generation, chunk):
    little = values.astype(values.dtype.newbyteorder("<"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "CHUNK", chunk)
        store = MemoryStore()
        about = Slots(store, "here").write("loss", generation, values.astype(values.dtype.newbyteorder(order)))
        assert about == {"shape": [values.size], "dtype": little.dtype.str, "crc32": zlib.crc32(little.tobytes())}
        check_about({"loss": about}, "here")
        assert list_names(store) == [f"loss-{generation % 2}"]
        found = Slots(store, "here").read("loss", generation, about)
        assert (found.dtype, found.tobytes()) == (values.dtype, values.tobytes())
        refused(store, about, r"Expected its zarr\.json\. Got none\.", generation + 1)
        with pytest.raises(DamagedStore, match=rf"Expected loss-{generation % 2} in here to match its digest\."):
            Slots(store, "here").read("loss", generation, about | {"crc32": about["crc32"] ^ 1})


def test_part_of_a_larger_array_is_written_as_it_reads():
    values, one = np.arange(12, dtype=np.int32).reshape(4, 3)[:, 1], Slots(MemoryStore(), "here")
    assert one.read("loss", 4, one.write("loss", 4, values)).tolist() == [1, 4, 7, 10]


def test_all_chunks_are_files_of_one_size(short, store):
    Slots(store, "here").write("loss", 4, NUMBERS)
    assert [read_bytes(store, f"loss-0/c/{n}", 9) for n in range(3)] == [b"\1\0\2\0", b"\2\1\0\0", None]
    assert metadata(store)["chunk_grid"]["configuration"]["chunk_shape"] == [2]


def test_a_chunk_holds_as_many_numbers_as_there_are_up_to_a_limit():
    assert slots.CHUNK == 1 << 24
    for samples, size in ((0, 1), (1, 1), (5, 5)):
        store = MemoryStore()
        Slots(store, "here").write("loss", 4, np.zeros(samples))
        assert metadata(store)["chunk_grid"]["configuration"]["chunk_shape"] == [size]


def test_arrays_are_described_as_zarr_describes_them(tmp_path):
    """Word for word, so that zarr and everything that reads it can read a run."""
    assert KINDS == {
        "|u1": "uint8", "<u2": "uint16", "<u4": "uint32", "<u8": "uint64", "|i1": "int8", "<i2": "int16",
        "<i4": "int32", "<i8": "int64", "<f2": "float16", "<f4": "float32", "<f8": "float64",
    }  # fmt: skip
    for kind in KINDS:
        values = np.arange(5).astype(kind)
        Slots(DurableStore(tmp_path / "ours"), "").write("loss", 0, values)
        fill = np.nan if values.dtype.kind == "f" else np.iinfo(values.dtype).max
        options = {"chunks": (5,), "compressors": None, "fill_value": fill, "overwrite": True}
        zarr.create_array(LocalStore(tmp_path / "zarr"), name="loss-0", data=values, **options)
        ours, theirs = (
            {path.name: path.read_bytes() for path in (tmp_path / name / "loss-0").rglob("*") if path.is_file()}
            for name in ("ours", "zarr")
        )
        assert ours.keys() == theirs.keys() == {"zarr.json", "0"}
        assert ours["0"] == theirs["0"]
        assert json.loads(ours["zarr.json"]) == json.loads(theirs["zarr.json"])


def test_a_group_is_described_as_zarr_describes_it(tmp_path):
    zarr.create_group(LocalStore(tmp_path), attributes={"prunedata": {"format": 1}})
    theirs = json.loads((tmp_path / "zarr.json").read_bytes())
    assert json.loads(group_document("prunedata", '{"format": 1}')) == theirs


def test_metadata_are_written_once_and_again_where_they_must(tmp_path, monkeypatch):
    told = []

    def seen(store, key, value):
        told.append(key)
        write_bytes(store, key, value)

    monkeypatch.setattr(slots, "write_bytes", seen)
    store = DurableStore(tmp_path)
    one, small = Slots(store, "here"), np.zeros(3, np.uint8)
    for values, generation, again in (
        (small, 2, True), (small, 3, True), (small, 4, False), (small, 5, False), (np.zeros(4, np.uint8), 6, True),
        (np.zeros(4, np.int8), 8, True), (small, 7, False), (small, 10, True),
    ):  # fmt: skip
        told.clear()
        about = one.write("loss", generation, values)
        assert told == [f"loss-{generation % 2}/zarr.json"] * again
        assert Slots(store, "here").read("loss", generation, about).tolist() == values.tolist()
    (tmp_path / "loss-0" / "zarr.json").unlink()
    told.clear()
    one.write("loss", 12, small)
    assert told == ["loss-0/zarr.json"]


@pytest.mark.parametrize("folder", ["loss-0", "loss-1", "loss-0/c", "loss-1/c"])
def test_nothing_is_written_through_a_link(tmp_path, folder):
    store, elsewhere = DurableStore(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run" / folder).parent.mkdir(parents=True)
    (tmp_path / "run" / folder).symlink_to(elsewhere)
    one, generation = Slots(store, "here"), int(folder[5])
    one.check_own_folders(["hits"])
    for call in (lambda: one.check_own_folders(["hits", "loss"]), lambda: one.write("loss", generation, NUMBERS)):
        with pytest.raises(StoreError, match=f"Got {folder}, which is a link"):
            call()
    one.write("loss", generation + 1, NUMBERS)
    assert not list(elsewhere.iterdir())


class TestDamage:
    """What is not as it was written is told, as it is and where it is."""

    def test_a_file_that_is_cut_short_or_missing_on_a_disk(self, short, tmp_path):
        """It is found before memory for the array is taken."""
        store = DurableStore(tmp_path)
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        chunk = tmp_path / "loss-0" / "c" / "1"
        for change in (lambda: chunk.write_bytes(b"\2\1"), lambda: chunk.write_bytes(bytes(5)), chunk.unlink):
            change()
            refused(store, about, "Expected a file of 4 bytes at loss-0/c/1. Got none.")

    def test_a_file_that_is_cut_short_or_missing_elsewhere(self, short):
        store = MemoryStore()
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        write_bytes(store, "loss-0/c/1", b"\2\1\0")
        refused(store, about, "Expected 2 samples in each of its chunks. Got fewer.")
        write_bytes(store, "loss-0/c/1", bytes(5))
        refused(store, about, "Expected at most 4 bytes in loss-0/c/1.")
        del store._store_dict["loss-0/c/1"]
        refused(store, about, "Expected 2 samples in each of its chunks. Got fewer.")

    def test_metadata_that_are_no_json_or_too_long(self, store):
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        raw = read_bytes(store, "loss-0/zarr.json", 1 << 16)
        write_bytes(store, "loss-0/zarr.json", raw.ljust(1 << 16))
        assert Slots(store, "here").read("loss", 4, about).tolist() == NUMBERS.tolist()
        write_bytes(store, "loss-0/zarr.json", raw.ljust((1 << 16) + 1))
        refused(store, about, "Expected at most 65,536 bytes in loss-0/zarr.json.")
        write_bytes(store, "loss-0/zarr.json", b"{")
        refused(store, about, "Expecting property name")
        write_bytes(store, "loss-0/zarr.json", b"[" * 60_000)
        refused(store, about, "maximum recursion")

    @pytest.mark.parametrize("size", [0, -1, 4, True, 2.0, "2", None, [2]])
    def test_chunks_of_another_size(self, store, size):
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        found = metadata(store)
        found["chunk_grid"]["configuration"]["chunk_shape"] = [size]
        write_bytes(store, "loss-0/zarr.json", json.dumps(found).encode())
        refused(store, about, rf"Expected chunks as they were written. Got chunks of {re.escape(repr(size))}\.")

    @pytest.mark.parametrize("samples", [0, 1])
    def test_chunks_of_more_than_there_is(self, store, samples):
        about = Slots(store, "here").write("loss", 4, NUMBERS[:samples])
        found = metadata(store)
        found["chunk_grid"]["configuration"]["chunk_shape"] = [2]
        write_bytes(store, "loss-0/zarr.json", json.dumps(found).encode())
        refused(store, about, r"Expected chunks as they were written. Got chunks of 2\.")

    @pytest.mark.parametrize("found", [[], 3, None, {}, {"chunk_grid": {}}, {"chunk_grid": {"configuration": 1}}])
    def test_metadata_of_another_shape(self, store, found):
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        write_bytes(store, "loss-0/zarr.json", json.dumps(found).encode())
        refused(store, about, "Expected chunks as they were written. Got chunks of None.")

    @pytest.mark.parametrize("key", METADATA)
    @pytest.mark.parametrize("gone", [True, False])
    def test_any_of_the_metadata(self, store, key, gone):
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        found = metadata(store)
        if gone:
            del found[key]
        else:
            found[key] = found[key] | {"more": 1} if key == "chunk_grid" else "another"
        write_bytes(store, "loss-0/zarr.json", json.dumps(found).encode())
        if key in ("attributes", "fill_value", "storage_transformers"):  # they don't say how it is stored
            assert Slots(store, "here").read("loss", 4, about).tolist() == NUMBERS.tolist()
        elif gone and key == "chunk_grid":
            refused(store, about, "Expected chunks as they were written. Got chunks of None.")
        else:
            refused(store, about, rf"Expected its metadata as they were written. Got other ones: {key}\.$")

    def test_metadata_with_more(self, store):
        about = Slots(store, "here").write("loss", 4, NUMBERS)
        write_bytes(store, "loss-0/zarr.json", json.dumps(metadata(store) | {"more": 1}).encode())
        refused(store, about, r"Expected its metadata as they were written. Got other ones: more\.$")


class TestAbout:
    """What a pointer says of its arrays."""

    @pytest.mark.parametrize("name", ["loss", "open-loss", "_", "é", "a1", "more-0", "a" * 128])
    @pytest.mark.parametrize("change", [{}, {"shape": [0]}, {"crc32": 0}, {"dtype": "|u1"}])
    def test_what_can_be(self, name, change):
        check_about({"hits": ABOUT, name: ABOUT | change}, "here")

    @pytest.mark.parametrize("name", ["", "-loss", "1a", "a b", "a/b", "..", "a.b", "a\n", "a" * 129])
    def test_names_that_cannot_be(self, name):
        self.refused(name, ABOUT)

    @pytest.mark.parametrize(
        "change",
        [{"shape": wrong} for wrong in ([], [3, 1], [-1], [True], [3.0], ["3"], "3", 3, None, {"0": 3})]
        + [{"dtype": wrong} for wrong in ("<u1", ">u2", "|O", "<U1", "u2", "", None, 2, [])]
        + [{"crc32": wrong} for wrong in (-1, True, 7.0, "7", None)]
        + [{"more": 1}],
        ids=str,
    )
    def test_what_cannot_be(self, change):
        self.refused("loss", ABOUT | change)

    @pytest.mark.parametrize("about", [None, [], 3, {}, *({k: ABOUT[k] for k in ABOUT if k != gone} for gone in ABOUT)])
    def test_what_is_missing(self, about):
        self.refused("loss", about)

    @pytest.mark.parametrize("arrays", [None, [], ["loss"], 3, "loss"])
    def test_what_has_no_names(self, arrays):
        with pytest.raises(DamagedStore, match=r"^Expected names of arrays in here/zarr\.json\. Got "):
            check_about(arrays, "here")

    def refused(self, name, about):
        with pytest.raises(DamagedStore, match=r"^Expected name, shape, dtype and digest of an array in here/zarr\."):
            check_about({"hits": ABOUT, name: about}, "here")
