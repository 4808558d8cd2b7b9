"""How files are read, written and swept on a disk and elsewhere; and zarr's own suite for stores."""

import errno
import io
import os
from pathlib import Path

import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import Buffer, cpu
from zarr.core.sync import sync
from zarr.storage import MemoryStore, WrapperStore
from zarr.testing.store import StoreTests

from prunedata.errors import DamagedStore
from prunedata.store.durable import DurableStore, check_own_folder, is_missing, list_names, read_bytes, write_bytes
from prunedata.store.location import open_location

# Where a run is kept: what can be opened, and how files are read, written and swept there.


@pytest.fixture(params=["disk", "memory", "fsspec"])
def store(request, tmp_path):
    if request.param == "disk":
        return DurableStore(tmp_path)
    if request.param == "memory":
        return MemoryStore()
    return open_location(f"memory://{tmp_path}", read_only=False)


class TestAnyStore:
    def test_what_is_written_is_read(self, store):
        assert list_names(store) == []
        assert read_bytes(store, "a/b", 9) is None
        write_bytes(store, "z", b"")
        write_bytes(store, "a/b", b"12345")
        assert read_bytes(store, "z", 0) == b""
        assert read_bytes(store, "a/b", 5) == b"12345"
        assert list_names(store) == ["a", "z"]
        for value in (b"12345", b"54321", b"1", b"123456789"):  # in its place, shorter, longer
            write_bytes(store, "a/c/0", value)
            assert read_bytes(store, "a/c/0", 9) == value
        write_bytes(store, "a/b", b"1")
        assert read_bytes(store, "a/b", 9) == b"1"

    def test_more_than_there_may_be_is_refused(self, store):
        write_bytes(store, "a", b"12345")
        with pytest.raises(DamagedStore, match=r"Expected at most 4 bytes in a\. Got more\."):
            read_bytes(store, "a", 4)

    def test_no_more_is_read_than_there_may_be(self):
        """Else a stranger's object would fill the memory before it is refused."""
        asked = []

        class RunOptions(WrapperStore):
            async def get(self, key, prototype, byte_range=None):
                asked.append(byte_range)
                return await super().get(key, prototype, byte_range)

        store = RunOptions(MemoryStore())
        write_bytes(store, "a", b"12345")
        with pytest.raises(DamagedStore, match="Expected at most 2 bytes"):
            read_bytes(store, "a", 2)
        assert asked == [RangeByteRequest(0, 3)]

    def test_only_of_a_disk_it_is_asked_what_lies_there(self, store):
        disk = isinstance(store, DurableStore)
        write_bytes(store, "c/0", b"123")
        assert [is_missing(store, key) for key in ("c/0", "c/2", "c")] == [False, disk, disk]
        check_own_folder(store, "c")


def test_what_others_wrote_to_a_url_meanwhile_is_listed(tmp_path):
    one, other = (open_location(f"local://{tmp_path}", read_only=False) for _ in range(2))
    assert list_names(one) == []
    write_bytes(other, "a", b"1")
    assert list_names(one) == ["a"]


class TestDisk:
    def test_what_is_no_file(self, tmp_path):
        store = DurableStore(tmp_path)
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").write_bytes(b"1")
        assert read_bytes(store, "folder", 9) is None
        assert read_bytes(store, "file/more", 9) is None
        if hasattr(os, "mkfifo"):
            os.mkfifo(tmp_path / "pipe")
            with pytest.raises(DamagedStore, match=f"Expected a file. Got {tmp_path}/pipe"):
                read_bytes(store, "pipe", 9)

    @pytest.mark.parametrize(
        ("key", "value", "in_place"),
        [("a/c/0", b"54321", True), ("a/c/0", b"1234", False), ("a/c/0", b"123456", False), ("a/c", b"54321", False)],
        ids=str,
    )
    def test_a_chunk_of_the_same_length_is_written_over(self, tmp_path, key, value, in_place):
        store = DurableStore(tmp_path)
        write_bytes(store, key, b"12345")
        before = (tmp_path / key).stat().st_ino
        write_bytes(store, key, value)
        assert ((tmp_path / key).stat().st_ino == before) == in_place
        assert read_bytes(store, key, 9) == value

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(self, tmp_path, monkeypatch, error):
        store = DurableStore(tmp_path)
        write_bytes(store, "a", b"1")

        def fail(descriptor):
            raise error

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(error):
            write_bytes(store, "a", b"2")
        assert (list_names(store), read_bytes(store, "a", 9)) == (["a"], b"1")

    def test_a_write_that_cannot_begin_is_told_for_what_it_is(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "open", full)
        with pytest.raises(OSError, match="No space left"):
            write_bytes(DurableStore(tmp_path), "a", b"1")

    def test_a_folder_that_another_makes_at_the_same_instant_is_as_good(self, tmp_path, monkeypatch):
        folder, not_yet = tmp_path / "run", [True]
        folder.mkdir()

        def is_dir(self, _is_dir=Path.is_dir):
            return _is_dir(self) and not (self == folder and not_yet and not_yet.pop())

        monkeypatch.setattr(Path, "is_dir", is_dir)
        DurableStore(folder).make_folder()
        assert not not_yet

    def test_no_more_of_a_file_is_read_than_there_may_be(self, tmp_path, monkeypatch):
        """It may grow after its length was looked at, and be any length at all."""
        asked = []

        class RunOptions(io.BytesIO):
            def read(self, size=-1):
                asked.append(size)
                return super().read(size)

        (tmp_path / "a").write_bytes(b"12345")
        monkeypatch.setattr(Path, "open", lambda self, mode: RunOptions(b"12345"))
        assert read_bytes(DurableStore(tmp_path), "a", 9) == b"12345"
        with pytest.raises(DamagedStore, match="Expected at most 2 bytes"):
            read_bytes(DurableStore(tmp_path), "a", 2)
        assert asked == [6, 3]

    def test_leftovers_are_swept_where_runs_leave_them_and_not_behind_links(self, tmp_path):
        run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
        left = ["a.partial", "hits-0/b.partial", "hits-1/c/0.1.partial"]
        kept = ["a", "a.partial.txt", "hits-0/b", "other/a.partial", "hits-2/a.partial", "hits-0/d/a.partial"]
        for name in (*left, *kept):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_bytes(b"1")
        (elsewhere / "c").mkdir(parents=True)
        (elsewhere / "a.partial").write_bytes(b"1")
        (elsewhere / "c" / "a.partial").write_bytes(b"1")
        (run / "loss-0").symlink_to(elsewhere)
        (run / "loss-1").mkdir()
        (run / "loss-1" / "c").symlink_to(elsewhere)
        DurableStore(run).sweep()
        found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
        assert found == set(kept)
        assert len(list(elsewhere.rglob("*.partial"))) == 2

    def test_a_leftover_that_is_gone_meanwhile_does_not_matter(self, tmp_path, monkeypatch):
        def glob(self, pattern, _glob=Path.glob):
            return [*_glob(self, pattern), *([self / "gone.partial"] if pattern.endswith(".partial") else [])]

        monkeypatch.setattr(Path, "glob", glob)
        DurableStore(tmp_path).sweep()


# The durable store is one of zarr's: it passes the suite that zarr has for stores.


pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class TestDurableStore(StoreTests[DurableStore, cpu.Buffer]):
    store_cls = DurableStore
    buffer_cls = cpu.Buffer

    async def get(self, store: DurableStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes((store.root / key).read_bytes())

    async def set(self, store: DurableStore, key: str, value: Buffer) -> None:
        path = store.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, str]:
        return {"root": str(tmp_path)}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, str]) -> DurableStore:
        return sync(DurableStore.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, str]) -> DurableStore:
        return DurableStore(**store_kwargs)

    def test_store_repr(self, store: DurableStore) -> None:
        assert str(store) == f"file://{store.root.as_posix()}"

    def test_store_supports_writes(self, store: DurableStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: DurableStore) -> None:
        assert store.supports_listing
