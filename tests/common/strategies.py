"""What tests share: batches in every form that a user may hand in, and the paper's algorithms as plain loops."""

import warnings
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from benchmarks.faults.plain import PlainRun, largest_count, plain_hash, plain_keep, plain_mean
from prunedata import Pruner
from prunedata.errors import NeverPrunesWarning
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
