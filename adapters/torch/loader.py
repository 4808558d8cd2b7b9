"""A pruned loader: the user's loader with another order of samples, which records their losses."""

from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Never

import numpy as np
import torch
from torch.compiler import is_dynamo_compiling

from prunedata.adapters.torch.items import Indexed, labels_of
from prunedata.adapters.torch.losses import Recorder, fits
from prunedata.adapters.torch.means import check_weights, mean_of
from prunedata.adapters.torch.orders import Order
from prunedata.adapters.torch.position import check_position, is_cut_alike, resume_at
from prunedata.adapters.torch.run import TorchRun
from prunedata.adapters.torch.seeds import WorkerSeeds, draw
from prunedata.counting.batches import plain_ids
from prunedata.errors import LossError, PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds


class PrunedLoader:
    """The attributes and methods that a pruned loader has beside those of its DataLoader class."""

    _pruner: Pruner
    _order: Order
    _run: TorchRun
    _recorder: Recorder
    _with_ids: bool
    _seeds: WorkerSeeds | None  # seeds the generator, if it is ours
    _pending: deque[tuple[SomeIds, Any]]  # batches that wait for their losses: ids, and labels
    _ahead: int  # how many batches the loop fetches before it trains on one
    _delivered: int  # samples delivered in the epoch that is iterated, or was last
    _start_of_pass: int  # the start of an epoch (see ``TorchRun.starts``) to which the pass over the loader belongs
    _start_of_finished: int  # that of the last pass that came to its end
    _observed: list[int]  # batches observed in this pass, and in earlier ones since the same start of the epoch
    _running: int | None  # the number of the epoch that is iterated
    _restored: int | None  # the number of the epoch whose position was loaded, until it is iterated
    _skipped: int  # samples that the loop had skipped before the position that was loaded: they do not come again
    # These are attributes of DataLoader and StatefulDataLoader.
    next_iter_state: dict[str, Any] | None
    dataset: Any
    generator: torch.Generator
    num_workers: int
    persistent_workers: bool

    def __init__(self, *_: Any, **__: Any) -> None:
        raise PrunedataError(
            "Expected a pruned loader to be used as it is. Something tried to build it anew, as trainers do to give a "
            "loader another sampler: let the trainer leave the sampler alone, or wrap a loader that has it already."
        )

    def _start(self, pruner: Pruner, order: Order, *, with_ids: bool, reseeded: bool, ahead: int = 0) -> None:
        """Set the attributes of this class, in the place of ``__init__``, which ``copied`` does not call."""
        self._pruner, self._order, self._overhead = pruner, order, pruner.overhead
        self._run, self._recorder = order.run, order.run.recorder
        self._with_ids, self._seeds, self._ahead = with_ids, None, ahead
        order.with_ids = with_ids
        if reseeded:
            self._seeds = WorkerSeeds(self.generator, self._rank)
            self._run.seeds.add(self._seeds)
        self._pending = deque()
        self._delivered, self._running, self._restored, self._skipped = 0, None, None, 0
        self._start_of_pass, self._start_of_finished, self._observed = -1, -1, [0, 0]

    def __copy__(self) -> Any:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce__(self) -> Never:
        raise TypeError(
            "A pruned loader stays with its Pruner, in one process: it can't be pickled or deep-copied. Send the "
            "loader that you gave to wrap(), and wrap it there. To save the position of the loader, save its "
            "state_dict(), and the Pruner's."
        )

    @property
    def awaits_losses(self) -> bool:
        """Whether a delivered batch waits for its losses."""
        return bool(self._pending)

    def observe(
        self,
        losses: torch.Tensor,
        ids: SomeIds | None = None,
        weights: torch.Tensor | None = None,
        logits: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Record the losses of the batch delivered last and return their mean, to call ``backward()`` on.

        With several ranks, the average of their results is the mean of the global batch, see :func:`wrap`.

        If the policy weights samples (:attr:`Epoch.weights`), the mean is that of the weighted losses; the losses are
        recorded without weights. If samples are left out by weight, the mean is over the others. If all samples of a
        batch are left out, the result is 0, and ``backward()`` still works.

        Parameters
        ----------
        losses : Tensor, shape (n,)
            One loss per sample (``reduction="none"``), on any device. Not modified. On an accelerator losses are
            gathered there and copied to the host 65,536 at a time, so that no batch waits for the device.
        ids : ndarray of int, shape (n,), optional
            The ids of the samples; needed with ``with_ids=True``.
        weights : Tensor, shape (n,), optional
            The weight of each loss in the mean, such as ``class_weights[targets]``. The mean is then that of PyTorch's
            ``cross_entropy(..., weight=class_weights)``, the sum of weight times loss over the sum of the weights: bit
            for bit up to 1,024 samples; to rounding above, or where samples are left out by weight. It is 0 if all
            weights are 0. The losses are recorded without them, so that rare classes don't look wrong.
        logits : Tensor, shape (n, classes), or (n,) for two classes, optional
            As for :meth:`Pruner.observe`, on the device of the losses. They are gathered there in the same way.
        labels : Tensor of int, shape (n,), optional
            As for :meth:`Pruner.observe`. By default, with ``policy="auto"`` and without ``ids``, those of the batch as
            the loader delivered it, if they can only be classes, see :func:`labels_of`.

        Raises
        ------
        LossError
            As :meth:`Pruner.observe`; and if the losses cannot be matched to a batch, because batches were fetched
            ahead or left unobserved.
        """
        if is_dynamo_compiling():  # true only while torch.compile traces: the call then runs outside compiled code
            from prunedata.adapters.torch.compiled import observe  # noqa: PLC0415 (see there)

            return observe(self, losses, ids, weights, logits, labels)  # type: ignore[no-any-return]
        overhead, scale = self._overhead, None
        if weights is not None:
            check_weights(weights, losses)
        began = perf_counter() - overhead.seconds  # as `with overhead:` does, in half the time: this runs once a batch
        if ids is None:
            if not 0 < len(self._pending) <= self._ahead + 1:
                raise LossError(self._ambiguous())
            ids, found = self._pending.popleft()  # also of a bad batch: a loop that leaves it out goes on
            if found is not None and labels is None:
                self._pruner.see_labels(ids, found, losses, logits, sure=False)
        else:
            self._check_delivered(ids)
            self._pending.clear()
        if labels is not None:
            self._pruner.see_labels(ids, labels, losses, logits)
        passes, order = self._observed, self._order
        if passes[1] or (order.delivers_all_kept and self._run.trained_order is not order):
            self._run.train_on(order, passes[1])
        passes[0] += 1
        if self._run.is_shared:
            scale = self._record_selected(ids, losses, logits)
        else:
            self._recorder.add(ids, losses, logits)
        epoch = self._run.weighted_epoch
        trained = None if epoch is None or not epoch.zero_weights else self._order.trained_samples(ids)
        overhead.seconds = perf_counter() - began
        if epoch is None and scale is None and weights is None:
            try:
                return losses.mean()
            except RuntimeError:  # of a dtype that has no mean: an integer, or float8
                losses = losses.float()
        return mean_of(epoch, ids, losses, trained, scale, weights)

    def _record_selected(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> float | None:
        """Record the samples of a batch that the order selects, and return the factor for its mean loss."""
        which, scale = self._order.select(ids)
        new = ids[which]
        if len(new) == len(ids) or not fits(ids, losses):
            self._recorder.add(ids, losses, logits)
        elif len(new):
            self._recorder.add(new, losses[which], None if logits is None else logits[which])
        return scale

    def _check_delivered(self, ids: SomeIds) -> None:
        """Raise :class:`LossError` unless the loader has delivered these samples: the user's own ids may be others."""
        if self._observed[0] or not self._pending:  # in a pass's first call all that it has delivered still waits
            return
        known, delivered = plain_ids(ids), np.concatenate([each for each, _ in self._pending])
        others = known[~np.isin(known, delivered) & (known >= 0) & (known < self._pruner.samples)]
        if others.size:
            raise LossError(
                "Expected the ids of samples that the loader has delivered, which are places in its data set. Got "
                f"others for {others.size} of {known.size} samples (ids {', '.join(map(str, others[:5]))}): call "
                "observe(losses) without ids, or take them from the loader, wrap(..., with_ids=True)."
            )

    def _ambiguous(self) -> str:
        """Return why the losses cannot be matched to a batch, and what to do."""
        if self._with_ids:
            return "Expected observe(losses, ids) from a loader with with_ids=True. Got no ids."
        if not self._pending:
            if self._run.delivery is not self._order.delivery:
                return (
                    "Expected a batch that waits for its losses. This loader has delivered none in this epoch: iterate "
                    "what wrap() returned, not the loader that you gave to it."
                )
            return (
                "Expected a batch that waits for its losses. Got none: observe each batch once, after it came. Where "
                "an optimizer evaluates a batch several times, as LBFGS does, observe the first evaluation, and train "
                "on losses.mean() in the others."
            )
        most = f"at most {self._ahead + 1} batches that wait" if self._ahead else "one batch that waits"
        return (
            f"Expected {most} for {'their' if self._ahead else 'its'} losses. Got {len(self._pending)}: the loop "
            "fetches batches ahead or leaves some unobserved, so that losses cannot be matched to a batch. Use wrap("
            "..., with_ids=True), which delivers (ids, batch), and observe(losses, ids); for a batch left out on "
            "purpose, pruner.skip(len(ids))."
        )

    def __len__(self) -> int:
        return self._num_batches(self._order.next_kept())

    def _num_batches(self, kept: int) -> int:
        batches = self._order.num_batches(kept)
        if batches is None:
            raise TypeError("A stream has no length: how its batches are cut depends on how its workers share it.")
        return batches

    def lengths(self) -> list[int]:
        """Return the number of batches of each epoch of the run on this rank, shape (epochs,).

        For learning rate schedulers that step by batch. With ``policy="auto"`` before the run has decided, and for your
        own sampler, it is the maximum. Your sampler may repeat samples, so the maximum is its own length, also in
        pruned epochs, until an epoch has shown that it returns each sample once.

        Raises
        ------
        TypeError
            For a stream, which has no length.
        """
        pruner = self._pruner
        return [self._num_batches(pruner.kept_in(epoch)) for epoch in range(pruner.schedule.epochs)]

    def belongs_to(self, pruner: Pruner) -> bool:
        """Return whether this pruner has wrapped the loader."""
        return self._pruner is pruner

    @property
    def sampler(self) -> Any:
        """The sampler of the loader: a DistributedSampler if ranks share our order, as trainers look for one."""
        return self._order.as_distributed() or vars(self)["sampler"]

    def __iter__(self) -> Iterator[Any]:
        self._run.check_in_epoch()
        return self._deliver(super().__iter__)  # type: ignore[misc]

    def _deliver(self, begin: Callable[[], Iterator[tuple[SomeIds, Any]]]) -> Iterator[Any]:
        """Yield the batches of the open epoch. It begins with the first: trainers make iterators they never use."""
        self._run.let_trainer_begin()
        self._order.check_shares(self._run.group_size())
        observed = self._begin(self._pruner.current)
        order, delivery = self._order, self._order.delivery
        delivery.delivered = order.total_delivered(self._delivered) - observed
        for ids, batch in order.steps(resume_at(begin) if self.next_iter_state is not None else begin()):
            order.check_newest(delivery)
            order.check_batch(ids)
            self._delivered += len(ids)
            # On all ranks, without what the run had observed before it was resumed.
            delivery.delivered = order.total_delivered(self._delivered) - observed
            if self._with_ids:
                yield ids, batch
            else:
                self._pending.append((ids, labels_of(batch, len(ids)) if self._pruner.needs_labels else None))
                yield batch
        order.check_newest(delivery)
        self._running = None
        order.finish(self._delivered)
        delivery.end()
        self._start_of_finished = self._run.starts

    def _begin(self, epoch: Epoch) -> int:
        """Begin an epoch; return how many of its samples were observed before the position that was loaded."""
        if type(self.dataset) is Indexed and len(self.dataset) != self._pruner.samples:
            raise PrunedataError(
                f"Expected a dataset of {self._pruner.samples} samples, as when it was wrapped. Got one of "
                f"{len(self.dataset)} in epoch {epoch.number}, of which the run does not know the new ones: resume the "
                "run by a Pruner with keys= and follow=True, or begin a new one."
            )
        restored, self._restored = self._is_restored(epoch.number), None
        if not restored:
            self._delivered = 0
            self.next_iter_state = None
        else:
            self._pruner.skip(self._skipped)
        self._order.begin(epoch, whole=restored)
        self._pending.clear()
        self._running = epoch.number
        earlier = sum(self._observed) if self._start_of_pass == self._run.starts else 0
        if self._start_of_finished == self._run.starts:
            self._run.warn_of_second_pass(epoch)
        # In a list: setting an attribute of a DataLoader takes as long as all else in observe().
        self._start_of_pass, self._observed = self._run.starts, [0, earlier]
        if self._seeds is not None:  # again, as another pass may have drawn from the generator
            self._seeds.begin(epoch)
            if not restored and self._order.whole:
                draw(epoch, persistent=self.persistent_workers)
        return epoch.kept - int(np.count_nonzero(epoch.remaining)) if restored else 0

    def _rank(self) -> int:
        """Return the rank of this process. The workers of each rank draw other random numbers."""
        return getattr(self._order.as_distributed(), "rank", self._run.group_place()[0])

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader in the epoch. Save the pruner's state beside it.

        The position is StatefulDataLoader's. Other loaders need none, nor do those whose order is not repeatable (a
        sampler of your own, or ``in_order=False``): they resume with the samples that the pruner has not observed. So
        does a loader that did not begin the epoch, as its position does not tell what was delivered before.
        """
        where = {"epoch": self._pruner.next_epoch, "delivered": self._delivered, "loader": self._position()} | self._cut
        where["skipped"] = self._skipped if self._is_restored(self._pruner.next_epoch) else self._pruner.skipped
        if self._seeds is not None:
            where["seed"] = self._seeds.torchs
        return where

    @property
    def _cut(self) -> dict[str, int]:
        return {"ranks": self._order.world, "batch_size": self._order.batch_size, "workers": self.num_workers}

    def _position(self) -> dict[str, Any] | None:
        """Return StatefulDataLoader's own state, if it tells what was delivered of the open epoch."""
        exact = self._order.resumable and getattr(self, "in_order", True) and hasattr(super(), "state_dict")
        if not exact or self._run.positioned_order is not self._order:
            return None
        if self._is_restored(self._pruner.next_epoch):  # loaded, and not yet iterated
            return self.next_iter_state
        inside = self._running is not None and self._running == self._pruner.next_epoch
        return super().state_dict() if inside else None  # type: ignore[misc]

    def _is_restored(self, epoch: int) -> bool:
        """Return whether a position in this epoch was loaded, and the loader has not been iterated since."""
        return self._restored == epoch and self._run.positioned_order is self._order

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a position, after the pruner; raise if it is no state of a loader, or one of another epoch."""
        check_position(state)
        if self._run.leader is not None and state["epoch"] == self._pruner.next_epoch - 1:
            return  # a trainer resumed from an epoch's last batch
        if state["epoch"] != self._pruner.next_epoch:
            raise PrunedataError(
                f"Expected the loader's state of epoch {self._pruner.next_epoch}, where the pruner is. Got that of "
                f"epoch {state['epoch']}: call pruner.load_state_dict() first, with the state saved beside this one."
            )
        self._restored = None
        if self._seeds is not None and "seed" in state:
            self._seeds.resume(state["seed"])
        exact = state["loader"] is not None and hasattr(super(), "load_state_dict")  # otherwise what remains comes
        if exact and is_cut_alike(state, self._cut, self._pruner):
            super().load_state_dict(state["loader"])  # type: ignore[misc]
            self._restored, self._run.positioned_order = state["epoch"], self._order
        self._delivered, self._running, self._skipped = state["delivered"], None, state.get("skipped", 0)
