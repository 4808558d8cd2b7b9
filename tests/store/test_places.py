"""How files are read, written and swept on a disk and elsewhere; and zarr's own suite for stores."""

import gc
import os
import secrets
import signal
import sys
import threading
from pathlib import Path

import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import Buffer, cpu
from zarr.core.sync import sync
from zarr.storage import MemoryStore, WrapperStore
from zarr.testing.store import StoreTests

from prunedata.errors import DamagedStore
from prunedata.store import lock
from prunedata.store.durable import DurableStore, check_own_folder, is_missing, list_names, read_bytes, write_bytes
from prunedata.store.location import open_location
from prunedata.store.lock import WriteLock
from prunedata.store.run_store import RunStore
from tests.store.stored_runs import is_locked

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

    def test_more_than_there_may_be_is_refused_and_not_read(self, store):
        """Else a stranger's object would fill the memory before it is refused."""
        write_bytes(store, "a", b"12345")
        with pytest.raises(DamagedStore, match=r"Expected at most 4 bytes in a\. Got more\."):
            read_bytes(store, "a", 4)
        asked = []

        class Watched(WrapperStore):
            async def get(self, key, prototype, byte_range=None):
                asked.append(byte_range)
                return await super().get(key, prototype, byte_range)

        store = Watched(MemoryStore())
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

    @pytest.mark.parametrize(
        ("owner", "call", "error"), [(os, "fsync", OSError), (os, "fsync", KeyboardInterrupt), (Path, "open", OSError)]
    )
    def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(self, tmp_path, monkeypatch, owner, call, error):
        store = DurableStore(tmp_path)
        write_bytes(store, "a", b"1")

        def fail(*_):
            raise error("disk full")

        monkeypatch.setattr(owner, call, fail)
        with pytest.raises(error, match="disk full"):
            write_bytes(store, "a", b"2")
        monkeypatch.undo()
        assert (list_names(store), read_bytes(store, "a", 9)) == (["a"], b"1")

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


def test_a_longer_file_that_a_writer_puts_in_its_place_meanwhile_is_read_whole(tmp_path, monkeypatch):
    """Else the description of a run was cut off, and it was called damaged."""
    store = DurableStore(tmp_path)
    write_bytes(store, "zarr.json", b"1")

    (tmp_path / "longer").write_bytes(b"123456789")

    def opened(path, *mode, _open=Path.open):
        (tmp_path / "longer").replace(path)
        return _open(path, *mode)

    monkeypatch.setattr(Path, "open", opened)
    assert read_bytes(store, "zarr.json", 99) == b"123456789"


def test_files_that_a_writer_puts_in_their_place_meanwhile_do_not_make_a_store_read_only(tmp_path):
    folder, done = tmp_path / "hits-0" / "c", threading.Event()
    folder.mkdir(parents=True)

    def write():
        while not done.is_set():
            parts = [folder / f"{secrets.token_hex(8)}.partial" for _ in range(100)]  # a writer uses no name twice
            for part in parts:
                part.touch()
            for part in parts:
                part.replace(folder / "0")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            DurableStore(tmp_path).check_writable()
    finally:
        done.set()
        writer.join()


pytest.importorskip("fcntl")


def test_a_folder_is_locked_until_its_last_holder_is_gone(tmp_path):
    one, two, three = (WriteLock(tmp_path) for _ in range(3))
    (tmp_path / "link").symlink_to(tmp_path)
    four = WriteLock(tmp_path / "link")
    assert one.folder == tmp_path
    assert is_locked(tmp_path)
    one.release()
    one.release()
    del two
    four.release()
    gc.collect()
    assert is_locked(tmp_path)
    three.release()
    assert not is_locked(tmp_path)


@pytest.mark.parametrize("how", ["the system has none", "the file system has none"])
def test_where_there_are_no_locks_nobody_knows_to_be_alone(tmp_path, monkeypatch, how):
    def flock(descriptor, kind):
        raise OSError(95, "Operation not supported")

    if how == "the system has none":
        monkeypatch.setattr(lock, "fcntl", None)
    else:
        monkeypatch.setattr(lock.fcntl, "flock", flock)
    one = WriteLock(tmp_path)
    assert one.claim() is False
    one.check()
    monkeypatch.undo()
    assert not is_locked(tmp_path)


def test_a_lock_that_was_lost_is_known_to_be(tmp_path, monkeypatch):
    """A network file system may have given locks before, and give none now."""

    def flock(descriptor, kind):
        raise OSError(37, "No locks available")

    one = WriteLock(tmp_path)
    monkeypatch.setattr(lock.fcntl, "flock", flock)
    two = WriteLock(tmp_path)
    assert not one.claim()
    del two


class InterruptAtLine:
    """Raises SIGINT at one line of the lock, as they are reached; at none if that is 0."""

    def __init__(self, at):
        self.at, self.lines = at, 0

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename != lock.__file__:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self

    def open(self, place):
        sys.settrace(self)
        try:
            store = RunStore(place)
            store.read()
            return store
        finally:
            sys.settrace(None)


def test_ctrl_c_at_every_line_of_the_lock(tmp_path):
    """A notebook keeps the traceback, and with it whatever the interrupted call had in its hands."""
    RunStore(tmp_path / "0").create({})
    count = InterruptAtLine(0)
    count.open(tmp_path / "0").release()
    assert count.lines > 20
    before, kept = signal.signal(signal.SIGINT, signal.default_int_handler), []
    try:
        for at in range(1, count.lines + 1):
            place = Path(tmp_path / str(at))
            store = RunStore(place)
            store.create({"of": at})
            store.release()
            del store
            with pytest.raises(KeyboardInterrupt) as interrupted:
                InterruptAtLine(at).open(place)
            kept.append(interrupted.value)
            again = RunStore(place)
            assert again.read()[0]["of"] == at, f"interrupted at line {at}"
            again.write({}, {})
    finally:
        signal.signal(signal.SIGINT, before)
