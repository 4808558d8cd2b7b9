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

__all__ = ["WriteLock"]


class WriteLock:
    """Keeps other processes from writing to a folder, and says which of this process's holders may write.

    The folder itself is locked: no file is left behind, none can be swept away, and all names of the folder stand for
    one lock. It is free again when the last holder in this process is released, is garbage, or has died with the
    process. On a file system of the network the lock holds among the processes of one machine.

    Parameters
    ----------
    folder : Path
        An existing folder.

    Raises
    ------
    StoreError
        If another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folder: _LockedFolder | None = _lock(folder)

    def claim(self) -> bool:
        """Become the one that may write. A holder of this process that was it before may no more.

        Return whether nobody else can be writing: no other process, and no earlier holder of this one.
        """
        if self._folder is None:
            return False
        alone = self._folder.locked and self._folder.writer is None
        self._folder.writer = weakref.ref(self)
        return alone

    def check(self) -> None:
        """Raise :class:`StoreError` if a younger holder of this process has claimed the folder, and still lives."""
        writer = None if self._folder is None or self._folder.writer is None else self._folder.writer()
        if writer not in (None, self):
            raise StoreError(
                f"Expected {self.folder} as this run left it. Another Pruner of this process has taken it over, as "
                "happens when a cell of a notebook is run twice: go on with the younger one."
            )

    def release(self) -> None:
        """Give the folder back now, and not only when this is garbage."""
        self._folder = None


class _LockedFolder:
    """A folder that this process has open, and locked, shared by all of its holders."""

    def __init__(self, folder: Path) -> None:
        self.locked = False
        self.writer: weakref.ref[WriteLock] | None = None
        self.descriptor = os.open(folder, os.O_RDONLY)
        self.unlock = weakref.finalize(self, os.close, self.descriptor)

    def lock(self, folder: Path) -> None:
        """Lock it, if the file system can, and no other process has it locked."""
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
"""What this process has locked, by device and inode."""
# One that its own thread can take again: a signal's handler may open a store while it is held, and Ctrl-C come in
# between the last line of a with statement and its end.
_one_at_a_time = threading.RLock()


def _lock(folder: Path) -> _LockedFolder:
    with _one_at_a_time:
        status = folder.stat()
        place = status.st_dev, status.st_ino
        found = _locked.get(place)
        if found is None:
            found = _locked[place] = _LockedFolder(folder)
        # Known before it is locked, and locked again if it is known: should Ctrl-C come in between, a traceback may
        # keep it, and the next try must not take this process for another.
        found.lock(folder)
        return found


def _forget() -> None:
    """In a forked child: the locks are the parent's, and must not outlive it here."""
    for found in list(_locked.values()):
        found.unlock()  # closes the child's descriptor; the parent's goes on to hold the lock
    _locked.clear()
    _one_at_a_time.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_forget)
