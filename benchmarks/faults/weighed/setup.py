"""What a training is made of, as plain values: it can be printed, sent to another process and made simpler."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

__all__ = ["BY_RANK", "CLASSES", "FEATURES", "Weighed", "data_of", "draw", "held_back", "shown", "simpler"]

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
        The framework and its kind of loader, a name in ``benchmarks.faults.weighed.loops.LOOPS``.
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


def shown(setup: Weighed) -> str:
    """A setup as Python code, without what stands at its default."""
    told = [(one.name, getattr(setup, one.name)) for one in fields(setup)]
    return f"Weighed({', '.join(f'{name}={own!r}' for name, own in told if own != getattr(Weighed(), name))})"


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
