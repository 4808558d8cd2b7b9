"""HOW MUCH is pruned and what it saves: Formulas 2-7 of the paper, exact forms, and what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

from prunedata.errors import ScheduleError
from prunedata.plan.schedule import Schedule, integer, real


def count_pruned(samples: int, prune: int | float | str) -> int:
    """Return PruningNum: how many samples a pruned epoch leaves out, of a data set of `samples`, which is at least 1.

    `prune` is a number of samples, from 0 to ``samples - 1``; or a fraction strictly between 0 and 1, read as the
    decimal that you wrote: 0.29 of 100 is 29, although float arithmetic gives 28; or a percentage such as ``"20%"``.
    Rounded down. Raises :class:`ScheduleError` if it is none of these; pruning all samples leaves nothing to train on.
    """
    samples = integer("samples", samples, 1)
    amount: object = _fraction(prune) if isinstance(prune, str) else prune  # a NumPy number may come too
    if isinstance(amount, Real) and not hasattr(amount, "__index__"):
        if not 0 < float(amount) < 1:
            raise ScheduleError(
                f"Expected prune to be a fraction between 0 and 1, an int of samples, or a percentage as '20%'. "
                f"Got {prune!r}."
            )
        return math.floor(samples * Fraction(str(amount)))
    number = integer("prune, where not a fraction,", amount, 0)
    if number >= samples:
        raise ScheduleError(
            f"Expected prune to be less than the {samples} samples. Got {number}: "
            "prune = all leaves nothing to train on."
        )
    return number


def _fraction(text: str) -> Fraction:
    """A percentage as a fraction."""
    try:
        if not text.endswith("%"):
            raise ValueError
        return Fraction(text[:-1].strip()) / 100
    except (ValueError, ZeroDivisionError):
        raise ScheduleError(f"Expected prune as a percentage, such as '20%'. Got {text!r}.") from None


def count_kept(samples: int, prune: int | float | str, batch_size: int | None = None) -> int:
    """Return how many of `samples` a pruned epoch trains on; whole batches of them if `batch_size` is given.

    With `batch_size` B that is ``min(samples, ceil((samples - pruned) / B) * B)``.
    """
    kept = integer("samples", samples, 1) - count_pruned(samples, prune)
    if batch_size is None:
        return kept
    size = integer("batch_size", batch_size, 1)
    return min(int(samples), -(-kept // size) * size)


@dataclass(frozen=True)
class Prediction:
    """What a schedule costs and saves over the whole run, with every epoch counted. Seconds and percent.

    ``dataclasses.asdict`` makes it a dict that JSON can hold.
    ``pruned_epochs`` is the exact number, ``pruned_epochs_printed`` that of Formula 3 or 4 (None for windows of given
    lengths, see :attr:`Schedule.pruned_epochs_printed`). ``visits_saved_percent`` is of sample visits, not of time.
    """

    pruned_epochs: int
    pruned_epochs_printed: int | None
    regular_batches: int
    pruned_batches: int
    regular_seconds: float
    pruned_seconds: float
    saved_seconds: float
    saved_percent: float
    visits_saved_percent: float


@dataclass(frozen=True)
class Measurement:
    """A measured saving beside the predicted one: percent of the regular run's time.

    ``ratio`` is measured divided by predicted, None if the predicted saving is 0.
    """

    predicted_percent: float
    measured_percent: float
    ratio: float | None


@dataclass(frozen=True)
class CostModel:
    """Predicts a run's time from the time of one batch.

    :meth:`predict` returns the exact figures. The methods ``formula_N`` return the paper's formulas one by one as
    printed; their n_prune is the number of epochs that the schedule really prunes. Formulas 3 and 4, of the epochs
    alone, are properties of :class:`Schedule`.

    Parameters
    ----------
    samples, batch_size : int
        Samples of the data set and of a batch. The last batch of an epoch may be smaller, and counts as one.
    batch_time : float
        Seconds of a training step on one batch (T), above 0.
    overhead : float
        Seconds that recording and selecting add to an epoch (t0).
    """

    samples: int
    batch_size: int
    batch_time: float
    overhead: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", integer("samples", self.samples, 1))
        object.__setattr__(self, "batch_size", integer("batch_size", self.batch_size, 1))
        object.__setattr__(self, "batch_time", real("batch_time", self.batch_time, 0.0, above=True))
        object.__setattr__(self, "overhead", real("overhead", self.overhead, 0.0))

    def batches(self, prune: int | float = 0) -> int:
        """Return the batches of an epoch that leaves `prune` samples out: ceil((N - P) / B)."""
        return -(-count_kept(self.samples, prune) // self.batch_size)

    def predict(self, schedule: Schedule, prune: int | float) -> Prediction:
        """Return the exact cost of `schedule` with `prune` samples left out of its pruned epochs.

        Every epoch costs its batches and the overhead, as losses are recorded in all of them. The saving is negative
        if the overhead is more than pruning saves.
        """
        pruned, epochs = len(schedule.pruned_epochs), schedule.epochs
        regular_batches, pruned_batches = epochs * self.batches(), self._all_batches(schedule, prune)
        # From the difference in batches: that of two large times would carry their rounding.
        saved = (regular_batches - pruned_batches) * self.batch_time - epochs * self.overhead
        regular = regular_batches * self.batch_time
        return Prediction(
            pruned_epochs=pruned,
            pruned_epochs_printed=schedule.pruned_epochs_printed,
            regular_batches=regular_batches,
            pruned_batches=pruned_batches,
            regular_seconds=regular,
            pruned_seconds=pruned_batches * self.batch_time + epochs * self.overhead,
            saved_seconds=saved,
            saved_percent=100 * saved / regular,
            visits_saved_percent=100 * pruned * count_pruned(self.samples, prune) / (epochs * self.samples),
        )

    def measured(
        self, regular_seconds: float, pruned_seconds: float, schedule: Schedule, prune: int | float
    ) -> Measurement:
        """Return the saving of two timed runs, one regular and one pruned, beside the predicted one."""
        regular = real("regular_seconds", regular_seconds, 0.0, above=True)
        measured = 100 * (regular - real("pruned_seconds", pruned_seconds, 0.0)) / regular
        predicted = self.predict(schedule, prune).saved_percent
        return Measurement(predicted, measured, measured / predicted if predicted else None)

    def formula_2(self, schedule: Schedule) -> float:
        """Return Formula 2: t_regular = sum over i = 1..n of T * b. Seconds."""
        return schedule.epochs * self.batch_time * self.batches()

    def formula_5(self, schedule: Schedule) -> float:
        """Return Formula 5 as printed: b_prune = (1/n) (sum over n_prune of T + sum over n - n_prune of T).

        It sums seconds, not batches, and T alike in both sums: the mean is T, whatever is pruned. Seconds.
        """
        pruned = len(schedule.pruned_epochs)
        return (pruned * self.batch_time + (schedule.epochs - pruned) * self.batch_time) / schedule.epochs

    def formula_5_meant(self, schedule: Schedule, prune: int | float) -> float:
        """Return Formula 5 as meant: b_prune = (n_p * ceil((N-P)/B) + (n-n_p) * ceil(N/B)) / n. Batches."""
        return self._all_batches(schedule, prune) / schedule.epochs

    def formula_6(self, schedule: Schedule, prune: int | float) -> float:
        """Return Formula 6: t_prune = sum over n of (T * b_prune) + sum over n_prune of t0. Seconds.

        b_prune as meant. It adds the overhead to pruned epochs only, though losses are recorded in every epoch:
        ``predict(...).pruned_seconds`` adds it to all.
        """
        computing = schedule.epochs * self.batch_time * self.formula_5_meant(schedule, prune)
        return computing + len(schedule.pruned_epochs) * self.overhead

    def formula_7(self, schedule: Schedule, prune: int | float) -> float:
        """Return Formula 7: t_save = t_regular - t_prune, with t_prune as in Formula 6. Seconds."""
        return self.formula_2(schedule) - self.formula_6(schedule, prune)

    def _all_batches(self, schedule: Schedule, prune: int | float) -> int:
        """Return the batches of a whole run, with `prune` samples left out of its pruned epochs."""
        pruned = len(schedule.pruned_epochs)
        return pruned * self.batches(prune) + (schedule.epochs - pruned) * self.batches()
