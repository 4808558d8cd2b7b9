"""WHEN samples are pruned: Algorithm 2 of the paper, lines 1-6, for epochs numbered from 0."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, pairwise
from numbers import Real
from operator import itemgetter
from typing import Any, Literal, cast

from prunedata import checks
from prunedata.errors import ScheduleError

real, integer = partial(checks.real, error=ScheduleError), partial(checks.integer, error=ScheduleError)


@dataclass(frozen=True)
class Schedule:
    """Which epochs of a run are pruned, and when counts begin again at zero.

    With ``reading="aligned"`` epoch ``e``, at position ``p`` of window ``k``, is pruned iff
    ``p >= start_k and (p - start_k) % block < pruned_per_block``, where ``start_0 = start`` and
    ``start_k = max(1, int(start_{k-1} / attenuation))``. With ``reading="printed"`` Algorithm 2 holds to the
    letter, for epoch number ``E = e + 1``: the start is divided at every ``E > window``, and the epoch is
    pruned iff ``E % window >= start and E % block < pruned_per_block``.

    Parameters
    ----------
    epochs : int
        Epochs of the whole run, at least 1.
    window : int or sequence of int
        Epochs after which counts begin again at zero (PruningWindow): one length that repeats, or the lengths of
        successive windows, which must cover all epochs. The printed reading takes an int.
    start : int
        Position in the window from which pruning begins (StartingPoint), at least 1: at 0 counts are empty.
    block, pruned_per_block : int
        Of every `block` epochs (PruningBlock) the first `pruned_per_block` are pruned (PruningCount).
    attenuation : float
        In each window after the first, the start is divided by it. At least 1, which changes nothing.
    reading : {"aligned", "printed"}
        Which reading of Algorithm 2 to use.
    anneal : int or float
        How many epochs at the end of the run are not pruned, or which fraction of all epochs, rounded up, so that
        training ends on all samples. By keyword only; kept as an int. The default, 0, is as in the paper.

    Raises
    ------
    ScheduleError
        If a value is impossible.
    """

    epochs: int
    window: int | tuple[int, ...]
    start: int
    block: int
    pruned_per_block: int
    attenuation: float = 1.0
    reading: Literal["aligned", "printed"] = "aligned"
    anneal: int | float = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        positive = ("epochs", "start", "block")
        plain: dict[str, object] = {name: integer(name, getattr(self, name), 1) for name in positive}
        plain["pruned_per_block"] = integer("pruned_per_block", self.pruned_per_block, 0)
        plain["attenuation"] = real("attenuation", self.attenuation, 1.0)
        plain["window"] = self._plain_window()
        plain["anneal"] = self._plain_anneal()
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.pruned_per_block > self.block:
            raise ScheduleError(
                f"Expected pruned_per_block to be at most block, {self.block}. Got {self.pruned_per_block}."
            )
        if self.reading not in ("aligned", "printed"):
            raise ScheduleError(f"Expected reading to be 'aligned' or 'printed'. Got {self.reading!r}.")
        if isinstance(self.window, tuple):
            if self.reading == "printed":
                raise ScheduleError(f"Expected an int window for reading='printed'. Got {self.window}.")
            if sum(self.window) < self.epochs:
                raise ScheduleError(
                    f"Expected windows that cover all {self.epochs} epochs. Got {self.window}, in sum "
                    f"{sum(self.window)}: add windows, or give one int that repeats."
                )

    def _plain_window(self) -> int | tuple[int, ...]:
        try:
            lengths = list(cast("Iterable[int]", self.window))
        except (TypeError, NotImplementedError):  # an int, an array without axes, or a view of several
            return integer("window", self.window, 1)
        return tuple(integer("each window", length, 1) for length in lengths)

    def _plain_anneal(self) -> int:
        if isinstance(self.anneal, Real) and not hasattr(self.anneal, "__index__"):
            if not 0 <= float(self.anneal) < 1:
                raise ScheduleError(
                    f"Expected anneal to be a fraction from 0 to 1, or an int of epochs. Got {self.anneal!r}."
                )
            # Up, else a short run would not anneal; of the decimal as written, as prune.
            return math.ceil(int(self.epochs) * Fraction(str(self.anneal)))
        return integer("anneal, where not a fraction,", self.anneal, 0, int(self.epochs))

    @classmethod
    def from_milestones(
        cls,
        epochs: int,
        milestones: Iterable[int],
        start: int,
        block: int,
        pruned_per_block: int,
        attenuation: float = 1.0,
        *,
        anneal: int | float = 0,
    ) -> Schedule:
        """Return the aligned schedule with one window per plateau of a learning rate that drops at `milestones`.

        Milestones 60, 120, 160 of 200 epochs give windows (60, 60, 40, 40). Milestones must rise, from 1 to less than
        `epochs`.
        """
        last = integer("epochs", epochs, 1)
        edges = [0, *(integer("each milestone", m, 1, max(1, last - 1)) for m in milestones), last]
        if any(a >= b for a, b in pairwise(edges)):
            raise ScheduleError(f"Expected milestones that rise within {last} epochs. Got {edges[1:-1]}.")
        lengths = tuple(b - a for a, b in pairwise(edges))
        return cls(last, lengths, start, block, pruned_per_block, attenuation, anneal=anneal)

    @classmethod
    def steady(cls, epochs: int, start: int | None = None, *, anneal: int | float = 0) -> Schedule:
        """Return the aligned schedule that prunes every epoch from `start` on, in one window for the whole run.

        :func:`prunedata.advise` returns such schedules, and they suit policies that average losses, such as
        ``RunningLoss``. By default `start` is a sixth of the epochs, rounded up.
        """
        last = integer("epochs", epochs, 1)
        begin = -(-last // 6) if start is None else start
        return cls(last, window=last, start=begin, block=1, pruned_per_block=1, anneal=anneal)

    @cached_property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """First epoch and length of every window that the run reaches; the last is cut where the run ends."""
        if isinstance(self.window, tuple):
            firsts = [0, *(end for end in accumulate(self.window) if end < self.epochs)]
        elif self.reading == "aligned":
            firsts = list(range(0, self.epochs, self.window))
        else:
            firsts = sorted({0, *range(self.window - 1, self.epochs, self.window)})
        return tuple((a, b - a) for a, b in pairwise([*firsts, self.epochs]))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The start in force, one per window (aligned) or one per epoch (printed)."""
        printed = self.reading == "printed"
        starts, start = [], self.start
        for i in range(self.epochs if printed else len(self.windows)):
            if printed and i + 1 > cast(int, self.window):
                start = int(start / self.attenuation)
            elif not printed and i > 0:
                start = max(1, int(start / self.attenuation))
            starts.append(start)
        return tuple(starts)

    def _window_at(self, epoch: int) -> tuple[int, int]:
        """Return number and first epoch of the window in which `epoch` lies."""
        number = bisect_right(self.windows, epoch, key=itemgetter(0)) - 1
        return number, self.windows[number][0]

    def start_at(self, epoch: int) -> int:
        """Return the start (StartingPoint) in force at `epoch`, after attenuation."""
        epoch = integer("epoch", epoch, 0, self.epochs - 1)
        return self._starts[epoch if self.reading == "printed" else self._window_at(epoch)[0]]

    def resets(self, epoch: int) -> bool:
        """Return whether counts are emptied at `epoch`, which begins a window (Algorithm 1, lines 1-3)."""
        epoch = integer("epoch", epoch, 0, self.epochs - 1)
        if self.reading == "printed":
            return (epoch + 1) % cast(int, self.window) == 0
        return self._window_at(epoch)[1] == epoch

    def prunes(self, epoch: int) -> bool:
        """Return whether `epoch` trains on pruned data (Algorithm 2, lines 5-6, but for annealing)."""
        start, epoch = self.start_at(epoch), int(epoch)
        if epoch >= self._annealed_from:
            return False
        if self.reading == "printed":
            number = epoch + 1
            return number % cast(int, self.window) >= start and number % self.block < self.pruned_per_block
        past = epoch - self._window_at(epoch)[1] - start
        return past >= 0 and past % self.block < self.pruned_per_block

    @property
    def _annealed_from(self) -> int:
        return self.epochs - cast(int, self.anneal)

    @cached_property
    def pruned_epochs(self) -> tuple[int, ...]:
        """All pruned epochs, rising, numbered from 0."""
        return tuple(epoch for epoch in range(self.epochs) if self.prunes(epoch))

    @property
    def ever_prunes(self) -> bool:
        """Whether any epoch is pruned."""
        if self.reading == "aligned":
            return self.formula_corrected > 0
        return any(self.prunes(epoch) for epoch in range(self.epochs))

    @property
    def longest_window(self) -> int:
        """Length in epochs of the longest window: no count of a window can be higher."""
        return max(self.window) if isinstance(self.window, tuple) else self.window

    def rewindow(self, epoch: int, window: int) -> Schedule:
        """Return a schedule with a new window of `window` epochs at `epoch`, which repeats to the end.

        The window in which `epoch` lies ends there, so nothing changes before `epoch`; the new one counts as the next
        for attenuation. Raises :class:`ScheduleError` for the printed reading, whose windows follow from the epoch
        number.
        """
        epoch, window = integer("epoch", epoch, 0, self.epochs - 1), integer("window", window, 1)
        if self.reading == "printed":
            raise ScheduleError("Expected reading='aligned' to change the window mid-run. Got 'printed'.")
        edges = [*(first for first, _ in self.windows if first < epoch), epoch]
        edges += range(epoch + window, self.epochs + window, window)
        lengths = tuple(b - a for a, b in pairwise(edges))
        return replace(self, window=lengths)

    def _one_window(self) -> int:
        if isinstance(self.window, tuple):
            raise ScheduleError(
                f"Expected an int window: Formulas 3 and 4 know one length. Got {self.window}: use "
                "formula_corrected or len(pruned_epochs)."
            )
        return self.window

    @property
    def formula_3(self) -> int:
        """Formula 3 as printed: n_prune = (floor((w - a) / r) * c + (w - a) mod r) * floor(n / w).

        Floor and mod as Python's ``//`` and ``%``. It counts the whole remainder as pruned, and ignores attenuation
        and annealing. An int window only.
        """
        w, a, r, c = self._one_window(), self.start, self.block, self.pruned_per_block
        return ((w - a) // r * c + (w - a) % r) * (self.epochs // w)

    @property
    def formula_4(self) -> int:
        """Formula 4 as printed: Formula 3 + floor((n mod w - a) / r) * c + (n mod w - a) mod r.

        Its tail goes negative where the last, cut window ends before the start. An int window only.
        """
        a, r, c = self.start, self.block, self.pruned_per_block
        tail = self.epochs % self._one_window() - a
        return self.formula_3 + tail // r * c + tail % r

    @property
    def pruned_epochs_printed(self) -> int | None:
        """What the paper would print: Formula 3 if window divides epochs, else Formula 4.

        None for windows of given lengths, for which there is no formula.
        """
        if isinstance(self.window, tuple):
            return None
        return self.formula_3 if self.epochs % self.window == 0 else self.formula_4

    @property
    def formula_corrected(self) -> int:
        """Formulas 3 and 4 corrected: remainder as min(rem, c), no negative tail, each window's own start.

        Equals ``len(pruned_epochs)`` for every aligned schedule; attenuation, uneven windows and annealing included.
        """
        if self.reading == "printed":
            raise ScheduleError("Expected reading='aligned'. Got 'printed': use len(pruned_epochs).")
        r, c = self.block, self.pruned_per_block
        last = self._annealed_from
        past = (max(0, min(n, last - first) - a) for (first, n), a in zip(self.windows, self._starts, strict=True))
        return sum(p // r * c + min(p % r, c) for p in past)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold; windows of given lengths as a list, ``anneal`` if not 0."""
        found = asdict(self) | {"window": list(self.window) if isinstance(self.window, tuple) else self.window}
        # A run recorded before annealing was known is the same run without it.
        return {name: value for name, value in found.items() if name != "anneal" or value}

    @classmethod
    def from_dict(cls, stored: object) -> Schedule:
        """Return the schedule that :meth:`to_dict` gave; anything else raises :class:`ScheduleError`."""
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, Mapping) or {*stored, "anneal"} != names:
            raise ScheduleError(f"Expected a mapping with the keys {sorted(names)}. Got {checks.shown(stored)}.")
        return cls(**stored)
