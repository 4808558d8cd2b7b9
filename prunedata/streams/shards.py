"""An index of WebDataset shards: which samples there are, and in which shard, read from the tar headers alone.

A sample's id is its place in the index: shard after shard as they were given, and within a shard as they lie.
"""

import json
import lzma
import os
import re
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import urlparse

import numpy as np
import numpy.typing as npt

from prunedata.errors import DamagedStore, ForeignStore, PrunedataError
from prunedata.streams import braces

__all__ = ["Shard", "ShardIndex", "expand"]

FORMAT = 1
# As WebDataset has them.
_META = re.compile(r"__[^/]*__($|/)")
_KEY = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
# tarfile takes these, after the first header, for the end of the file. (typeshed does not know them.)
_UNREADABLE_HEADER = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]
_UNREADABLE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Shard:
    """One shard: its URL, the sample keys in it joined by newlines, and by what a change of it shows."""

    url: str
    keys: str
    samples: int
    size: int | None = None
    modified: str | None = None


@dataclass(frozen=True)
class ShardIndex:
    """All samples of some shards, and the id of each.

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
                raise PrunedataError(f"Expected each shard once. Got {shard.url} twice.")
            self._first[shard.url] = (number, first)
            first += shard.samples

    def __len__(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def urls(self) -> list[str]:
        """The shards, as WebDataset takes them."""
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
            If a shard cannot be read to its end, or a key stands twice, apart, within a shard.
        """
        names = expand(urls)
        if not names:
            raise PrunedataError("Expected at least one shard. Got none.")
        return cls(tuple(_scan(url) for url in progress(names)))

    def ids_of(self, url: str) -> dict[str, int]:
        """The id of each key in one shard."""
        if url not in self._first:
            raise PrunedataError(f"Expected one of the {len(self.shards)} shards of the index. Got {url}: scan again.")
        number, first = self._first[url]
        keys = self.shards[number].keys
        return {key: first + place for place, key in enumerate(keys.split("\n") if keys else ())}

    def kept_by_shard(self, keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """How many samples of each shard a mask keeps, shape (shards,)."""
        sizes = np.array([shard.samples for shard in self.shards], dtype=np.int64)
        sums = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
        ends = np.cumsum(sizes)
        return np.asarray(sums[ends] - sums[ends - sizes])

    def check(self) -> None:
        """Raise :class:`PrunedataError` naming the shards that have changed since they were scanned."""
        changed = []
        for shard in self.shards:
            try:
                stamp = _stamp(shard.url)
            except OSError as error:
                raise PrunedataError(f"Expected the shard {shard.url}. Got {error}.") from error
            if stamp != (shard.size, shard.modified):
                changed.append(shard.url)
        if changed:
            raise PrunedataError(
                f"Expected the shards as they were scanned. Got {len(changed)} that have changed: "
                f"{', '.join(changed[:3])}: scan again, and begin a new run, as ids have moved."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index as JSON, in one step."""
        shards = [[s.url, s.samples, s.size, s.modified, s.keys] for s in self.shards]
        part = Path(f"{os.fspath(path)}.partial")
        part.write_text(json.dumps({"prunedata_index": FORMAT, "shards": shards}))
        part.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ShardIndex":
        """Read what :meth:`save` wrote."""
        try:
            found = json.loads(Path(path).read_bytes())
            if not isinstance(found, dict) or found.get("prunedata_index") != FORMAT:
                raise ForeignStore(f"Expected an index of shards of format {FORMAT} in {path}. Got something else.")
            shards = tuple(Shard(url, keys, n, size, stamp) for url, n, size, stamp, keys in found["shards"])
        except ForeignStore:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedStore(f"Expected a whole index of shards in {path}. Got {error!r}: scan again.") from error
        return cls(shards)


def expand(urls: str | Iterable[str]) -> list[str]:
    """List the shards as WebDataset does: of a string, ``::`` parts it and braces are expanded; a list stays."""
    if isinstance(urls, str):
        return [url for part in urls.split("::") for url in braces.expand(part)]
    return list(urls)


class _StrictInfo(tarfile.TarInfo):
    """A header that is an error, wherever it stands, if it cannot be read."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except _UNREADABLE_HEADER as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from error


def _scan(url: str) -> Shard:
    keys: list[str] = []
    try:
        stamp = _stamp(url)
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
    return Shard(url, "\n".join(keys), len(keys), *stamp)


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
        archive.members = []  # type: ignore[attr-defined]  # else every header is kept


@contextmanager
def _open(url: str) -> Iterator[IO[bytes]]:
    if url.startswith("pipe:"):
        # By a shell, as WebDataset does it.
        with subprocess.Popen(url[5:], shell=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
            while process.stdout.read(1 << 20):  # so that the command can end
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


def _stamp(url: str) -> tuple[int | None, str | None]:
    """By what a change of a shard shows: its size, and when it was modified or its ETag."""
    if url.startswith("pipe:"):
        return None, None
    if _is_remote(url):
        import fsspec  # noqa: PLC0415 (only where shards are remote)

        system, path = fsspec.core.url_to_fs(url)
        about: dict[str, Any] = system.info(path, refresh=True) if "s3" in system.protocol else system.info(path)
        return about["size"], str(about.get("ETag") or about.get("mtime") or about.get("LastModified"))
    found = os.stat(_path(url))
    return found.st_size, str(found.st_mtime_ns)


def _is_remote(url: str) -> bool:
    return "://" in url and not url.startswith("file:")


def _path(url: str) -> str:
    return urlparse(url).path if url.startswith("file:") else url
