"""How many labels look wrong, by the losses of their samples, whatever the unit of the loss.

The losses are split into the two groups that lie furthest apart (Otsu, 1979). Learned samples are in the lower group;
wrong labels in the upper one, together with hard samples. The share of the variance between the groups shows whether
they are two kinds of samples, or one kind with a tail: an exponential distribution has 0.648, an even one 0.75. And on
half of the upper group the network must be worse than it was on all samples before training (docs/evidence/late.md).
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from prunedata.types import Array, Counts, Mask

ONE_GROUP, TWO_GROUPS = 0.70, 0.75
"""Up to this share of the variance between the groups no label is doubted; from the second on, the whole upper group.
Between them the doubted part of the upper group rises evenly: an uncertain run doubts fewer. Below 0.70 less than half
of the upper group is wrong, on subjects that were made with 3 to 40 % of wrong labels."""
HIGHEST = 0.999
"""No loss counts for more than twice this quantile, measured from the median: a huge loss must not hide the others."""
LATE = Fraction(2, 3)
"""Without an onset, a run leaves samples out after this share of its epochs: wrong labels are ranked best late, and a
network recovers from them within an epoch or two."""
APART, WORSE, TURNED, WITHIN, NOISE = "apart", "worse", "turned", "within", "noise"
"""Keys in the record of an epoch: the share of the variance between the groups; the share of the samples with a higher
loss than the run had at first; the share that turned, see :func:`are_turned`; how far the losses fell within the epoch,
see :func:`is_still_learning`; and the standard error of that."""
LOWEST = 10
"""Losses are compared with the lowest 1 in so many of the same label. The median would do if labels were wrong at their
own frequencies; but if uniform errors flood a rare label, most of its samples are wrong."""
MANY, MOST = 1 / 3, 0.45
"""If many labels are wrong, between these shares of the samples have a higher loss than the run had at first. A network
that has learned nothing has half of them there, one that has learned clean labels at most a fifth."""
TAIL, WIDE, HARDLY_APART = 0.20, 0.22, 0.62
"""Of one group with a tail, a fifth is in the upper one, give or take the root of the number of samples. An upper group
of more samples than that, and of at least 22 %, is no tail if so much of the variance lies between the groups."""
NOT_LEARNED, FORGOTTEN = 2 / 3, 0.55
"""At least this many samples are worse than at first, per sample in a wide upper group; the second holds if the network
forgets samples between visits, which shows more surely that it memorizes some."""
MISSING = 0.01  # the share of labels that may be unknown where samples are compared with those of the same label
LEARNED = 0.9
"""Once the share of the samples that are worse than at first has fallen to so much of its highest value, the network is
memorizing them."""
SETTLED = 5
"""After so many epochs a recent average holds little of the losses before training. A run of no more epochs leaves
nothing out: it memorizes little, and needs every step."""
FALLEN = 0.01  # the share of the variance between the groups has fallen if it is so much below its highest value
CLEARER = 0.02  # so much more of the variance between the groups makes one average of losses better than another
STEADY = 1 / 7
"""A network is still learning what holds for other samples, too, if in one of the last five epochs more than this share
of the samples have :func:`turned <are_turned>`."""
GENERAL = 1 / 2
"""A network mostly learns what holds for other samples if more than this share of the fall of the losses is within
epochs."""
CHANCE = 3  # so many standard errors are more than chance explains: a run is looked at after each epoch
CLOSE = 1e-6  # splits are equally good, and numbers whole, within this difference: rounding must not decide


def onset_from(epochs: int) -> int:
    """Return after how many epochs a run checks whether the groups come nearer again: before, it has learned little."""
    return math.ceil(Fraction(1, 6) * epochs)


def lost_from(epochs: int) -> int:
    """Return after how many epochs a run checks whether many samples have a higher loss than at first."""
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


def observed(visits: Counts, among: Mask | None) -> Mask | None:
    """Return which samples of ``among`` were observed, shape (samples,): nothing is known of the others.

    A sampler may return a part of a data set. The averages of the rest are 0, and would look like those of a group of
    its own. None stands for all samples; ``among`` is returned if none was observed.
    """
    seen = visits > 0
    if among is not None:
        seen &= among
    return seen if seen.any() and not seen.all() else among


def as_if_visited(averages: Array, visits: Array, absent: Array, decay: float) -> Array:
    """Return recent averages as if each sample had come once in each epoch that trained on it, shape (samples,).

    An average begins with 0. Where a sampler gives a sample seldom, its average would be low, whatever its losses are.
    ``visits`` are those of the run, ``absent`` what these lack to one in each such epoch, modulo 2**32.
    """
    had = np.maximum(visits.astype(np.int64), 1)
    due = np.maximum(visits + absent.astype(np.uint32).view(np.int32).astype(np.int64), 1)
    return np.asarray(averages * ((1 - decay**due) / (1 - decay**had)), dtype=averages.dtype)


def known_labels(given: Array | None, seen: Array | None, among: Mask | None) -> Array | None:
    """Return the number of each sample's label, shape (samples,), as given or as batches brought it; None if unknown.

    In ``seen``, 0 is no label so far, and 1 that of samples that have none. Few of the samples in ``among`` may have 0,
    as those whose batches were left out: they are compared with each other. More different labels than half as many as
    samples are no classes.
    """
    if given is not None or seen is None:
        return given
    few = seen if among is None else seen[among]
    missing, _, *classes = np.bincount(few, minlength=2)
    are_classes = missing <= MISSING * few.size and np.count_nonzero(classes) <= few.size / 2
    return seen if are_classes else None


def above_own(averages: Array, labels: Array, among: Array | None = None) -> Array:
    """Return how far losses lie above the lowest tenth of those of their own label: float64, shape (samples,).

    A rare label is learned late, and all its losses are high, right or wrong: compared with all samples, its right ones
    look wrong. ``averages`` are recent averages of each sample's losses, ``labels`` numbers from 0; with ``among``, a
    mask, samples are compared with those in it alone. All have the shape (samples,).
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

    samples: int  # those whose losses are finite
    upper: int  # samples in the upper one
    apart: float  # share of the variance that lies between the groups, from 0 to 1
    median: float  # the median loss of the upper one; minus infinity where no two losses differ


def two_groups(averages: Array, losses: Array | None = None) -> Groups:
    """Return the two groups of losses, by a recent average of each sample's: ndarray of float, shape (samples,).

    Values that are not finite are ignored. The groups do not change if all losses are multiplied by a positive number,
    or a number is added to all. If the averages come from :func:`above_own`, pass its ``losses`` for the median.
    """
    ordered = np.sort(np.asarray(averages, dtype=np.float64))
    ordered = ordered[np.isfinite(ordered)]
    if not ordered.size:
        return Groups(ordered.size, 0, 0.0, -math.inf)
    known = ordered / 8 - ordered[ordered.size // 2] / 8  # an eighth, so that nothing overflows
    known = np.minimum(known, 2 * known[int(HIGHEST * (known.size - 1))])
    if known[0] == known[-1]:
        return Groups(ordered.size, 0, 0.0, -math.inf)
    known = (known - known[0]) / (known[-1] - known[0])
    known -= known.mean()
    lower = np.arange(1, known.size)
    between = known.cumsum()[:-1] ** 2 / (lower * (known.size - lower))
    best = float(between.max())
    cut = int(np.flatnonzero(between >= best * (1 - CLOSE))[-1])  # of ties, the one with the smaller upper group
    median = float(ordered[(cut + ordered.size) // 2])  # the lower one, where there are two
    if losses is not None:
        upper = np.sort(np.asarray(losses, dtype=np.float64)[np.isfinite(averages) & (averages > ordered[cut])])
        median = float(upper[(upper.size - 1) // 2])
    return Groups(ordered.size, ordered.size - 1 - cut, best / float(known.var()), median)


def are_worse(averages: Array, untaught: float) -> float:
    """Return the share of samples whose recent average, shape (samples,), is above that of :func:`loss_at_first`."""
    return float(np.count_nonzero(averages > np.float64(untaught)) / max(1, averages.size))  # beyond float32, too


def are_many_worse(averages: Array, untaught: float) -> bool:
    """Return whether so many samples are worse than at first, by :func:`are_worse`, that many labels must be wrong.

    If two labels contradict each other in many places, a network becomes certain of neither: the two groups of losses
    then lie close together, though nearly all wrong labels are in the upper one.
    """
    return averages.size > 0 and MANY <= are_worse(averages, untaught) <= MOST


def are_turned(before: Array, losses: Array, untaught: float) -> float:
    """Return the share that turned in an epoch: of the samples that were not worse than at first, those that now are.

    ``before`` are the samples' recent averages before the epoch, ``losses`` those in it, NaN for samples without one,
    both of shape (samples,); ``untaught`` is as for :func:`are_worse`.
    """
    known = np.asarray(losses)[np.asarray(before) <= np.float64(untaught)]
    return float(np.count_nonzero(known > np.float64(untaught)) / max(1, known.size))


def are_settled(turned: Sequence[float]) -> bool:
    """Return whether hardly any sample turns any more, by :func:`are_turned` after each epoch.

    While a network still learns what holds for other samples too, much of it changes in every epoch: which samples have
    high losses then says little of their labels.
    """
    return bool(turned) and max(turned[-SETTLED:]) <= STEADY


def is_still_learning(within: Sequence[float], means: Sequence[float]) -> bool:
    """Return whether a network mostly learns what samples have in common: then any sample may have a high loss.

    Such a network is better on the last samples of an epoch than it was on the first, by as much as it gets better from
    epoch to epoch. What it memorizes is one sample at a time: losses fall from visit to visit of the same sample, and
    not within an epoch.

    ``within`` has how far the losses fell within each of the last epochs, as the records have it; ``means`` the mean
    loss of each epoch so far.
    """
    inside, fall = _of_last_epochs(within, means)
    return inside > max(0.0, GENERAL * fall)


def is_forgetting(within: Sequence[float], noise: Sequence[float], means: Sequence[float]) -> bool:
    """Return whether a network forgets samples between their visits, and so memorizes them.

    The later in an epoch a sample comes, the longer ago was its last visit: losses rise within an epoch, by more than
    they fall from epoch to epoch, and by more than chance explains. ``noise`` has the standard error of each of
    ``within``; for the other parameters see :func:`is_still_learning`.
    """
    inside, fall = _of_last_epochs(within, means)
    chance = CHANCE * math.hypot(*noise[-SETTLED:]) + CLOSE * max(map(abs, means), default=0.0)
    return inside + chance < -abs(fall)


def _of_last_epochs(within: Sequence[float], means: Sequence[float]) -> tuple[float, float]:
    """How far the losses fell within the last five epochs in sum, and from the one before to the last of them."""
    number = min(len(within), len(means) - 1, SETTLED)
    return (sum(within[-number:]), means[-1 - number] - means[-1]) if number > 0 else (0.0, 0.0)


def are_being_learned(worse: Sequence[float]) -> bool:
    """Return whether a network memorizes samples that contradict others, by :func:`are_worse` after each epoch.

    While it learns what samples have in common, those that contradict others stay worse than at first.
    """
    return len(worse) > 1 and worse[-1] <= LEARNED * max(worse)


def is_wide(groups: Groups, worse: float, *, forgets: bool = False) -> bool:
    """Return whether the upper group has too many samples to be the hard ones of one group.

    The share of the samples that are ``worse`` than at first, see :func:`are_worse`, is at least two thirds of the
    group's, or 0.55 if the network ``forgets`` samples, see :func:`is_forgetting`: it has learned hard samples. Of
    clean labels whose losses are means over several labels more than a third of the samples can be in the upper group,
    but only half of these are worse. And it is at most 45 % of all, unlike where the network has learned nothing. Clear
    groups are not wide: they become clearer still, so it is better to wait.
    """
    apart = HARDLY_APART <= groups.apart < TWO_GROUPS
    tail = max(TAIL * groups.samples + math.sqrt(groups.samples), WIDE * groups.samples)
    not_learned = (FORGOTTEN if forgets else NOT_LEARNED) * groups.upper / max(1, groups.samples)
    return apart and groups.upper >= tail and not_learned <= worse <= MOST


def count_doubted(groups: Groups, *, untaught: float = -math.inf, memorizes: bool = False, many: bool = False) -> int:
    """Return how many labels look wrong by the two groups of their samples' losses.

    No label is doubted unless the median of the upper group is above ``untaught``, the loss with which the run began,
    see :func:`loss_at_first`. If the network ``memorizes`` labels, as a validation figure shows, or the groups, see
    :func:`is_wide`, there are wrong ones, and the whole upper group is doubted. So it is with ``many``, if
    :func:`are_many_worse` and :func:`are_settled` hold, and the upper group has at least a third of the samples, and
    less than half, however close the groups lie: of one group with a tail, a fifth is in the upper one; of one that a
    network has not learned, half.
    """
    if memorizes:
        return groups.upper
    if not groups.median > untaught:
        return 0
    if many and MANY * groups.samples <= groups.upper < groups.samples / 2:
        return groups.upper
    clear = (groups.apart - ONE_GROUP) / (TWO_GROUPS - ONE_GROUP)
    return int(groups.upper * min(max(clear, 0.0), 1.0) + CLOSE)


def have_met(apart: Sequence[float]) -> bool:
    """Return whether the two groups come nearer again, by the share of the variance between them after each epoch.

    Losses of wrong labels rise above the others while a network learns what holds for other samples too. Once it
    memorizes labels, they fall.
    """
    return len(apart) > 1 and max(apart) - apart[-1] >= FALLEN


def lie_clearer(recent: Array, means: Array) -> bool:
    """Return whether recent averages of losses form two groups, and clearer ones than the means of all epochs.

    Recent averages rank wrong labels better while a network does not memorize them, and far worse once it does: its
    groups then come nearer again.
    """
    apart = two_groups(recent).apart
    return apart >= TWO_GROUPS and apart - two_groups(means).apart >= CLEARER
