"""The state of a run, as a store or a checkpoint has it, and the checks before a run resumes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.store.schema import COUNTING, DTYPES, LOST, OPEN, anything, check, check_state, dtype_of
from prunedata.types import Array, Arrays, Counts, Guesses, Keys, Mask

__all__ = ["COUNTING", "DTYPES", "GUESS", "LABEL", "LOST", "NARROW", "OPEN", "RunState", "guessed_classes", "span_of"]

LABEL = "label"  # name of the array of labels as batches brought them: 0 for none so far, 1 for -100, and others plus 2
GUESS = "guess"
"""Name of the array of guesses: unsigned, a class plus its strength times :func:`span_of`; 0 for no guess."""
NARROW = 1 << 12  # number of classes that fit into 16 bits beside a strength

MOST_SAMPLES = 100_000_000  # most samples of a run without arrays for which arrays of zeros are made

FORMAT = 4  # the format of checkpoints. The store has a format of its own.
LARGEST_LOSS = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class RunState:
    """The state of a run: plain values, and arrays of shape (samples,)."""

    run: dict[str, Any]  # its arguments: samples, schedule, prune, policy and the OPTIONS in use
    schedule: dict[str, Any]  # the one in force
    epoch: int  # the number of the open epoch, or else of the next
    open: bool
    complete: bool  # whether no sample of the open epoch remains to be trained
    skipped: int  # kept samples of the open epoch that need not be observed
    observed: int  # visits in the open epoch
    meter: dict[str, Any]  # sums of the open or last epoch, by :class:`prunedata.run.meter.Meter`
    history: list[dict[str, Any]]
    sketch: str | None = None  # of what the last pruned epoch left out
    advice: dict[str, Any] | None = None
    rank: int = 0  # of the process that saved it: within an epoch that several train, each has a state of its own
    processes: int = 1
    left_out: int = 0  # how many of the skipped samples the loaders of all these processes leave out
    unseen: int | None = None  # samples that loaders gave and the process did not observe; None if sources give all
    shared: dict[str, Any] | None = None  # how processes share global batches; then arrays have losses that wait
    data: Sequence[str | None] | None = None  # fingerprints of some samples
    arrays: Arrays = field(default_factory=dict)
    """``counts``, ``hits``, ``visits``; within an epoch ``tally``; those of :data:`DTYPES` that the run has; and those
    of the policy. Empty before the first commit. Rows that the data has lost have the same arrays, under names with
    ``lost-`` before them, shape (lost,)."""

    # -- as plain values

    def to_json(self) -> dict[str, Any]:
        """Return everything but the arrays, as a dict that JSON can hold; not copies."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "arrays"}

    @classmethod
    def from_json(cls, plain: object, arrays: Mapping[str, Array]) -> RunState:
        """Return the state that :meth:`to_json` wrote, or raise :class:`PrunedataError`."""
        about = {name: {"shape": list(array.shape), "dtype": array.dtype.str} for name, array in arrays.items()}
        return cls(**check_state(plain, about), arrays=dict(arrays))

    def to_checkpoint(self) -> dict[str, Any]:
        """Return everything in one dict of plain values, which every format of checkpoints can hold."""
        packed = {name: {"dtype": array.dtype.str, "data": array.tobytes()} for name, array in self.arrays.items()}
        copied = {"history": [dict(record) for record in self.history]}
        return {"format": FORMAT, "state": self.to_json() | copied, "arrays": packed}

    @classmethod
    def from_checkpoint(cls, packed: Any) -> RunState:
        """Return the state that :meth:`to_checkpoint` wrote, or raise :class:`PrunedataError`."""
        try:
            check("a checkpoint", packed, CHECKPOINT)
            arrays = {
                name: np.frombuffer(bytes(array["data"]), dtype=array["dtype"])
                for name, array in packed["arrays"].items()
            }
            return cls.from_json(packed["state"], arrays)
        except PrunedataError as error:
            raise PrunedataError(f"Expected the result of state_dict(). {error}") from error
        except (TypeError, ValueError, MemoryError) as error:  # of bytes that are none, or not of whole numbers
            raise PrunedataError(
                f"Expected the result of state_dict(). Got {type(packed).__name__}: {shown(error)}."
            ) from error

    # -- its content

    @property
    def samples(self) -> int:
        """Number of samples in the data set."""
        return int(self.run["samples"])

    def check_size(self) -> None:
        """Raise :class:`PrunedataError` if a run without arrays names too many samples to make arrays for them."""
        if self.samples > MOST_SAMPLES and not self.arrays:
            raise PrunedataError(f"Expected a run with finished epochs. Got one of {self.samples:,} samples with none.")

    def counts_of(self, name: str) -> Counts:
        """Return one of the arrays ``counts``, ``hits``, ``visits``; zeros before the first commit."""
        array = self.arrays.get(name)
        # A view of one zero: a forged store without arrays may name any number of samples.
        return np.broadcast_to(np.uint8(0), (self.samples,)) if array is None else array

    @property
    def hits(self) -> Counts:
        """Hits of the whole run; zeros before the first commit."""
        return self.counts_of("hits")

    @property
    def visits(self) -> Counts:
        """Visits of the whole run; zeros before the first commit."""
        return self.counts_of("visits")

    @property
    def high(self) -> Counts | None:
        """Number of visits of each sample with a loss above ``ln(classes)``; None in a run without ``classes``."""
        return self.arrays.get("high")

    @property
    def mean_excess(self) -> npt.NDArray[np.float64]:
        """How far losses were above the means of batches, on average; 0 where sums are no numbers, or none came."""
        array = self.arrays.get("mean_excess")
        if array is None:
            return np.broadcast_to(np.float64(0), (self.samples,))
        return np.nan_to_num(np.asarray(array, dtype=np.float64), posinf=LARGEST_LOSS, neginf=-LARGEST_LOSS)

    @property
    def without(self) -> Mask | None:
        """The samples that were left out for good, shape (samples,); None if there are none."""
        return self._mask("without")

    @property
    def labels(self) -> Array | None:
        """The label of each sample, integers or text, shape (samples,), -100 if none came so far; None without."""
        about, numbers = self.run.get("labels"), self.arrays.get("labels")
        if about is None or numbers is None:
            seen = self.arrays.get(LABEL)
            return None if seen is None else np.where(seen < 2, np.int32(-100), seen.astype(np.int32) - 2)
        classes = np.array(about["classes"])
        if classes.size <= int(numbers.max(initial=0)):
            raise PrunedataError(f"Expected labels of {classes.size:,} classes. Got labels of more.")
        return np.asarray(classes[numbers])

    @property
    def guess(self) -> Guesses | None:
        """The guess of each sample, shape (samples,), another class than its label, -1 for none; None: no logits."""
        array = self.arrays.get(GUESS)
        return None if array is None else guessed_classes(array)

    @property
    def held_out(self) -> Mask | None:
        """The samples that are held out, shape (samples,), in a run whose rows have moved; None if the seed decides."""
        return self._mask("held_out")

    def _mask(self, name: str) -> Mask | None:
        array = self.arrays.get(name)
        return None if array is None else array.astype(np.bool_)

    @property
    def keys(self) -> Keys | None:
        """The hash of each sample's key, shape (samples,); None in a run without keys."""
        return self.arrays.get("keys")

    @property
    def lost(self) -> Arrays:
        """The arrays of rows that are not in the data any more, by name, shape (lost,)."""
        return {name.removeprefix(LOST): array for name, array in self.arrays.items() if name.startswith(LOST)}

    # -- checks

    def check_arrays(self, dtypes: Mapping[str, np.dtype[Any]]) -> None:
        """Raise :class:`PrunedataError` unless the state has the arrays named in ``dtypes``, all of (samples,)."""
        for name, kind in dtypes.items():
            array = self.arrays.get(name)
            if array is None or array.shape != (self.samples,) or array.dtype != kind:
                got = "none" if array is None else f"shape {array.shape}, dtype {array.dtype}"
                raise PrunedataError(f"Expected an array {name} of shape ({self.samples},), {kind}. Got {got}.")


def span_of(dtype: np.dtype[Any]) -> int:
    """Return the factor of a guess's strength in an array of this dtype."""
    return NARROW if dtype.itemsize <= 2 else 1 << 16


def guessed_classes(kept: Array) -> Guesses:
    """Return the class of each sample by the array ``guess``, shape (samples,): -1 for no guess."""
    span = span_of(kept.dtype)
    return np.where(kept < span, np.int32(-1), (kept % span).astype(np.int32))


def _format(name: str, value: Any) -> None:
    if type(value) is not int or value != FORMAT:
        raise PrunedataError(
            f"Expected {name} to be {FORMAT}. Got {shown(value)}: another version of prunedata wrote it. Begin anew, "
            "without this checkpoint."
        )


def _bytes(name: str, value: Any) -> None:
    # Some formats of checkpoints return them as other types. An int is refused: bytes(n) would make n bytes.
    if not isinstance(value, bytes | bytearray | memoryview | np.ndarray):
        raise PrunedataError(f"Expected {name} to be bytes. Got {shown(value)}.")


CHECKPOINT = {
    "format": _format, "state": anything, "arrays": {"*": {"dtype": dtype_of("<>"), "data": _bytes}},
}  # fmt: skip
"""The schema of a checkpoint. Its state is checked later, together with the arrays."""
