"""The mask of the open epoch in a file, for processes that were started before the epoch began.

A dataset is copied into each of a loader's workers, and a mask kept on it is the mask of the epoch in which they
were started. A path stays true: it survives fork, spawn and workers that persist, and the file behind it is
replaced in one step when an epoch begins.
"""

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import integer, shown
from prunedata.counting.counts import Tally
from prunedata.errors import DamagedStore, LossError, NotInEpoch, PrunedataError
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

__all__ = ["MaskFile", "MaskPublisher", "Resumable", "publish"]

HEADER, NUMBER, UNKNOWN = 16, 8, 255


class MaskFile:
    """The reading side; a path and nothing else, so it can be pickled.

    The file holds the epoch's number and the number of samples, as little-endian int64, and then one byte a sample.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, reader: int | None = None) -> npt.NDArray[np.bool_]:
        """Return which samples remain in the epoch last begun, shape (samples,).

        Call it when a pass begins, in each worker: it leaves a mark, by which the run knows that samples came by its
        mask, and not out of a cache.

        Parameters
        ----------
        reader : int, optional
            Which of the workers reads, from 0. Then a second pass in one epoch is noticed, too.
        """
        try:
            raw = Path(self.path).read_bytes()
        except FileNotFoundError:
            raise NotInEpoch(
                "Expected an open epoch. Got none yet: iterate inside `for epoch in pruner.epochs():`, "
                f"as long as the pruner lives, and let nobody clear {os.path.dirname(self.path)} meanwhile."
            ) from None
        mask = np.frombuffer(raw[HEADER:], np.uint8)
        if len(raw) < HEADER or mask.size != _number(raw[NUMBER:HEADER]) or mask.max(initial=0) > 1:
            raise DamagedStore(
                f"Expected the mask of an epoch in {self.path}. Got {len(raw):,} bytes that are none: something else "
                "has written to it, or cut it short. Begin the epoch again, by load_state_dict() or resume=True."
            )
        with suppress(OSError), open(self._marks, "ab") as marks:
            marks.write(bytes([UNKNOWN if reader is None else reader % UNKNOWN]))
        return mask.view(np.bool_)

    @property
    def _marks(self) -> str:
        return f"{self.path}.passes"

    def passes(self) -> tuple[bool, int]:
        """Whether the mask of the epoch last begun was read, and how often by one and the same reader."""
        try:
            marks = np.frombuffer(Path(self._marks).read_bytes(), np.uint8)
        except FileNotFoundError:
            return False, 0
        return True, int(np.bincount(marks[marks != UNKNOWN], minlength=1).max())

    def begin_pass(self) -> Delivery:
        """Return where a stream counts what it hands on in a pass; in other processes nobody reads it."""
        delivery = Delivery(-1 if (epoch := self.epoch()) is None else epoch, delivered=0, inner=True)
        if (publisher := _publishers.get(self.path)) is not None:
            publisher.delivery = delivery
        return delivery

    def epoch(self) -> int | None:
        """Return the number of the epoch last begun, None before the first."""
        try:
            with open(self.path, "rb") as file:
                return _number(file.read(NUMBER))
        except FileNotFoundError:
            return None

    def write(self, epoch: Epoch) -> None:
        """Replace the file by the mask of ``epoch``, in its folder, which a cleaner of old files may have removed."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        part = f"{self.path}.{os.getpid()}.partial"
        with open(part, "wb") as file:
            for number in (epoch.number, epoch.remaining.size):
                file.write(number.to_bytes(NUMBER, "little"))
            file.write(epoch.remaining.data)
        Path(self._marks).unlink(missing_ok=True)  # before: whoever reads the new mask leaves a mark
        os.replace(part, self.path)


class Resumable:
    """What a StatefulDataLoader asks of a dataset. Nothing is skipped: the mask knows what was observed.

    A pruner that goes on in the middle of an epoch publishes the samples that remain. So the state need not say how
    far the stream was, and the order of the rest may be another one. Without these two methods the loader would
    skip as many batches as it had delivered, of those that remain.
    """

    mask: MaskFile
    delivers_ids = True  # for the adapter of DataLoaders: items are pairs of an id and a sample

    def state_dict(self) -> dict[str, Any]:
        """Say which epoch it is, None before the first."""
        return {"epoch": self.mask.epoch()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raise :class:`PrunedataError` if the pruner is in an earlier epoch: it was not restored."""
        epoch = self.mask.epoch()
        if not isinstance(state, dict) or "epoch" not in state:
            raise PrunedataError(f"Expected the state of a pruned stream. Got {shown(state)}.")
        saved = None if state["epoch"] is None else integer("the epoch of a stream's state", state["epoch"], 0)
        if epoch is not None and saved is not None and epoch < saved:
            raise PrunedataError(
                f"Expected a pruner that stands in epoch {saved}, as the loader's state. Got one in epoch "
                f"{epoch}: call pruner.load_state_dict() before the loop over pruner.epochs()."
            )


_publishers: weakref.WeakValueDictionary[str, "MaskPublisher"] = weakref.WeakValueDictionary()
"""Those of this process, by the paths of their files."""


class MaskPublisher(Adapter):
    """Keeps a file with the mask of each epoch that a run begins. One for each run; deleted with it."""

    key = "mask file"
    by_weight = True

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="prunedata-")
        self.file = MaskFile(os.path.join(folder, "mask"))
        self._begun: int | None = None
        _publishers[self.file.path] = self
        weakref.finalize(self, _delete, folder, os.getpid())

    def begin_epoch(self, epoch: Epoch) -> None:
        """Replace the file by the mask of ``epoch``."""
        self.file.write(epoch)
        self._begun = epoch.number

    def forget(self) -> None:
        """Forget which epoch was begun: the run stands elsewhere now."""
        self._begun = None

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Refuse samples that did not come by the epoch's mask, or that came in two passes.

        A sample may be observed though it is pruned, and more than once: the core counts it. What is refused is a loop
        that trains on such samples in silence, as one that keeps the batches of an earlier epoch.
        """
        if self._begun != epoch.number:  # restored when nothing of it was left
            return
        (read, passes), seen = self.file.passes(), tally.visits
        pruned, twice = int(np.count_nonzero(seen[~epoch.keep])), int(np.count_nonzero(seen[epoch.keep] > 1))
        if pruned and not read:
            raise LossError(
                f"Expected the samples that epoch {epoch.number} keeps. Got {pruned} that are pruned, and the stream "
                "was not iterated: are batches of an earlier epoch kept, or is the source iterated that was given to "
                "wrap()? Go on from the last commit or checkpoint."
            )
        if twice and passes > 1:
            raise LossError(
                f"Expected each kept sample of epoch {epoch.number} once. Got {twice} of them more often, in {passes} "
                "passes over the stream: was the loop left by break and begun again? Go on from the last commit or "
                "checkpoint, and after a break with begin_epoch() or pruner.epochs(), which give what remains."
            )


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def publish(pruner: Pruner) -> MaskFile:
    """Keep a file with the mask of each epoch that ``pruner`` begins; it is deleted with the pruner."""
    return pruner.attach(MaskPublisher()).file


def _delete(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a process forked from it has a copy of the pruner, and of this duty
        shutil.rmtree(folder, ignore_errors=True)
