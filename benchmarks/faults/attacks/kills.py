"""SIGKILL at any instant, or at a chosen system call, of a training that then goes on, until it is done.

Its weights, masks, orders and counts must be those of a training that was never killed.
"""

import random
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import ClassVar

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.calls import CallOnFile
from benchmarks.faults.child import Child, Say
from benchmarks.faults.training.in_numpy import result

__all__ = ["KillsAtCalls", "KillsAtInstants", "KillsInTorch", "Training", "live"]

LIVES = 12
"""About how many lives a run takes: few enough to get on, enough that most begin by going on."""
Training = Callable[[Path, Say], None]


def live(training: Training, folder: Path, *, seconds: float | None = None, call: int | None = None) -> Child:
    """Let a training go on in its folder; kill it so many seconds after it was ready, or before a call on its files."""
    made = 0

    def decide(found: CallOnFile) -> int:
        nonlocal made
        made += found.is_within(folder)
        return Child.KILL if made == call else 0

    child = Child(lambda say: training(folder, say), watched=call is not None)
    if call is not None:
        return child.follow(decide)
    return child.follow(seconds=seconds) if child.wait_for("ready") else child.follow()


class _Kills(Attack):
    """A case is one training, killed again and again; an attempt is one kill."""

    training: ClassVar[str] = "benchmarks.faults.training.in_numpy"

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._train: Training = import_module(self.training).train
        whole = folder / "never-killed"
        whole.mkdir(parents=True)
        began = monotonic()
        undisturbed = live(self._train, whole)
        if undisturbed.failed:
            raise RuntimeError(f"Expected a training that ends. Got {undisturbed.failed}")
        self._expected = result(whole)
        self.longest = (monotonic() - began) * 2 / LIVES
        """Seconds that a life may last, at most."""

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        place, safe, kills = self.place(case), 0, 0
        while not (place / "result.json").exists():
            # In the end it is let live: a training that is killed early each time has no end.
            life = self.life(place, chance) if kills < 5 * LIVES else live(self._train, place)
            if life.failed:
                yield Attempt(Verdict.LOST if life.said("ready") else Verdict.UNCLEAR, life.failed)
                return
            resumed = [int(word) for word in life.said("resumed")]
            if resumed and resumed[0] < safe:
                yield Attempt(Verdict.LOST, f"resumed at epoch {resumed[0]}, though {safe} had been saved")
                return
            safe = max([safe, *map(int, life.said("saved"))])
            if life.killed:
                kills += 1
                if not (place / "result.json").exists():
                    yield Attempt(Verdict.EXACT)
        if result(place) != self._expected:
            yield Attempt(Verdict.WRONG, "another result than that of the training that was never killed")

    def life(self, place: Path, chance: random.Random) -> Child:
        return live(self._train, place, seconds=chance.uniform(0, self.longest))


class KillsAtInstants(_Kills):
    name = "kills"
    about = "SIGKILL at a random instant, over and over, of a training in numpy that resumes from its store"
    many, few = 7000, 40


class KillsAtCalls(_Kills):
    name = "kills-at-calls"
    about = "SIGKILL before one of its system calls on the store's files, drawn at random; else the same"
    many, few, needs_calls = 3000, 40, True
    most = 800
    """Calls that a life may make, at most."""

    def life(self, place: Path, chance: random.Random) -> Child:
        return live(self._train, place, call=chance.randint(1, chance.choice([150, self.most])))


class KillsInTorch(_Kills):
    name = "kills-torch"
    about = "SIGKILL at a random instant of a training in PyTorch that resumes within an epoch from its checkpoint"
    training = "benchmarks.faults.training.in_torch"
    many, few = 200, 4
