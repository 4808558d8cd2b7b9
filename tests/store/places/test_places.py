"""Where a run is kept: what can be opened, and how files are read, written and swept there."""

import errno
import io
import os
from pathlib import Path

import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

from prunedata.errors import DamagedStore, ForeignStore, StoreError
from prunedata.store import durable
from prunedata.store.durable import (
    DurableStore,
    check_own_folder,
    is_missing,
    list_names,
    read_bytes,
    write_bytes,
)
from prunedata.store.location import open_location


def buffer(value):
    return default_buffer_prototype().buffer.from_bytes(value)


@pytest.fixture(params=["disk", "memory", "fsspec"])
def store(request, tmp_path):
    if request.param == "disk":
        return DurableStore(tmp_path)
    if request.param == "memory":
        return MemoryStore()
    return open_location(f"memory://{tmp_path}", read_only=False)


class TestOpen:
    def test_a_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for location in ("run", Path("run"), f"file://{tmp_path}/run", LocalStore(tmp_path / "run")):
            store = open_location(location, read_only=False)
            assert (type(store), store.root, store.read_only) == (DurableStore, tmp_path / "run", False)
        assert not (tmp_path / "run").exists()
        (tmp_path / "run").mkdir()
        for location in ("run", LocalStore(tmp_path / "run"), LocalStore(tmp_path / "run", read_only=True)):
            store = open_location(location, read_only=True)
            assert (type(store), store.root, store.read_only) == (DurableStore, tmp_path / "run", True)

    def test_a_store_of_another_kind_is_itself(self, tmp_path):
        for store in (MemoryStore(), DurableStore(tmp_path)):
            assert open_location(store, read_only=False) is store
        for store in (MemoryStore(read_only=True), MemoryStore()):
            assert open_location(store, read_only=True) is store
        packed = ZipStore(tmp_path / "run.zip", mode="w")
        assert open_location(packed, read_only=True) is packed
        with pytest.raises(StoreError, match=r"in which a value can be replaced\. Got ZipStore"):
            open_location(packed, read_only=False)

    @pytest.mark.parametrize("read_only", [True, False])
    def test_a_url(self, read_only):
        store = open_location("memory://place/run", read_only=read_only)
        assert isinstance(store, FsspecStore)
        assert (store.path, store.read_only) == ("/place/run", read_only)

    def test_what_cannot_be_written(self, tmp_path):
        for store in (MemoryStore(read_only=True), LocalStore(tmp_path, read_only=True)):
            with pytest.raises(StoreError, match=r"Expected a store that can be written.*read-only"):
                open_location(store, read_only=False)

    @pytest.mark.parametrize("location", [3, None, b"run", ["run"]])
    def test_what_is_no_place(self, location):
        with pytest.raises(StoreError, match=f"a path, a URL or a zarr store. Got {type(location).__name__}"):
            open_location(location, read_only=False)

    def test_what_is_no_folder_or_is_not_there(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        for read_only in (True, False):
            with pytest.raises(ForeignStore, match=f"Expected a folder for the store. Got the file {tmp_path}/file"):
                open_location(tmp_path / "file", read_only=read_only)
        with pytest.raises(ForeignStore, match=f"Expected a run at {tmp_path}/none. Got nothing"):
            open_location(tmp_path / "none", read_only=True)


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
    def test_files_and_folders_are_made_where_they_are_asked_for(self, tmp_path):
        store = DurableStore(tmp_path / "deep" / "run")
        assert list_names(store) == []
        assert not store.root.exists()
        store.make_folder()
        store.make_folder()
        assert list_names(store) == []
        sync(store.set("a/b", buffer(b"1")))
        store.set_sync("a/c", buffer(b"2"))
        sync(store.set_if_not_exists("a/c", buffer(b"3")))
        sync(store.set_if_not_exists("a/d", buffer(b"3")))
        assert {path.name: path.read_bytes() for path in (store.root / "a").iterdir()} == {
            "b": b"1",
            "c": b"2",
            "d": b"3",
        }

    def test_zarr_makes_the_folder_of_a_store_that_it_opens(self, tmp_path):
        sync(DurableStore.open(tmp_path / "run"))
        assert (tmp_path / "run").is_dir()
        with pytest.raises(FileNotFoundError):
            sync(DurableStore.open(tmp_path / "none", read_only=True))
        assert not (tmp_path / "none").exists()

    def test_what_is_read_only_is_not_written(self, tmp_path):
        store = DurableStore(tmp_path, read_only=True)
        for write in (lambda *a: sync(store.set(*a)), store.set_sync):
            with pytest.raises(ValueError, match="read-only"):
                write("a", buffer(b"1"))
        assert list_names(store) == []

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

    @pytest.mark.parametrize("second", ["link", "hard link"])
    def test_a_file_with_another_name_is_replaced_and_the_other_stays(self, tmp_path, second):
        store, other = DurableStore(tmp_path / "run"), tmp_path / "other"
        chunk = store.root / "a" / "c" / "0"
        write_bytes(store, "a/c/0", b"12345")
        if second == "link":
            chunk.rename(other)
            chunk.symlink_to(other)
        else:
            other.hardlink_to(chunk)
        write_bytes(store, "a/c/0", b"54321")
        assert (read_bytes(store, "a/c/0", 9), other.read_bytes()) == (b"54321", b"12345")
        assert not chunk.is_symlink()

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

    def test_descriptors_are_closed_whatever_happens(self, tmp_path, monkeypatch):
        opened, closed = [], []

        def refuse(descriptor):
            opened.append(descriptor)
            raise PermissionError

        def close(descriptor, _close=os.close):
            closed.append(descriptor)
            _close(descriptor)

        monkeypatch.setattr(os, "fsync", refuse)
        monkeypatch.setattr(os, "close", close)
        DurableStore(tmp_path / "run").sync_names()
        assert len(opened) == len((tmp_path / "run").parents)
        assert opened == closed

    def test_a_folder_that_may_not_be_opened_does_not_stop_the_names_above(self, tmp_path, monkeypatch):
        seen = []

        def sync_folder(folder):
            seen.append(folder)
            raise PermissionError

        monkeypatch.setattr(durable, "_sync_folder", sync_folder)
        DurableStore(tmp_path / "run").sync_names()
        assert seen == list((tmp_path / "run").parents)

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

    @pytest.mark.parametrize("link", ["loss", "loss/c"])
    def test_a_folder_that_lies_elsewhere_is_not_the_runs_own(self, tmp_path, link):
        store = DurableStore(tmp_path / "run")
        (tmp_path / "elsewhere").mkdir()
        (store.root / link).parent.mkdir(parents=True)
        check_own_folder(store, "loss")
        (store.root / link).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match=f"Expected folders of its own in {store.root}. Got {link}, which is a"):
            check_own_folder(store, "loss")

    def test_the_whole_run_may_lie_behind_a_link(self, tmp_path):
        (tmp_path / "disk" / "loss" / "c").mkdir(parents=True)
        (tmp_path / "run").symlink_to(tmp_path / "disk")
        check_own_folder(DurableStore(tmp_path / "run"), "loss")
