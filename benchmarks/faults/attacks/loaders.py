"""Random loaders on one or several ranks, beside a plain loop: counts, visits, hits, kept samples and gradients."""

import random
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.faults.attack import Attempt, RandomTrainings, Verdict
from benchmarks.faults.fuzz.pool import Hangs, Played, Pool, hangs_after
from benchmarks.faults.fuzz.setup import Setup, draw, simpler

__all__ = ["Loaders", "Ranks"]

REFUSALS = (
    r"at least one batch of N samples in each epoch",  # drop_last would leave nothing
    r"all N kept samples of epoch N to be observed",  # the same of a stream, when that is known
    r"epoch N to go on with N processes, as it was left",  # by a state of one rank, before its loader is made
    r"N ranks to go on within epoch N",  # by another number, where nobody knows what was trained on
)
"""What a run may be refused with, by what is drawn."""
LONGEST = 60
"""Seconds after which a training in this process is taken to hang."""


class _Searched(RandomTrainings[Setup]):
    """A training with random loaders."""

    most_ranks: ClassVar[int] = 1
    refusals = REFUSALS

    def draw(self, chance: random.Random) -> Setup:
        return draw(chance, self.most_ranks)

    def simpler(self, setup: Setup) -> Iterator[Setup]:
        return simpler(setup)

    def judge(self, setup: Setup) -> Attempt:
        """Train as a setup says, and look at what came."""
        from benchmarks.faults.fuzz.judge import Judge  # noqa: PLC0415 (it imports torch)
        from benchmarks.faults.fuzz.plain_epochs import Wrong  # noqa: PLC0415

        judge, place = Judge(setup), (0, 0)
        states: list[Any] = []
        try:
            for ranks in setup.worlds:
                played = self.play(setup, place, ranks, states)
                judge.hear([entries for entries, _, _ in played])
                told = _errors(played)
                if told is not None:
                    return told
                place, states = played[0][1], [state for _, _, state in played]
                if states[0] is None:
                    break
        except Wrong as wrong:
            return Attempt(Verdict.WRONG, str(wrong))
        except Hangs as hangs:
            return Attempt(Verdict.UNCLEAR, str(hangs))
        if judge.known.number < setup.epochs:
            return Attempt(Verdict.WRONG, f"{judge.known.number} of {setup.epochs} epochs came")
        return Attempt(Verdict.EXACT)

    @abstractmethod
    def play(self, setup: Setup, place: tuple[int, int], ranks: int, states: list[Any]) -> list[Played]:
        """Play on so many ranks."""


class Loaders(_Searched):
    """In this process."""

    name = "loaders"
    about = "a training with random samplers, loaders, breaks and reloads in one process, beside a plain loop"
    many, few = 5000, 60

    def play(self, setup: Setup, place: tuple[int, int], ranks: int, states: list[Any]) -> list[Played]:
        """Play here, and give up after a while."""
        from benchmarks.faults.fuzz.play import play  # noqa: PLC0415

        with hangs_after(LONGEST):
            return [play(setup, place, 0, 1, states)]


class Ranks(_Searched):
    """In one to four real processes over gloo."""

    name = "ranks"
    about = "the same on 1 to 4 ranks over gloo, with gradients, in all modes of sharing an uneven end"
    many, few = 2000, 25
    most_ranks = 4
    portion = 100

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._pool = Pool(self.most_ranks, folder)

    def play(self, setup: Setup, place: tuple[int, int], ranks: int, states: list[Any]) -> list[Played]:
        """Play in the pool."""
        return self._pool.play(setup, place, ranks, states)

    def close(self) -> None:
        """End the ranks."""
        self._pool.close()


def _errors(played: list[Played]) -> Attempt | None:
    """What the ranks' last entries say, if they are errors."""
    last = [entries[-1] for entries, _, _ in played if entries]
    raised = [entry for entry in last if entry["kind"] == "raised"]
    refused = [entry for entry in last if entry["kind"] in ("refused", "stuck")]
    if refused and all("Gloo" in entry["message"] or "gloo" in entry["message"] for entry in raised):
        return Attempt(Verdict.REFUSED, refused[0]["message"])
    if raised:
        return Attempt(Verdict.UNCLEAR, raised[0]["message"].strip())
    return None
