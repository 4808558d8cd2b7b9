"""What an arm is: one way to choose samples, and all that is to know of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.common.drawing import SPARE_COLOURS, SPARE_MARKERS
from prunedata import Pruner, Schedule

__all__ = ["Arm", "Chooser", "Group", "Ids", "PlannedEpoch", "Task", "after_a_sixth", "on_plateaus", "share_to_prune"]

Ids = NDArray[np.integer[Any]]
Group = Literal[
    "paper",  # the paper's rule and its controls: all kinds of labels, 14, 25 and 40 % saved
    "late",  # arms that prune from the first sixth on: 40 % of the labels wrong, 34 % saved
    "beside late",  # at the setting of "late", but less urgent
    "others",  # other rules: all kinds of labels, 25 % saved
    "others late",  # other rules, at the setting of "late"
    "tried",  # at the setting of "late"
    "tried more",  # 20 % of the labels wrong and clean labels, 25 % saved
    "digits",  # scikit-learn's digits: all kinds of labels, 30 % saved
    "digits wrong",  # the same, but for clean labels
]
"""Groups of runs; benchmarks.study.matrix says at which settings each is run, and in which order."""


@dataclass(frozen=True)
class Task:
    """What an arm is asked to do in one run.

    Attributes
    ----------
    samples, classes : int
        Of the data.
    wrong : ndarray of bool, shape (samples,)
        Which labels were made wrong.
    labels : ndarray of int, shape (samples,)
        As they are given, right or wrong.
    epochs : int
        Epochs to train.
    saving : float
        Share of the sample visits to save, 0 to 1.
    schedule : Schedule
        When to prune, if the arm goes by a schedule.
    batch_size, seed : int
    infobatch : Path or None
        A checkout of InfoBatch.
    rank, ranks : int
        Which of how many processes this is that train together. Each takes its share of every batch.
    """

    samples: int
    classes: int
    wrong: NDArray[np.bool_]
    labels: NDArray[np.int64]
    epochs: int
    saving: float
    schedule: Schedule
    batch_size: int
    seed: int
    infobatch: Path | None = None
    rank: int = 0
    ranks: int = 1

    @property
    def own_batch_size(self) -> int:
        """Of this rank."""
        return self.batch_size // self.ranks

    @property
    def prune(self) -> float:
        """Share of the samples that a pruned epoch leaves out."""
        return share_to_prune(self.saving, self.schedule)


@dataclass(frozen=True)
class PlannedEpoch:
    """One epoch: its number, whether samples are left out, the ids of its batches, and how many batches it has."""

    number: int
    pruned: bool
    batches: Iterator[Ids]
    steps: int


class Chooser(Protocol):
    """An arm at work: it gives the batches of each epoch and takes their losses."""

    @property
    def overhead(self) -> float:
        """Seconds spent on choosing so far; 0 where that is not measured."""

    @property
    def pruner(self) -> Pruner | None:
        """The pruner that chooses, if one does."""

    @property
    def is_weighed(self) -> bool:
        """Whether ``reduce`` may return something else than the mean of the losses."""

    def epochs(self) -> Iterator[PlannedEpoch]:
        """Yield the epochs that are left."""

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        """Take a batch's losses, shape (n,), and return what to call backward() on."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the arm stands between two epochs."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


def on_plateaus(epochs: int, milestones: Sequence[int]) -> Schedule:
    """Prune as the paper does: on the plateaus of the learning rate, four epochs of five."""
    start = max(1, round(milestones[0] / 3))
    return Schedule.from_milestones(epochs, tuple(milestones), start, 5, 4, attenuation=2)


def after_a_sixth(epochs: int, milestones: Sequence[int]) -> Schedule:
    """Prune every epoch after the first sixth of the run."""
    return Schedule(epochs, epochs, max(1, epochs // 6), 1, 1)


def share_to_prune(saving: float, schedule: Schedule) -> float:
    """Share of the samples that a pruned epoch leaves out, so that the run saves what it should."""
    pruned = len(schedule.pruned_epochs)
    share = saving * schedule.epochs / pruned
    if share >= 1:
        raise ValueError(f"Expected a saving below {pruned}/{schedule.epochs}, the pruned epochs. Got {saving:.0%}.")
    return round(share, 4)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """All that is to know of one way to choose samples.

    Attributes
    ----------
    name : str
        As ``--policy`` takes it; part of the names of result files.
    what : str
        What it does, in a few words.
    choose : callable
        Makes the chooser of a run.
    schedule : callable
        From epochs and milestones of the learning rate, when it prunes.
    groups : tuple of Group
        The parts of the matrix that it is run in. None: only by hand.
    order : int
        Its place in lists, legends and the tables of docs/evidence/study.md; of equal ones by name.
    column, column_order : str, int
        Heading of its column in the tables of docs/evidence/results.md, and the place of that. Arms that
        share a heading share the column. Without a heading it has none there.
    colour, marker : str
        In pictures. Without them it gets some that follow from its name.
    tried : bool
        Whether it was only tried, and is left out of the pictures.
    shortens : bool
        Whether it saves by fewer epochs.
    saves : bool
        Whether it has to be told how many visits to save.
    saves_as_asked : bool
        Whether it saves the share of the visits that it is asked for.
    unbeatable : bool
        Whether it knows what no policy can know, so that it never counts as the best.
    needs_infobatch : bool
        Whether it needs a checkout of InfoBatch.
    """

    name: str
    what: str
    choose: Callable[[Task], Chooser]
    schedule: Callable[[int, Sequence[int]], Schedule] = on_plateaus
    groups: tuple[Group, ...] = ()
    order: int = 1000
    column: str = ""
    column_order: int = 1000
    colour: str = ""
    marker: str = ""
    tried: bool = False
    shortens: bool = False
    saves: bool = True
    saves_as_asked: bool = True
    unbeatable: bool = False
    needs_infobatch: bool = False

    def __post_init__(self) -> None:
        digest = crc32(self.name.encode())
        if not self.colour:
            object.__setattr__(self, "colour", SPARE_COLOURS[digest % len(SPARE_COLOURS)])
        if not self.marker:
            object.__setattr__(self, "marker", SPARE_MARKERS[digest // len(SPARE_COLOURS) % len(SPARE_MARKERS)])
