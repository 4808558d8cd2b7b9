"""Whether a run has begun to learn wrong labels by heart, and about how long to train before it does.

A wrong label keeps its loss above that of a blind guess for as long as it isn't learnt by heart. So where labels are
wrong, the share of an epoch's visits with such losses first falls to about their share, and stays. When it goes on to
fall, the network learns them; and regular training of a length of its own was best where it has fallen by a third
(docs/evidence/frontier.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FIRST", "above_guess", "epochs_before", "fall_per_epoch", "learns_fast"]

FIRST = 2
"""The epoch, from 0, that others are held against: the right labels that are easy are learnt by then."""
FALLEN = 2 / 3
"""What is left of its share when regular training was best."""
FAST = 0.022
"""What it loses of its share an epoch, from which wrong labels that are left in cost more than right ones left out.
After 5 of 30 epochs two heads lost .04 to .05 with 20 to 40% wrong, and a convolutional network on CIFAR-10 .024 with
people's errors and .034 with 20% wrong at random; LeNet there, and networks on 26 letters and Fashion-MNIST, .015 at
most. On letters, after 5 of 10 to 20 epochs, it was .021 at most, and taking it for fast cost 2 points."""
STILL_LEARNING = 1.8
"""If its share is that many times the wrong labels', right ones are still to be learnt, and the fall says nothing."""


def above_guess(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of each epoch's visits the share with a loss above ``ln(classes)``, from ``Pruner.history``.

    Up to the first pruned epoch, or the first of which it isn't known: a run without ``classes``, or an old one.
    """
    shares: list[float] = []
    for record in history:
        if record["pruned"] or "high" not in record or not record.get("observed"):
            break
        shares.append(record["high"] / record["observed"])
    return shares


def epochs_before(shares: Sequence[float], wrong: float) -> int | None:
    """Return how many epochs a run had before it learnt a third of the wrong labels; None if it hasn't so far.

    Parameters
    ----------
    shares : sequence of float
        As :func:`above_guess` gives them.
    wrong : float
        The share of the labels that seem wrong.
    """
    if len(shares) <= FIRST or shares[FIRST] > STILL_LEARNING * wrong:
        return None
    return next(
        (epoch for epoch, share in enumerate(shares) if epoch > FIRST and share <= FALLEN * shares[FIRST]), None
    )


def fall_per_epoch(shares: Sequence[float], wrong: float) -> float:
    """Return what part of its share at ``FIRST`` it has lost an epoch since, until a third was lost; 0 if it rose.

    Parameters are those of :func:`epochs_before`.
    """
    last = epochs_before(shares, wrong) or len(shares) - 1
    if last <= FIRST or not shares[FIRST]:
        return 0.0
    return max(0.0, (1 - shares[last] / shares[FIRST]) / (last - FIRST))


def learns_fast(shares: Sequence[float], wrong: float) -> bool:
    """Whether wrong labels are learnt by heart so fast that too few left out cost more than too many."""
    return fall_per_epoch(shares, wrong) >= FAST
