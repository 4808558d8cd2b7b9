"""Watch training loops of the user's own over a DataLoader, for ``prunedata watch``, without changing the weights."""

import atexit
from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from prunedata.adapters.watched.epochs import check_ids
from prunedata.adapters.watched.functions import hand_to, watch_functions
from prunedata.adapters.watched.loop_batches import AHEAD, MOST, Batch, LoaderPass, NewestBatches
from prunedata.adapters.watched.loop_runs import LoopRuns, has_ids, with_ids
from prunedata.adapters.watched.loop_targets import are_places
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds

__all__ = ["Loops"]

REMEDY = "in the script, pruner.wrap(loader) takes any losses"
STRANGE = f"its loss is computed with targets that are not in the batches of its loader as tensors: {REMEDY}"


class Loops:
    """The training loops of a process, of which one is watched at a time.

    A loop gets a batch (:meth:`delivered`), calls a loss function (:meth:`take`), and computes gradients. The call
    belongs to the batch that has its target among its tensors. It was trained if its result got a gradient: the loss of
    a validation gets none. A batch is recorded when its pass ends, or when the loop calls a loss function for another
    one: until then its loss may have further parts.
    """

    UNSEEN = f"its loop calls no loss function of PyTorch's that compares outputs with targets of its batches: {REMEDY}"

    def __init__(self, session: Any) -> None:
        self._session = session
        self._runs = LoopRuns(session, self.stop)
        self._newest = NewestBatches()
        self._now: Batch | None = None
        """The batch that the newest call belongs to."""
        self._late: list[Batch] = []
        """Batches that got a gradient after the loop had gone on to the next one."""
        self._has_strange = False
        """Whether a loss was trained, since the newest batch came, whose target no batch has."""
        self._before: Batch | None = None
        self._lost = 0
        """What ``_now`` was as the newest batch came, and how many of its pass came before without changing it."""
        self._steps = 0
        """How many steps optimizers have taken."""
        self._counts = register_optimizer_step_post_hook(self._count)
        self._handle: Any = None
        """Takes the hook for optimizers' steps away, while there is one."""
        self._stopped = False
        self._lock = RLock()
        """A thread that fetches batches waits while another one takes a loss, as where a run begins."""
        self._undo = watch_functions()
        hand_to(self)
        atexit.register(self.close)

    def iterate(self, loader: DataLoader[Any], own: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Return what iterates a loader; ``own`` is its class's method that does."""
        # Workers that live on draw their seeds once: so all passes are by one iterator, also those not watched.
        seen = loader.persistent_workers or torch.is_grad_enabled()
        batches = self.with_ids(loader, own) if seen else own(loader)
        # Also of an iterator that a pass or a state_dict() before has made.
        return _Batches(self, LoaderPass(loader, self._steps), batches) if has_ids(batches) else batches

    def with_ids(self, loader: DataLoader[Any], own: Callable[[Any], Any]) -> Any:
        """Call a method of a loader. An iterator that it makes yields the batches with their ids, if it is watched."""
        return own(loader) if self._stopped or self._session.in_trainer else with_ids(loader, own)

    # -- what the loop does

    def delivered(self, which: LoaderPass, ids: SomeIds, batch: Any) -> None:
        """The loop has got a batch of a pass."""
        if self._stopped or self._session.in_trainer:
            return
        with self._lock:
            try:
                self._hear_no_steps()
                self._record_late()
                self._count_lost(which)
                if self._has_strange and (self._now is None or not self._now.is_trained or self._lost > AHEAD):
                    raise PrunedataError(STRANGE)
                self._has_strange = False
                self._newest.add(Batch(which, ids, batch))
            except Exception as error:
                self.stop(str(error))

    def _count_lost(self, which: LoaderPass) -> None:
        """Count batches that come one after another and are trained with targets that no batch has."""
        if which is self._runs.last_pass:  # else the loop trains on other loaders in between, with targets of their own
            self._lost = self._lost + 1 if self._has_strange and self._now is self._before else 0
            self._before = self._now
            self._runs.missed += self._lost > 0

    def ended(self, which: LoaderPass) -> None:
        """A pass came to its end."""
        with self._lock:
            if not which.is_over:  # else it is asked for a batch once more
                self._count_lost(which)
            which.is_over = True
            which.waiting.clear()
            self._record_late()
            if self._newest.comes_back:  # to the last batch, too: the epoch ends when the next one begins
                return
            if self._now is not None and self._now is which.newest and self._now.is_trained:
                self._record_now()
                if self._runs.last_pass is which:
                    self._runs.end_epoch()
            elif self._handle is None and not self._stopped:  # the loop may still train on batches of the pass
                self._handle = register_optimizer_step_post_hook(self._stepped)

    def _count(self, *_: Any) -> None:
        self._steps += 1

    def _stepped(self, *_: Any) -> None:
        """An optimizer took a step, after the loop has got the last batch of a pass."""
        with self._lock:
            batch = self._now
            if batch is not None and batch.of.is_over and batch is batch.of.newest and batch.has_losses:
                self._record_now()
                self._runs.end_epoch()

    def _hear_no_steps(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def take(self, own: Callable[..., Any], result: torch.Tensor, args: Any, options: dict[str, Any]) -> None:
        """The loop has called a loss function, as for :meth:`Captured.take`."""
        if not self._newest or self._stopped or self._session.in_trainer:
            return
        with self._lock:
            try:
                target: Any = args[1] if len(args) > 1 else options.get("target", options.get("targets"))
                batch = self._newest.batch_of(target, own)
                if batch is None:
                    result.register_hook(self._strange)
                    return
                is_before = batch is not self._newest.last and batch.is_trained  # it was trained before the newest came
                if is_before and are_places(target):
                    raise PrunedataError(STRANGE)
                self._runs.see_target(own, target)
                self._newest.computes_loss()
                if self._is_kept(batch):
                    raise PrunedataError(
                        "it trains on batches that it has kept, as with itertools.cycle(loader) or list(loader)"
                    )
                self._newest.comes_back |= is_before
                if batch is not self._now or batch.was_trained_by(own):
                    self._record_now()
                    self._now = batch
                batch.add(own, result, args, options)
            except Exception as error:
                self.stop(str(error))

    def _strange(self, _: torch.Tensor) -> None:
        self._has_strange = True

    def _is_kept(self, batch: Batch) -> bool:
        """Whether a batch shows that the loop has kept so many that some are not among the newest, or trains again."""
        if batch is not self._newest.last and self._newest.lack_some:
            return True
        # The last of a pass may be trained on by two optimizers in turn.
        comes_again = batch.is_recorded and batch is not batch.of.newest
        is_lost = self._has_strange and self._now is None
        return batch is not self._now and batch.of.is_over and (comes_again or is_lost)

    # -- its run

    def _record_now(self) -> None:
        """Record the losses of the newest call's batch, if they were trained."""
        batch, self._now = self._now, None
        if batch is None or self._stopped:
            return
        if not batch.has_losses:
            batch.late = self._late
            return
        self._has_strange = False
        try:
            if len(waiting := batch.of.waiting) < MOST:
                waiting.append((batch.ids, batch.captured))
            batch.begin_again()
            if self._is_attack(batch.of):
                return
            epochs = self._runs.epochs_of(batch.of)
            if self._stopped:
                return
            for ids, captured in waiting:
                check_ids(ids)
                epochs.record_captured(ids, captured, None)
            waiting.clear()
        except Exception as error:
            self.stop(str(error))

    def _record_late(self) -> None:
        """Record batches that one backward pass trained together with the next ones."""
        now, late = self._now, sorted(self._late, key=lambda batch: batch.place)
        self._late.clear()
        for self._now in late:
            self._record_now()
        self._now = now

    def _is_attack(self, which: LoaderPass) -> bool:
        """Whether other data than those of the run only get gradients, as where a network is tested by an attack."""
        if self._runs.epochs is None or which is self._runs.last_pass or self._steps > which.steps:
            return False
        return bool(self._session.trains) and self._runs.has_other_data(which)

    @property
    def has_batches(self) -> bool:
        """Whether loops have got batches."""
        return bool(self._newest)

    @property
    def sees_no_losses(self) -> bool:
        """Whether they have, and no loss is about to be recorded."""
        return self.has_batches and self._now is None

    def close(self) -> None:
        """The process ends."""
        atexit.unregister(self.close)
        if self._session.is_forked:
            return
        self._undo()
        self._counts.remove()
        self._hear_no_steps()
        hand_to(None)
        try:
            self._record_late()
            self._record_now()
            if self._session.trains and self.sees_no_losses and not self._session.has_begun:
                self.stop(self.UNSEEN)
            self._runs.end()
        except Exception as error:
            self._session.say(f"not watched: {error}")

    def stop(self, why: str) -> None:
        """Watch no loop any longer."""
        if not self._stopped:
            self._stopped = True
            self._newest.clear()
            if self._runs.epochs is None:
                self._session.say(f"not watched: {why}")
            else:
                self._runs.epochs.stop(PrunedataError(why))


class _Batches:
    """The batches of a pass, without the ids that its iterator yields with them."""

    def __init__(self, loops: Loops, of: LoaderPass, inner: Any) -> None:
        self._loops, self._of, self._inner = loops, of, inner

    def __iter__(self) -> "_Batches":
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __next__(self) -> Any:
        if self._of.batches >= self._of.length:  # of a loader that never ends
            self._loops.ended(self._of)
            self._of = LoaderPass(self._of.loader, self._of.steps)
        try:
            ids, batch = next(self._inner)
        except StopIteration:
            self._loops.ended(self._of)
            raise
        self._loops.delivered(self._of, ids, batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not there yet while it is copied
            raise AttributeError(name)
        return getattr(self._inner, name)
