"""Errors of the system below a store, told as what they mean for the run."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from prunedata.checks import printable
from prunedata.errors import DamagedStore, DeniedStore, PrunedataError, StoreError, UnwritableStore

__all__ = ["told"]

FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}


@contextmanager
def told(location: str, verb: str) -> Iterator[None]:
    """Turn what the system raises within into a :class:`StoreError` that says what to do.

    Parameters
    ----------
    location : str
        What errors call the store.
    verb : str
        What is done with it: ``read`` or ``write``.
    """
    try:
        yield
    except PrunedataError:
        raise
    except OSError as error:
        raise _of_system(error, location, verb) from error
    except MemoryError as error:
        raise DamagedStore(
            f"Expected arrays at {location} that fit into this machine's memory. Got larger ones."
        ) from error
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
        raise StoreError(
            f"Expected to {verb} {location} while the program runs. Got an interpreter that is shutting down, where "
            "this kind of store has no threads any more: commit before the end of the program, not in atexit."
        ) from error


def _of_system(error: OSError, location: str, verb: str) -> UnwritableStore:
    why = printable(str(error))
    if error.errno in FULL:
        kind, what = UnwritableStore, f"room to {verb} {location}. Got a full disk ({why}): make room, and commit again"
    elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
        kind = DeniedStore
        what = f"permission to {verb} {location}. Got none ({why}): change the folder's permissions"
        what += ", or name another store" if verb == "write" else ""
    else:
        kind, what = UnwritableStore, f"to {verb} {location}. Got {why}"
    last = " The last commit is as it was." if verb == "write" else ""
    found = kind(f"Expected {what}.{last}")
    found.errno = error.errno
    return found
