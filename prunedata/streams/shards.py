"""An index of the samples in WebDataset shards, read from the tar headers alone.

A sample's id is its place in the index: shard after shard as they were given, and in the order within each shard.
"""

import json
import lzma
import os
import re
import subprocess
import tarfile
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import urlparse

import numpy as np
import numpy.typing as npt

from prunedata.checks import printable, shown
from prunedata.errors import DamagedStore, ForeignStore, PrunedataError

__all__ = ["Shard", "ShardIndex", "expand"]

FORMAT = 1
UNSAFE = frozenset("'\"`$;|&<>\\\n\r\t ")
"""Characters that may have a meaning for a shell, by which WebDataset opens some URLs."""


@dataclass(frozen=True)
class Shard:
    """One shard: its URL, the sample keys in it joined by newlines, and its stamp (size, modification)."""

    url: str
    keys: str
    samples: int
    size: int | None = None
    modified: str | None = None


@dataclass(frozen=True)
class ShardIndex:
    """The samples of some shards, and their ids.

    Attributes
    ----------
    shards : tuple of Shard
    """

    shards: tuple[Shard, ...]
    _first: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        first = 0
        for number, shard in enumerate(self.shards):
            if shard.url in self._first:
                raise PrunedataError(f"Expected each shard once. Got {shard.url!r} twice.")
            self._first[shard.url] = (number, first)
            first += shard.samples

    def __len__(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def urls(self) -> list[str]:
        """The URLs of the shards, as WebDataset takes them."""
        return [shard.url for shard in self.shards]

    @classmethod
    def scan(
        cls, urls: str | Iterable[str], *, progress: Callable[[Iterable[str]], Iterable[str]] = iter
    ) -> "ShardIndex":
        """Read the headers of all shards.

        Parameters
        ----------
        urls : str or iterable of str
            Paths, ``pipe:`` commands or URLs that fsspec opens (``s3://``), with ``{000..099}`` expanded.
        progress : callable, optional
            Wraps the list of URLs, as ``tqdm`` does.

        Raises
        ------
        PrunedataError
            If a shard cannot be read to its end, or the files of a key are not side by side.
        """
        names = expand(urls)
        if not names:
            raise PrunedataError("Expected at least one shard. Got none.")
        shards = []
        for url in progress(names):
            keys, stamp = _read_keys(url)
            shards.append(Shard(url, "\n".join(keys), len(keys), *stamp))
        return cls(tuple(shards))

    def ids_of(self, url: str) -> dict[str, int]:
        """Return the id of each key in one shard."""
        if url not in self._first:
            raise PrunedataError(f"Expected one of the {len(self.shards)} shards of the index. Got {url}: scan again.")
        number, first = self._first[url]
        keys = self.shards[number].keys
        return {key: first + place for place, key in enumerate(keys.split("\n") if keys else ())}

    def place_of(self, sample: int) -> tuple[str, str]:
        """Return the shard's URL and the key, WebDataset's ``__key__``, of a sample by its id."""
        if not 0 <= sample < len(self):
            raise PrunedataError(f"Expected an id from 0 to {len(self) - 1}. Got {sample}.")
        shard = self.shards[bisect_right(self.shards, sample, key=lambda shard: self._first[shard.url][1]) - 1]
        return shard.url, shard.keys.split("\n")[sample - self._first[shard.url][1]]

    @property
    def keys(self) -> list[str]:
        """The keys of all samples, in the order of their ids. Two shards may have the same key."""
        return [key for shard in self.shards if shard.keys for key in shard.keys.split("\n")]

    def kept_by_shard(self, keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return how many samples of each shard a mask keeps, shape (shards,)."""
        sizes = np.array([shard.samples for shard in self.shards], dtype=np.int64)
        sums = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
        ends = np.cumsum(sizes)
        return np.asarray(sums[ends] - sums[ends - sizes])

    def check(self) -> None:
        """Raise :class:`PrunedataError` naming the shards that have changed since they were scanned."""
        changed = []
        for shard in self.shards:
            try:
                stamp = _stamp_of(shard.url)
            except (OSError, ValueError) as error:  # ValueError for characters that a path cannot have
                raise PrunedataError(
                    f"Expected the shard {printable(shard.url)}. Got {printable(str(error))}."
                ) from error
            if stamp != (shard.size, shard.modified):
                changed.append(shard.url)
        if changed:
            raise PrunedataError(
                f"Expected the shards as they were scanned. Got {len(changed)} that have changed: "
                f"{', '.join(changed[:3])}: scan again, and begin a new run, as ids may have changed."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index as JSON, in one step."""
        shards = [[s.url, s.samples, s.size, s.modified, s.keys] for s in self.shards]
        part = Path(f"{os.fspath(path)}.{os.getpid()}.partial")
        part.write_text(json.dumps({"prunedata_index": FORMAT, "shards": shards, "crc32": _digest(shards)}))
        part.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, trusted: bool = False) -> "ShardIndex":
        """Read an index that :meth:`save` wrote.

        Parameters
        ----------
        path : path
        trusted : bool
            Whether you trust the author of the index. WebDataset runs what follows ``pipe:`` as a command, and opens
            some URLs by a shell. Without ``trusted=True`` an index with such URLs is refused.

        Raises
        ------
        PrunedataError
            If it is no index, damaged, or has URLs that must be trusted.
        """
        try:
            index = json.loads(Path(path).read_bytes())
            if not isinstance(index, dict) or index.get("prunedata_index") != FORMAT:
                raise ForeignStore(f"Expected an index of shards of format {FORMAT} in {path}. Got something else.")
            shards = tuple(Shard(url, keys, n, size, stamp) for url, n, size, stamp, keys in index["shards"])
            whole = index.keys() == {"prunedata_index", "shards", "crc32"}
            whole = whole and index["crc32"] == _digest(index["shards"])
            if not whole or not all(_is_sound(shard) for shard in shards):
                raise DamagedStore(f"Expected the index of shards in {path} as it was saved. Got another: scan again.")
        except (ForeignStore, DamagedStore):
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
            raise DamagedStore(
                f"Expected a whole index of shards in {path}. Got {shown(error)}: scan again."
            ) from error
        unsafe = [] if trusted else [shard.url for shard in shards if _is_unsafe(shard.url)]
        if unsafe:
            raise PrunedataError(
                f"Expected an index of files and plain URLs in {path}. Got {shown(unsafe[0])}, which WebDataset would "
                "run by a shell: pass trusted=True if you trust its author."
            )
        return cls(shards)


def expand(urls: str | Iterable[str]) -> list[str]:
    """List the shards as WebDataset does: split a string at ``::`` and expand its braces; a list stays as it is."""
    if not isinstance(urls, str):
        return list(urls)
    parts = urls.split("::")
    if not set(urls) & set("{}\\"):
        return parts
    try:
        from braceexpand import braceexpand  # noqa: PLC0415 (it comes with WebDataset)
    except ImportError as error:
        raise PrunedataError(
            f"Expected the package that expands the braces in {urls!r}. It is not installed: pip install braceexpand."
        ) from error
    try:
        return [url for part in parts for url in braceexpand(part)]
    except ValueError as error:
        raise PrunedataError(f"Expected as many closing braces as opening ones. Got {urls!r}.") from error


def _digest(shards: list[list[Any]]) -> int:
    return zlib.crc32(json.dumps(shards).encode())


def _is_sound(shard: Shard) -> bool:
    texts = isinstance(shard.url, str) and isinstance(shard.keys, str) and isinstance(shard.modified, str | None)
    if not texts or type(shard.samples) is not int or type(shard.size) not in (int, type(None)):
        return False
    keys = shard.keys.split("\n") if shard.keys else []
    return len(keys) == len(set(keys)) == shard.samples


def _is_unsafe(url: str) -> bool:
    return url.startswith("pipe:") or ("://" in url and not UNSAFE.isdisjoint(url))


_Stamp = tuple[int | None, str | None]
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


def _read_keys(url: str) -> tuple[list[str], _Stamp]:
    """Return the keys of a shard's samples, in their order, and the shard's stamp."""
    keys: list[str] = []
    try:
        stamp = _stamp_of(url)
        with _open(url) as file:
            mode: Any = "r:*" if file.seekable() else "r|*"
            with tarfile.open(fileobj=file, mode=mode, tarinfo=_StrictInfo) as archive:
                for name in _names(archive):
                    match = _KEY.match(name)
                    if match and (not keys or keys[-1] != match[1]):
                        keys.append(match[1])
    except _UNREADABLE as error:
        raise PrunedataError(f"Expected a whole tar file at {url}. Got {error}: repair it, or leave it out.") from error
    _check_keys(keys, url)
    return keys, stamp


def _check_keys(keys: list[str], url: str) -> None:
    if repeated := [key for key, times in Counter(keys).items() if times > 1]:
        raise PrunedataError(
            f"Expected each key once in a shard, and its members side by side. Got {repeated[0]!r} twice in {url}."
        )
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
    elif _is_remote(url):
        import fsspec  # noqa: PLC0415 (only where shards are remote)

        with fsspec.open(url, "rb") as file:
            yield file
    else:
        with open(_path(url), "rb") as file:
            yield file


def _stamp_of(url: str) -> _Stamp:
    """Return the present stamp of a shard; (None, None) for a ``pipe:``."""
    if url.startswith("pipe:"):
        return None, None
    if _is_remote(url):
        import fsspec  # noqa: PLC0415 (only where shards are remote)

        system, path = fsspec.core.url_to_fs(url)
        about: dict[str, Any] = system.info(path, refresh=True) if "s3" in system.protocol else system.info(path)
        return about["size"], str(about.get("ETag") or about.get("mtime") or about.get("LastModified"))
    status = os.stat(_path(url))
    return status.st_size, str(status.st_mtime_ns)


def _is_remote(url: str) -> bool:
    """Return whether a URL has to be opened by fsspec."""
    return "://" in url and not url.startswith("file:")


def _path(url: str) -> str:
    return urlparse(url).path if url.startswith("file:") else url
