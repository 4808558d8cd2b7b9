"""Calls of a run in any order, with new processes in between, beside the paper's algorithms as plain loops."""

import copy
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.child import Child, Say
from benchmarks.faults.plain import PlainRun
from prunedata import Pruner, Schedule
from prunedata.errors import NotInEpoch, SkippedSamples
from prunedata.policies import DroppingCount, Random

__all__ = ["Sequences"]


class Sequences(Attack):
    """A case is one sequence of calls; what is looked at after each of them has to be as in the plain run."""

    name = "sequences"
    about = "calls in a random order (begin, observe, skip, break, end, commit, load, resume), beside plain loops"
    many, few = 3000, 30

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        play = _Play(self.place(case), chance)
        while True:
            child = Child(play.go_on).follow()
            if child.failed:
                wrong = "AssertionError" in child.failed
                yield Attempt(Verdict.WRONG if wrong else Verdict.UNCLEAR, child.failed)
                return
            if child.said("over"):
                yield Attempt(Verdict.EXACT)
                return
            play = pickle.loads((play.place / "play").read_bytes())


class _Play:
    """A sequence, as far as it has come. It can be pickled between two processes, as the run itself cannot."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place, self.chance = place, chance
        samples, policy = (
            chance.randint(1, 25),
            DroppingCount(chance.choice([0.0, 0.3]), chance.choice(["window", "run"])),
        )
        self.policy: DroppingCount | Random = policy if chance.random() < 0.7 else Random()
        epochs, window = chance.randint(1, 7), chance.randint(1, 4)
        block = chance.randint(1, 3)
        self.given = Schedule(
            epochs, window, chance.randint(1, window), block, chance.randint(0, block), chance.choice([1.0, 2.0])
        )
        self.prune, self.seed = chance.randint(0, samples - 1), chance.randrange(1000)
        self.plain = PlainRun(samples, self.given, self.policy, samples - self.prune, self.seed)
        self.skipped, self.rewound, self.left = 0, False, chance.randint(10, 60)
        self.ready = False
        """Whether the open epoch was gone on with in this process."""
        self.committed = self._standing()
        self.checkpoint: tuple[Any, ...] | None = None
        self.done: list[str] = []

    # -- in a child

    def go_on(self, say: Say) -> None:
        """Play until the end, or until a new process is to resume from the store."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that schedules never prune, that runs are finished
            self.run = Pruner(
                self.plain.samples, self.given, prune=self.prune, policy=self.policy, seed=self.seed,
                store=self.place / "run", resume=True,
            )  # fmt: skip
            try:
                self._compare()
                while self.left:
                    self.left -= 1
                    act = self.chance.choice(_ACTS)
                    self.done.append(act.__name__.strip("_"))
                    if act(self) == "new process":
                        del self.run
                        (self.place / "play").write_bytes(pickle.dumps(self))
                        return
                    self._compare()
            except Exception:
                say(f"failed after {self.done}")
                raise
        say("over")

    def _compare(self) -> None:
        run, plain = self.run, self.plain
        assert run.next_epoch == len(run.history) == plain.number
        assert run.counts.tolist() == plain.counts_now()
        assert run.hits.tolist() == plain.hits_now()
        assert run.visits.tolist() == plain.visits_now()

    def _standing(self) -> tuple[Any, ...]:
        return copy.deepcopy((self.plain, self.skipped, self.rewound))

    def _return_to(self, standing: tuple[Any, ...]) -> None:
        self.plain, self.skipped, self.rewound = copy.deepcopy(standing)
        self.ready = False

    # -- what may be called, each with what has to come of it

    def _begin(self) -> None:
        if not self.plain.open and self.plain.number >= self.plain.schedule.epochs:
            _raises(NotInEpoch, self.run.begin_epoch)
            return
        epoch = self.run.begin_epoch()
        self.plain.begin()
        self.skipped, self.ready = 0, True
        assert epoch.keep.tolist() == self.plain.keep
        assert np.flatnonzero(epoch.remaining).tolist() == self.plain.missing()

    def _observe(self) -> None:
        ids = self._some_ids()
        found = [self.chance.choice([0.1, 0.3, self.chance.gauss(0, 1)]) for _ in ids]
        if not self.ready:
            _raises(NotInEpoch, self.run.observe, np.array(found), np.array(ids))
            return
        self.run.observe(np.array(found), np.array(ids))
        self.plain.observe(ids, found)

    def _some_ids(self) -> list[int]:
        """Mostly of those that are missing; now and then others, or one twice."""
        missing = self.plain.missing() if self.plain.open else []
        if missing and self.chance.random() < 0.8:
            return self.chance.sample(missing, self.chance.randint(1, len(missing)))
        return [self.chance.randrange(self.plain.samples) for _ in range(self.chance.randint(1, 5))]

    def _observe_all(self) -> None:
        if self.ready and (missing := self.plain.missing()):
            found = [self.chance.gauss(0, 1) for _ in missing]
            self.run.observe(np.array(found), np.array(missing))
            self.plain.observe(missing, found)

    def _skip(self) -> None:
        number = self.chance.randint(0, 4)
        if not self.plain.open:
            _raises(NotInEpoch, self.run.skip, number)
            return
        self.run.skip(number)
        self.skipped += number

    def _end(self) -> None:
        plain = self.plain
        if not plain.open:
            _raises(NotInEpoch, self.run.end_epoch)
        elif len(plain.missing()) > self.skipped and (self.policy.needs_losses or plain.new_visits.total()):
            _raises(SkippedSamples, self.run.end_epoch)
        else:
            self.run.end_epoch()
            self._ended()
            self.committed = self._standing()

    def _ended(self) -> None:
        self.plain.end()
        self.skipped, self.ready = 0, False

    def _loop_and_break(self) -> None:
        """An epoch that was seen whole ends in memory, and the next loop commits it."""
        if self.plain.open and len(self.plain.missing()) <= self.skipped:
            self._ended()
            self.committed = self._standing()
        for epoch in self.run.epochs():
            self.plain.begin()
            self.skipped, self.ready = 0, True
            assert epoch.keep.tolist() == self.plain.keep
            if self.chance.random() < 0.6:
                self._observe_all()
            break
        if self.ready and not self.plain.missing():
            self._ended()

    def _commit(self) -> None:
        self.run.commit()
        self.committed = self._standing()

    def _save(self) -> None:
        self.checkpoint = (copy.deepcopy(self.run.state_dict()), self._standing())

    def _load(self) -> None:
        if self.checkpoint is not None:
            self.run.load_state_dict(self.checkpoint[0])
            self._return_to(self.checkpoint[1])

    def _resume(self) -> str:
        self._return_to(self.committed)
        return "new process"

    def _lengthen(self) -> str | None:
        if self.committed[0].open or self.committed[2]:
            return None
        self._return_to(self.committed)
        self.given = self.plain.schedule = replace(self.given, epochs=self.given.epochs + self.chance.randint(1, 3))
        self.committed, self.checkpoint = self._standing(), None  # of a shorter run
        return "new process"

    def _rewindow(self) -> None:
        window = self.chance.randint(1, 4)
        if self.plain.number + self.plain.open < self.plain.schedule.epochs:
            self.run.rewindow(window)
            self.plain.rewindow(window)
            self.rewound = True
            self.committed = self._standing()


_OFTEN: tuple[Callable[[_Play], Any], ...] = (
    _Play._begin, _Play._observe, _Play._observe_all, _Play._skip, _Play._end, _Play._loop_and_break, _Play._commit,
    _Play._save, _Play._load, _Play._rewindow,
)  # fmt: skip
_ACTS = (*_OFTEN, *_OFTEN, _Play._begin, _Play._observe_all, _Play._end, _Play._resume, _Play._lengthen)


def _raises(kind: type[Exception], call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except kind:
        return
    raise AssertionError(f"Expected {kind.__name__}. Got nothing.")
