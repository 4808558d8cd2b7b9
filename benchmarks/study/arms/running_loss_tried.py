"""Rules that were tried and are not shipped: RunningLoss, changed in one thing each.

Each lets samples come back that RunningLoss leaves out for good. Of 40 % wrong labels RunningLoss leaves out most, but
with them an eighth of the right ones. docs/evidence/results.md says what came of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.study.arm import Arm, after_a_sixth
from benchmarks.study.choosers import prune_by
from prunedata import Schedule
from prunedata.policies import Known, RunningLoss
from prunedata.types import Array, Ids, Losses


@dataclass(frozen=True)
class SoftLoss(RunningLoss):
    """Samples near the edge stay in or out by chance: Gumbel noise on the averages, anew in every epoch.

    ``softness`` is in standard deviations of the averages.
    """

    softness: float = 0.3

    def scores(self, known: Known) -> NDArray[np.float64]:
        excess = known.arrays["excess"].astype(np.float64)
        random = np.random.default_rng(int(known.visits.sum()))  # the same wherever a run goes on
        return np.asarray(excess + self.softness * excess.std() * random.gumbel(size=excess.size))


@dataclass(frozen=True)
class FairLoss(RunningLoss):
    """Every epoch that a sample missed lowers its score by ``credit``, so that it comes back some day."""

    credit: float = 0.02

    def scores(self, known: Known) -> NDArray[np.float64]:
        visits = known.visits.astype(np.float64)
        return np.asarray(known.arrays["excess"] - self.credit * (visits.max() - visits))


@dataclass(frozen=True)
class RefreshedLoss(RunningLoss):
    """The longer ago an average's last visit, the less it weighs beside a new loss.

    Made for schedules with a full epoch now and then, in which all samples are seen by the network of that day.
    """

    def arrays(self, samples: int) -> dict[str, Array]:
        return {name: np.zeros(samples, dtype=np.float32) for name in ("excess", "seen")}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        excess, seen = arrays["excess"], arrays["seen"]
        now = seen.max() + ids.size / seen.size
        old = self.decay ** np.maximum(1, now - seen[ids])
        # A sample that is in a block twice counts once. In the study none is.
        excess[ids] = old * excess[ids] + (1 - old) * (losses - means)
        seen[ids] = now


def nine_of_ten(epochs: int, milestones: Sequence[int]) -> Schedule:
    """Prune nine epochs of ten after the first sixth of the run, so that now and then all samples are seen."""
    return Schedule(epochs, epochs, max(1, epochs // 6), 10, 9)


ARMS = (
    Arm(
        name="running-loss-soft",
        what="running-loss with noise on the averages",
        choose=prune_by(SoftLoss()),
        schedule=after_a_sixth,
        groups=("tried", "tried more", "digits"),
        order=200,
        tried=True,
    ),
    Arm(
        name="running-loss-fair",
        what="running-loss with a credit for each missed epoch",
        choose=prune_by(FairLoss()),
        schedule=after_a_sixth,
        groups=("tried",),
        order=210,
        tried=True,
    ),
    Arm(
        name="running-loss-refreshed",
        what="running-loss that trusts old averages less, and prunes nine epochs of ten",
        choose=prune_by(RefreshedLoss()),
        schedule=nine_of_ten,
        groups=("tried",),
        order=220,
        tried=True,
    ),
)
