"""A run's zarr store, which on the local disk keeps what was written even after a power cut."""

import asyncio
import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from zarr.abc.store import RangeByteRequest, Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath

from prunedata.errors import DamagedStore, StoreError

T = TypeVar("T")
PARTIAL = ".partial"  # ending of a file's name while it is written


class DurableStore(LocalStore):
    """A local store whose writes have reached the disk when they return.

    zarr replaces a file in one step but leaves it to the system when its bytes are written, so that after a power
    cut a new name can belong to an empty file. Chunks are in a slot that no commit refers to: they may be torn, and are
    overwritten in place where possible, as new names and blocks take the disk longer than bytes.
    """

    async def _open(self, **options: Any) -> None:
        if not self.read_only:
            await asyncio.to_thread(make_folder, self.root)
        await super()._open(**options)

    def check_writable(self) -> None:
        """Raise :class:`PermissionError` if this user could not commit here."""
        folders = self._own_folders()
        files = [file for folder in folders if folder.name == "c" for file in folder.iterdir()]
        for path in (*folders, *files):
            may = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
            if not may and path.exists():  # a writer may have replaced it meanwhile
                raise PermissionError(errno.EACCES, "read-only for this user", str(path))

    def sync_names(self) -> None:
        """Sync the folder, its slots, and every level above: an earlier process may have died before it did so."""
        for folder in self.root.parents:
            with contextlib.suppress(PermissionError):
                _sync_folder(folder)
        for folder in self._own_folders():
            _sync_folder(folder)

    def _own_folders(self) -> list[Path]:
        slots = [folder for slot in sorted(self.root.glob("*-[01]")) for folder in (slot, slot / "c")]
        return [folder for folder in (self.root, *slots) if folder.is_dir() and _is_own(self.root, folder)]

    def sweep(self) -> None:
        """Remove the partial files of writers that were killed. Call it only while holding the lock."""
        for folder in self._own_folders():
            for partial in folder.glob(f"*{PARTIAL}"):
                partial.unlink(missing_ok=True)

    async def set(self, key: str, value: Buffer) -> None:
        """Write one file, sync it, then replace the old one."""
        await asyncio.to_thread(self.set_sync, key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write one file as :meth:`set` does, outside of an event loop."""
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"Expected a zarr Buffer to write. Got {type(value).__name__}.")
        (_overwrite_durably if "/c/" in key else _replace_durably)(self.root / key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write one file if it does not exist."""
        if not await self.exists(key):
            await self.set(key, value)


class _Immediate(ThreadPoolExecutor):
    """Runs each function at once, in the calling thread."""

    def submit(self, do: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(do(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def finish(store: Store, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on zarr's event loop; in atexit, where no thread can be started any more, in this thread."""
    if threading.main_thread().is_alive() or not isinstance(store, LocalStore | MemoryStore):
        return sync(work)
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Immediate())
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def list_names(store: Store) -> list[str]:
    """Return the names at the root of a store, sorted."""
    if isinstance(store, DurableStore):
        return sorted(os.listdir(store.root)) if store.root.is_dir() else []

    async def names() -> list[str]:
        return [name async for name in store.list_dir("")]

    if isinstance(store, FsspecStore):
        store.fs.invalidate_cache()
    # Object stores mark an empty folder by an empty name.
    return sorted(filter(None, sync(names())))


def read_bytes(store: Store, key: str, most: int) -> bytes | None:
    """Return the bytes of a key, or None if the store does not have it.

    Raises :class:`DamagedStore` if there are more than ``most`` bytes, or it is no plain file.
    """
    # A local file is read without zarr, whose thread takes longer than the file.
    raw = _read_file(store.root / key, most) if isinstance(store, DurableStore) else sync(_get(store, key, most))
    if raw is not None and len(raw) > most:
        raise DamagedStore(f"Expected at most {most:,} bytes in {key}. Got more.")
    return raw


def check_own_folder(store: Store, name: str) -> None:
    """Raise :class:`StoreError` if a folder of a local store is a link: a run only writes to its own folders."""
    if isinstance(store, DurableStore):
        for folder in (store.root / name, store.root / name / "c"):
            if not _is_own(store.root, folder):
                raise StoreError(
                    f"Expected folders of its own in {store.root}. Got {folder.relative_to(store.root)}, which is a "
                    "link to another place: put a copy of that in its place, or link the folder of the whole run."
                )


def write_bytes(store: Store, key: str, value: bytes) -> None:
    """Write the bytes of a key, in one step and as durably as the store can."""
    buffer = default_buffer_prototype().buffer.from_bytes(value)
    if isinstance(store, DurableStore):
        store.set_sync(key, buffer)
    else:
        sync(store.set(key, buffer))


def is_missing(store: Store, key: str) -> bool:
    """Return whether a local file is missing. For other stores return False, as it would take a request."""
    return isinstance(store, DurableStore) and not (store.root / key).is_file()


async def _get(store: Store, key: str, most: int) -> bytes | None:
    place = await StorePath.open(store, key)  # opens the store, if it is not open
    buffer = await place.get(default_buffer_prototype(), byte_range=RangeByteRequest(0, most + 1))
    return None if buffer is None else buffer.to_bytes()


def _read_file(path: Path, most: int) -> bytes | None:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):  # a pipe would wait, and a device may never end
            raise DamagedStore(f"Expected a file. Got {path}, which is a device or a pipe.")
        with path.open("rb") as file:
            # Its length now: a writer may have put a longer file in the place of the one that was looked at.
            return file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_own(root: Path, folder: Path) -> bool:
    """Return whether no part of the path from the root to a folder is a link."""
    return not any(part.is_symlink() for part in (folder, *folder.parents) if root in part.parents)


def _overwrite_durably(path: Path, value: Buffer) -> None:
    status = path.lstat() if path.exists() else None
    # Not through a link, nor in a file with a second name, which may be a copy of the run that a user has made.
    own = status is not None and stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    if status is None or not own or status.st_size != len(value):
        _replace_durably(path, value)
        return
    with path.open("r+b") as file:
        file.write(value.as_buffer_like())
        file.flush()
        _sync_bytes(file.fileno())


_sync_bytes = getattr(os, "fdatasync", os.fsync)
"""Sync the bytes of a file of unchanged length; the time of its change may be lost."""


def _replace_durably(path: Path, value: Buffer) -> None:
    make_folder(path.parent)
    # A name of its own for each write, so that another writer, which should not exist, cannot tear this file.
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        with part.open("xb") as file:
            file.write(value.as_buffer_like())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, and sync its name: a file is only durable if its folder is."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
