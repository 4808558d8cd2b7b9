"""One writer for a run in a local folder: a lock that dies with its process."""

import os
import threading
import weakref
from pathlib import Path

from prunedata.errors import StoreError

try:
    import fcntl
except ImportError:  # not on Windows: there only the check of the pointer is left
    fcntl = None  # type: ignore[assignment]


class WriteLock:
    """Keeps other processes from writing to a folder, and notes which object of this process may write.

    The folder itself is locked: no lock file is left behind, none can be deleted, and all paths to the folder share one
    lock. It is free again when the last WriteLock of this process is released or garbage, or the process has ended. On
    a network file system it holds among the processes of one machine.

    Raises :class:`StoreError` if another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folder: _LockedFolder | None = _lock(folder)

    def claim(self) -> bool:
        """Become the one writer, in the place of an earlier WriteLock of this process.

        Return whether no other writer can exist: no other process, and no earlier WriteLock of this one.
        """
        if self._folder is None:
            return False
        alone = self._folder.locked and self._folder.writer is None
        self._folder.writer = weakref.ref(self)
        return alone

    def check(self) -> None:
        """Raise :class:`StoreError` if a newer WriteLock of this process has claimed the folder, and still exists."""
        writer = None if self._folder is None or self._folder.writer is None else self._folder.writer()
        if writer not in (None, self):
            raise StoreError(
                f"Expected {self.folder} as this run left it. Another Pruner of this process writes to it now, as "
                "happens when a cell of a notebook is run twice: go on with the newer Pruner."
            )

    def release(self) -> None:
        """Release the folder now, and not only when this object is garbage."""
        self._folder = None


class _LockedFolder:
    """A folder that this process has opened and locked, shared by its WriteLocks."""

    def __init__(self, folder: Path) -> None:
        self.locked = False
        self.writer: weakref.ref[WriteLock] | None = None
        self.descriptor = os.open(folder, os.O_RDONLY)
        self.unlock = weakref.finalize(self, os.close, self.descriptor)

    def lock(self, folder: Path) -> None:
        """Lock the folder, if the file system can; raise if another process has it locked."""
        try:
            if fcntl is not None:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.locked = True
        except BlockingIOError:
            raise StoreError(
                f"Expected to be the only process that writes to {folder}. Another process has it open: stop that run "
                "first (in a notebook, restart its kernel), or name another store. To look at the run, use inspect."
            ) from None
        except OSError:
            self.locked = False


_locked: weakref.WeakValueDictionary[tuple[int, int], _LockedFolder] = weakref.WeakValueDictionary()
"""The folders that this process has locked, by device and inode."""
# An RLock: a signal handler may open a store while this thread holds it, and Ctrl-C may come between the last line of
# a with statement and its end.
_one_at_a_time = threading.RLock()


def _lock(folder: Path) -> _LockedFolder:
    with _one_at_a_time:
        status = folder.stat()
        place = status.st_dev, status.st_ino
        locked = _locked.get(place)
        if locked is None:
            locked = _locked[place] = _LockedFolder(folder)
        # Registered before it is locked, and locked again if it is registered: if Ctrl-C comes in between, a traceback
        # may keep the object alive, and the next try must not take this process for another.
        locked.lock(folder)
        return locked


def _forget() -> None:
    """Drop the locks in a forked child: they belong to the parent."""
    for locked in list(_locked.values()):
        locked.unlock()  # closes the child's descriptor; the parent's keeps the lock
    _locked.clear()
    _one_at_a_time.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_forget)
