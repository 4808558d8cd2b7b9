"""What tests share: batches in every form that a user may hand in, and the paper's algorithms as plain loops."""

import warnings
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from prunedata import NeverPrunesWarning, Pruner, Random
from prunedata.testing import strategies as kit
from prunedata.testing.strategies import LOSSES, SEEDS, policies, schedules

__all__ = [
    "FORMS",
    "LOSSES",
    "SEEDS",
    "Feed",
    "PlainRun",
    "batches",
    "feeds",
    "in_form",
    "largest_count",
    "plain_hash",
    "plain_keep",
    "plain_mean",
    "policies",
    "pruner",
    "schedules",
]

FORMS = ("float64", "float32", "list")

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def batches(samples, max_size=10, max_batches=6):
    """A list of (ids, losses), as Python lists."""
    return kit.batches(samples, max_size, max_batches).map(lambda some: [(a.tolist(), b.tolist()) for a, b in some])


def in_form(ids, losses, form):
    """The same batch as a user may hand it in, and its losses as the float64 that are then meant."""
    if form == "list":
        return list(ids), list(losses), [float(loss) for loss in losses]
    given = np.asarray(losses, dtype=form)
    kind = np.int32 if form == "float32" else np.int64
    return np.asarray(ids, dtype=kind), given, [float(loss) for loss in given]


@dataclass(frozen=True)
class Feed:
    """Losses for every id and epoch, and ragged batches; the same for the same seed, however often it is asked."""

    seed: int
    samples: int
    ties: bool = False
    extra: int = 0

    def losses(self, ids, epoch):
        random = np.random.default_rng([self.seed, epoch])
        table = random.choice([0.1, 0.3, 0.7], self.samples) if self.ties else random.normal(size=self.samples)
        return table[np.asarray(ids, dtype=np.int64)]

    def batches(self, kept, epoch):
        """Cover ``kept``, in ragged batches, with ``extra`` ids that repeat or are pruned among them."""
        random = np.random.default_rng([self.seed, epoch, 1])
        ids = random.permutation(np.concatenate([kept, random.integers(0, self.samples, self.extra)]).astype(np.int64))
        while ids.size:
            cut = int(random.choice([1, 2, 3, 8, 8, 8, 50]))
            yield ids[:cut], self.losses(ids[:cut], epoch)
            ids = ids[cut:]


def feeds(samples, max_extra=20):
    return st.builds(Feed, SEEDS, st.just(samples), st.booleans(), st.integers(0, max_extra))


def pruner(samples, schedule, **options):
    """A Pruner; that a random schedule may prune nothing is no matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        return Pruner(samples, schedule, **options)


def plain_mean(losses):
    total = 0.0
    for loss in losses:
        total = total + loss
    return total / len(losses)


def _mix(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def plain_hash(sample, seed, epoch):
    """splitmix64 of (sample, seed, epoch) in Python's own integers."""
    stream = _mix((_mix(seed & _WORD) + epoch * _GOLDEN) & _WORD)
    return _mix((stream + (sample + 1) * _GOLDEN) & _WORD)


def plain_keep(scores, num_pruned, seed, epoch):
    """Algorithm 2, line 7: sort by score, the highest first, and equal scores by their hash."""
    order = sorted(range(len(scores)), key=lambda x: (-scores[x], plain_hash(x, seed, epoch)))
    pruned = set(order[:num_pruned])
    return [x not in pruned for x in range(len(scores))]


def largest_count(epochs):
    """The largest count that an array holds which is to count up to ``epochs``."""
    return 255 if epochs <= 255 else 65535


class PlainRun:
    """A run by Algorithms 1 and 2: dicts and loops. ``kept`` is how many samples a pruned epoch trains on."""

    def __init__(self, samples, schedule, policy, kept, seed=0):
        self.samples, self.schedule, self.policy, self.kept, self.seed = samples, schedule, policy, kept, seed
        self.counts, self.hits, self.visits = Counter(), Counter(), Counter()
        self.number, self.open = 0, False
        self.top = largest_count(min(schedule.longest_window, schedule.epochs))
        self.top_of_run = largest_count(schedule.epochs)

    def begin(self):
        if self.open:
            return
        self.open, self.new_hits, self.new_visits = True, Counter(), Counter()
        self.keep = [True] * self.samples
        if self.schedule.prunes(self.number):
            self.keep = plain_keep(self._scores(), self.samples - self.kept, self.seed, self.number)

    def _scores(self):
        every = range(self.samples)
        if isinstance(self.policy, Random):
            return [0 for _ in every]
        if self.policy.rank == "window":
            return [self.counts[x] for x in every]
        return [Fraction(self.hits[x], max(1, self.visits[x])) for x in every]

    def observe(self, ids, losses):
        mean = plain_mean(losses)
        for x, loss in zip(ids, losses, strict=True):
            self.new_visits[int(x)] += 1
            if loss > mean + self.policy.tolerance * abs(mean):
                self.new_hits[int(x)] += 1

    def missing(self):
        return [x for x in range(self.samples) if self.keep[x] and not self.new_visits[x]]

    def end(self):
        self.counts = Counter(dict(enumerate(self.counts_now())))
        for x in range(self.samples):
            self.hits[x] = min(self.top_of_run, self.hits[x] + self.new_hits[x])
            self.visits[x] = min(self.top_of_run, self.visits[x] + self.new_visits[x])
        self.open, self.number = False, self.number + 1

    def rewindow(self, window):
        self.schedule = self.schedule.rewindow(self.number + self.open, window)

    def counts_now(self):
        """Lines 1-3 of Algorithm 1 empty the counts before the epoch in which a window begins is counted."""
        before = Counter() if self.open and self.schedule.resets(self.number) else self.counts
        now = self.new_hits if self.open else Counter()
        return [min(self.top, before[x] + now[x]) for x in range(self.samples)]
