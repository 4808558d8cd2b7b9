"""What an epoch costs and shows: seconds of training and of this library, the sum of losses, the validation figure."""

from collections.abc import Mapping
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from prunedata.types import Floats, Ids

RISES = "place", "rises", "products", "squares"
HELD_OUT = "held_out_trust", "held_out_seen", "held_out_right", "held_out_judged"
SAVED = "loss_sum", "visits", "figure_sum", "figures", "lower_is_better", *RISES, *HELD_OUT


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


class Meter:
    """Running sums of one epoch. Training seconds go on between :meth:`start` and :meth:`stop`.

    Most are those of :class:`prunedata.run.group.GroupTotals`, of this process alone. ``processes`` train together, and
    ``place`` is that of the next visit among those of the epoch in all of them, if they go on side by side.
    """

    _since: float | None
    lower_is_better: bool | None
    is_elsewhere: bool  # whether the epoch's figure counts on another process

    def __init__(self) -> None:
        self.overhead, self.processes = Overhead(), 1
        self.begin()

    def begin(self) -> None:
        """Begin an epoch."""
        self._seconds, self._since, self.place, self.is_elsewhere = 0.0, None, 0, False
        self._clear()
        self.overhead.seconds = 0.0

    def _clear(self) -> None:
        self.loss_sum, self.visits = 0.0, 0
        self.rises, self.products, self.squares = 0.0, 0.0, 0.0
        self.figure_sum, self.figures, self.lower_is_better, self.agreed = 0.0, 0, None, False
        self.held_out_trust, self.held_out_seen, self.held_out_right, self.held_out_judged = 0, 0, 0, 0

    def count_elsewhere(self) -> None:
        """What was added up so far counts on another process."""
        self.is_elsewhere = self.is_validated
        self._clear()

    def restore(self, sums: Mapping[str, Any]) -> None:
        """Go on with an epoch from what :meth:`to_dict` gave. Whether processes agree is not part of that."""
        self.begin()
        self._seconds, self.overhead.seconds = sums["seconds"], sums["overhead"]
        for name in sums.keys() & set(SAVED):
            setattr(self, name, sums[name])

    @property
    def is_validated(self) -> bool:
        """Whether the epoch has its figure, be it one that counts on another process."""
        return self.figures > 0 or self.is_elsewhere

    def add_rises(self, rises: Floats, sizes: Ids) -> None:
        """Add how far the losses of batches lie above recent averages of their samples, shape (n,), batch by batch.

        ``sizes``, shape (batches,): how many of them each batch has; at least 1.
        """
        starts = sizes.cumsum() - sizes
        places = self.place + self.processes * (starts + (sizes - 1) / 2)  # a batch is of one moment
        found = np.add.reduceat(rises, starts, dtype=np.float64)
        sums = np.stack([found, places * found, np.add.reduceat(rises * rises, starts, dtype=np.float64)])
        sums[:, 0] += self.rises, self.products, self.squares
        # One after the other: the sum must not depend on where the buffer was full.
        self.rises, self.products, self.squares = sums.cumsum(axis=1)[:, -1].tolist()
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
        """The sums so far, from which another meter can go on."""
        sums: dict[str, Any] = {"seconds": self.seconds(until), "overhead": self.overhead.elapsed}
        sums |= {"loss_sum": self.loss_sum, "visits": self.visits}
        if self.place:
            sums |= {name: getattr(self, name) for name in RISES}
        if self.figures:
            sums |= {"figure_sum": self.figure_sum, "figures": self.figures}
            sums |= {} if self.lower_is_better is None else {"lower_is_better": self.lower_is_better}
        if self.held_out_seen:
            sums |= {name: getattr(self, name) for name in HELD_OUT}
        return sums
