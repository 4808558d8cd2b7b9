"""Flips and truncations of files: what is read is as it was written, or it is refused."""

import io
import random
import shutil
import tarfile
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.story import go_on, new_run, position_at
from prunedata.errors import PrunedataError
from prunedata.streams.shards import ShardIndex

__all__ = ["DamagedIndexes", "DamagedStores"]

CUTS = 20
"""Lengths to which each file is cut, beside none at all."""


class _Damaged(Attack):
    """A case is a byte of a file, of which one bit is flipped, or one of some lengths to which the file is cut."""

    many, few = 0, 200

    @abstractmethod
    def pattern(self) -> Path:
        """Make the files, once, and return their folder."""

    @abstractmethod
    def opened(self, place: Path) -> str:
        """What went wrong with a damaged folder that opens, or ""."""

    @cached_property
    def _pattern(self) -> Path:
        return self.pattern()

    @cached_property
    def _cases(self) -> list[tuple[Path, int]]:
        """The byte to flip; below 0, that the file is cut."""
        files = [path for path in sorted(self._pattern.rglob("*")) if path.is_file()]
        return [(path, at) for path in files for at in range(-CUTS - 1, path.stat().st_size)]

    @property
    def total(self) -> int:
        return len(self._cases)

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        path, at = self._cases[case]
        place = self.place(case) / "copy"
        shutil.copytree(self._pattern, place)
        name = path.relative_to(self._pattern)
        raw = bytearray(path.read_bytes())
        if at >= 0:
            raw[at] ^= 1 << chance.randrange(8)
        else:
            del raw[chance.randrange(len(raw)) if at < -1 else 0 :]
        (place / name).write_bytes(raw)
        where = f"{name}, {f'byte {at} flipped' if at >= 0 else f'cut to {len(raw)} bytes'}"
        try:
            wrong = self.opened(place)
        except PrunedataError:
            yield Attempt(Verdict.REFUSED)
        except Exception as error:
            yield Attempt(Verdict.UNCLEAR, f"{where}: {error!r}")
        else:
            yield Attempt(Verdict.WRONG if wrong else Verdict.EXACT, f"{where}: {wrong}")


class DamagedStores(_Damaged):
    name = "damaged-stores"
    about = "a bit of a store's file flipped, or a file cut short, drawn from all of them"
    many = 5000  # not all, once: each new store has other seconds in it, and so another length
    commits = 6

    def pattern(self) -> Path:
        place = self.folder / "pattern"
        go_on(new_run(place), lambda _: None, lambda _: None, commits=self.commits)
        return place

    def opened(self, place: Path) -> str:
        found = position_at(place)
        if found != self.commits:
            return f"it opens at {found}, not at {self.commits}"
        go_on(new_run(place, resume=True), lambda _: None, lambda _: None, commits=2)  # over what is damaged
        found = position_at(place)
        return "" if found == self.commits + 2 else f"after two more commits it is at {found}"


class DamagedIndexes(_Damaged):
    name = "damaged-indexes"
    about = "each byte of a shard index with one bit flipped; the index cut short at some lengths"
    many = 1000  # not all, once: their number changes with the digits of the checksum

    def pattern(self) -> Path:
        place = self.folder / "pattern"
        place.mkdir()
        shards = [self.folder / f"shard-{number}.tar" for number in range(3)]
        for number, shard in enumerate(shards):
            with tarfile.open(shard, "w") as archive:
                for key in range(12):
                    for kind in ("cls", "jpg"):
                        about = tarfile.TarInfo(f"{number}-{key:03}.{kind}")
                        about.size = 1
                        archive.addfile(about, io.BytesIO(b"1"))
        self._written = ShardIndex.scan(map(str, shards))
        self._written.save(place / "index.json")
        return place

    def opened(self, place: Path) -> str:
        found = ShardIndex.load(place / "index.json")
        return "" if found.shards == self._written.shards else "it opens, and is another index"
