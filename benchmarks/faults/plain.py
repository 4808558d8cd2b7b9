"""The paper's algorithms as plain loops over Python's own numbers: what a run has to come to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from prunedata import Schedule
from prunedata.policies import DroppingCount, Random

__all__ = ["PlainRun", "plain_hash", "plain_keep", "plain_mean"]

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def plain_mean(losses: Sequence[float]) -> float:
    """The mean, summed one after the other."""
    total = 0.0
    for loss in losses:
        total = total + loss
    return total / len(losses)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def plain_hash(sample: int, seed: int, epoch: int) -> int:
    """splitmix64 of (sample, seed, epoch) in Python's own integers."""
    stream = _mix((_mix(seed & _WORD) + epoch * _GOLDEN) & _WORD)
    return _mix((stream + (sample + 1) * _GOLDEN) & _WORD)


def plain_keep(scores: Sequence[float | Fraction], num_pruned: int, seed: int, epoch: int) -> list[bool]:
    """Algorithm 2, line 7: sort by score, the highest first, and equal scores by their hash."""
    order = sorted(range(len(scores)), key=lambda x: (-scores[x], plain_hash(x, seed, epoch)))
    pruned = set(order[:num_pruned])
    return [x not in pruned for x in range(len(scores))]


class PlainRun:
    """A run by Algorithms 1 and 2: dicts and loops. ``kept`` is how many samples a pruned epoch trains on."""

    def __init__(
        self, samples: int, schedule: Schedule, policy: DroppingCount | Random, kept: int, seed: int = 0
    ) -> None:
        self.samples, self.schedule, self.policy, self.kept, self.seed = samples, schedule, policy, kept, seed
        self.counts: Counter[int] = Counter()
        self.hits: Counter[int] = Counter()
        self.visits: Counter[int] = Counter()
        self.new_hits: Counter[int] = Counter()
        self.new_visits: Counter[int] = Counter()
        self.keep = [True] * samples
        self.number, self.open = 0, False

    def begin(self) -> None:
        if self.open:
            return
        self.open, self.new_hits, self.new_visits = True, Counter(), Counter()
        self.keep = [True] * self.samples
        if self.schedule.prunes(self.number):
            self.keep = plain_keep(self._scores(), self.samples - self.kept, self.seed, self.number)

    def _scores(self) -> list[int | Fraction]:
        every = range(self.samples)
        if isinstance(self.policy, Random):
            return [0 for _ in every]
        if self.policy.by == "window":
            return [self.counts[x] for x in every]
        return [Fraction(self.hits[x], max(1, self.visits[x])) for x in every]

    def observe(self, ids: Iterable[int], losses: Sequence[float]) -> None:
        mean = plain_mean(losses)
        for x, loss in zip(ids, losses, strict=True):
            self.new_visits[int(x)] += 1
            if loss > mean + self.policy.tolerance * abs(mean):
                self.new_hits[int(x)] += 1

    def missing(self) -> list[int]:
        return [x for x in range(self.samples) if self.keep[x] and not self.new_visits[x]]

    def end(self) -> None:
        self.counts = Counter(dict(enumerate(self.counts_now())))
        for x in range(self.samples):
            self.hits[x] += self.new_hits[x]
            self.visits[x] += self.new_visits[x]
        self.open, self.number = False, self.number + 1

    def rewindow(self, window: int) -> None:
        self.schedule = self.schedule.rewindow(self.number + self.open, window)

    def counts_now(self) -> list[int]:
        """Lines 1-3 of Algorithm 1 empty the counts before the epoch in which a window begins is counted."""
        before: Counter[int] = Counter() if self.open and self.schedule.resets(self.number) else self.counts
        now: Counter[int] = self.new_hits if self.open else Counter()
        return [before[x] + now[x] for x in range(self.samples)]

    def hits_now(self) -> list[int]:
        """Of the whole run, the open epoch included."""
        return self._with_open(self.hits, self.new_hits)

    def visits_now(self) -> list[int]:
        """Of the whole run, the open epoch included."""
        return self._with_open(self.visits, self.new_visits)

    def _with_open(self, finished: Counter[int], new: Counter[int]) -> list[int]:
        return [finished[x] + new[x] * self.open for x in range(self.samples)]
