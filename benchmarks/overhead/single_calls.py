"""Single calls, each beside its peer: recording losses, end of an epoch, selection, order."""

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.common.infobatch import InfoBatch
from benchmarks.common.timing import Row, alternate
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.policies import keep_mask
from prunedata.run.order import epoch_order

__all__ = ["end_of_epoch", "observe", "order", "selection"]

GOALS = {("arrays", 32): 28.0, ("arrays", 128): 9.0, ("arrays", 1024): 3.5, ("tensors", 128): 30.0}
"""Nanoseconds a sample visit, by batch size."""


def observe(samples: int, batch: int, repeats: int, infobatch: InfoBatch | None) -> Iterator[Row]:
    """Recording losses: all of it, the work on full blocks included, but for what is done once an epoch."""
    feed = _Feed(samples, batch)
    pruner, adapted = (_pruner(samples, _turns(samples) * (repeats + 1) + 1) for _ in range(2))
    dataset = TensorDataset(torch.zeros(samples, 1))
    loader = wrap(DataLoader(dataset, batch_size=batch), adapted, with_ids=True)
    runs: dict[str, Callable[[], float]] = {
        "arrays": lambda: feed.epochs(pruner, pruner.observe, feed.arrays),
        "tensors": lambda: feed.epochs(adapted, loader.observe, feed.tensors),
        "mean": lambda: feed.rounds(lambda losses, ids: losses.mean(), feed.tensors),
    }
    if infobatch is not None:
        peer = infobatch.wrap(samples)

        def update(losses: torch.Tensor, ids: torch.Tensor) -> None:
            peer.set_active_indices(ids)
            peer.update(losses)

        runs["InfoBatch update"] = lambda: feed.rounds(update, feed.all_tensors)
    times = alternate(runs, repeats)
    recording = [both - mean for both, mean in zip(times["tensors"], times["mean"], strict=True)]
    peers = {name: some for name, some in times.items() if name.startswith("InfoBatch")}

    def row(part: str, values: list[float], goal: float | None) -> Row:
        return Row(part, samples, batch, "ns a visit", values, peers, goal)

    yield row("Pruner.observe, arrays", times["arrays"], GOALS.get(("arrays", batch)))
    yield row("loader.observe, CPU tensors, less the mean", recording, GOALS.get(("tensors", batch)))
    yield row("loader.observe, CPU tensors, with the mean", times["tensors"], None)


class _Feed:
    """Every sample once, in random order, batch after batch: ids and losses."""

    PORTION = 8192
    """Visits whose batches are made at once, outside of the time. They are copies, and few enough to be still in the
    cache, as a batch of a loop is that was made just before; and enough that reading the clock adds next to nothing."""

    def __init__(self, samples: int, batch: int) -> None:
        random = np.random.default_rng(0)
        self.batch, self.turns = batch, _turns(samples)
        self.ids, self.losses = random.permutation(samples), random.random(samples, dtype=np.float32)

    def arrays(self, at: slice) -> tuple[Any, Any]:
        return self.losses[at].copy(), self.ids[at].copy()

    def tensors(self, at: slice) -> tuple[Any, Any]:
        return torch.from_numpy(self.losses[at].copy()), self.ids[at].copy()

    def all_tensors(self, at: slice) -> tuple[Any, Any]:
        return torch.from_numpy(self.losses[at].copy()), torch.from_numpy(self.ids[at].copy())

    def epochs(self, pruner: Pruner, observe: Callable[[Any, Any], object], form: Callable[[slice], Any]) -> float:
        """Nanoseconds a visit, of some epochs."""
        seconds = 0.0
        for _ in range(self.turns):
            pruner.begin_epoch()
            # With the last block, which else would be worked on at the end of the epoch.
            seconds += self._go(observe, form) + _last_block(pruner)
            pruner.end_epoch()
        return 1e9 * seconds / (self.turns * self.ids.size)

    def rounds(self, call: Callable[[Any, Any], object], form: Callable[[slice], Any]) -> float:
        """Nanoseconds a visit, of what knows no epochs."""
        seconds = sum(self._go(call, form) for _ in range(self.turns))
        return 1e9 * seconds / (self.turns * self.ids.size)

    def _go(self, call: Callable[[Any, Any], object], form: Callable[[slice], Any]) -> float:
        seconds, size = 0.0, self.batch
        step = size * max(1, self.PORTION // size)
        for first in range(0, self.ids.size, step):
            last = min(first + step, self.ids.size)
            portion = [form(slice(at, min(at + size, last))) for at in range(first, last, size)]
            started = process_time()
            for first_of_both, second in portion:
                call(first_of_both, second)
            seconds += process_time() - started
        return seconds


def _pruner(samples: int, epochs: int = 255) -> Pruner:
    """A run that prunes its last epoch only, so that the epochs before are all alike."""
    return Pruner(samples, Schedule(epochs, epochs, epochs - 1, 1, 1), prune=0.25)


def _last_block(pruner: Pruner) -> float:
    """Work on the losses that wait; return the seconds. Reading the counts does it; a second reading only reads."""
    seconds = []
    for _ in range(2):
        started = process_time()
        _ = pruner.counts
        seconds.append(process_time() - started)
    return seconds[0] - seconds[1]


def _turns(samples: int) -> int:
    """How often a small data set is gone through in one measurement, which else would be of cold caches alone."""
    return max(1, min(40, 2_000_000 // samples))


def end_of_epoch(samples: int, repeats: int) -> Row:
    """What is done once an epoch, without selection and commit."""
    ids, losses = np.arange(samples), np.ones(samples)

    def run() -> float:
        pruner, seconds = _pruner(samples), 0.0
        pruner.begin_epoch()
        for _ in range(_turns(samples)):
            pruner.observe(losses, ids)
            _last_block(pruner)
            started = process_time()
            pruner.end_epoch()
            pruner.begin_epoch()
            seconds += process_time() - started
        return 1e9 * seconds / (_turns(samples) * samples)

    return Row("end of an epoch", samples, None, "ns a sample", alternate({"ours": run}, repeats)["ours"])


def selection(samples: int, repeats: int, *, all_tied: bool = False) -> Row:
    """KeepList of a quarter pruned; counts as of 40 epochs, or all the same, as Random has them."""
    counts = np.zeros(samples, np.uint8) if all_tied else np.random.default_rng(0).binomial(40, 0.3, samples)
    counts = counts.astype(np.uint8)
    tensor, pruned = torch.from_numpy(counts), samples // 4
    times = _per_sample(
        samples,
        repeats,
        {
            "ours": lambda: keep_mask(counts, pruned, seed=0, epoch=1),
            "np.argpartition": lambda: np.argpartition(counts, samples - pruned),
            "torch.topk": lambda: torch.topk(tensor, pruned, sorted=False),
        },
    )
    part = "keep_mask, all counts tied" if all_tied else "keep_mask"
    return Row(part, samples, None, "ns a sample", times.pop("ours"), times, None if all_tied else 3.4)


def order(samples: int, repeats: int, *, pruned: bool) -> Row:
    """The order of an epoch, each kept sample; peers permute as many as are kept."""
    keep = np.ones(samples, np.bool_)
    if pruned:
        keep = keep_mask(keep, samples // 4, seed=0, epoch=1)
    kept = int(keep.sum())
    random = np.random.default_rng(0)

    def ours() -> None:
        for _ in epoch_order(keep, seed=0, epoch=1):
            pass

    times = _per_sample(
        kept,
        repeats,
        {
            "ours": ours,
            "torch.randperm": lambda: torch.randperm(kept),
            "np.random.Generator.permutation": lambda: random.permutation(kept),
        },
    )
    part = "epoch_order, a quarter pruned" if pruned else "epoch_order, all kept"
    return Row(part, samples, None, "ns a kept sample", times.pop("ours"), times, 23.0)


def _per_sample(samples: int, repeats: int, calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    turns = _turns(samples)

    def timed(call: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            started = process_time()
            for _ in range(turns):
                call()
            return 1e9 * (process_time() - started) / (turns * samples)

        return run

    return alternate({name: timed(call) for name, call in calls.items()}, repeats)
