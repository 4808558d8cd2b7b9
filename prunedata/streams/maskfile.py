"""The mask of the open epoch in a file, for processes that were started before the epoch began.

A dataset is copied into each of a loader's workers, and a mask on it would be that of the epoch in which they were
started. A path stays valid with fork, spawn and persistent workers, and the file is replaced in one step when an epoch
begins.
"""

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from prunedata.checks import integer, shown
from prunedata.counting.counts import Tally
from prunedata.errors import DamagedStore, LossError, NotInEpoch, PrunedataError
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Mask

HEADER, NUMBER = 16, 8


class MaskFile:
    """Reads the mask of the open epoch. It is a path and nothing else, so that it can be pickled.

    The file has the epoch's number and the number of samples, as little-endian int64, and then one byte a sample.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, reader: int = 0) -> Mask:
        """Return which samples remain in the epoch that began last, shape (samples,).

        Call it in each worker when a pass begins, with the number of the worker as the ``reader``: it leaves a mark,
        which shows the run that samples were selected by the mask, and did not come from a cache, nor in two passes.
        """
        try:
            raw = Path(self.path).read_bytes()
        except FileNotFoundError:
            raise NotInEpoch(
                "Expected an open epoch. Got none: iterate inside `for epoch in pruner.epochs():`, as long as the "
                f"pruner exists, and don't delete {os.path.dirname(self.path)} meanwhile."
            ) from None
        mask = np.frombuffer(raw[HEADER:], np.uint8)
        if len(raw) < HEADER or mask.size != _number(raw[NUMBER:HEADER]) or mask.max(initial=0) > 1:
            raise DamagedStore(
                f"Expected the mask of an epoch in {self.path}. Got {len(raw):,} bytes of something else: another "
                "program has written to it, or cut it. Begin the epoch again, by load_state_dict() or resume=True."
            )
        with suppress(OSError), open(self._marks, "ab") as marks:
            marks.write(bytes([reader % 256]))
        return mask.view(np.bool_)

    @property
    def _marks(self) -> str:
        return f"{self.path}.passes"

    def passes(self) -> tuple[bool, int]:
        """Return whether the mask of the open epoch was read, and how often by one and the same reader."""
        try:
            marks = np.frombuffer(Path(self._marks).read_bytes(), np.uint8)
        except FileNotFoundError:
            return False, 0
        return True, int(np.bincount(marks, minlength=1).max())

    def begin_pass(self) -> Delivery:
        """Return the report in which a stream counts what it delivers in a pass. Only this process reads it."""
        delivery = Delivery(-1 if (epoch := self.epoch()) is None else epoch, delivered=0, inner=True)
        if (publisher := _publishers.get(self.path)) is not None:
            publisher.delivery = delivery
        return delivery

    def epoch(self) -> int | None:
        """Return the number of the epoch that began last, None before the first."""
        try:
            with open(self.path, "rb") as file:
                return _number(file.read(NUMBER))
        except FileNotFoundError:
            return None

    def write(self, epoch: Epoch) -> None:
        """Replace the mask by that of ``epoch``; make the folder, which a cleaner of old files may have removed."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        part = f"{self.path}.{os.getpid()}.partial"
        with open(part, "wb") as file:
            for number in (epoch.number, epoch.remaining.size):
                file.write(number.to_bytes(NUMBER, "little"))
            file.write(epoch.remaining.data)
        Path(self._marks).unlink(missing_ok=True)  # before the new mask can be read
        os.replace(part, self.path)


class Resumable:
    """The methods of a dataset that StatefulDataLoader calls, for a stream that resumes by its mask.

    The mask of a resumed epoch has the samples that remain. So the state has no position, and the rest may come in
    another order. Without these methods the loader would skip as many of the remaining batches as it had delivered.
    """

    mask: MaskFile
    delivers_ids = True  # for the adapter of DataLoaders: items are pairs of an id and a sample

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the open epoch, None before the first."""
        return {"epoch": self.mask.epoch()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raise :class:`PrunedataError` if the pruner is in an earlier epoch: it was not restored."""
        epoch = self.mask.epoch()
        if not isinstance(state, dict) or "epoch" not in state:
            raise PrunedataError(f"Expected the state of a pruned stream. Got {shown(state)}.")
        saved = None if state["epoch"] is None else integer("the epoch of a stream's state", state["epoch"], 0)
        if epoch is not None and saved is not None and epoch < saved:
            raise PrunedataError(
                f"Expected a pruner in epoch {saved}, as the loader's state. Got one in epoch {epoch}: call "
                "pruner.load_state_dict() before the loop over pruner.epochs()."
            )


_publishers: weakref.WeakValueDictionary[str, "MaskPublisher"] = weakref.WeakValueDictionary()
"""The publishers of this process, by the paths of their files."""


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
        """Forget which epoch was begun: another state was loaded."""
        self._begun = None

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Raise if samples were not selected by the epoch's mask, or came in two passes.

        A pruned sample may be observed, and a sample more than once. But a loop must not train on such samples
        unnoticed, as one does that keeps the batches of an earlier epoch.
        """
        if self._begun != epoch.number:  # the epoch was restored when nothing of it remained
            return
        (read, passes), visits = self.file.passes(), tally.visits
        pruned, twice = int(np.count_nonzero(visits[~epoch.keep])), int(np.count_nonzero(visits[epoch.keep] > 1))
        if pruned and not read:
            raise LossError(
                f"Expected the samples that epoch {epoch.number} keeps. Got {pruned} that are pruned, and the stream "
                "was not iterated: does the loop keep batches of an earlier epoch, or iterate the source that you gave "
                "to wrap()? Correct it, and resume from the last commit or checkpoint."
            )
        if twice and passes > 1:
            raise LossError(
                f"Expected each kept sample of epoch {epoch.number} once. Got {twice} of them more often, in {passes} "
                "passes over the stream: was the loop left by break and begun again? Resume from the last commit or "
                "checkpoint. After a break call begin_epoch() or pruner.epochs(), which deliver what remains."
            )


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def publish(pruner: Pruner) -> MaskFile:
    """Return a file that always has the mask of the pruner's open epoch. It is deleted with the pruner."""
    return pruner.attach(MaskPublisher()).file


def _delete(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has a copy of the pruner, and must not delete the folder
        shutil.rmtree(folder, ignore_errors=True)
