"""What an epoch costs and shows: seconds of training and of this library, the sum of losses, the validation figure."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.plan.onset import TRUST
from prunedata.types import Floats, Ids


class Overhead:
    """A context manager that adds up the seconds spent in this library. Within one another, they count once.

    The outermost ``with`` sets :attr:`seconds` to what they were when it began and its own duration. So what is added
    within it, by another ``with`` or by setting :attr:`seconds` in the same way, is not counted twice.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._since = 0.0

    def __enter__(self) -> None:
        if not self._depth:
            self._since = perf_counter() - self.seconds
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds = perf_counter() - self._since

    def clear(self) -> None:
        """Begin at 0, outside of any ``with``, even if Ctrl-C left one unfinished."""
        self.seconds, self._depth = 0.0, 0

    @property
    def elapsed(self) -> float:
        """Seconds so far, those within an unfinished ``with`` too."""
        return perf_counter() - self._since if self._depth else self.seconds


@dataclass
class EpochSums:
    """The sums of an epoch: of this process, or of all that train together."""

    skipped: float = 0  # kept samples that need not be observed
    unseen: float = 0  # those that loaders gave and that the process has not observed, see ``OpenEpoch.unseen``
    delivered: float = 0  # samples that its loaders delivered
    guessed: float = 0  # whether logits or labels were observed
    agreed: float = 0  # whether the validation figure is the same on all processes, explicitly
    figure_sum: float = 0.0  # the validation figure, 0 if there is none
    figures: float = 0  # whether there is a validation figure
    lower_is_better: float = 0  # whether lower is better for it
    higher_is_better: float = 0  # whether higher is better for it, explicitly
    held_out_trust: float = 0
    """How far the labels of samples held out are trusted, the sum of :func:`prunedata.plan.onset.trust_in`."""
    held_out_seen: float = 0  # samples held out that it observed
    held_out_right: float = 0  # of these, how many have their label as the most likely class
    held_out_judged: float = 0  # of how many with a known label and logits
    loss_sum: float = 0.0
    visits: float = 0
    rises: float = 0.0  # how far the losses lie above recent averages of their samples, the sum
    products: float = 0.0  # the sum of the products of that with the places of the visits in the epoch
    squares: float = 0.0  # the sum of its squares

    @property
    def mean_loss(self) -> float | None:
        """Of all visits; None if there are none, or losses so large that their sum is no number."""
        mean = self.loss_sum / self.visits if self.visits else math.inf
        return mean if math.isfinite(mean) else None

    @property
    def within(self) -> dict[str, float]:
        """For the record of the epoch, how far the losses fell from its first visit to its last, if that is a number.

        By a straight line through how far each lies above the recent average of its sample, at equal distances; and
        how far off that is by chance, its standard error.
        """
        visits = self.visits or math.nan
        fall = 12 * (self.rises / 2 - self.products / visits) / visits
        variance = max(0.0, self.squares / visits - (self.rises / visits) * (self.rises / visits))
        found = {"within": fall, "noise": math.sqrt(12 * variance / visits)}
        return found if all(map(math.isfinite, found.values())) else {}

    @property
    def validation(self) -> dict[str, Any]:
        """The validation figure for the epoch's record, the mean over processes; raise if their directions differ."""
        if self.held_out_seen:
            figure = {"validation": self.held_out_trust / (TRUST * self.held_out_seen)}
            return figure | ({"accuracy": self.held_out_right / self.held_out_judged} if self.held_out_judged else {})
        if not self.figures:
            return {}
        if 0 < self.lower_is_better < self.figures:
            raise PrunedataError(
                "Expected validation figures of one kind from all processes. Got some of which lower is better, and "
                "others of which higher is: pass the same metric on all ranks."
            )
        told = {"lower_is_better": self.lower_is_better > 0} if self.lower_is_better or self.higher_is_better else {}
        return {"validation": self.figure_sum / self.figures} | told


class Meter:
    """Running times and sums of one epoch. Training seconds go on between :meth:`start` and :meth:`stop`.

    ``processes`` train together, and ``place`` is that of the next visit among those of the epoch in all of them, if
    they go on side by side. ``is_elsewhere``: whether the epoch's figure counts on another process.
    """

    _since: float | None

    def __init__(self) -> None:
        self.overhead, self.processes = Overhead(), 1
        self.begin()

    def begin(self) -> None:
        """Begin an epoch."""
        self._seconds, self._since, self.place, self.is_elsewhere = 0.0, None, 0, False
        self.sums = EpochSums()
        self.overhead.seconds = 0.0

    def count_elsewhere(self) -> None:
        """What was added up so far counts on another process."""
        self.is_elsewhere, self.sums = self.is_validated, EpochSums()

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on with an epoch from what :meth:`to_dict` gave."""
        self.begin()
        times = {"seconds", "overhead", "place"}
        self._seconds, self.overhead.seconds, self.place = saved["seconds"], saved["overhead"], saved.get("place", 0)
        self.sums = EpochSums(**{name: value for name, value in saved.items() if name not in times})

    @property
    def is_validated(self) -> bool:
        """Whether the epoch has its figure, be it one that counts on another process."""
        return self.sums.figures > 0 or self.is_elsewhere

    def add_rises(self, rises: Floats, sizes: Ids) -> None:
        """Add how far the losses of batches lie above recent averages of their samples, shape (n,), batch by batch.

        ``sizes``, shape (batches,): how many of them each batch has; at least 1.
        """
        starts = sizes.cumsum() - sizes
        # A batch is of one moment: the middle of those of all processes, as of one batch of one process.
        places = self.place + self.processes * (starts + sizes / 2) - 1 / 2
        found = np.add.reduceat(rises, starts, dtype=np.float64)
        sums = np.stack([found, places * found, np.add.reduceat(rises * rises, starts, dtype=np.float64)])
        sums[:, 0] += self.sums.rises, self.sums.products, self.sums.squares
        # One after the other: the sum must not depend on where the buffer was full.
        self.sums.rises, self.sums.products, self.sums.squares = sums.cumsum(axis=1)[:, -1].tolist()
        self.place += self.processes * rises.size

    def start(self) -> None:
        """Training goes on."""
        self._since = perf_counter()

    def seconds(self, until: float | None = None) -> float:
        """Training seconds so far, or until a time of ``perf_counter``."""
        now = perf_counter() if until is None else until
        return self._seconds + (0.0 if self._since is None else max(0.0, now - self._since))

    def stop(self, until: float | None = None) -> None:
        """Training is done, or was at a time of ``perf_counter``."""
        self._seconds, self._since = self.seconds(until), None

    def to_dict(self, until: float | None = None) -> dict[str, Any]:
        """The times and sums so far, from which another meter can go on. Whether processes agree is not among them."""
        found = {"seconds": self.seconds(until), "overhead": self.overhead.elapsed}
        found |= {"loss_sum": self.sums.loss_sum, "visits": self.sums.visits}
        others = asdict(self.sums) | {"place": self.place, "agreed": 0}
        return found | {name: value for name, value in others.items() if value}
