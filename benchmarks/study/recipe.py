"""What a run of the study is made of: one frozen recipe."""

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from benchmarks.study.arm import share_to_prune
from benchmarks.study.arms import ARMS
from prunedata import Schedule

__all__ = ["MILESTONES", "PEOPLE", "RARE", "WARM_UP", "LabelNoise", "Recipe"]

MILESTONES = (Fraction(60, 200), Fraction(120, 200), Fraction(160, 200))
"""Where the learning rate drops, as fractions of a run: the paper's 60, 120 and 160 of 200 epochs."""
WARM_UP = 2
"""Epochs over which the rate rises to its highest before it falls as a cosine, unless a recipe has another number."""
RARE = 3
"""Every so many-th class is thinned: 4 of 10."""

MADE = ("random", "confusable")
PEOPLE = ("worse", "aggre")
"""People's labels of CIFAR-10 (CIFAR-10N): the worst of three answers, and the majority of them."""


@dataclass(frozen=True)
class LabelNoise:
    """How labels come to be wrong.

    Parameters
    ----------
    kind : str
        none, random, confusable, or people's labels: worse or aggre.
    share : float
        Of labels that are made wrong, 0 to 1. 0 for people's, who err as often as they do.
    """

    kind: str = "none"
    share: float = 0.0

    def __post_init__(self) -> None:
        kinds = ("none", *MADE, *PEOPLE)
        if self.kind not in kinds:
            raise ValueError(f"Expected noise to be one of {', '.join(kinds)}. Got {self.kind!r}.")
        if not 0 <= self.share < 1 or (self.kind in MADE) != (self.share > 0):
            told = f"{self.share} of {self.kind}"
            raise ValueError(f"Expected a share from 0 to 1, above 0 for labels that are made wrong alone. Got {told}.")

    def __str__(self) -> str:
        return "clean" if self.kind == "none" else f"{self.kind}{100 * self.share:g}" if self.share else self.kind


@dataclass(frozen=True)
class Recipe:
    """One run: a network, its data, and how samples are chosen.

    Parameters
    ----------
    network : str
        A name of :data:`benchmarks.common.networks.NETWORKS`.
    arm : str
        A name of :data:`benchmarks.study.arms.ARMS`.
    saving : float
        Share of the sample visits to save, 0 to 1; 0 for regular training.
    samples : int or None
        How many of the training images to use, a fixed random part; None for all.
    epochs : int
        Epochs of regular training; the saving is of these.
    rates : {"steps", "cosine"}
        How the learning rate goes: it drops at the milestones, or falls to nothing as a cosine after a warm-up.
    warm_up : int
        Epochs of that warm-up; 0 for none.
    thinned : int
        Of so many samples of every third class one is left; 1 for all of them.
    balanced : bool
        Train on each loss divided by how frequent its label is, so that classes weigh alike.
    widen : int
        Widening factor of the wide residual networks.
    """

    network: str = "lenet"
    arm: str = "regular"
    saving: float = 0.0
    seed: int = 0
    noise: LabelNoise = LabelNoise()
    samples: int | None = None
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.02
    weight_decay: float = 5e-4
    rate_drop: float = 0.2
    rates: Literal["steps", "cosine"] = "steps"
    warm_up: int = WARM_UP
    thinned: int = 1
    balanced: bool = False
    augment: bool = True
    widen: int = 10

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise ValueError(f"Expected one of the arms {', '.join(ARMS)}. Got {self.arm!r}.")
        if not 0 <= self.saving < 1 or ARMS[self.arm].saves != (self.saving > 0):
            raise ValueError(
                "Expected a saving from 0 to 1, and 0 for regular and for arms that decide by themselves. "
                f"Got {self.saving}, {self.arm}."
            )
        if self.epochs < 5:
            raise ValueError(f"Expected at least 5 epochs, for three rate drops. Got {self.epochs}.")

    @property
    def trained_epochs(self) -> int:
        """Epochs that this run trains."""
        return round(self.epochs * (1 - self.saving)) if ARMS[self.arm].shortens else self.epochs

    @property
    def milestones(self) -> tuple[int, ...]:
        """Epochs at which the learning rate drops."""
        return tuple(round(self.trained_epochs * at) for at in MILESTONES)

    def rate_at(self, epochs: float) -> float:
        """The learning rate after so many epochs, of which a part may be done."""
        if self.rates == "steps":
            return self.learning_rate * self.rate_drop ** sum(int(epochs) >= at for at in self.milestones)
        after = max(0.0, epochs - self.warm_up) / max(1, self.trained_epochs - self.warm_up)
        risen = epochs / self.warm_up if self.warm_up else 1.0
        return self.learning_rate * min(risen, (1 + math.cos(math.pi * after)) / 2)

    @property
    def schedule(self) -> Schedule:
        """When the arm prunes."""
        return ARMS[self.arm].schedule(self.epochs, self.milestones)

    @property
    def prune(self) -> float:
        """Share of the samples that a pruned epoch leaves out, so that the run saves what it should."""
        return share_to_prune(self.saving, self.schedule)

    @property
    def name(self) -> str:
        """A file's name that tells this recipe from every other of the study."""
        saved = f"-{100 * self.saving:g}" if self.saving else ""
        plain = "" if self.augment else "-plain"
        size = f"{self.samples or 'all'}x{self.epochs}"
        plain += "" if self.rates == "steps" else f"-{self.rates}{self.learning_rate:g}"
        plain += "" if self.warm_up == WARM_UP else f"-warm{self.warm_up}"
        plain += "" if self.thinned == 1 else f"-thinned{self.thinned}"
        plain += "-balanced" if self.balanced else ""
        network = f"{self.network}x{self.widen}" if self.network.startswith("wrn") else self.network
        return f"{network}-{size}{plain}-{self.noise}-{self.arm}{saved}-seed{self.seed}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)
