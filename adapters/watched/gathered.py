"""Make one run of a loop in several processes: the first one records what the others send it after each epoch.

They send it by the store of their process group. No process waits for another but the first one, and that for a minute
at most, after which it watches no longer: a job that is watched must not hang.
"""

import io
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from prunedata.adapters.torch.losses import two_likeliest
from prunedata.adapters.torch.prints import prints_in, some_in
from prunedata.adapters.watched.epochs import WatchedEpochs, check_places
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.frameworks import labels_in
from prunedata.run.identity import fingerprint
from prunedata.run.pruner import Pruner
from prunedata.run.rows import original_rows
from prunedata.types import Ids, SomeIds

__all__ = ["Mail", "epochs_of"]

OFTEN = 0.01
"""Seconds after which the first process looks again."""
STOPPED = "stopped"
"""A key: the first process reads nothing more."""
DATA = "data"
"""In the place of an epoch's number: what is sent is known of the data that a process reads."""
Recorded = tuple[Any, ...]
"""Losses, ids, the samples of each batch; guesses, the number of classes, and labels, or None for each."""


class Mail:
    """What the processes of a training send the first one, under the number of an epoch and of the process."""

    def __init__(self, store: Any, rank: int, processes: int, seconds: float = 60.0) -> None:
        self._store, self.rank, self.processes = store, rank, processes
        self._seconds = seconds

    def send(self, epoch: int | str, found: list[Recorded] | str) -> None:
        """Send what was recorded in an epoch, or a string that says why nothing more will be."""
        text = io.BytesIO()
        torch.save(found if isinstance(found, str) else [tuple(map(_as_tensor, each)) for each in found], text)
        with suppress(Exception):  # the group has ended, or the first process
            if not self._store.check([STOPPED]):
                self._store.set(f"{epoch}/{self.rank}", text.getvalue())

    def receive(self, epoch: int | str, rank: int) -> list[Recorded]:
        """Return what a process has sent of an epoch; raise :class:`PrunedataError` if it sends nothing more."""
        key, until = f"{epoch}/{rank}", monotonic() + self._seconds
        try:
            while not self._store.check([key]):  # its own wait() would not be interrupted by Ctrl-C
                if monotonic() > until:
                    raise TimeoutError
                sleep(OFTEN)
            found = torch.load(io.BytesIO(self._store.get(key)), weights_only=True)
        except Exception as error:
            raise PrunedataError(f"process {rank} has not sent what it recorded in epoch {epoch}") from error
        with suppress(Exception):  # a store of files keeps them
            self._store.delete_key(key)
        if isinstance(found, str):
            raise PrunedataError(f"process {rank}: {found}")
        return [tuple(map(_as_array, each)) for each in found]

    def stop(self) -> None:
        """Let the others send nothing more."""
        with suppress(Exception):
            self._store.set(STOPPED, "1")


def _as_tensor(part: Any) -> Any:
    return torch.from_numpy(part) if isinstance(part, np.ndarray) else part


def _as_array(part: Any) -> Any:
    return part.numpy() if isinstance(part, torch.Tensor) else part


def epochs_of(session: Any, loader: Any) -> WatchedEpochs:
    """Return the epochs of a loop over a loader in this process: its own, or its part of those of all."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return WatchedEpochs(session)
    try:
        own = dist.distributed_c10d
        store = own.PrefixStore("prunedata", own._get_default_store())
    except Exception as error:
        raise PrunedataError("its processes have no store: start it in one process, and it is watched") from error
    mail = Mail(store, dist.get_rank(), dist.get_world_size())
    known = _known_of(loader)
    return _Sending(session, mail, known) if mail.rank else _Gathering(session, mail, known)


def _known_of(loader: Any) -> Recorded:
    """Return what is known of a loader's data, to be compared with that of other processes; None where nothing is."""
    data, some = loader.dataset, some_in(loader.dataset)
    try:
        found = prints_in(data, loader.num_workers, loader)([*some, *some])
    except Exception:  # of the user's data, or of a worker that reads it
        found = [None] * (2 * len(some))
    # Of samples that are random all the same, nothing is known.
    prints = [one if one == again else None for one, again in zip(found[: len(some)], found[len(some) :], strict=True)]
    return fingerprint((len(data), original_rows(data), labels_in(data))), *prints


def _plain(ids: SomeIds, losses: torch.Tensor, logits: Any, labels: Any, sizes: list[int]) -> Recorded:
    """Return what was recorded as arrays, for :meth:`prunedata.Pruner.record`."""
    guesses, classes = (None, None) if logits is None else two_likeliest(logits)
    said, known = (None if each is None else each.cpu().numpy() for each in (guesses, labels))
    return losses.detach().float().cpu().numpy(), np.asarray(ids), np.array(sizes), said, classes, known


class _Gathering(WatchedEpochs):
    """Those of the first process, which has the run."""

    def __init__(self, session: Any, mail: Mail, known: Recorded) -> None:
        super().__init__(session, ranks=True)
        self._mail, self._number, self._reports, self._known = mail, 0, Adapter(), known

    def begin(self, samples: int, epochs: int, *, rows: Ids | None = None, **options: Any) -> Pruner:
        """As that of one process, without the adapter that would join the others."""
        self._run = self._session.begin(samples, epochs, **options)
        pruner: Pruner = self._run.pruner
        self._reports = pruner.attach(self._reports)
        return pruner

    def open(self) -> None:
        """Open an epoch, if none is open."""
        if not self._opened:
            self._opened, pruner = True, self._run.pruner
            self._delivery = Delivery(self._begin_epoch(), given=np.zeros(pruner.samples, dtype=np.bool_))
            self._reports.delivery = self._delivery

    def _take(self, *batches: Any) -> None:
        self._record(*_plain(*batches))

    def _record(self, losses: Any, ids: Any, sizes: Any, guesses: Any, classes: int | None, labels: Any) -> None:
        check_places(ids, self._run.pruner.samples)
        if classes is not None and not self._fits(classes):
            guesses = classes = labels = None
        self._see_labels(ids, labels)
        self._run.pruner.record(losses, ids, sizes, guesses, classes=classes)
        self._delivery.given[ids] = True  # type: ignore[index]

    def _meet(self) -> None:
        self.guarded(self._gather)

    def _gather(self) -> None:
        for rank in range(1, self._mail.processes):
            if not self._number:
                self._check_data(rank, *self._mail.receive(DATA, rank))
            for found in self._mail.receive(self._number, rank):
                self._record(*found)
        self._number += 1

    def _check_data(self, rank: int, known: Recorded) -> None:
        """Raise if a process reads other data, as shards of its own: the same id is another sample there."""
        both = zip(self._known, known, strict=True)
        if any(one != other for one, other in both if one is not None and other is not None):
            raise PrunedataError(
                f"process {rank} reads other data than the first one: let all read the same, and a DistributedSampler "
                "divide it"
            )

    def stop(self, error: Exception) -> None:
        """Stop recording, in all processes."""
        self._mail.stop()
        super().stop(error)

    @staticmethod
    def _together() -> bool:
        return False  # it takes no part in the group's own messages


class _Sending(WatchedEpochs):
    """Those of another process, which has no run."""

    def __init__(self, session: Any, mail: Mail, known: Recorded) -> None:
        super().__init__(session, ranks=True)
        self._mail, self._number, self._why = mail, 0, ""
        mail.send(DATA, [known])
        self._found: list[Recorded] = []

    def begin(self, samples: int, epochs: int, *, rows: Ids | None = None, **options: Any) -> Any:
        """Begin nothing: the first process does."""
        self._session.has_begun = True

    def open(self) -> None:
        """Open an epoch, if none is open."""
        self._opened = True

    def _take(self, *batches: Any) -> None:
        self._found.append(_plain(*batches))

    def pause(self) -> None:
        """Compute the losses that wait."""
        self._later.flush()

    def end(self) -> None:
        """Send what was recorded of an epoch, if one was opened."""
        if self._opened:
            self._opened = False
            self.guarded(self.pause)
            self._mail.send(self._number, self._why or self._found)
            self._number, self._found = self._number + 1, []

    def stop(self, error: Exception) -> None:
        """Stop recording, and say so to the first process."""
        self._why = str(error)
        self._mail.send(self._number, self._why)
        super().stop(error)

    @staticmethod
    def _together() -> bool:
        return False
