"""Power cuts, simulated from the log of the calls that wrote a store: whatever may be on the disk has to open."""

import random
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.calls import CallOnFile
from benchmarks.faults.child import Child, Say
from benchmarks.faults.disk import Disk, Operation, operations, read_in, write_out
from benchmarks.faults.story import go_on, new_run, position, pruner_state
from prunedata.errors import PrunedataError

__all__ = ["PowerCuts", "PowerCutsAfterKills"]

PER_LOG = 100
"""States that are simulated from one log."""
PER_KILL = 30
"""States that are simulated after a kill at one call."""
Entry = Operation | str
"""A change of the disk, or what the run said between two of them: ``saving N`` and ``saved N``."""


class PowerCuts(Attack):
    """A case is one log: a run that is created, killed, resumed and trained to its end. An attempt is one state."""

    name = "power-cuts"
    about = "power cut: any part of what was not synchronized is lost, torn or kept, contents and names alike"
    many, few, needs_calls = 10_000, 100, True

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        place = self.place(case)
        log = _log(place / "run", chance.randint(1, chance.choice([15, 300, 1500])))
        for number in range(PER_LOG):
            yield _cut(log, place, chance.randint(1, len(log)), chance, place / f"state-{number}")


class PowerCutsAfterKills(Attack):
    """A case is a call, counted as they are made: a run is killed at it, and another goes on. An attempt is 30 states.

    What one process left half done, the next one builds on: a power cut must not take it from under it.
    """

    name = "power-cuts-after-kills"
    about = f"killed at each call of its creation and first two commits, and resumed; {PER_KILL} power cuts after each"
    many, few, needs_calls = 0, 5, True

    @cached_property
    def total(self) -> int:
        return _calls_until("saved 2", self.folder / "counted" / "run")

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        place = self.place(case)
        log = _log(place / "run", case + 1)
        # What the second process builds on the first one's is made safe soon, or never: most cuts fall into it.
        ends = [len(log), min(len(log), 2 * case + 400)]
        for number in range(PER_KILL):
            found = _cut(log, place, chance.randint(1, chance.choice(ends)), chance, place / f"state-{number}")
            if found.verdict not in (Verdict.EXACT, Verdict.REFUSED):
                break
        yield found


def _calls_until(word: str, place: Path) -> int:
    """How many calls a run makes until it has said a word."""
    child, calls = Child(lambda say: _train(place, say), watched=True), 0

    def decide(call: CallOnFile) -> int:
        nonlocal calls
        calls += call.is_within(place.parent) and word not in child.lines
        return 0

    child.follow(decide)
    return calls


def _log(place: Path, killed_at: int) -> list[Entry]:
    """What one process wrote until it was killed at a call, and another that went on to the end."""
    # A thread whose call was let through may be killed before it makes it, as another thread is killed at its own.
    for _ in range(5):
        shutil.rmtree(place, ignore_errors=True)
        log = [*_written(place, killed_at), *_written(place, None)]
        disk = Disk(place.parent)
        for entry in log:
            if isinstance(entry, Operation):
                disk.apply(entry)
        if disk.now() == read_in(place.parent):
            return log
    raise RuntimeError("Expected the log to give what is on the disk. Got another: it misses a call.")


def _written(place: Path, killed_at: int | None) -> list[Entry]:
    log: list[Entry] = []
    child = Child(lambda say: _train(place, say), watched=True)
    seen = calls = 0

    def decide(call: CallOnFile) -> int:
        nonlocal seen, calls
        log.extend(child.lines[seen:])
        seen = len(child.lines)
        if call.is_within(place.parent):
            calls += 1
            if calls == killed_at:
                return Child.KILL
            log.extend(operations(call))
        return 0

    child.follow(decide)
    if child.failed:
        raise RuntimeError(f"Expected a run that ends. Got {child.failed}")
    return log + child.lines[seen:]


def _train(place: Path, say: Say) -> None:
    run = new_run(place, resume=True)
    say(f"opened {position(pruner_state(run))}")
    go_on(run, lambda number: say(f"saving {number}"), lambda number: say(f"saved {number}"))


def _cut(log: list[Entry], top: Path, at: int, chance: random.Random, place: Path) -> Attempt:
    disk, saved, saving = Disk(top), -1, 0
    for entry in log[:at]:
        if isinstance(entry, Operation):
            disk.apply(entry)
            continue
        word, _, number = entry.partition(" ")
        saved, saving = (max(saved, int(number)), saving) if word != "saving" else (saved, max(saving, int(number)))
    write_out(disk.after_a_cut(chance), place)
    return _opened(place / "run", saved, max(saved, saving), f"cut after entry {at} of {len(log)}")


def _opened(place: Path, saved: int, saving: int, where: str) -> Attempt:
    try:
        run = new_run(place, resume=True)
    except PrunedataError as error:
        verdict = Verdict.LOST if saved >= 0 else Verdict.REFUSED  # it had not been created yet
        return Attempt(verdict, f"{where}: {error!r}, though commit {saved} had returned")
    except Exception as error:
        return Attempt(Verdict.UNCLEAR if saved < 0 else Verdict.LOST, f"{where}: {error!r}")
    found = position(pruner_state(run))
    if found is None:
        return Attempt(Verdict.WRONG, f"{where}: it opens, and is no state of the run")
    if not max(saved, 0) <= found <= saving:
        return Attempt(Verdict.LOST, f"{where}: commit {found} is there, though {saved} had returned")
    go_on(run, lambda _: None, lambda _: None, commits=2)  # over whatever the cut left
    after = position(pruner_state(new_run(place, resume=True)))
    if after is None or after < found:
        return Attempt(Verdict.WRONG, f"{where}: after two more commits it is at {after}, from {found}")
    return Attempt(Verdict.EXACT)
