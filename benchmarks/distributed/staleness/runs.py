"""Which runs there are: data, share of wrong labels, staleness, seed, and what is left out."""

from dataclasses import dataclass
from itertools import product

from prunedata import Schedule
from prunedata.policies import DroppingCount, Random, RunningLoss
from prunedata.policies.protocol import Policy

__all__ = ["ARMS", "STALENESS", "SUBJECTS", "StaleRun", "StaleSubject", "runs_to_make"]

STALENESS = (0, 1, 3, 7)
"""In versions of the weights: what 1, 2, 4 and 8 workers see that take turns."""
ARMS: dict[str, Policy | None] = {
    "regular": None,
    "dropping-count": DroppingCount(),
    "running-loss": RunningLoss(),
    "random": Random(),
    "fewer-epochs": None,
    "dropping-count-late": DroppingCount(),
    "running-loss-late": RunningLoss(),
}
"""The policy of each arm; None where nothing is pruned. All that prune visit as many samples."""
PRUNE = 0.3
"""Share of the samples that a pruned epoch leaves out, from a sixth of the run on."""


@dataclass(frozen=True)
class StaleSubject:
    """Data, and how they are trained on.

    Attributes
    ----------
    title : str
        As tables call it.
    network : str
        "mlp", or a name of ``benchmarks.common.networks``.
    samples : int or None
        The first so many training images; None for all.
    noises : tuple of float
        Shares of labels made wrong at random.
    staleness : tuple of int
    epochs, batch_size : int
    rate, momentum : float
        Of SGD, the learning rate at the start; a cosine takes it to 0. The same at every staleness.
    """

    title: str
    network: str
    samples: int | None
    noises: tuple[float, ...]
    staleness: tuple[int, ...]
    epochs: int
    batch_size: int
    rate: float
    momentum: float


SUBJECTS = {
    "digits": StaleSubject("digits, MLP", "mlp", None, (0.4, 0.2, 0.0), STALENESS, 40, 32, 0.2, 0.0),
    "digits-slower": StaleSubject(
        "digits, MLP, half the learning rate", "mlp", None, (0.4, 0.2, 0.0), (7,), 40, 32, 0.1, 0.0
    ),
    "cifar10": StaleSubject("CIFAR-10, 5,000 images, LeNet", "lenet", 5000, (0.4, 0.0), (0, 7), 30, 64, 0.1, 0.0),
    "digits-momentum": StaleSubject(
        "digits, LeNet, with momentum", "lenet", None, (0.4, 0.2, 0.0), STALENESS, 40, 32, 0.01, 0.9
    ),
}


@dataclass(frozen=True)
class StaleRun:
    """One run: LeNet on some data, with gradients so many versions old."""

    data: str
    arm: str
    noise: float
    staleness: int
    seed: int

    @property
    def subject(self) -> StaleSubject:
        """The data, and how they are trained on."""
        return SUBJECTS[self.data]

    @property
    def epochs(self) -> int:
        """Epochs trained: with fewer epochs, as many as give the visits of a pruned run."""
        of = self.subject.epochs
        pruned = len(Schedule.steady(of).pruned_epochs)
        return round(of - PRUNE * pruned) if self.arm == "fewer-epochs" else of

    @property
    def schedule(self) -> Schedule:
        """Prunes from a sixth of the run on, or from a third if late."""
        return Schedule.steady(self.epochs, -(-self.epochs // 3) if self.arm.endswith("-late") else None)

    @property
    def prune(self) -> float:
        """Share of the samples that a pruned epoch leaves out: more of them if there are fewer such epochs."""
        usual = len(Schedule.steady(self.epochs).pruned_epochs)
        return round(PRUNE * usual / len(self.schedule.pruned_epochs), 6)

    @property
    def name(self) -> str:
        """Tells this run from every other."""
        return f"{self.data}-wrong{100 * self.noise:g}-stale{self.staleness}-{self.arm}-seed{self.seed}"


def runs_to_make(data: str, seeds: int) -> list[StaleRun]:
    """All runs on some data, seed by seed, what decides most first."""
    subject = SUBJECTS[data]
    order = product(range(seeds), subject.noises, subject.staleness, ARMS)
    return [StaleRun(data, arm, noise, staleness, seed) for seed, noise, staleness, arm in order]
