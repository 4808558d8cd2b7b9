"""PyTorch, map-style: ``prune(loader, pruner)`` returns the same loader over the kept samples.

The sampler is replaced, in the main process, so that workers never see a mask. Each sample's id travels with its
batch, from the sampler through the worker and the collate function, and is taken off at the last moment: whatever
order workers answer in, a batch and its ids cannot part.
"""

from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

try:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, IterableDataset
except ImportError as error:
    raise ImportError("prunedata.adapters.torch needs PyTorch: pip install 'prunedata[torch]'") from error

from prunedata.adapters._torch_distributed import merge_ranks
from prunedata.adapters._torch_items import Collate, Indexed
from prunedata.adapters._torch_losses import Recorder
from prunedata.adapters._torch_samplers import Walk, walk_for
from prunedata.adapters._torch_stream import stream_parts
from prunedata.errors import LossError, PrunedataError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["prune"]


def prune(loader: DataLoader[Any], pruner: Pruner, *, with_ids: bool = False) -> Any:
    """Wrap a DataLoader so that each epoch delivers the samples that the pruner keeps.

    Parameters
    ----------
    loader : DataLoader or StatefulDataLoader
        Over a map-style dataset of ``pruner.samples`` samples. It is left as it is. A RandomSampler or
        SequentialSampler (or DistributedSampler) becomes our own order, seeded by the pruner and resumable at any
        batch; any other sampler or batch sampler keeps its order and is filtered, and an epoch that is resumed
        goes on with what it gives of the samples not yet observed.
    pruner : Pruner
        The run. Iterate the loader inside ``for epoch in pruner.epochs():``. Of several ranks each saves and
        restores its own pruner's state within an epoch; between epochs all are alike.
    with_ids : bool
        Deliver ``(ids, batch)`` for loops that fetch batches before they train on them; ``ids`` is an ndarray of
        int64, shape (n,). Give them back with ``loader.observe(losses, ids)``.

    Returns
    -------
    DataLoader
        Of the given loader's own class, with ``observe(losses)``. Its ``len`` is that of the epoch that is open,
        or else of the next.

    Raises
    ------
    PrunedataError
        If the loader's dataset is not map-style or not of ``pruner.samples`` samples.
    """
    if not isinstance(loader, DataLoader):
        raise PrunedataError(f"Expected PyTorch's DataLoader. Got {type(loader).__name__}: wrap it, not its dataset.")
    if isinstance(loader, _PrunedLoader):
        raise PrunedataError("Expected a DataLoader that is not yet pruned. Got the result of prune().")
    walk, parts = (
        stream_parts(loader, pruner) if isinstance(loader.dataset, IterableDataset) else _parts(loader, pruner)
    )
    # All of the loader but its class and samplers: the same in all else, whatever its class was built from.
    pruned: Any = object.__new__(_class_for(type(loader)))
    pruned.__dict__.update(vars(loader))
    pruned.__dict__.update(
        generator=torch.Generator() if loader.generator is None else loader.generator,
        _reseeded=loader.generator is None,
        _iterator=None,
        _initial_iter_for_state_dict=False,
        next_iter_state=None,
        _pruner=pruner,
        _walk=walk,
        _with_ids=with_ids,
        _pending=deque(),
        _recorder=Recorder(pruner),
        _restored=None,
        _running=None,
        _delivered=0,
        **parts,
    )
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        pruner.exchange = merge_ranks
    return pruned


def _parts(loader: DataLoader[Any], pruner: Pruner) -> tuple[Walk, dict[str, Any]]:
    samples = len(loader.dataset) if hasattr(loader.dataset, "__len__") else None
    if samples != pruner.samples:
        raise PrunedataError(
            f"Expected a dataset of {pruner.samples} samples, as the Pruner. Got one of {samples}: "
            "build the Pruner with len(loader.dataset)."
        )
    walk = walk_for(loader, pruner)
    items = {"dataset": Indexed(loader.dataset), "collate_fn": Collate(loader.collate_fn)}
    return walk, items | walk.samplers(loader)


def _class_for(kind: type) -> type:
    """A subclass of a loader's class, with our methods between PyTorch's own class and the user's.

    So a user's ``__iter__`` sees its own batches: the ids are off.
    """
    base = next((each for each in kind.__mro__ if each.__module__.partition(".")[0] in ("torch", "torchdata")), None)
    if base is None:
        raise PrunedataError(
            f"Expected a DataLoader of PyTorch's or a subclass. Got {kind.__module__}.{kind.__qualname__}, which wraps "
            "one: prune the loader first, with with_ids=True, and let the wrapper prepare the result."
        )
    ours = type(f"Pruned{base.__name__}", (_PrunedLoader, base), {})
    return ours if kind is base else type(f"Pruned{kind.__name__}", (kind, ours), {})


class _PrunedLoader:
    """What a pruned loader adds to its class."""

    _pruner: Pruner
    _walk: Walk
    _with_ids: bool
    _pending: deque[SomeIds]
    _recorder: Recorder
    _restored: int | None
    _running: int | None
    next_iter_state: dict[str, Any] | None
    _delivered: int
    _reseeded: bool
    generator: torch.Generator

    def observe(self, losses: torch.Tensor, ids: SomeIds | None = None) -> torch.Tensor:
        """Record the losses of the batch delivered last and return their mean, to call ``backward()`` on.

        Where the policy weighs samples (:attr:`Epoch.weights`), the mean is of the weighted losses; those recorded
        are as they came.

        Parameters
        ----------
        losses : Tensor, shape (n,)
            One loss per sample (``reduction="none"``), on any device. Not modified. On an accelerator losses are
            gathered there and copied to the host 65,536 at a time, so that no batch waits for the device.
        ids : ndarray of int, shape (n,), optional
            Which samples; needed with ``with_ids=True``.

        Raises
        ------
        LossError
            As :meth:`Pruner.observe`; and if it cannot be told which batch the losses belong to, because batches
            were fetched ahead or left unobserved.
        """
        meter = self._pruner.meter
        started = perf_counter() - meter.overhead
        if ids is None:
            if len(self._pending) != 1:
                raise LossError(self._ambiguous())
            ids = self._pending[0]
        try:
            self._recorder.add(ids, losses)
        finally:  # a loop that leaves a bad batch out goes on with the next
            self._pending.clear()
        weights = self._pruner.current.weights
        if weights is not None:
            losses = losses * torch.from_numpy(weights[np.asarray(ids)]).to(losses.device)
        # What the core has charged itself lies within.
        meter.overhead = perf_counter() - started
        return losses.mean()

    def _ambiguous(self) -> str:
        if self._with_ids:
            return "Expected observe(losses, ids) from a loader with with_ids=True. Got no ids."
        if not self._pending:
            return "Expected a batch that waits for its losses. Got none: observe each batch once, after it came."
        return (
            f"Expected one batch that waits for its losses. Got {len(self._pending)}: the loop fetches batches ahead "
            "or leaves some unobserved, so that the losses cannot be told apart. Use prune(..., with_ids=True), which "
            "delivers (ids, batch), and observe(losses, ids); for a batch left out on purpose, pruner.excuse(len(ids))."
        )

    def __len__(self) -> int:
        return self._walk.batches()

    def __iter__(self) -> Iterator[Any]:
        epoch = self._pruner.current
        restored, self._restored = self._restored == epoch.number, None
        if not restored:
            self._delivered = 0
            self.next_iter_state = None
        self._walk.begin(epoch, whole=restored)
        observed = epoch.kept - int(np.count_nonzero(epoch.remaining)) if restored else 0
        self._pending.clear()
        self._running = epoch.number
        if self._reseeded:
            # Else PyTorch draws the workers' seed from the global generator, once more in an epoch that is resumed,
            # and every random number of the model after it would be another.
            state = np.random.SeedSequence([epoch.seed % (1 << 64), epoch.number]).generate_state(1, np.uint64)
            self.generator.manual_seed(int(state[0]))
        return self._deliver(super().__iter__(), observed)  # type: ignore[misc]

    def _deliver(self, batches: Iterator[tuple[SomeIds, Any]], observed: int) -> Iterator[Any]:
        for ids, batch in batches:
            self._delivered += len(ids)
            if self._delivered > self._walk.most:
                raise LossError(
                    f"Expected a stream to deliver {self._walk.most} samples of this epoch, each once. Got more: "
                    "do several workers, or ranks, read all of the raw samples instead of a share each?"
                )
            self._note(observed)
            if self._with_ids:
                yield ids, batch
            else:
                self._pending.append(ids)
                yield batch
        self._running = None
        self._walk.finish(self._delivered)
        self._note(observed, exhausted=True)

    def _note(self, observed: int, *, exhausted: bool = False) -> None:
        """Tell the pruner what was delivered, here and on all ranks, but for what it knows from before a resume."""
        delivered = (self._delivered - observed) * self._walk.world
        self._pruner.note_delivered(delivered, exhausted=exhausted)

    def state_dict(self) -> dict[str, Any]:
        """StatefulDataLoader's position, with the epoch that it is a position in. Save the pruner's beside it.

        A loader that keeps no position, or whose order is not repeatable (a sampler of the user's, or
        ``in_order=False``), needs none: it goes on with the samples that the pruner has not observed.
        """
        exact = self._walk.resumable and getattr(self, "in_order", True) and hasattr(super(), "state_dict")
        inside = exact and self._running is not None and self._running == self._pruner.next_epoch
        state = super().state_dict() if inside else None  # type: ignore[misc]
        return {"epoch": self._pruner.next_epoch, "delivered": self._delivered, "loader": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position. Restore the pruner first: a position means nothing under another mask."""
        if state["epoch"] != self._pruner.next_epoch:
            raise PrunedataError(
                f"Expected the loader's state of epoch {self._pruner.next_epoch}, where the pruner stands. Got that of "
                f"epoch {state['epoch']}: call pruner.load_state_dict() first, with the state saved beside this one."
            )
        self._restored = None
        if state["loader"] is not None:
            super().load_state_dict(state["loader"])  # type: ignore[misc]
            self._restored = state["epoch"]
        self._delivered, self._running = state["delivered"], None
