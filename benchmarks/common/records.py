"""Recorded runs: one file of bzipped JSON lines for each study, a line for each run, ordered by key.

A run is added by writing the file anew beside the old one, which then takes its place, under a lock: a kill leaves the
runs of before or those of after, and two processes may record at once. The same runs make the same bytes. To look in:
``bzcat benchmarks/scale/results.jsonl.bz2``.
"""

import bz2
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Facts", "Runs"]

Facts = dict[str, Any]
"""What is recorded of one run."""
BEGIN, MIDDLE, END = '{"key":', ',"facts":', "}"
"""Around the key and the facts of a line. Keys are read without what follows them, which is most of a file."""


class Runs:
    """The runs of a file, or those of one part of it: ``Runs(file) / "suspects" / "head"``.

    Parameters
    ----------
    file : path
        Its name ends in ``.jsonl.bz2``. It need not exist.
    under : str, default ""
        What the keys of the part begin with, up to a slash; all of the file if empty.
    """

    def __init__(self, file: str | Path, under: str = "") -> None:
        self.file, self.under = Path(file), under

    def __truediv__(self, part: str) -> "Runs":
        return Runs(self.file, f"{self.under}{part}/")

    def __repr__(self) -> str:
        return f"{self.file}{self.under and f' of {self.under}'}"

    def read(self, *parts: str) -> list[Facts]:
        """Return the facts of every run, ordered by key; or only of some parts, one part after the other."""
        found = sorted(self._lines())
        places = [self / part for part in parts] or [self]
        return [json.loads(_facts(line)) for place in places for key, line in found if key.startswith(place.under)]

    def names(self) -> set[str]:
        """What the keys of the runs have behind their last slash."""
        return {key.rpartition("/")[2] for key, _ in self._lines() if key.startswith(self.under)}

    def add(self, key: str, facts: Facts) -> None:
        """Record a run, in place of one of this key if there is one. A key may have slashes, to tell parts."""
        self._add(lambda _: key, facts)

    def append(self, facts: Facts) -> None:
        """Record a run behind all that this part has: its key is a number."""

        def following(keys: Iterable[str]) -> str:
            taken = [int(key.removeprefix(self.under)) for key in keys if key.startswith(self.under)]
            return f"{max(taken, default=-1) + 1:05}"

        self._add(following, facts)

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Each run's key and line."""
        text = bz2.decompress(self.file.read_bytes()).decode() if self.file.exists() else ""
        for line in text.split("\n")[:-1]:
            yield str(_DECODER.raw_decode(line, len(BEGIN))[0]), line

    def _add(self, named: Callable[[Iterable[str]], str], facts: Facts) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.file.parent):
            lines = dict(self._lines())
            key = self.under + named(lines)
            lines[key] = BEGIN + json.dumps(key) + MIDDLE + json.dumps(facts, separators=(",", ":")) + END
            part = self.file.with_suffix(".part")
            with part.open("wb") as out:
                out.write(bz2.compress("".join(f"{lines[key]}\n" for key in sorted(lines)).encode()))
                out.flush()
                os.fsync(out.fileno())
            part.replace(self.file)


_DECODER = json.JSONDecoder()


def _facts(line: str) -> str:
    return line[_DECODER.raw_decode(line, len(BEGIN))[1] + len(MIDDLE) : -len(END)]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process writes in a folder. The lock is on the folder itself: nothing is left behind."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
