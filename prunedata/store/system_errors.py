"""Turn errors of the system or of a remote service into errors of the store that say what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from prunedata.checks import printable
from prunedata.errors import DamagedStore, DeniedStore, PrunedataError, StoreError, UnreachableStore, UnwritableStore

__all__ = ["explain_errors"]

FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}


@contextmanager
def explain_errors(location: str, verb: str, *, remote: bool = False) -> Iterator[None]:
    """Turn errors within the context into a :class:`StoreError` that says what to do.

    Parameters
    ----------
    location : str
        The name of the store in errors.
    verb : {"read", "write"}
        What is done with the store.
    remote : bool
        Whether another library keeps the store, which raises errors of its own: these are turned, too.
    """
    try:
        yield
    except PrunedataError:
        raise
    except OSError as error:
        raise _of_system(error, location, verb, remote=remote) from error
    except MemoryError as error:
        raise DamagedStore(
            f"Expected arrays at {location} that fit into this machine's memory. Got larger ones."
        ) from error
    except Exception as error:
        if isinstance(error, RuntimeError) and "shutdown" in str(error):
            raise StoreError(
                f"Expected to {verb} {location} while the program runs. The interpreter is shutting down, and this "
                "kind of store has no threads any more: commit before the end of the program, not in atexit."
            ) from error
        if not remote:
            raise
        raise _of_service(error, location, verb) from error


def _of_system(error: OSError, location: str, verb: str, *, remote: bool) -> UnwritableStore:
    why = printable(str(error))
    if error.errno in FULL:
        kind, what = UnwritableStore, f"room to {verb} {location}. Got a full disk ({why}): make room, and commit again"
    elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
        kind = DeniedStore
        what = f"permission to {verb} {location}. Got none ({why}): change the folder's permissions"
        what += ", or name another store" if verb == "write" else ""
    elif remote and not isinstance(error, FileNotFoundError):
        return _of_service(error, location, verb)
    else:
        kind, what = UnwritableStore, f"to {verb} {location}. Got {why}"
    return _error(kind, what, verb, error.errno)


def _of_service(error: Exception, location: str, verb: str) -> UnwritableStore:
    """Return the error for one of a service's library, by the name of its type, which is not imported here."""
    name = type(error).__name__
    why = printable(f"{name}: {error}")
    if "Credential" in name or "Token" in name or "Auth" in name:
        what = (
            f"credentials for {location}. Got none that work ({why}): pass them as its service wants, for s3:// in "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or give a zarr store that has them"
        )
        return _error(DeniedStore, what, verb, None)
    what = f"to {verb} {location}. Got no answer, or a refusal ({why})"
    what += ": the run goes on in memory, commit again when it can be reached" if verb == "write" else ""
    return _error(UnreachableStore, what, verb, getattr(error, "errno", None))


def _error(kind: type[UnwritableStore], what: str, verb: str, number: int | None) -> UnwritableStore:
    last = " The last commit is as it was." if verb == "write" else ""
    error = kind(f"Expected {what}.{last}")
    error.errno = number
    return error
