"""A pruned loader: the user's loader with another order of samples, whose losses it hands on."""

from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Never

import numpy as np
import torch
from torch.compiler import is_dynamo_compiling

from prunedata.adapters.torch.losses import Recorder, fits
from prunedata.adapters.torch.means import check_weights, mean_of
from prunedata.adapters.torch.orders import Order
from prunedata.adapters.torch.position import check_position, going_on, is_of_as_many_ranks
from prunedata.adapters.torch.run import TorchRun
from prunedata.adapters.torch.seeds import WorkerSeeds, draw
from prunedata.errors import LossError, PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["PrunedLoader"]


def _known(batches: int | None) -> int:
    if batches is None:
        raise TypeError("A stream has no length: how its batches are cut depends on how its workers share it.")
    return batches


class PrunedLoader:
    """What a pruned loader adds to its class."""

    _pruner: Pruner
    _order: Order
    _run: TorchRun
    _recorder: Recorder
    _with_ids: bool
    _seeds: WorkerSeeds | None
    """Of the generator, if it is ours."""
    _pending: deque[SomeIds]
    """The ids of batches whose losses have not come."""
    _ahead: int
    """How many batches the loop fetches before it trains on one."""
    _delivered: int
    """Samples delivered in the epoch that is iterated, or was last."""
    _pass: int
    """Which begin of an epoch the pass is of, see :class:`TorchRun`."""
    _finished: int
    """Of which the last pass was that came to its end."""
    _observed: list[int]
    """Batches observed in this pass, and in earlier ones of the same begin."""
    _running: int | None
    """The number of the epoch that is iterated."""
    _restored: int | None
    """The number of the epoch whose position was loaded, until it is iterated."""
    # Of the classes beside this one.
    next_iter_state: dict[str, Any] | None
    generator: torch.Generator
    persistent_workers: bool

    def __init__(self, *_: Any, **__: Any) -> None:
        raise PrunedataError(
            "Expected a pruned loader to be used as it is. Got something that builds it anew, as trainers do to give a "
            "loader another sampler: let the trainer leave the sampler alone, or wrap a loader that has it already."
        )

    def _start(self, pruner: Pruner, order: Order, *, with_ids: bool, reseeded: bool, ahead: int = 0) -> None:
        """Set what this class adds; it stands in the place of ``__init__``, as ``clone`` says."""
        self._pruner, self._order, self._charge = pruner, order, pruner.charge
        self._run, self._recorder = order.run, order.run.recorder
        self._with_ids, self._seeds, self._ahead = with_ids, None, ahead
        if reseeded:
            self._seeds = WorkerSeeds(self.generator, self._rank)
            self._run.seeds.add(self._seeds)
        self._pending = deque()
        self._delivered, self._running, self._restored = 0, None, None
        self._pass, self._finished, self._observed = -1, -1, [0, 0]

    def __copy__(self) -> Any:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected a pruned loader to stay with its Pruner, in one process. Got a copy or a pickle of it: send the "
            "loader that was given to wrap(), and wrap it there; to save where it stands, save its state_dict() and "
            "the Pruner's."
        )

    @property
    def awaits_losses(self) -> bool:
        """Whether it delivered a batch whose losses were not observed yet."""
        return bool(self._pending)

    def observe(
        self,
        losses: torch.Tensor,
        ids: SomeIds | None = None,
        weights: torch.Tensor | None = None,
        logits: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Record the losses of the batch delivered last and return their mean, to call ``backward()`` on.

        Of several ranks each returns what the ranks' average makes the mean of the global batch, see :func:`wrap`.

        Where the policy weighs samples (:attr:`Epoch.weights`), the mean is of the weighted losses; those recorded
        are as they came. Where samples are left out by weight, it is over the others; in a batch of which all are left
        out it is 0, and can be gone back from all the same.

        Parameters
        ----------
        losses : Tensor, shape (n,)
            One loss per sample (``reduction="none"``), on any device. Not modified. On an accelerator losses are
            gathered there and copied to the host 65,536 at a time, so that no batch waits for the device.
        ids : ndarray of int, shape (n,), optional
            Which samples; needed with ``with_ids=True``.
        weights : Tensor, shape (n,), optional
            What each loss weighs in the mean, as ``class_weights[targets]``: the mean is then that of PyTorch's
            ``cross_entropy(..., weight=class_weights)``, the sum of weight times loss over the sum of the weights: bit
            for bit up to 1,024 samples, and to rounding above, or where samples are left out by weight.
            The losses are recorded without them, so that rare classes don't look wrong. 0 if all weigh 0.
        logits : Tensor, shape (n, classes), or (n,) for two classes, optional
            As :meth:`Pruner.observe` takes them, on the device of the losses. They go the same way: no batch waits.

        Raises
        ------
        LossError
            As :meth:`Pruner.observe`; and if it cannot be told which batch the losses belong to, because batches
            were fetched ahead or left unobserved.
        """
        if is_dynamo_compiling():  # false as soon as it runs: torch.compile looks here, and leaves what it compiles
            from prunedata.adapters.torch.compiled import observe  # noqa: PLC0415 (see there)

            return observe(self, losses, ids, weights, logits)  # type: ignore[no-any-return]
        charge, scale = self._charge, None
        if weights is not None:
            check_weights(weights, losses)
        began = perf_counter() - charge.seconds  # as `with charge:` does, in half the time: this runs once a batch
        if ids is None:
            if not 0 < len(self._pending) <= self._ahead + 1:
                raise LossError(self._ambiguous())
            ids = self._pending.popleft()  # also of a bad batch: a loop that leaves it out goes on with the next
        else:
            self._pending.clear()
        passes, order = self._observed, self._order
        if passes[1] or (order.gives_all and self._run.learner is not order):
            self._run.learn_from(order, passes[1])
        passes[0] += 1
        if self._run.is_shared:
            scale = self._record_part(ids, losses, logits)
        else:
            self._recorder.add(ids, losses, logits)
        epoch = self._run.weighed
        counting = None if epoch is None or not epoch.zero_weights else self._order.counting(ids)
        charge.seconds = perf_counter() - began
        if epoch is None and scale is None and weights is None:
            try:
                return losses.mean()
            except RuntimeError:  # of a dtype that has no mean: an integer, or float8
                losses = losses.float()
        return mean_of(epoch, ids, losses, counting, scale, weights)

    def _record_part(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> float | None:
        """Record what counts of a batch, of several ranks; return what to multiply the mean of its losses by."""
        which, scale = self._order.part(ids)
        new = ids[which]
        if len(new) == len(ids) or not fits(ids, losses):
            self._recorder.add(ids, losses, logits)
        elif len(new):
            self._recorder.add(new, losses[which], None if logits is None else logits[which])
        return scale

    def _ambiguous(self) -> str:
        if self._with_ids:
            return "Expected observe(losses, ids) from a loader with with_ids=True. Got no ids."
        if not self._pending:
            if self._run.delivery is not self._order.delivery:
                return (
                    "Expected a batch that waits for its losses. Got none, and none came from this loader in this "
                    "epoch: is the loader that was given to wrap() iterated instead of this one?"
                )
            return "Expected a batch that waits for its losses. Got none: observe each batch once, after it came."
        most = f"at most {self._ahead + 1} batches that wait" if self._ahead else "one batch that waits"
        return (
            f"Expected {most} for {'their' if self._ahead else 'its'} losses. Got {len(self._pending)}: the loop "
            "fetches batches ahead or leaves some unobserved, so that the losses cannot be told apart. Use wrap(..., "
            "with_ids=True), which delivers (ids, batch), and observe(losses, ids); for a batch left out on purpose, "
            "pruner.skip(len(ids))."
        )

    def __len__(self) -> int:
        return _known(self._order.batches())

    def lengths(self) -> list[int]:
        """How many batches each epoch of the run has, shape (epochs,): of several ranks, this one's.

        For learning rate schedulers that step by batch. It is the most that can come with ``policy="auto"`` before
        advice has come, and for a sampler of your own: as this may repeat samples, it is the sampler's own length, in
        pruned epochs too, until an epoch has shown that it gives each sample once.

        Raises
        ------
        TypeError
            For a stream, which has no length.
        """
        pruner = self._pruner
        return [_known(self._order.batches_of(pruner.kept_in(epoch))) for epoch in range(pruner.schedule.epochs)]

    def belongs_to(self, pruner: Pruner) -> bool:
        """Whether it was pruned by this pruner."""
        return self._pruner is pruner

    @property
    def sampler(self) -> Any:
        """What gives the ids: a DistributedSampler if this rank gets a share of ours, as trainers look for one."""
        return self._order.dealt() or vars(self)["sampler"]

    def __iter__(self) -> Iterator[Any]:
        self._run.check_loop()
        return self._deliver(super().__iter__)  # type: ignore[misc]

    def _deliver(self, begin: Callable[[], Iterator[tuple[SomeIds, Any]]]) -> Iterator[Any]:
        """Begin when the first batch is asked for: trainers make iterators that they never use."""
        self._run.lead()
        self._order.check_shares(self._run.group_size())
        observed = self._begin(self._pruner.current)
        order, delivery = self._order, self._order.delivery
        delivery.delivered = order.overall(self._delivered) - observed
        for ids, batch in order.steps(going_on(begin) if self.next_iter_state is not None else begin()):
            order.check_newest(delivery)
            order.deliver(ids)
            self._delivered += len(ids)
            # On all ranks; the run knows itself what was observed before it was resumed.
            delivery.delivered = order.overall(self._delivered) - observed
            if self._with_ids:
                yield ids, batch
            else:
                self._pending.append(ids)
                yield batch
        order.check_newest(delivery)
        self._running = None
        order.finish(self._delivered)
        delivery.end()
        self._finished = self._run.begins

    def _begin(self, epoch: Epoch) -> int:
        """Set out on an epoch; return how many samples of it were observed before the position that was loaded."""
        restored, self._restored = self._is_restored(epoch.number), None
        if not restored:
            self._delivered = 0
            self.next_iter_state = None
        self._order.begin(epoch, whole=restored)
        self._pending.clear()
        self._running = epoch.number
        earlier = sum(self._observed) if self._pass == self._run.begins else 0
        if self._finished == self._run.begins:
            self._run.tell_kept(epoch)
        # In a list: setting an attribute of a DataLoader costs as much as all else in observe().
        self._pass, self._observed = self._run.begins, [0, earlier]
        if self._seeds is not None:  # again, as another pass may have drawn from it
            self._seeds.begin(epoch)
            if not restored and self._order.whole:
                draw(epoch, persistent=self.persistent_workers)
        return epoch.kept - int(np.count_nonzero(epoch.remaining)) if restored else 0

    def _rank(self) -> int:
        """Which of several ranks this is: they draw other random numbers."""
        return getattr(self._order.dealt(), "rank", self._run.group_place()[0])

    def state_dict(self) -> dict[str, Any]:
        """StatefulDataLoader's position, with the epoch that it is a position in. Save the pruner's beside it.

        A loader that keeps no position, or whose order is not repeatable (a sampler of the user's, or
        ``in_order=False``), needs none: it goes on with the samples that the pruner has not observed. So does one
        whose position does not say what came of the epoch, as it goes on where a loop was left, or as another loader
        has gone on since.
        """
        where = {"epoch": self._pruner.next_epoch, "delivered": self._delivered, "loader": self._position()}
        if self._seeds is not None:
            where["seed"] = self._seeds.torchs
        return where if self._order.world == 1 else where | {"ranks": self._order.world}

    def _position(self) -> dict[str, Any] | None:
        """StatefulDataLoader's own state, if it says what came of the open epoch."""
        exact = self._order.resumable and getattr(self, "in_order", True) and hasattr(super(), "state_dict")
        if not exact or self._run.positioned is not self._order:
            return None
        if self._is_restored(self._pruner.next_epoch):  # loaded, and not yet iterated
            return self.next_iter_state
        inside = self._running is not None and self._running == self._pruner.next_epoch
        return super().state_dict() if inside else None  # type: ignore[misc]

    def _is_restored(self, epoch: int) -> bool:
        """Whether a position in an epoch was loaded that is still to be gone on from."""
        return self._restored == epoch and self._run.positioned is self._order

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position. Restore the pruner first: a position means nothing under another mask.

        Raises
        ------
        PrunedataError
            If it is no state of a loader, or one of another epoch.
        """
        check_position(state)
        if self._run.leader is not None and state["epoch"] == self._pruner.next_epoch - 1:
            return  # a trainer went on from an epoch's last batch
        if state["epoch"] != self._pruner.next_epoch:
            raise PrunedataError(
                f"Expected the loader's state of epoch {self._pruner.next_epoch}, where the pruner stands. Got that of "
                f"epoch {state['epoch']}: call pruner.load_state_dict() first, with the state saved beside this one."
            )
        self._restored = None
        if self._seeds is not None and "seed" in state:
            self._seeds.go_on(state["seed"])
        exact = state["loader"] is not None and hasattr(super(), "load_state_dict")  # else what is left comes
        if exact and is_of_as_many_ranks(state, self._order.world, self._pruner):
            super().load_state_dict(state["loader"])  # type: ignore[misc]
            self._restored, self._run.positioned = state["epoch"], self._order
        self._delivered, self._running = state["delivered"], None
