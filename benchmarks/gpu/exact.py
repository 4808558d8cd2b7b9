"""Losses on a device beside the same losses on the host: the run has to end the same, number by number."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.common.networks import captured
from benchmarks.common.records import Facts
from benchmarks.gpu.costs import Piece, Place, named
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.losses import Recorder
from prunedata.policies import RunningLoss

__all__ = ["Case", "compare", "pieces", "through_a_buffer"]

Losses = Callable[[Tensor, int], Tensor]
"""Called with a batch's ids, on the device, and the epoch; returns the losses there."""
EPOCHS = 4


@dataclass(frozen=True)
class Case:
    """How losses come to be, and the run that they are given to.

    Attributes
    ----------
    losses : callable
    samples, batch_size, workers : int
    options : dict
        The Pruner's.
    after : callable
        Called with the losses once they were observed.
    resume_at : int or None
        In this epoch, after half of it, the run is saved and goes on as another one.
    logits : tensor of float, shape (samples, classes), or None
        What the network says of each sample, on the device.
    waits : bool
        Whether ``observe`` may make the host wait, as for a batch that no buffer holds.
    """

    losses: Losses
    samples: int
    batch_size: int
    workers: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    after: Callable[[Tensor], object] = lambda losses: None
    resume_at: int | None = None
    logits: Tensor | None = None
    waits: bool = False


def compare(case: Case, device: torch.device) -> Facts:
    """Feed one run from the device and one from the host with the same losses; say where they differ."""
    ours, told = _pruner(case), _pruner(case)
    differ: list[str] = []
    loader, visits = _loader(case, ours), 0
    for number in range(EPOCHS):
        kept = told.begin_epoch()
        if not np.array_equal(ours.begin_epoch().trained, kept.trained):
            return {"right": False, "differ": [*differ, f"what epoch {number} keeps"], "visits": visits}
        visits += _feed(case, device, (ours, loader, told), number, 0 if case.resume_at == number else None, differ)
        if case.resume_at == number:
            state = ours.state_dict()
            ours = _pruner(case)
            loader = _loader(case, ours)
            ours.load_state_dict(state)
            ours.begin_epoch()
            visits += _feed(case, device, (ours, loader, told), number, None, differ)
        ours.end_epoch()
        told.end_epoch()
    differ += [
        name for name in ("hits", "visits", "counts") if not np.array_equal(getattr(ours, name), getattr(told, name))
    ]
    differ += [name for name, array in told.arrays.items() if not np.array_equal(ours.arrays[name], array)]
    for mine, theirs in zip(ours.history, told.history, strict=True):
        differ += [
            f"{name} of epoch {mine['epoch']}"
            for name in ("observed", "mean_loss")
            if mine.get(name) != theirs.get(name)
        ]
    return {"right": not differ, "differ": differ, "visits": visits}


def _feed(
    case: Case, device: torch.device, runs: tuple[Pruner, Any, Pruner], number: int, stop: int | None, differ: list[str]
) -> int:
    ours, loader, told = runs
    visits = 0
    for at, ids in enumerate(loader):
        losses = case.losses(ids.to(device), number)
        seen = losses.detach().float().cpu().numpy()
        leaf = losses.detach().requires_grad_()
        said = None if case.logits is None else case.logits[ids.to(device)]
        with contextlib.nullcontext() if case.waits else _without_waiting(device):
            mean = ours.observe(leaf, logits=said)
            mean.backward()
        told.observe(seen, ids.numpy(), logits=None if said is None else said.float().cpu().numpy())
        factors = told.current.factors(ids.numpy())
        expected = float((seen * factors).mean())
        if abs(mean.item() - expected) > 4e-3 * max(1.0, abs(expected)):  # half precision has three digits
            differ.append(f"the mean of batch {at} of epoch {number}: {mean.item()} is not {expected}")
        if leaf.grad is None or not np.array_equal(leaf.grad.cpu().ne(0).numpy(), factors != 0):
            differ.append(f"which samples of batch {at} of epoch {number} are learnt from")
        case.after(losses)
        visits += len(ids)
        if stop is not None and at >= case.samples // case.batch_size // 2:
            break
    return visits


@contextlib.contextmanager
def _without_waiting(device: torch.device) -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextlib.contextmanager
def through_a_buffer(capacity: int) -> Iterator[None]:
    """Let losses on a CPU go as those on a device do, through a buffer of ``capacity``."""
    before = Recorder.buffers_all, Recorder.capacity
    Recorder.buffers_all, Recorder.capacity = True, capacity
    try:
        yield
    finally:
        Recorder.buffers_all, Recorder.capacity = before


def _pruner(case: Case) -> Pruner:
    schedule = Schedule(EPOCHS, window=EPOCHS, start=1, block=2, pruned_per_block=1)
    return Pruner(case.samples, schedule, **{"prune": 0.25, "seed": 3, "policy": RunningLoss(), **case.options})


def _loader(case: Case, pruner: Pruner) -> Any:
    ids: Any = range(case.samples)
    return wrap(DataLoader(ids, batch_size=case.batch_size, shuffle=True, num_workers=case.workers), pruner)


class Network:
    """A small network that learns while it is watched: of random features, in what a step is made of."""

    def __init__(self, place: Place, samples: int, *, compiled: str = "", scaled: bool = False) -> None:
        torch.manual_seed(0)
        self.device = place.device
        self.features = torch.randn(samples, 32, device=self.device)
        self.labels = torch.randint(10, (samples,), device=self.device)
        self.network: Any = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to(self.device)
        self.step = torch.optim.SGD(self.network.parameters(), 0.05)
        self.half = scaled and place.full
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.half)
        if compiled:
            torch.compiler.reset()
            self.network = torch.compile(self.network, mode=None if compiled == "default" else compiled)
        self.graphs: dict[int, tuple[Tensor, Callable[[], Tensor]]] = {}

    def eager(self, ids: Tensor, epoch: int) -> Tensor:
        """Losses of a step that the network learns from."""
        kind = self.device.type
        with torch.autocast(
            kind, torch.float16 if self.half else torch.bfloat16, enabled=self.half, cache_enabled=False
        ):
            scores = self.network(self.features[ids])
        losses = F.cross_entropy(scores.float(), self.labels[ids], reduction="none")
        self.step.zero_grad()
        self.scaler.scale(losses.mean()).backward()
        self.scaler.step(self.step)
        self.scaler.update()
        return losses.detach()

    def graph(self, ids: Tensor, epoch: int) -> Tensor:
        """The same, captured for each size of a batch."""
        if len(ids) not in self.graphs:
            held = ids.clone()
            self.graphs[len(ids)] = held, captured(lambda: self.eager(held, 0), torch.Generator(self.device))
        held, launch = self.graphs[len(ids)]
        held.copy_(ids)
        return launch()


def _of_side_stream(losses: Losses, ids: Tensor, epoch: int) -> Tensor:
    if not ids.is_cuda:
        return losses(ids, epoch)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = losses(ids, epoch)
    torch.cuda.current_stream().wait_stream(side)
    return found


def _cases(place: Place) -> dict[str, Callable[[], Case]]:
    samples, size = place.of(150_000, 300), place.of(1000, 32)
    generator = torch.Generator().manual_seed(1)
    table = torch.rand((EPOCHS, samples), generator=generator).to(place.device)

    def drawn(dtype: torch.dtype, ids: Tensor, epoch: int) -> Tensor:
        return table[epoch, ids].to(dtype)

    plain = partial(drawn, torch.float32)

    def case(losses: Losses = plain, **more: Any) -> Callable[[], Case]:
        return lambda: Case(losses, samples, more.pop("batch_size", size), **more)

    def learnt(way: str = "eager", **options: Any) -> Callable[[], Case]:
        few = place.of(20_000, 300)
        return lambda: Case(getattr(Network(place, few, **options), way), few, size)

    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    return {
        **{str(dtype).removeprefix("torch."): case(partial(drawn, dtype)) for dtype in dtypes},
        "side-stream": case(partial(_of_side_stream, plain)),
        "overwritten": case(after=lambda losses: losses.fill_(torch.nan)),
        "beyond-the-buffer": case(batch_size=place.of(70_000, 90), waits=True),
        "workers": case(workers=2),
        "by-weight": case(options={"leave_out": "weight"}),
        "holdout": case(options={"holdout": 0.1}),
        "logits": case(logits=torch.rand((samples, 10), generator=generator).to(place.device)),
        "auto": case(options={"policy": "auto", "prune": None}),
        "resumed": case(resume_at=2),
        "graph": learnt("graph"),
        "scaled": learnt(scaled=True),
        "compiled": learnt(compiled="default"),
        "compiled-reduce-overhead": learnt(compiled="reduce-overhead"),
    }


def pieces(place: Place) -> list[Piece]:
    """A piece for each case."""

    def run(make: Callable[[], Case]) -> Facts:
        gc.collect()  # tensors of a GPU that a forked worker finds in a cycle, and collects, end it
        beside = contextlib.nullcontext() if place.full else through_a_buffer(70)
        with beside:
            return {**compare(make(), place.device), "hardware": named(place)}

    return [
        Piece(f"exact/{name}", 15 if name.startswith("compiled") else 3, partial(run, make))
        for name, make in _cases(place).items()
    ]
