"""How many labels a run doubts, by the losses of its samples, in whatever unit these are.

The losses are cut in two where the two groups lie furthest apart (Otsu, 1979). Learnt samples are in the lower one, and
wrong labels in the upper one, together with what the network finds hard. How much of the variance lies between the
groups tells whether these are two kinds of samples or one with a tail. A tail that wanes, as of an exponential
distribution, has 0.648 of it there, and losses that are spread evenly 0.75. And on half of the upper group the network
has to be worse than it was on all before it had learnt anything (docs/evidence/late.md).
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from prunedata.types import Array

__all__ = [
    "APART",
    "ONE_GROUP",
    "SETTLED",
    "Groups",
    "above_own",
    "are_many_worse",
    "count_doubted",
    "have_met",
    "late_from",
    "lie_clearer",
    "loss_at_first",
    "lost_from",
    "onset_from",
    "two_groups",
]

ONE_GROUP, TWO_GROUPS = 0.70, 0.75
"""Share of the variance between the groups up to which no label is doubted, and from which all of the upper group are.
Between them the share of the upper group that is doubted rises evenly: where a run cannot tell, it doubts fewer. Below
0.70 less than half of the upper group is wrong, on subjects that were made with 3 to 40 % of wrong labels."""
HIGHEST = 0.999
"""No loss counts for more than twice what so many of all lie below, from the median: one that is out of all proportion
must not hide the rest."""
LATE = Fraction(2, 3)
"""Without an onset, a run leaves samples out after this share of its epochs: wrong labels are ranked best late, and a
network recovers from them within an epoch or two."""
APART = "apart"
"""The share of the variance between the groups, in the record of an epoch."""
LOWEST = 10
"""Of so many samples of a label one lies below what the others are compared with. The median would do where labels are
wrong at their own frequencies; but where uniform errors flood a rare label, most of its samples are wrong."""
MANY, MOST = 1 / 3, 0.45
"""Share of the samples that are worse than at first where many labels are wrong. Of a network that has learnt nothing
half are, of one that has learnt clean labels at most a fifth."""
SETTLED = 5
"""After so many epochs little is left in a recent average of what losses were before anything was learnt. A run of no
more leaves nothing out: it memorizes little, and needs every step."""
FALLEN = 0.01
"""So much of the variance less between the groups than at best is a fall."""
CLEARER = 0.02
"""So much more of the variance between the groups makes one way to average losses better than another."""
CLOSE = 1e-6
"""Cuts are equally good, and numbers whole, within so much: rounding must not decide."""


def onset_from(epochs: int) -> int:
    """Return after how many epochs of a run it is looked whether the groups have met: before, nothing is learnt yet."""
    return math.ceil(Fraction(1, 6) * epochs)


def lost_from(epochs: int) -> int:
    """Return after how many epochs of a run it is looked whether many samples are worse than at first."""
    return max(SETTLED, onset_from(epochs))


def late_from(epochs: int) -> int:
    """Return the first epoch, from 0, that a run of so many epochs may leave samples out of without a figure."""
    return math.ceil(LATE * epochs)


def loss_at_first(means: Sequence[float]) -> float:
    """Return the mean loss with which a run began, by the mean losses of its epochs.

    The first epoch's is that of its middle: the loss at its beginning differs from it by half a step to the second.
    Minus infinity if there is no epoch.
    """
    if not means:
        return -math.inf
    return means[0] + (means[0] - means[1]) / 2 if len(means) > 1 else means[0]


def above_own(averages: Array, labels: Array, among: Array | None = None) -> Array:
    """Return how far losses lie above the lowest tenth of those of their own label: float64, shape (samples,).

    A label of few samples is learnt late, and all its losses are high, right or wrong. Held against all samples, its
    right ones look wrong.

    Parameters
    ----------
    averages : ndarray of float, shape (samples,)
        A recent average of each sample's losses.
    labels : ndarray of int, shape (samples,)
        The number of each sample's label, from 0.
    among : ndarray of bool, shape (samples,), optional
        Compare with these samples alone.
    """
    losses = np.asarray(averages, dtype=np.float64)
    values, numbers = (losses, labels) if among is None else (losses[among], labels[among])
    ordered = values[np.lexsort((values, numbers))]
    many = np.bincount(numbers, minlength=int(labels.max(initial=0)) + 1)
    some = many > 0
    low = np.zeros(many.size)
    low[some] = ordered[(many.cumsum() - many + (many - 1) // LOWEST)[some]]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(losses - low[labels])


class Groups(NamedTuple):
    """The two groups of losses that lie furthest apart."""

    samples: int
    """Those whose losses are finite."""
    upper: int
    """Samples in the upper one."""
    apart: float
    """Share of the variance that lies between the groups, from 0 to 1."""
    median: float
    """The median loss of the upper one; minus infinity where no two losses differ."""


def two_groups(averages: Array, losses: Array | None = None) -> Groups:
    """Return the two groups of losses, by a recent average of each sample's: ndarray of float, shape (samples,).

    Those that are not finite do not count. The groups are the same if all losses are multiplied by a positive number,
    or added to one number. Where the averages are what :func:`above_own` made of ``losses``, the median is of these.
    """
    ordered = np.sort(np.asarray(averages, dtype=np.float64))
    ordered = ordered[np.isfinite(ordered)]
    if not ordered.size:
        return Groups(ordered.size, 0, 0.0, -math.inf)
    known = ordered / 8 - ordered[ordered.size // 2] / 8  # an eighth: what is between must not overflow
    known = np.minimum(known, 2 * known[int(HIGHEST * (known.size - 1))])
    if known[0] == known[-1]:
        return Groups(ordered.size, 0, 0.0, -math.inf)
    known = (known - known[0]) / (known[-1] - known[0])
    known -= known.mean()
    lower = np.arange(1, known.size)
    between = known.cumsum()[:-1] ** 2 / (lower * (known.size - lower))
    best = float(between.max())
    cut = int(np.flatnonzero(between >= best * (1 - CLOSE))[-1])  # of equally good ones, that with fewer above it
    median = float(ordered[(cut + ordered.size) // 2])  # the lower one, where there are two
    if losses is not None:
        upper = np.sort(np.asarray(losses, dtype=np.float64)[np.isfinite(averages) & (averages > ordered[cut])])
        median = float(upper[(upper.size - 1) // 2])
    return Groups(ordered.size, ordered.size - 1 - cut, best / float(known.var()), median)


def are_many_worse(averages: Array, untaught: float) -> bool:
    """Whether so many samples have higher losses than the run had when it began that many labels must be wrong.

    Where two labels contradict each other in many places, a network learns to be sure of none, and the two groups of
    losses lie close together though nearly all wrong labels are in the upper one.

    Parameters
    ----------
    averages : ndarray of float, shape (samples,)
        A recent average of each sample's losses.
    untaught : float
        The loss with which the run began, see :func:`loss_at_first`.
    """
    worse = np.count_nonzero(averages > untaught)
    return averages.size > 0 and bool(MANY * averages.size <= worse <= MOST * averages.size)


def count_doubted(groups: Groups, *, untaught: float = -math.inf, memorizes: bool = False, many: bool = False) -> int:
    """Return how many labels are doubted by the losses of their samples.

    Parameters
    ----------
    groups : Groups
        Of these losses.
    untaught : float
        The loss with which the run began, see :func:`loss_at_first`. No label is doubted if the median of the upper
        group is not above it.
    memorizes : bool
        Whether a validation figure has shown that the network memorizes labels. Then there are wrong ones, and all of
        the upper group are doubted.
    many : bool
        Whether :func:`are_many_worse`. If a third of the samples are in the upper group as well, all of it is doubted,
        however close the groups lie. Of one group with a waning tail a fifth are.
    """
    if memorizes:
        return groups.upper
    if not groups.median > untaught:
        return 0
    if many and groups.upper >= MANY * groups.samples:
        return groups.upper
    clear = (groups.apart - ONE_GROUP) / (TWO_GROUPS - ONE_GROUP)
    return int(groups.upper * min(max(clear, 0.0), 1.0) + CLOSE)


def have_met(apart: Sequence[float]) -> bool:
    """Whether the two groups come nearer again, by the share of the variance between them after each epoch.

    Losses of wrong labels rise away from the others while a network learns what holds for other samples too. Once it
    memorizes labels, they fall.
    """
    return len(apart) > 1 and max(apart) - apart[-1] >= FALLEN


def lie_clearer(recent: Array, means: Array) -> bool:
    """Whether recent averages of losses fall apart in two groups, and further than the means of all epochs do.

    The recent ones rank wrong labels better where a network keeps from memorizing them, and far worse where it does
    not: its groups then come nearer again.
    """
    apart = two_groups(recent).apart
    return apart >= TWO_GROUPS and apart - two_groups(means).apart >= CLEARER
