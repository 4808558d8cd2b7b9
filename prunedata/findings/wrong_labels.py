"""How many labels seem wrong, from what a run has counted.

Wrong labels give themselves away early: the network does worse on them than a blind guess would, visit after visit.
How many samples stand out like that was recorded in runs whose share of wrong labels was known; their curves are the
constants below, one for each network and data set. The estimate is their median, and its range goes from below the
lowest to above the highest: it is as wide as what is not known. Each was judged by the curves of the others alone
(docs/evidence/advice.md).

Errors that look like another class, as a weak model's own or half of those that people make, don't stand out like
that and aren't counted. They are hard to learn at most, as clean samples are too. So the share of hard samples says how
many labels may be wrong at most.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from prunedata.types import Array

__all__ = [
    "HIGHEST",
    "LIKELY_CURVES",
    "PRUNE_FROM",
    "WRONG",
    "Estimate",
    "Signs",
    "between",
    "by_high",
    "by_hits",
    "hard_share",
    "is_worth_pruning",
    "most_wrong",
    "signs_of",
]


WRONG = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)
"""The shares of labels made wrong at random in the runs behind the curves."""
LIKELY, CERTAIN = 7, 9
"""In how many of ten visits a loss must be high for a sample to be likely wrong, and to be as good as sure."""
LIKELY_CURVES = {
    "lenet-cifar10": (0.071, 0.100, 0.129, 0.180, 0.223, 0.263, 0.315),
    "lenet-digits": (0.001, 0.046, 0.089, 0.176, 0.245, 0.304, 0.356),
    "head": (0.038, 0.071, 0.101, 0.154, 0.203, 0.243, 0.28),
    "head-pretrained": (0.018, 0.054, 0.09, 0.152, 0.202, 0.237, 0.257),
    "mlp-fashion": (0.016, 0.057, 0.099, 0.179, 0.254, 0.323, 0.429),
    "conv-fashion": (0.018, 0.059, 0.102, 0.186, 0.266, 0.339, 0.467),
    "conv-digits": (0.0, 0.04, 0.086, 0.16, 0.221, 0.286, 0.325),
    "mlp-letters": (0.002, 0.046, 0.089, 0.169, 0.244, 0.309, 0.401),
}
"""Share of samples that are likely wrong, for each of ``WRONG``: LeNet on 10,000 samples of CIFAR-10 after 20 of 120
epochs (2 seeds) and on 1,437 digits after 10 of 60 epochs (3 seeds); the subjects of ``benchmarks.frontier`` after
10 of 30 epochs. With 20% of the labels replaced by a weak model's own errors: .079, .003, and .006 to .057."""
CERTAIN_ENOUGH = 0.06
"""Certain samples below which nobody should prune: data may be hard without being wrong. In the same runs, and after 5
epochs of 30: clean and a weak model's own errors up to .054; 20% wrong at random .080 and more."""
HITS_CURVES = ((0.141, 0.155, 0.174, 0.203, 0.219, 0.232), (0.014, 0.062, 0.104, 0.195, 0.269, 0.329))
"""Share of samples hit, with tolerance 0, in nine of ten visits; up to 40% wrong, as beyond it falls again. The same
runs. A weak model's own errors in 20% of the labels of CIFAR-10 gave .174, after 10 epochs .20, as much as 20% wrong at
random: so hits alone are no reason to prune."""
MARGIN = 0.05
"""What other networks may do to the range: softmax regression on digits with 20% wrong, by the curves 12% to 19%."""
MISTAKEN = 0.15
"""Wrong labels that may not even be hard, as the network takes them for right. In the runs of ``benchmarks.frontier``,
after 5 and 10 epochs, up to .08 more of the labels were wrong than samples were hard. Where 60% were wrong it was up to
.26, but there the range goes up to 60%."""
PRUNE_FROM = 0.15
"""Wrong labels from which pruning is worth it. LeNet on CIFAR-10, 120 epochs, RunningLoss, test points against regular
training: clean, 25% of visits saved: -2.8; 20% wrong, 25% saved: +0.9; 40% wrong, 33% saved: +1.0."""
HIGHEST = WRONG[-1]


@dataclass(frozen=True)
class Estimate:
    """Share of the labels that seem wrong at random.

    ``share`` from 0 to 0.6, within ``low`` to ``high``; ``worth_pruning`` whether that is enough to prune, and
    ``evidence`` sentences on what it was read from. ``hard`` is the share of hard samples, None if it is not known.
    """

    share: float
    low: float
    high: float
    worth_pruning: bool
    evidence: tuple[str, ...]
    hard: float | None = None

    @property
    def most(self) -> float:
        """Share of the labels that may be wrong at most, errors like another class with them; 1 if unknown."""
        return 1.0 if self.hard is None else most_wrong(self.hard, self.high)


@dataclass(frozen=True)
class Signs:
    """Shares of the samples that stand out, from 0 to 1.

    ``likely`` and ``certain`` had a loss above ``ln(classes)`` in seven and in nine of ten visits, ``hard`` and ``hit``
    a loss above their batch's mean in seven and in nine of ten.
    """

    likely: float
    certain: float
    hit: float
    hard: float


def signs_of(hits: Array, high: Array, visits: Array) -> Signs:
    """What stands out, by arrays of int of shape (samples,), all visits above 0."""
    return Signs(
        likely=_share(high, visits, LIKELY), certain=_share(high, visits, CERTAIN),
        hit=_share(hits, visits, CERTAIN), hard=hard_share(hits, visits),
    )  # fmt: skip


def by_high(high: Array, visits: Array, hits: Array | None = None) -> Estimate:
    """Estimate from visits with a loss above ``ln(classes)``, arrays of int of shape (samples,), all visits above 0.

    ``hits`` with tolerance 0 say how many samples are hard.
    """
    likely, certain = _share(high, visits, LIKELY), _share(high, visits, CERTAIN)
    share, low, top = between(likely, visits.size, LIKELY_CURVES.values())
    worth = is_worth_pruning(share, certain)
    told = [
        f"{likely:.1%} of {visits.size:,} samples had a loss above that of a blind guess in at least 70% of their "
        f"visits, and {certain:.1%} in at least 90%.",
        f"By runs of {len(LIKELY_CURVES)} networks and data sets, the first speaks for {low:.0%} to {top:.0%} wrong at "
        "random.",
    ]
    if share >= PRUNE_FROM and not worth:
        told.append(f"The second is below {CERTAIN_ENOUGH:.0%}: such data are rather hard than wrong.")
    if hits is None:
        return Estimate(share, low, top, worth, tuple(told))
    hard = hard_share(hits, visits)
    return Estimate(share, low, top, worth, (*told, _of_hard(hard, top)), hard)


def by_hits(hits: Array, visits: Array) -> Estimate:
    """Estimate from hits with tolerance 0, for runs that weren't told their classes. Otherwise as :func:`by_high`."""
    often, hard = _share(hits, visits, CERTAIN), hard_share(hits, visits)
    share, low, top = between(often, visits.size, HITS_CURVES)
    told = (
        f"{often:.1%} of {visits.size:,} samples had a loss above their batch's mean in at least 90% of their visits.",
        f"By runs of LeNet on CIFAR-10 and on digits, that speaks for {low:.0%} to {top:.0%} wrong at random.",
        "Hits alone don't tell hard data from wrong labels, so they are no reason to prune: watch with "
        "Pruner(..., classes=K) to know.",
        _of_hard(hard, top),
    )
    return Estimate(share, low, top, False, told, hard)


def _of_hard(hard: float, high: float) -> str:
    return (
        f"{hard:.0%} of the samples were hard, above their batch's mean in at least 70% of their visits. Errors that "
        f"look like another class hide among these: with them {most_wrong(hard, high):.0%} of the labels may be wrong "
        "at most."
    )


def hard_share(hits: Array, visits: Array) -> float:
    """Share of the samples that are hard: hit, with tolerance 0, in at least seven of ten visits."""
    return _share(hits, visits, LIKELY)


def most_wrong(hard: float, high: float) -> float:
    """Share of the labels that may be wrong at most, by the share of hard samples and the top of the range."""
    return min(1.0, max(high, hard + MISTAKEN))


def is_worth_pruning(share: float, certain: float) -> bool:
    """Whether so many labels seem wrong, and samples as good as sure, that pruning pays."""
    return share >= PRUNE_FROM and certain >= CERTAIN_ENOUGH


def _share(times: Array, visits: Array, of_ten: int) -> float:
    """Share of the samples of which so many of ten visits count; in whole numbers, so that 9 of 10 is 9 of 10."""
    return float(np.mean(10 * times.astype(np.int64) >= of_ten * visits.astype(np.int64)))


def between(share: float, samples: int, curves: Iterable[tuple[float, ...]]) -> tuple[float, float, float]:
    """Read a share off the curves: the median of what they say, and its range with what chance may do to the share."""
    curves, (low, top) = tuple(curves), _wilson(share, samples)
    lows, middles, tops = ([_read(at, curve) for curve in curves] for at in (low, share, top))
    # Beyond the last point a curve says nothing but "as many or more".
    highest = HIGHEST if top >= min(curve[-1] for curve in curves) else max(tops)
    return statistics.median(middles), max(0.0, min(lows) - MARGIN), min(HIGHEST, highest + MARGIN)


def _read(share: float, curve: tuple[float, ...]) -> float:
    return float(np.interp(share, curve, WRONG[: len(curve)]))


def _wilson(share: float, samples: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95% interval of a share that was seen in so many samples."""
    scale, middle = 1 + z * z / samples, share + z * z / (2 * samples)
    width = z * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples))
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)
