"""The way of a batch's losses from a Tensor, wherever it lies, to the pruner."""

from collections.abc import Iterator
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import torch

from prunedata.counting.batches import NO_NUMBER, NOTHING, shape_hint
from prunedata.counting.guess import MOST_CLASSES, classes_in
from prunedata.errors import LossError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["Block", "DeviceBuffer", "Recorder", "finite", "fits", "two_likeliest"]

Block = tuple[Any, ...]
"""Ids and losses, batch after batch, the sizes of the batches, and if logits came what these say."""


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
    """Hands losses to the pruner: at once from the host, many together from a device.

    Attributes
    ----------
    capacity : int
        Losses that stay on a device before they are copied to the host together.
    buffers_all : bool
        Whether those on the host go through such a buffer, too, so that its way can be tried without a device.
    passes_nan : bool
        Whether logits with a NaN say nothing of their sample. Otherwise their batch is an error.
    """

    capacity: ClassVar[int] = 1 << 16
    buffers_all: ClassVar[bool] = False
    passes_nan = False

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner
        self._buffer: DeviceBuffer | None = None

    def add(self, ids: SomeIds, losses: Any, logits: Any = None) -> None:
        """Record a batch."""
        if not isinstance(losses, torch.Tensor):
            raise LossError(f"Expected losses as a Tensor of shape (n,). Got {type(losses).__name__}.")
        said = None if logits is None else self._said(ids, losses, logits)
        if losses.is_cpu and not self.buffers_all:
            try:
                array = losses.numpy(force=True)  # detaches, in less time than detach()
            except (TypeError, RuntimeError) as error:
                array = _widened(losses, error)
            self.pruner.record(array, ids, guesses=None if said is None else said.numpy())
            return
        if not fits(ids, _plain(losses)):
            raise LossError(
                f"Expected losses of shape ({len(ids)},), one for each sample{shape_hint(losses.shape)}. "
                f"Got {tuple(losses.shape)}."
            )
        if self._buffer is None or self._buffer.device != losses.device or self._buffer.rows < 1 + (said is not None):
            if losses.is_meta:
                raise LossError(
                    "Expected losses that were computed. Got those of the device meta, which has no numbers: "
                    "compute them on another one."
                )
            for numbers, held, sizes, *told in self.held_back():
                self.pruner.record(held, numbers, sizes, *told)
            self._buffer = DeviceBuffer(losses.device, self.capacity, rows=1 if said is None else 2)
        for numbers, held, sizes, *told in self._buffer.add(ids, losses, said):  # those that have come down
            self.pruner.record(held, numbers, sizes, *told)

    def _said(self, ids: SomeIds, losses: torch.Tensor, logits: Any) -> torch.Tensor:
        """What logits say of a batch, on their device, int32 of shape (n,)."""
        said, classes = two_likeliest(logits)
        if said.shape != (len(ids),) or said.device != losses.device:
            raise LossError(
                f"Expected logits of {len(ids)} samples on {losses.device}, as their losses. Got those of "
                f"{len(said)} on {said.device}: give the rows that the losses are of."
            )
        self.pruner.expect_classes(classes)
        return said.masked_fill(said == NO_NUMBER, NOTHING) if self.passes_nan else said

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


def two_likeliest(logits: Any) -> tuple[torch.Tensor, int]:
    """Return what logits say of each sample, as :func:`prunedata.counting.guess.two_likeliest`, where they are."""
    if not isinstance(logits, torch.Tensor):
        raise LossError(
            f"Expected logits as a Tensor of shape (n, classes). Got {type(logits).__name__}: give what the model "
            "returned."
        )
    logits = _plain(logits.detach())
    classes = classes_in(logits.shape, is_floating=logits.is_floating_point(), dtype=logits.dtype)
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
    if not len(logits):
        return torch.empty(0, dtype=torch.int32, device=logits.device), classes
    first = logits.argmax(1, keepdim=True)
    second = logits.scatter(1, first, -torch.inf).argmax(1)
    said = torch.where(logits.isnan().any(1), NO_NUMBER, first.squeeze(1) * MOST_CLASSES + second)
    return said.to(torch.int32), classes


class DeviceBuffer:
    """Losses on a device. A full buffer is copied to the host while the next one fills, and then handed over.

    With a second row, what logits say goes beside them: the bits of int32 in those of float32.
    """

    def __init__(self, device: torch.device, capacity: int, rows: int = 1) -> None:
        self.device, self.rows = device, rows
        self._cuda = device.type == "cuda"
        self._filling, self._copied = (torch.empty((rows, capacity), device=device) for _ in range(2))
        self._host = torch.empty((rows, capacity), pin_memory=self._cuda)
        self._event = torch.cuda.Event() if self._cuda else None
        self._ids: list[SomeIds] = []
        self._flying: list[SomeIds] = []
        self._fill = 0

    def add(self, ids: SomeIds, losses: torch.Tensor, said: torch.Tensor | None = None) -> list[Block]:
        """Take a batch, whose ids and losses the caller may then change; return the batches that have come down.

        ``said``, int32 of shape (n,), is what logits say; NOTHING if they don't, where there is a row for it.
        """
        if not len(ids):
            return []
        end, came = self._fill + len(ids), []
        if end > self._filling.shape[1]:
            came = self._send()
            end = len(ids)
            if end > self._filling.shape[1]:
                block = (np.array(ids), losses.detach().float().cpu().numpy(), np.array([end]))
                return [*came, *self._land(), block if said is None else (*block, said.cpu().numpy())]
        self._filling[0, self._fill : end].copy_(losses.detach(), non_blocking=True)
        if self.rows > 1:
            row = self._filling[1, self._fill : end].view(torch.int32)
            row.fill_(NOTHING) if said is None else row.copy_(said, non_blocking=True)
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
        losses, *said = self._host.numpy()[:, : ids.size].copy()
        return [(ids, losses, np.array([len(each) for each in flying]), *(row.view(np.int32) for row in said))]

    def held_back(self) -> list[Block]:
        """Hand over everything."""
        return [*self._send(), *self._land()]

    def forget(self) -> None:
        """Drop everything."""
        if self._event is not None and self._flying:
            self._event.synchronize()  # the copy must not land in what the next buffer has written
        self._ids, self._flying, self._fill = [], [], 0
