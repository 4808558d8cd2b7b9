"""Pass the losses of a batch from a Tensor, on the host or on a device, to the pruner."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from prunedata.adapters.watched.later import SMALL, Waiting
from prunedata.counting.batches import NO_NUMBER, NOTHING, shape_hint
from prunedata.counting.guess import MOST_CLASSES, classes_in
from prunedata.errors import LossError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["SMALL", "Block", "DeviceBuffer", "Later", "Recorder", "fits", "joined", "kept", "two_likeliest"]

Block = tuple[Any, ...]
"""Ids and losses, batch after batch, the sizes of the batches, and if logits came what these say."""


def fits(ids: SomeIds, losses: Any) -> bool:
    """Return whether losses are a Tensor with one number for each sample. If not, :meth:`Recorder.add` says why."""
    return isinstance(losses, torch.Tensor) and not losses.is_nested and losses.shape == (len(ids),)


class Recorder:
    """Passes losses to the pruner: at once from the host, many together from a device."""

    capacity: ClassVar[int] = 1 << 16  # losses that stay on a device before they are copied to the host together
    buffers_all: ClassVar[bool] = False
    """Whether losses on the host go through such a buffer, too: tests use it where there is no device."""

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner
        self._buffer: DeviceBuffer | None = None

    def add(self, ids: SomeIds, losses: Any, logits: Any = None, sizes: Sequence[int] | None = None) -> None:
        """Record a batch, or several, of ``sizes`` samples each."""
        if not isinstance(losses, torch.Tensor):
            raise LossError(f"Expected losses as a Tensor of shape (n,). Got {type(losses).__name__}.")
        guesses = None if logits is None else self._guesses(ids, losses, logits)
        if losses.is_cpu and not self.buffers_all:
            try:
                array = losses.numpy(force=True)  # detaches, in less time than detach()
            except (TypeError, RuntimeError) as error:
                array = _widened(losses, error)
            self.pruner.record(array, ids, sizes, None if guesses is None else guesses.numpy())
            return
        if not fits(ids, _plain(losses)):
            raise LossError(
                f"Expected losses of shape ({len(ids)},), one for each sample{shape_hint(losses.shape, len(ids))}. "
                f"Got {tuple(losses.shape)}."
            )
        rows = 1 if guesses is None else 2
        if self._buffer is None or self._buffer.device != losses.device or self._buffer.rows < rows:
            if losses.is_meta:
                raise LossError(
                    "Expected losses that were computed. Got those of the device meta, which has no numbers: "
                    "compute them on another one."
                )
            self._record(self.held_back())
            self._buffer = DeviceBuffer(losses.device, self.capacity, rows)
        self._record(self._buffer.add(ids, losses, guesses, sizes))

    def _record(self, blocks: Iterable[Block]) -> None:
        """Record losses that were copied from a device."""
        for ids, losses, sizes, *guesses in blocks:
            self.pruner.record(losses, ids, sizes, *guesses)

    def _guesses(self, ids: SomeIds, losses: torch.Tensor, logits: Any) -> torch.Tensor:
        """Return the guesses of a batch by its logits, int32 of shape (n,), on the device of the losses."""
        guesses, classes = two_likeliest(logits)
        if guesses.shape != (len(ids),) or guesses.device != losses.device:
            raise LossError(
                f"Expected logits of {len(ids)} samples on {losses.device}, as their losses. Got those of "
                f"{len(guesses)} on {guesses.device}: give the rows that the losses are of."
            )
        self.pruner.expect_classes(classes)
        return guesses

    def held_back(self) -> Iterator[Block]:
        """Hand over all losses that are on the device."""
        if self._buffer is not None:
            yield from self._buffer.held_back()

    def forget(self) -> None:
        """Drop all losses that are on the device."""
        if self._buffer is not None:
            self._buffer.forget()


def _widened(losses: torch.Tensor, error: Exception) -> Any:
    """Convert losses to an array where ``Tensor.numpy`` failed, as for bfloat16; raise if there is no way."""
    plain = _plain(losses)
    if isinstance(error, TypeError):
        try:
            return plain.float().numpy(force=True)
        except RuntimeError as unknown:  # of a dtype that PyTorch itself does not compute with
            raise LossError(f"Expected losses of a floating dtype. Got {losses.dtype}: pass losses of float32.") from (
                unknown
            )
    raise LossError(
        "Expected losses with numbers in memory. Got a Tensor within a transform of PyTorch's, as torch.func.grad or "
        "vmap: return the losses from the function, by has_aux=True for example, and observe them after it."
    ) from error


def _plain(losses: torch.Tensor) -> torch.Tensor:
    """Return losses or logits as they are; raise if they are no dense Tensor of numbers."""
    if losses.is_nested or losses.is_quantized:
        kind, instead = ("nested", "torch.cat(losses.unbind())") if losses.is_nested else ("quantized", "dequantize()")
        raise LossError(f"Expected losses as a plain Tensor of shape (n,). Got a {kind} one: pass {instead}.")
    if losses.layout != torch.strided:
        raise LossError(f"Expected losses as a dense Tensor. Got layout {losses.layout}: pass losses.to_dense().")
    if losses.is_complex() or losses.dtype == torch.bool:
        raise LossError(f"Expected losses of a floating dtype, one for each sample. Got {losses.dtype}.")
    return losses


def two_likeliest(logits: Any) -> tuple[torch.Tensor, int]:
    """Return the guess of each sample by its logits, on their device, and the number of classes.

    As :func:`prunedata.counting.guess.two_likeliest`.
    """
    if not isinstance(logits, torch.Tensor):
        raise LossError(
            f"Expected logits as a Tensor of shape (n, classes). Got {type(logits).__name__}: pass the model's output."
        )
    logits = _plain(logits.detach())
    classes = classes_in(logits.shape, is_floating=logits.is_floating_point(), dtype=logits.dtype)
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
    if not len(logits):
        return torch.empty(0, dtype=torch.int32, device=logits.device), classes
    first = logits.argmax(1, keepdim=True)
    second = logits.scatter(1, first, -torch.inf).argmax(1)
    guesses = torch.where(logits.isnan().any(1), NO_NUMBER, first.squeeze(1) * MOST_CLASSES + second)
    return guesses.to(torch.int32), classes


class DeviceBuffer:
    """A buffer for losses on a device, copied to the host while the next fills; a second row has guesses, as int32."""

    def __init__(self, device: torch.device, capacity: int, rows: int = 1) -> None:
        self.device, self.rows = device, rows
        self._cuda = device.type == "cuda"
        self._filling, self._copied = (torch.empty((rows, capacity), device=device) for _ in range(2))
        self._host = torch.empty((rows, capacity), pin_memory=self._cuda)
        self._event = torch.cuda.Event() if self._cuda else None
        self._ids: list[tuple[SomeIds, Sequence[int]]] = []
        self._copied_ids: list[tuple[SomeIds, Sequence[int]]] = []
        self._fill = 0

    def add(
        self,
        ids: SomeIds,
        losses: torch.Tensor,
        guesses: torch.Tensor | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[Block]:
        """Add a batch, whose ids and losses the caller may then change; return the batches that are on the host.

        ``guesses``, int32 of shape (n,); without them a second row is filled with NOTHING. ``sizes`` are those of
        several batches.
        """
        if not len(ids):
            return []
        sizes = [len(ids)] if sizes is None else sizes
        end, blocks = self._fill + len(ids), list[Block]()
        if end > self._filling.shape[1]:
            blocks = self._send()
            end = len(ids)
            if end > self._filling.shape[1]:
                block = (np.array(ids), losses.detach().float().cpu().numpy(), np.array(sizes))
                return [*blocks, *self._receive(), block if guesses is None else (*block, guesses.cpu().numpy())]
        self._filling[0, self._fill : end].copy_(losses.detach(), non_blocking=True)
        if self.rows > 1:
            row = self._filling[1, self._fill : end].view(torch.int32)
            row.fill_(NOTHING) if guesses is None else row.copy_(guesses, non_blocking=True)
        self._ids.append((np.array(ids), sizes))  # the caller may use its buffers again
        self._fill = end
        return blocks

    def _send(self) -> list[Block]:
        """Start to copy the filled buffer to the host; return the batches of the one before."""
        blocks = self._receive()
        self._filling, self._copied = self._copied, self._filling
        self._host.copy_(self._copied, non_blocking=self._cuda)
        if self._event is not None:
            self._event.record()
        self._ids, self._copied_ids, self._fill = [], self._ids, 0
        return blocks

    def _receive(self) -> list[Block]:
        """Return the batches of the buffer that was sent, as arrays of their own."""
        copied, self._copied_ids = self._copied_ids, []
        if not copied:
            return []
        if self._event is not None:
            self._event.synchronize()  # a buffer ago: long done
        ids = np.concatenate([batch for batch, _ in copied])
        losses, *guesses = self._host.numpy()[:, : ids.size].copy()
        sizes = np.array([size for _, several in copied for size in several])
        return [(ids, losses, sizes, *(row.view(np.int32) for row in guesses))]

    def held_back(self) -> list[Block]:
        """Hand over everything."""
        return [*self._send(), *self._receive()]

    def forget(self) -> None:
        """Drop everything."""
        if self._event is not None and self._copied_ids:
            self._event.synchronize()  # the copy must not land in what the next buffer has written
        self._ids, self._copied_ids, self._fill = [], [], 0


def kept(given: torch.Tensor) -> Any:
    """Return a copy to keep for later: of a tensor on the host an array, which takes less time to copy and to join."""
    if given.is_cpu:
        try:
            return given.numpy(force=True).copy()
        except (TypeError, RuntimeError):
            pass  # of a dtype, or of a kind, that NumPy does not have
    return given.detach().clone()


def joined(parts: Sequence[Any]) -> torch.Tensor:
    """Return what was kept of several batches as one tensor."""
    return torch.from_numpy(np.concatenate(parts)) if isinstance(parts[0], np.ndarray) else torch.cat(list(parts))


class Later(Waiting):
    """Compute the losses of many batches of a watched training together, so that a step only copies its logits.

    The parts of a batch are what :func:`kept` returns. ``record(ids, losses, logits, labels, sizes)`` gets ids and
    losses of shape (n,); logits of shape (n, classes) and labels of shape (n,), or None; and the samples of each batch.
    """

    def __init__(self, record: Callable[[SomeIds, torch.Tensor, Any, Any, list[int]], None]) -> None:
        def compute(ids: list[SomeIds], groups: list[Any], sizes: list[int]) -> None:
            with torch.no_grad():
                found = [losses_of(*map(joined, zip(*parts, strict=True))) for losses_of, parts in groups]
                losses, logits, labels = map(_all_of, zip(*found, strict=True))
                record(np.concatenate(ids), losses, logits, labels, sizes)

        super().__init__(compute, _kind_of)


def _all_of(parts: Sequence[Any]) -> Any:
    return torch.cat(list(parts)) if all(part is not None for part in parts) else None


def _kind_of(parts: tuple[Any, ...]) -> list[Any]:
    return [(part.shape[1:], part.dtype, None if isinstance(part, np.ndarray) else part.device) for part in parts]
