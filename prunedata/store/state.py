"""The state of a run, with types: what a store or a checkpoint holds of it, and the checks before a run goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import printable, shown
from prunedata.errors import ForeignStore, PrunedataError
from prunedata.store.schema import COUNTING, LOST, OF_ROWS, check, check_state
from prunedata.types import Array, Arrays, Counts, Guesses, Keys, Mask

__all__ = ["COUNTING", "GUESS", "LOST", "NARROW", "OF_ROWS", "RunState", "guessed_classes", "span_of"]

GUESS = "guess"
"""An array: unsigned, a class and, times :func:`span_of`, how strongly it is held; 0 where nothing is known."""
NARROW = 1 << 12
"""Classes that have room in 16 bits beside how strongly they are held."""

MOST_SAMPLES = 100_000_000
"""Of a run that has no arrays yet, to look at all of them."""

FORMAT = 3
"""Of checkpoints. The store has a format of its own."""
TOO_OLD = (1, 2)
"""Formats that only versions before the first release wrote."""
LARGEST_LOSS = float(np.finfo(np.float32).max)
DTYPES = {
    np.dtype(order + kind).str
    for order in "<>"
    for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""Of arrays, as numpy writes them; others, as those of Python's objects, are not even tried."""


@dataclass(frozen=True, eq=False)
class RunState:
    """Where a run stands.

    Attributes
    ----------
    run : dict
        What the run was given: ``samples``, ``schedule``, ``prune``, ``policy`` and the :data:`OPTIONS` in use. Plain
        values.
    schedule : dict
        The schedule in force, as ``Schedule.to_dict``.
    epoch : int
        Number of the epoch that is open, or else of the next.
    open : bool
        Whether an epoch is open.
    complete : bool
        Whether nothing of the open epoch is left to train on.
    skipped : int
        Kept samples of the open epoch that need not be observed.
    observed : int
        Visits in the open epoch.
    meter : dict
        ``seconds``, ``overhead``, ``loss_sum`` and ``visits`` of the open or last epoch.
    history : list of dict
        A record for each finished epoch, see ``Pruner.history``.
    advice : dict or None
        What the run was advised, as ``Advice.to_dict``.
    rank, processes : int
        Which of how many processes the state is of, within an epoch that several train; each has a state of its own.
    left_out : int
        How many of the skipped samples the loaders of all these processes leave out.
    unseen : int or None
        How many samples its loaders gave and the process did not observe, where only their sources know what they give.
    shared : dict or None
        How they share global batches, ``size`` and ``shuffle``, or ``steps`` of a stream; then losses wait in arrays.
    data : list of (str or None), or None
        Fingerprints of some samples, by which other data is noticed; None if nothing is known.
    arrays : dict of ndarray, shape (samples,)
        ``counts``, ``hits``, ``visits``; within an epoch ``tally``; those of :data:`OF_ROWS` that the run has; and
        those of the policy. Empty before the first commit of a store. Of rows that the data have lost the same,
        under names with ``lost-`` before them, shape (lost,).
    """

    run: dict[str, Any]
    schedule: dict[str, Any]
    epoch: int
    open: bool
    complete: bool
    skipped: int
    observed: int
    meter: dict[str, Any]
    history: list[dict[str, Any]]
    advice: dict[str, Any] | None = None
    rank: int = 0
    processes: int = 1
    left_out: int = 0
    unseen: int | None = None
    shared: dict[str, Any] | None = None
    data: Sequence[str | None] | None = None
    arrays: Arrays = field(default_factory=dict)

    # -- as plain values

    def to_json(self) -> dict[str, Any]:
        """All but the arrays, as a dict that JSON can hold."""
        return self.described() | {"history": [dict(record) for record in self.history]}

    def described(self) -> dict[str, Any]:
        """As :meth:`to_json`, with the records themselves, for who writes them down at once."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "arrays"}

    @classmethod
    def from_json(cls, plain: object, arrays: Mapping[str, Array]) -> RunState:
        """Return what :meth:`to_json` was called on. Raises :class:`PrunedataError` if it is nothing of the kind."""
        about = {name: {"shape": list(array.shape), "dtype": array.dtype.str} for name, array in arrays.items()}
        return cls(**check_state(plain, about), arrays=dict(arrays))

    def to_checkpoint(self) -> dict[str, Any]:
        """Everything in one dict of plain values; arrays as their bytes, which every format of checkpoints can hold."""
        packed = {name: {"dtype": array.dtype.str, "data": array.tobytes()} for name, array in self.arrays.items()}
        return {"format": FORMAT, "state": self.to_json(), "arrays": packed}

    @classmethod
    def from_checkpoint(cls, packed: Any) -> RunState:
        """Return what :meth:`to_checkpoint` was called on, or raise :class:`PrunedataError`."""
        try:
            found = packed.get("format") if isinstance(packed, dict) else None
            if type(found) is int and found in TOO_OLD:
                raise PrunedataError(
                    f"Got one of format {found}, which is too old: a development version of prunedata wrote it. Begin "
                    "anew, without this checkpoint."
                )
            check("a checkpoint", packed, CHECKPOINT)
            arrays = {name: _unpacked(array) for name, array in packed["arrays"].items()}
            return cls.from_json(packed["state"], arrays)
        except PrunedataError as error:
            raise PrunedataError(f"Expected what state_dict() returned. {error}") from error
        except (TypeError, ValueError, MemoryError) as error:  # of bytes that are none, or not of whole numbers
            raise PrunedataError(
                f"Expected what state_dict() returned. Got {type(packed).__name__}: {shown(error)}."
            ) from error

    # -- what it says

    @property
    def samples(self) -> int:
        """Samples of the data set."""
        return int(self.run["samples"])

    def check_size(self) -> None:
        """Raise :class:`PrunedataError` if all samples are to be looked at, and the store may name any number."""
        if self.samples > MOST_SAMPLES and not self.arrays:
            raise PrunedataError(f"Expected a run with finished epochs. Got one of {self.samples:,} samples with none.")

    def counted(self, name: str) -> Counts:
        """One of the arrays ``counts``, ``hits``, ``visits``; zeros in a run that has not been committed yet."""
        found = self.arrays.get(name)
        # Nothing of that size is made: a store that has no arrays may name any number of samples.
        return np.broadcast_to(np.uint8(0), (self.samples,)) if found is None else found

    @property
    def hits(self) -> Counts:
        """Hits of the whole run; zeros before the first commit."""
        return self.counted("hits")

    @property
    def visits(self) -> Counts:
        """Visits of the whole run; zeros before the first commit."""
        return self.counted("visits")

    @property
    def high(self) -> Counts | None:
        """Visits with a loss above ``ln(classes)``, if the run was given ``classes``."""
        return self.arrays.get("high")

    @property
    def mean_excess(self) -> npt.NDArray[np.float64]:
        """How far the losses of each sample lay above the means of their batches, in the mean of its visits.

        Zeros before the first commit, and where losses were so large that their sums are no numbers.
        """
        found = self.arrays.get("mean_excess")
        if found is None:
            return np.broadcast_to(np.float64(0), (self.samples,))
        return np.nan_to_num(np.asarray(found, dtype=np.float64), posinf=LARGEST_LOSS, neginf=-LARGEST_LOSS)

    @property
    def without(self) -> Mask | None:
        """The samples that were left out for good, shape (samples,); None if there are none."""
        left_out = self.arrays.get("without")
        return None if left_out is None else left_out.astype(np.bool_)

    @property
    def labels(self) -> Array | None:
        """The label of each sample, shape (samples,), integers or text; None if the run was not given them."""
        about, numbers = self.run.get("labels"), self.arrays.get("labels")
        if about is None or numbers is None:
            return None
        classes = np.array(about["classes"])
        if classes.size <= int(numbers.max(initial=0)):
            raise PrunedataError(f"Expected labels of {classes.size:,} classes. Got others besides.")
        return np.asarray(classes[numbers])

    @property
    def guess(self) -> Guesses | None:
        """What the network takes each sample for, shape (samples,): a place in its logits, -1 where it is not known.

        That is another class than its label, if the run knows the label. None if no logits came.
        """
        found = self.arrays.get(GUESS)
        return None if found is None else guessed_classes(found)

    @property
    def held_out(self) -> Mask | None:
        """The samples that are held out, shape (samples,), in a run whose rows have moved; None if its seed says it."""
        held_out = self.arrays.get("held_out")
        return None if held_out is None else held_out.astype(np.bool_)

    @property
    def tolerance(self) -> float:
        """How far above the mean of its batch a loss had to lie to be a hit."""
        return float(self.run["policy"].get("tolerance", 0.0))

    @property
    def keys(self) -> Keys | None:
        """The hash of each sample's key, shape (samples,); None if the run has no keys."""
        return self.arrays.get("keys")

    @property
    def lost(self) -> Arrays:
        """What is kept of rows that are not in the data any more, by name, shape (lost,)."""
        return {name.removeprefix(LOST): array for name, array in self.arrays.items() if name.startswith(LOST)}

    # -- checks

    def check_run(self, run: dict[str, Any]) -> None:
        """Raise :class:`ForeignStore` if the state is of another run than ``run`` describes, saying what differs."""
        differ = [name for name in {**run, **self.run} if self.run.get(name) != run.get(name)]
        if differ:
            told = "; ".join(
                f"{printable(name)}: expected {shown(run.get(name))}, got {shown(self.run.get(name))}"
                for name in differ
            )
            raise ForeignStore(
                f"Expected the state of this run. Got that of another ({told}). "
                "Give the run the arguments it began with, or another store."
            )

    def check_arrays(self, wanted: Mapping[str, np.dtype[Any]]) -> None:
        """Raise :class:`PrunedataError` unless the run's own arrays are there, and those of ``wanted`` dtypes."""
        counting = COUNTING + (("tally",) if self.open else ())
        optional = {name: kind for name, kind in OF_ROWS.items() if name in self.arrays}
        for name, kind in {**dict.fromkeys(counting), **wanted, **optional}.items():
            array = self.arrays.get(name)
            alike = array is not None and (array.dtype.kind == "u" if kind is None else array.dtype == kind)
            if array is None or array.shape != (self.samples,) or not alike:
                found = "none" if array is None else f"shape {array.shape}, dtype {array.dtype}"
                kinds = "unsigned" if kind is None else str(kind)
                raise PrunedataError(f"Expected an array {name} of shape ({self.samples},), {kinds}. Got {found}.")


def span_of(dtype: np.dtype[Any]) -> int:
    """What the strength of a guess is multiplied by in an array of this dtype."""
    return NARROW if dtype.itemsize <= 2 else 1 << 16


def guessed_classes(kept: Array) -> Guesses:
    """Return the class of each sample by the array ``guess``, shape (samples,): -1 where nothing is known."""
    span = span_of(kept.dtype)
    return np.where(kept < span, np.int32(-1), (kept % span).astype(np.int32))


def _format(name: str, value: Any) -> None:
    if type(value) is not int or value != FORMAT:
        raise PrunedataError(f"Expected {name} to be {FORMAT}. Got {shown(value)}.")


def _dtype(name: str, value: Any) -> None:
    if not isinstance(value, str) or value not in DTYPES:
        raise PrunedataError(f"Expected {name} to be that of numbers. Got {shown(value)}.")


def _bytes(name: str, value: Any) -> None:
    # Also as other formats of checkpoints give them back; but bytes(n) would make n of them.
    if not isinstance(value, bytes | bytearray | memoryview | np.ndarray):
        raise PrunedataError(f"Expected {name} to be bytes. Got {shown(value)}.")


def _unpacked(packed: Any) -> Array:
    return np.frombuffer(bytes(packed["data"]), dtype=packed["dtype"])


CHECKPOINT = {"format": _format, "state": lambda name, value: None, "arrays": {"*": {"dtype": _dtype, "data": _bytes}}}
"""What a checkpoint has. Its state is checked when it is known which arrays there are."""
