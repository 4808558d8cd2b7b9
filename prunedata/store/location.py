"""Open the place that a user names for a run, a path, a URL or a zarr store; and explain what goes wrong there."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from prunedata.checks import printable, shown
from prunedata.errors import (
    DamagedStore,
    DeniedStore,
    ForeignStore,
    MissingPackage,
    PrunedataError,
    StoreError,
    UnreachableStore,
    UnwritableStore,
)
from prunedata.store.durable import PARTIAL, DurableStore, list_names

StoreLike = str | os.PathLike[str] | Store


def open_location(location: StoreLike, *, read_only: bool) -> Store:
    """Return the zarr store of a path, a URL or a store. Nothing is made or changed there yet.

    Raises :class:`StoreError` if it is none of these, a file, of an unknown kind, or read-only although ``read_only``
    is False.
    """
    if isinstance(location, Store):
        _check_store(location, read_only=read_only)
        if type(location) is not LocalStore:
            return location
        location = location.root
    if not isinstance(location, str | os.PathLike):
        raise StoreError(f"Expected a path, a URL or a zarr store. Got {type(location).__name__}.")
    folder = local_folder(location)
    if folder is None:
        return _open_url(str(location), read_only=read_only)
    if location in ("", "file://", "local://"):
        raise StoreError(
            "Expected a path, a URL or a zarr store. Got an empty string, which would be the folder that the "
            'program runs in: name a folder, or say store="." if you mean that one.'
        )
    return _open_folder(folder, read_only=read_only)


def local_folder(place: str | os.PathLike[str]) -> Path | None:
    """Return the folder of this machine that a path or a URL names, ``~`` at its beginning too; None for another URL.

    It is absolute, as the program may change its folder.
    """
    # fsspec, which knows both names, would write local files in place.
    path = re.sub(r"^(file|local)://", "", place) if isinstance(place, str) else place
    return None if isinstance(path, str) and "://" in path else Path(os.path.expanduser(path)).absolute()


def _check_store(store: Store, *, read_only: bool) -> None:
    if store.read_only and not read_only:
        raise StoreError(f"Expected a store that can be written. Got {store}, which is read-only.")
    if not (read_only or store.supports_deletes):
        raise StoreError(
            f"Expected a store in which a value can be replaced. Got {type(store).__name__}, which can only add "
            "values: name a folder, and pack it when the run is done."
        )


def _open_url(url: str, *, read_only: bool) -> Store:
    try:
        return FsspecStore.from_url(url, read_only=read_only)
    except ImportError as error:
        raise MissingPackage(
            f"Expected the package that opens {printable(url)}. It is not installed ({printable(str(error))}): install "
            "s3fs for s3://, gcsfs for gs://, or adlfs for abfs://."
        ) from error
    except (ValueError, TypeError, NotImplementedError) as error:
        raise StoreError(
            f"Expected a URL that fsspec can open and write, as s3://bucket/run.zarr. Got {printable(url)} "
            f"({printable(str(error))}): name another, or a folder."
        ) from error


def _open_folder(path: Path, *, read_only: bool) -> Store:
    if path.is_symlink() and not path.exists():
        raise ForeignStore(
            f"Expected a folder for the store. Got {path}, a link to {os.readlink(path)}, which does not exist: make "
            "that folder, or mount its disk, or remove the link."
        )
    if path.exists() and not path.is_dir():
        raise ForeignStore(f"Expected a folder for the store. Got the file {path}.")
    if read_only and not path.is_dir():
        raise ForeignStore(f"Expected a run at {path}. Got nothing.")
    return DurableStore(path, read_only=read_only)


def refuse_leftovers(store: Store, location: str) -> None:
    """Raise :class:`StoreError` if a place without a pointer has other files than an interrupted first write leaves."""
    # A run that is killed while it writes its first pointer leaves a file zarr.*.partial.
    found = [name for name in list_names(store) if not (name.startswith("zarr.") and name.endswith(PARTIAL))]
    if any(name.endswith(("-0", "-1")) for name in found):
        raise DamagedStore(
            f"Expected zarr.json in {location}. It is missing, although the arrays of a run are there: "
            "restore it from a copy, or name another store."
        )
    if found:
        raise ForeignStore(
            f"Expected an empty place or a run at {location}. Got {shown(found)}: name the run's own folder, such as "
            "run.zarr, or for a new run an empty place."
        )


FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}


@contextmanager
def explain_errors(location: str, verb: str, *, remote: bool = False) -> Iterator[None]:
    """Turn errors within the context into a :class:`StoreError` that says what to do.

    ``location`` is the name of the store in errors, and ``verb``, "read" or "write", what is done with it. A ``remote``
    store is kept by another library, which raises errors of its own: these are turned, too.
    """
    try:
        yield
    except PrunedataError:
        raise
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
        if not remote and not isinstance(error, OSError):
            raise
        raise _explained(error, location, verb, remote=remote) from error


def _explained(error: Exception, location: str, verb: str, *, remote: bool) -> UnwritableStore:
    """Return what an error of the system means, or one of a service's library, by the name of its type."""
    name, why, number = type(error).__name__, printable(str(error)), getattr(error, "errno", None)
    writes = verb == "write"
    kind: type[UnwritableStore] = UnwritableStore
    what = f"to {verb} {location}. Got {why}"
    if number in FULL:
        what = f"room to {verb} {location}. Got a full disk ({why}): make room, and commit again"
    elif isinstance(error, PermissionError) or number == errno.EROFS:
        kind = DeniedStore
        what = f"permission to {verb} {location}. Got none ({why}): change the folder's permissions"
        what += ", or name another store" if writes else ""
    elif remote and ("Credential" in name or "Token" in name or "Auth" in name):
        kind = DeniedStore
        what = (
            f"credentials for {location}. Got none that work ({name}: {why}): pass them as its service wants, for "
            "s3:// in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or give a zarr store that has them"
        )
    elif remote and not isinstance(error, FileNotFoundError):
        kind = UnreachableStore
        what = f"to {verb} {location}. Got no answer, or a refusal ({name}: {why})"
        what += ": the run goes on in memory, commit again when it can be reached" if writes else ""
    last = " The last commit is as it was." if writes else ""
    explained = kind(f"Expected {what}.{last}")
    explained.errno = number
    return explained
