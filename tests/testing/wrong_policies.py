"""A policy that is right, with all that a policy can have, and others that are each wrong in one way."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class RightPolicy:
    """Prunes where the loss rose most since the visit before."""

    tolerance: float = 0.0
    shift: tuple = (1.0, None, "a")
    needs_losses = True

    def arrays(self, samples):
        return {"before": np.zeros(samples), "rise": np.zeros(samples, np.float32)}

    def update(self, arrays, ids, losses, means):
        arrays["rise"][ids] = losses - arrays["before"][ids]
        arrays["before"][ids] = losses

    def scores(self, known):
        return known.arrays["rise"]

    def weights(self, keep, known):
        return keep * (keep.size / np.count_nonzero(keep))


@dataclass(frozen=True)
class ArrayField(RightPolicy):
    prior: np.ndarray = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True)
class NanField(RightPolicy):
    bound: float = float("nan")


@dataclass(frozen=True)
class CountsInAField(RightPolicy):
    calls: int = 0

    def update(self, arrays, ids, losses, means):
        super().update(arrays, ids, losses, means)
        object.__setattr__(self, "calls", self.calls + 1)


class NoScores:
    tolerance, needs_losses = 0.0, True


class ShortArrays(RightPolicy):
    def arrays(self, samples):
        return {name: array[:-1] for name, array in super().arrays(samples).items()}


class SharedArrays(RightPolicy):
    kept: ClassVar = {}

    def arrays(self, samples):
        return dict(self.kept.setdefault(samples, super().arrays(samples)))


class ReadOnlyArrays(RightPolicy):
    def arrays(self, samples):
        return {name: np.broadcast_to(np.float32(0), samples) for name in super().arrays(samples)}


class Rebinds(RightPolicy):
    def update(self, arrays, ids, losses, means):
        arrays["rise"] = arrays["rise"] + 1


class ChangesLosses(RightPolicy):
    def update(self, arrays, ids, losses, means):
        losses -= means
        super().update(arrays, ids, losses, means)


class ShortScores(RightPolicy):
    def scores(self, known):
        return known.arrays["rise"][1:]


class NanForTheUnseen(RightPolicy):
    def scores(self, known):
        return np.where(known.visits > 0, known.hits, np.nan)


class DrawsScores(RightPolicy):
    def scores(self, known):
        return np.random.default_rng().random(known.hits.size)


class ChangesArrays(RightPolicy):
    def scores(self, known):
        known.arrays["rise"][:] += known.visits
        return known.arrays["rise"]


class NanLater(RightPolicy):
    """Its scores are right before the first epoch."""

    def scores(self, known):
        return np.where(known.visits == 0, 0, np.nan)


class WrapsAround(RightPolicy):
    def scores(self, known):
        return -known.hits


class WrapsAroundBeforeFloats(RightPolicy):
    def scores(self, known):
        return (known.hits - known.visits) * 0.5


class OneWeight(RightPolicy):
    def weights(self, keep, known):
        return 1.5


class InfiniteWeights(RightPolicy):
    def weights(self, keep, known):
        return np.where(keep, np.inf, 0)


class ChangesTheMask(RightPolicy):
    def weights(self, keep, known):
        keep[:] = True
        return keep.astype(np.float32)


class MeanOfTheCall(RightPolicy):
    """It takes the losses of a call for a batch."""

    def update(self, arrays, ids, losses, means):
        super().update(arrays, ids, losses - losses.mean(), means)


class CountsCalls(RightPolicy):
    def update(self, arrays, ids, losses, means):
        super().update(arrays, ids, losses, means)
        arrays["rise"] += 1


class RemembersBesides(RightPolicy):
    """What it remembers is not in its arrays, and so not in a checkpoint."""

    def update(self, arrays, ids, losses, means):
        last = self.__dict__.setdefault("last", {})
        last.update(zip(ids.tolist(), losses.tolist(), strict=True))

    def scores(self, known):
        last = self.__dict__.get("last", {})
        return np.array([last.get(x, 0.0) for x in range(known.hits.size)])


WRONG = {
    "fields": [ArrayField, NanField, CountsInAField, NoScores],
    "arrays": [ShortArrays, SharedArrays, ReadOnlyArrays],
    "update": [Rebinds, ChangesLosses],
    "scores": [
        ShortScores,
        NanForTheUnseen,
        DrawsScores,
        ChangesArrays,
        NanLater,
        WrapsAround,
        WrapsAroundBeforeFloats,
    ],
    "weights": [OneWeight, InfiniteWeights, ChangesTheMask],
    "buffers": [MeanOfTheCall, CountsCalls],
    "resume": [RemembersBesides],
}
