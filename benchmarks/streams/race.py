"""Passes side by side, each advanced a little in turn.

So a busy moment of the machine hits them alike. The processor's time is that of the whole process: a pass that works on
in threads of its own would do so in another's time, so such passes are run whole.
"""

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

__all__ = ["Entrant", "one_core", "race"]

TURNS = 40


@dataclass(frozen=True)
class Entrant:
    """A pass: what makes its batches, and how many those are."""

    make: Callable[[], Iterable[Any]]
    batches: int


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread, and those that it begins, on one core. Only Linux lets a program choose."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def race(
    entrants: Mapping[str, Entrant], repeats: int, tick: Callable[[], object], turns: int = TURNS
) -> dict[str, list[float]]:
    """Return the processor's seconds of each pass, one for each repeat, after one repeat to warm up.

    Each pass is run in so many turns.

    Raises
    ------
    RuntimeError
        If a pass gives another number of batches than it said.
    """
    seconds: dict[str, list[float]] = {name: [] for name in entrants}
    was_enabled = gc.isenabled()
    gc.disable()  # a collection goes through what all passes hold, and is charged to one
    try:
        for repeat in range(repeats + 1):
            gc.collect()
            for name, took in _once(entrants, turns, repeat).items():
                if repeat:
                    seconds[name].append(took)
            tick()
    finally:
        if was_enabled:
            gc.enable()
    return seconds


def _once(entrants: Mapping[str, Entrant], turns: int, repeat: int) -> dict[str, float]:
    """Run each pass once. After turn t of T each has gone t/T of its way, and each goes first in turn."""
    names, seconds, under_way = list(entrants), dict.fromkeys(entrants, 0.0), dict[str, Iterator[Any]]()
    for turn in range(turns):
        first = (repeat + turn) % len(names)
        for name in names[first:] + names[:first]:
            begun, total = time.process_time(), entrants[name].batches
            if turn == 0:
                under_way[name] = iter(entrants[name].make())
            steps = total * (turn + 1) // turns - total * turn // turns
            got = sum(1 for _ in islice(under_way[name], steps))
            over = turn == turns - 1 and next(under_way[name], None) is not None
            seconds[name] += time.process_time() - begun
            if got < steps or over:
                raise RuntimeError(f"Expected {total} batches of the pass {name}. Got {'more' if over else 'fewer'}.")
    return seconds
