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

import numpy as np

from prunedata.types import Array

__all__ = ["count_doubted", "late_from", "loss_at_first"]

ONE_GROUP, TWO_GROUPS = 0.70, 0.75
"""Share of the variance between the groups up to which no label is doubted, and from which all of the upper group are.
Between them the share of the upper group that is doubted rises evenly: where a run cannot tell, it doubts fewer. Below
0.70 less than half of the upper group is wrong, on subjects that were made with 3 to 40 % of wrong labels."""
HIGHEST = 0.999
"""No loss counts for more than twice what so many of all lie below, from the median: one that is out of all proportion
must not hide the rest."""
LATE = Fraction(2, 3)
"""Of the epochs are done when a run begins whose validation figure has not turned: wrong labels are ranked best late,
and a network recovers from them within an epoch or two."""
CLOSE = 1e-6
"""Cuts are equally good, and numbers whole, within so much: rounding must not decide."""


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


def count_doubted(averages: Array, *, untaught: float = -math.inf, memorizes: bool = False) -> int:
    """Return how many labels are doubted by the losses of their samples.

    The number is the same if all losses, ``untaught`` too, are multiplied by a positive number, or added to one number.

    Parameters
    ----------
    averages : ndarray of float, shape (samples,)
        A recent average of each sample's losses. Those that are not finite do not count.
    untaught : float
        The loss with which the run began, see :func:`loss_at_first`. No label is doubted if the median of the upper
        group is not above it.
    memorizes : bool
        Whether a validation figure has shown that the network memorizes labels. Then there are wrong ones, and all of
        the upper group are doubted.
    """
    known = np.sort(np.asarray(averages, dtype=np.float64))
    known = known[np.isfinite(known)]
    if not known.size:
        return 0
    ordered = known
    known = known / 8 - known[known.size // 2] / 8  # an eighth: what is between must not overflow
    known = np.minimum(known, 2 * known[int(HIGHEST * (known.size - 1))])
    if known[0] == known[-1]:
        return 0
    known = (known - known[0]) / (known[-1] - known[0])
    known -= known.mean()
    lower = np.arange(1, known.size)
    between = known.cumsum()[:-1] ** 2 / (lower * (known.size - lower))
    best = float(between.max())
    cut = int(np.flatnonzero(between >= best * (1 - CLOSE))[-1])  # of equally good ones, that with fewer above it
    if memorizes:
        return int(known.size) - 1 - cut
    if not ordered[(cut + known.size) // 2] > untaught:  # the lower median
        return 0
    clear = (best / float(known.var()) - ONE_GROUP) / (TWO_GROUPS - ONE_GROUP)
    return int((known.size - 1 - cut) * min(max(clear, 0.0), 1.0) + CLOSE)
