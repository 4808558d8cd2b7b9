"""What tests share: batches in every form that a user may hand in, and the paper's algorithms as plain loops."""

import warnings
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from benchmarks.faults.plain import PlainRun, plain_hash, plain_keep, plain_mean
from prunedata import Pruner, Schedule
from prunedata.errors import NeverPrunesWarning
from prunedata.policies import DroppingCount, Random

__all__ = [
    "FORMS",
    "LOSSES",
    "SEEDS",
    "Feed",
    "PlainRun",
    "batches",
    "feeds",
    "in_form",
    "plain_hash",
    "plain_keep",
    "plain_mean",
    "policies",
    "pruner",
    "schedules",
]

FORMS = ("float64", "float32", "list")


SEEDS = st.integers(0, 2**32 - 1)
"""Seeds of a run."""

# 0.1 and 0.3 are no binary fractions: a batch of equal losses need not have that loss as its mean.
LOSSES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 0.3, 1.0, -0.1, -1.0, 1e-300, 1e16, 3.0]), st.floats(-1e6, 1e6, allow_nan=False)
)
"""One finite loss: numbers that tie or round often, and any others."""


@st.composite
def schedules(draw, max_epochs=12, readings=("aligned", "printed")):
    """Short schedules of either reading of the paper, with even and uneven windows; some prune nothing."""
    epochs, block = draw(st.integers(1, max_epochs)), draw(st.integers(1, 4))
    reading = draw(st.sampled_from(readings))
    window = draw(st.integers(1, max_epochs + 2))
    if reading == "aligned" and draw(st.booleans()):
        window = tuple(draw(st.lists(st.integers(1, 5), min_size=epochs, max_size=epochs)))
    start, pruned = draw(st.integers(1, 4)), draw(st.integers(0, block) | st.just(block))
    return Schedule(epochs, window, start, block, pruned, draw(st.sampled_from([1.0, 2.0])), reading)


def policies():
    """The paper's policy, with several tolerances and both ranks, and the random control."""
    tolerances = st.sampled_from([0.0, 0.0, 0.1, 0.5, 2.0])
    counting = st.builds(DroppingCount, tolerances, st.sampled_from(["window", "run"]))
    return st.one_of(counting, st.just(Random()))


@st.composite
def batches(draw, samples, max_size=10, max_batches=6):
    """Some pairs of ids and losses, as Python lists: ids that repeat; losses of all kinds, all equal, or that tie."""
    ids = st.lists(st.integers(0, samples - 1), min_size=1, max_size=max_size)
    some = []
    for batch in draw(st.lists(ids, max_size=max_batches)):
        values = draw(st.sampled_from([LOSSES, st.just(draw(LOSSES)), st.sampled_from([0.1, 0.3])]))
        some.append((batch, draw(st.lists(values, min_size=len(batch), max_size=len(batch)))))
    return some


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
