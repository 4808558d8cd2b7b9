"""The way of a batch's losses from a Tensor, wherever it lies, to the pruner."""

from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np
import torch

from prunedata.counting.batches import shape_hint
from prunedata.errors import LossError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["Block", "DeviceBuffer", "Recorder", "finite", "fits"]

Block = tuple[SomeIds, Any, SomeIds]
"""Ids and losses, batch after batch, and the sizes of the batches."""
CAPACITY = 1 << 16
"""Losses that stay on the device before they are copied to the host together."""


def fits(ids: SomeIds, losses: Any) -> bool:
    """Whether losses are a Tensor with one number for each sample; if not, :meth:`Recorder.add` raises, saying why."""
    return isinstance(losses, torch.Tensor) and not losses.is_nested and losses.shape == (len(ids),)


def finite(losses: torch.Tensor) -> torch.Tensor:
    """Return losses of a batch, shape (n,), with the mean of the others in the place of those that are no numbers.

    So such a sample is neither suspect nor clean by this batch, and nothing waits for the device.
    """
    if losses.is_cpu and isfinite(float(losses.sum())):
        return losses
    fine = torch.isfinite(losses)
    total = torch.where(fine, losses, 0).sum() / fine.sum().clamp(min=1)
    return torch.where(fine, losses, total)


class Recorder:
    """Hands losses to the pruner: at once from the host, many together from a device."""

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner
        self._buffer: DeviceBuffer | None = None

    def add(self, ids: SomeIds, losses: Any) -> None:
        """Record a batch."""
        if not isinstance(losses, torch.Tensor):
            raise LossError(f"Expected losses as a Tensor of shape (n,). Got {type(losses).__name__}.")
        if losses.is_cpu:
            try:
                array = losses.numpy(force=True)  # detaches, in less time than detach()
            except (TypeError, RuntimeError) as error:
                array = _widened(losses, error)
            self.pruner.record(array, ids)
            return
        if not fits(ids, _plain(losses)):
            raise LossError(
                f"Expected losses of shape ({len(ids)},), one for each sample{shape_hint(losses.shape)}. "
                f"Got {tuple(losses.shape)}."
            )
        if self._buffer is None or self._buffer.device != losses.device:
            if losses.is_meta:
                raise LossError(
                    "Expected losses that were computed. Got those of the device meta, which has no numbers: "
                    "compute them on another one."
                )
            for numbers, held, sizes in self.held_back():
                self.pruner.record(held, numbers, sizes)
            self._buffer = DeviceBuffer(losses.device)
        self._hold(self._buffer, ids, losses)

    def _hold(self, buffer: "DeviceBuffer", ids: SomeIds, losses: torch.Tensor) -> None:
        """Hold a batch back, and observe those that have come down."""
        for numbers, held, sizes in buffer.add(ids, losses):
            self.pruner.record(held, numbers, sizes)

    def held_back(self) -> Iterator[Block]:
        """Hand over everything; the epoch ends, or its state is asked for."""
        if self._buffer is not None:
            yield from self._buffer.held_back()

    def forget(self) -> None:
        """Drop what has not been observed."""
        if self._buffer is not None:
            self._buffer.forget()


def _widened(losses: torch.Tensor, error: Exception) -> Any:
    """Losses as an array that numpy could not make of them at once, as of bfloat16; raise if there is no way."""
    plain = _plain(losses)
    if isinstance(error, TypeError):
        try:
            return plain.float().numpy(force=True)
        except RuntimeError as unknown:  # of a dtype that PyTorch itself does not compute with
            raise LossError(f"Expected losses of a floating dtype. Got {losses.dtype}: give losses of float32.") from (
                unknown
            )
    raise LossError(
        "Expected losses with numbers in memory. Got a Tensor that a transform of PyTorch's traces, as torch.func.grad "
        "or vmap do: return the losses from the function, by has_aux=True for example, and observe them after it."
    ) from error


def _plain(losses: torch.Tensor) -> torch.Tensor:
    """Raise for what no loss is, of those that came in another form than usual."""
    if losses.is_nested or losses.is_quantized:
        kind, instead = ("nested", "torch.cat(losses.unbind())") if losses.is_nested else ("quantized", "dequantize()")
        raise LossError(f"Expected losses as a plain Tensor of shape (n,). Got a {kind} one: give {instead}.")
    if losses.layout != torch.strided:
        raise LossError(f"Expected losses as a dense Tensor. Got layout {losses.layout}: give losses.to_dense().")
    if losses.is_complex() or losses.dtype == torch.bool:
        raise LossError(f"Expected losses of a floating dtype, one for each sample. Got {losses.dtype}.")
    return losses


class DeviceBuffer:
    """Losses on a device. A full buffer is copied to the host while the next one fills, and then handed over."""

    def __init__(self, device: torch.device, capacity: int = CAPACITY) -> None:
        self.device = device
        self._cuda = device.type == "cuda"
        self._filling, self._copied = (torch.empty(capacity, device=device) for _ in range(2))
        self._host = torch.empty(capacity, pin_memory=self._cuda)
        self._event = torch.cuda.Event() if self._cuda else None
        self._ids: list[SomeIds] = []
        self._flying: list[SomeIds] = []
        self._fill = 0

    def add(self, ids: SomeIds, losses: torch.Tensor) -> list[Block]:
        """Take a batch, whose ids and losses the caller may then change; return the batches that have come down."""
        if not len(ids):
            return []
        end, came = self._fill + len(ids), []
        if end > self._filling.numel():
            came = self._send()
            end = len(ids)
            if end > self._filling.numel():
                return [*came, *self._land(), (np.array(ids), losses.detach().float().cpu().numpy(), np.array([end]))]
        self._filling[self._fill : end].copy_(losses.detach(), non_blocking=True)
        self._ids.append(np.array(ids))  # the caller may use its buffers again
        self._fill = end
        return came

    def _send(self) -> list[Block]:
        """Start the copy of the filled buffer; return the batches of the one before."""
        came = self._land()
        self._filling, self._copied = self._copied, self._filling
        self._host.copy_(self._copied, non_blocking=self._cuda)
        if self._event is not None:
            self._event.record()
        self._ids, self._flying, self._fill = [], self._ids, 0
        return came

    def _land(self) -> list[Block]:
        """Return the batches of the buffer that was sent; copies."""
        flying, self._flying = self._flying, []
        if not flying:
            return []
        if self._event is not None:
            self._event.synchronize()  # a buffer ago: long done
        ids = np.concatenate(flying)
        return [(ids, self._host.numpy()[: ids.size].copy(), np.array([len(each) for each in flying]))]

    def held_back(self) -> list[Block]:
        """Hand over everything."""
        return [*self._send(), *self._land()]

    def forget(self) -> None:
        """Drop everything."""
        if self._event is not None and self._flying:
            self._event.synchronize()  # the copy must not land in what the next buffer has written
        self._ids, self._flying, self._fill = [], [], 0
