"""The same training in numpy, which knows what each loss weighs and nothing of the library."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from benchmarks.faults.weighed.setup import BY_RANK, CLASSES, FEATURES, Weighed, data_of

__all__ = ["MOMENTUM", "RATE", "aligned", "farthest", "plain"]

RATE, MOMENTUM = 0.3, 0.5


def plain(setup: Weighed, trained: list[dict[str, Any]]) -> list[Any]:
    """Train on what each rank's loop has trained on; return the gradients of each step.

    One process follows its gradients; ranks stay where they began, as none knows how many steps the others have.

    Parameters
    ----------
    setup : Weighed
    trained : list of dict
        Of each rank: ``epochs``, for each epoch what the loss of each sample weighs, shape (samples,), by the role that
        the run gave it; ``shared``, whether some of its samples count nothing; and ``steps``, for each step its
        epoch's number and the ids of its batches.

    Returns
    -------
    list of ndarray of float64, shape (CLASSES, FEATURES)
        The mean over the ranks of their gradients.
    """
    features, labels = data_of(setup)
    weights, velocity, found = np.zeros((CLASSES, FEATURES)), np.zeros((CLASSES, FEATURES)), []
    seen: set[int] = set()
    before = -1
    for number, places in aligned(trained):
        there = [one["steps"][place][1] for one, place in zip(trained, places, strict=True) if place is not None]
        before, seen = number, seen if number == before else set()
        weighs = trained[0]["epochs"][number]
        gradient = np.zeros_like(weights)
        for batches in zip_longest(*there, fillvalue=[]):
            alone = setup.loop in BY_RANK and not trained[0]["shared"][number]
            for ids, share in _means(batches, seen, 1 / len(trained) if alone else None):
                counting = sum(bool(weighs[each]) for each in ids)
                for each in ids:
                    own = _gradient(weights, features[each], labels[each])
                    gradient += share * weighs[each] * own / max(1, counting)
        found.append(gradient / setup.accumulate)
        if len(trained) == 1:
            velocity = MOMENTUM * velocity + found[-1]
            weights = weights - RATE * velocity
    return found


def aligned(trained: list[dict[str, Any]]) -> Iterator[tuple[int, tuple[int | None, ...]]]:
    """Yield the steps of all ranks: the epoch's number, and the place of each rank's step; None if it has no more."""
    places = [[at for at, _ in enumerate(one["steps"])] for one in trained]
    for number in dict.fromkeys(number for one in trained for number, _ in one["steps"]):
        own = [[at for at in some if one["steps"][at][0] == number] for one, some in zip(trained, places, strict=True)]
        yield from ((number, together) for together in zip_longest(*own))


def _means(batches: tuple[list[int], ...], seen: set[int], share: float | None) -> Iterator[tuple[list[int], float]]:
    """Over which samples of a step means are taken, and what these count for: all ranks together, or each alone."""
    ids = [each for batch in batches for each in batch]
    if share is None:
        yield [each for at, each in enumerate(ids) if each not in seen and each not in ids[:at]], 1.0
    else:
        yield from ((list(batch), share) for batch in batches)
    seen |= set(ids)


def _gradient(weights: Any, features: Any, label: int) -> Any:
    """Of the cross-entropy of one sample."""
    logits = weights @ features
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    chances[label] -= 1
    return np.outer(chances, features)


def farthest(one: list[Any], other: list[Any]) -> float:
    """The largest difference of any step; infinity if there are not as many steps."""
    if len(one) != len(other):
        return float("inf")
    return max((float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True)), default=0.0)
