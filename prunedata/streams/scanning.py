"""Read the keys of the samples in a shard, from the headers of the tar file alone."""

import lzma
import os
import re
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Self
from urllib.parse import urlparse

from prunedata.errors import PrunedataError

__all__ = ["Stamp", "is_remote", "read_keys", "stamp_of"]

Stamp = tuple[int | None, str | None]
"""A shard's size, and the time of its last change or its ETag: they show changes. None where unknown."""

# As in WebDataset.
_META = re.compile(r"__[^/]*__($|/)")
_KEY = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
# After the first header, tarfile takes these for the end of the file. (typeshed does not have them.)
_UNREADABLE_HEADER = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]
_NO_HEADER = tarfile.EmptyHeaderError  # type: ignore[attr-defined]
_UNREADABLE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


class _StrictInfo(tarfile.TarInfo):
    """A tar header that raises if it cannot be read, also after the first one."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except _UNREADABLE_HEADER as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from error
        except _NO_HEADER as error:
            if not archive.offset:  # an empty file, for which tarfile has a message
                raise
            raise tarfile.ReadError(f"no end mark at byte {archive.offset}: it was cut between two files") from error


def read_keys(url: str) -> tuple[list[str], Stamp]:
    """Return the keys of a shard's samples, in their order, and the shard's stamp.

    Raises
    ------
    PrunedataError
        If the shard cannot be read to its end, or the files of a key are not side by side.
    """
    keys: list[str] = []
    try:
        stamp = stamp_of(url)
        with _open(url) as file:
            mode: Any = "r:*" if file.seekable() else "r|*"
            with tarfile.open(fileobj=file, mode=mode, tarinfo=_StrictInfo) as archive:
                for name in _names(archive):
                    match = _KEY.match(name)
                    if match and (not keys or keys[-1] != match[1]):
                        keys.append(match[1])
    except _UNREADABLE as error:
        raise PrunedataError(f"Expected a whole tar file at {url}. Got {error}.") from error
    _check_keys(keys, url)
    return keys, stamp


def _check_keys(keys: list[str], url: str) -> None:
    if len(set(keys)) != len(keys):
        seen: set[str] = set()
        for key in keys:
            if key in seen:
                raise PrunedataError(
                    f"Expected each key once in a shard, and its members side by side. Got {key!r} twice in {url}."
                )
            seen.add(key)
    if strange := [key for key in keys if "\n" in key]:
        raise PrunedataError(f"Expected keys without line breaks. Got {strange[0]!r} in {url}.")


def _names(archive: tarfile.TarFile) -> Iterator[str]:
    for member in archive:
        if member.isreg() and not _META.match(member.name):
            yield member.name
        archive.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps every header


@contextmanager
def _open(url: str) -> Iterator[IO[bytes]]:
    if url.startswith("pipe:"):
        # By a shell, as WebDataset does.
        with subprocess.Popen(url[5:], shell=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
            while process.stdout.read(1 << 20):  # read the rest, so that the command can end
                pass
        if process.returncode:
            raise OSError(f"the command ended with status {process.returncode}")
    elif is_remote(url):
        import fsspec  # noqa: PLC0415 (only where shards are remote)

        with fsspec.open(url, "rb") as file:
            yield file
    else:
        with open(_path(url), "rb") as file:
            yield file


def stamp_of(url: str) -> Stamp:
    """Return the present stamp of a shard; (None, None) for a ``pipe:``."""
    if url.startswith("pipe:"):
        return None, None
    if is_remote(url):
        import fsspec  # noqa: PLC0415 (only where shards are remote)

        system, path = fsspec.core.url_to_fs(url)
        about: dict[str, Any] = system.info(path, refresh=True) if "s3" in system.protocol else system.info(path)
        return about["size"], str(about.get("ETag") or about.get("mtime") or about.get("LastModified"))
    status = os.stat(_path(url))
    return status.st_size, str(status.st_mtime_ns)


def is_remote(url: str) -> bool:
    """Return whether a URL has to be opened by fsspec."""
    return "://" in url and not url.startswith("file:")


def _path(url: str) -> str:
    return urlparse(url).path if url.startswith("file:") else url
