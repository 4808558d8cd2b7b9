"""What a training is made of, as plain values: it can be printed, sent to another process and made simpler."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

__all__ = [
    "BY_RANK",
    "CLASSES",
    "FEATURES",
    "MOMENTUM",
    "RATE",
    "Weighed",
    "aligned",
    "data_of",
    "draw",
    "farthest",
    "held_back",
    "plain",
    "simpler",
]

CLASSES, FEATURES = 3, 4
SHORTENS = ("trainer",)
"""Loops that cannot leave out by weight."""
BY_RANK = ("own sampler", "own batches")
"""Loops whose ranks have batches of their own, each with its own mean where all samples count."""
JOINS = ("trainer", "trainer by weight", "keras")
"""Loops whose trainer joins the batches of an optimizer step in its own way, which its own tests compare."""


@dataclass(frozen=True)
class Weighed:
    """One training of a linear model by stochastic gradient descent.

    Attributes
    ----------
    loop : str
        The framework and its kind of loader, a name in ``benchmarks.faults.weighed.frameworks.LOOPS``.
    figure : str
        ``"within"``: each epoch is validated before it ends; ``"after"``: just after; "" for never.
    accumulate : int
        Batches that make one optimizer step.
    without : int
        How many samples are left out for good.
    worlds : tuple of int
        How many ranks train; one number for each time that new objects go on.
    stops : tuple of int
        After how many moments (:meth:`Loop.moment`) new objects go on from what was saved, in rising order.
    """

    loop: str = "plain"
    samples: int = 24
    batch: int = 4
    drop_last: bool = False
    epochs: int = 3
    accumulate: int = 1
    policy: str = "count"
    prune: int = 6
    leave_out: str = "delivery"
    holdout: float | None = None
    without: int = 0
    figure: str = ""
    calls: bool = False
    """Whether the loop begins and ends epochs itself."""
    dtype: str = "float64"
    worlds: tuple[int, ...] = (1,)
    stops: tuple[int, ...] = ()
    seed: int = 0

    @property
    def is_weighed(self) -> bool:
        """Whether losses of delivered samples weigh other than 1."""
        return bool(self.leave_out == "weight" or self.holdout or self.policy == "ranked")


def held_back(setup: Weighed) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The samples that are left out for good, shape (samples,)."""
    chance = np.random.default_rng(setup.seed + 7)
    mask = np.zeros(setup.samples, np.bool_)
    mask[chance.permutation(setup.samples)[: setup.without]] = True
    return mask


def data_of(setup: Weighed) -> tuple[Any, Any]:
    """Features, float64, shape (samples, FEATURES); and labels, int64, shape (samples,), a third of them noise."""
    chance = np.random.default_rng(setup.seed)
    features = chance.normal(size=(setup.samples, FEATURES))
    labels = np.argmax(features[:, :CLASSES], axis=1)
    noisy = chance.random(setup.samples) < 0.3
    return features, np.where(noisy, chance.integers(0, CLASSES, setup.samples), labels).astype(np.int64)


def draw(chance: random.Random, loops: dict[str, float], most_ranks: int = 1) -> Weighed:
    """Return a setup with one of some loops, each as often as its number says."""
    samples = chance.randint(12, 48)
    loop = chance.choices(list(loops), list(loops.values()))[0]
    holdout = chance.choice([None, 0.1, 0.3])
    leave_out = (
        "weight" if loop.endswith("by weight") or (chance.random() < 0.5 and loop not in SHORTENS) else "delivery"
    )
    prune = chance.randint(1, samples // 3)
    return Weighed(
        loop=loop,
        samples=samples,
        batch=chance.choice([1, 2, 3, 4, 5, 8]),
        drop_last=chance.random() < 0.3,
        epochs=chance.randint(2, 4),
        accumulate=1 if loop in JOINS else chance.choice([1, 1, 2, 3]),
        policy=chance.choice(["count", "running", "random", "ranked", "easy"]),
        prune=prune,
        leave_out=leave_out,
        holdout=holdout,
        without=chance.choice([0, 0, chance.randint(1, samples // 6)]),
        figure="" if holdout else chance.choice(["", "within", "after"]),
        calls=chance.random() < 0.5,
        worlds=(chance.randint(2, most_ranks),) if most_ranks > 1 else (1,),
        # Ranks with batches of their own come to a moment at different places of the run.
        stops=() if chance.random() < 0.6 or (most_ranks > 1 and loop in BY_RANK) else (chance.randint(1, 12),),
        seed=chance.randrange(1 << 16),
    )


def simpler(setup: Weighed) -> Iterator[Weighed]:
    """Yield setups that are simpler in one thing."""
    for name in (
        "stops",
        "accumulate",
        "without",
        "policy",
        "figure",
        "calls",
        "drop_last",
        "holdout",
        "batch",
        "seed",
    ):
        if getattr(setup, name) != getattr(Weighed(), name):
            yield replace(setup, **{name: getattr(Weighed(), name)})
    if setup.leave_out == "weight" and not setup.loop.endswith("by weight"):
        yield replace(setup, leave_out="delivery")
    if setup.epochs > 2:
        yield replace(setup, epochs=setup.epochs - 1)
    if setup.samples > 14:
        samples = setup.samples // 2
        yield replace(setup, samples=max(12, samples), prune=min(setup.prune, 4), without=min(setup.without, 2))


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
