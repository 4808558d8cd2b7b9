"""The parts of the table, each beside its peer: single calls, commits, and the library as a whole."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
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

__all__ = [
    "added_to_an_epoch",
    "commit",
    "commit_after",
    "commits",
    "end_of_epoch",
    "observe",
    "order",
    "selection",
    "whole_run",
]


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


PAPER_SECONDS = 4.2
"""What the paper says that its own implementation added to 200 epochs of 50,000 samples, on its machine."""


def commit(pruner: Pruner, repeats: int, folder: Path) -> Row:
    """One commit of a finished run, beside one file of as many bytes made safe likewise."""
    bare, content = folder / "bare", bytes(3 * pruner.samples)
    times = alternate({"ours": _wall(pruner.commit), "file": _wall(lambda: _write(bare, content))}, repeats)
    ours, file = ([1e3 * seconds for seconds in times[name]] for name in ("ours", "file"))
    goal = 8.4 if pruner.samples <= 50_000 else 8.6
    return Row("commit", pruner.samples, None, "ms", ours, {"one file, fsynced": file}, goal)


def commit_after(epochs: int, samples: int, repeats: int, folder: Path) -> Row:
    """One commit with many epochs behind it, whose records are in the store: what it costs but for the disk."""
    pruner = Pruner(samples, Schedule(epochs + 60, 60, 20, 5, 4), prune=0.25, store=folder / f"{epochs}.zarr")
    state = pruner.state_dict()
    record = {"pruned": False, "kept": samples, "observed": samples, "overhead": 0.0123456789}
    timed = [record | {"number": n, "seconds": 12.3456789 + n, "mean_loss": 1 / (n + 3)} for n in range(epochs)]
    state["state"] |= {"epoch": epochs, "history": timed}
    pruner.load_state_dict(state)
    pruner.commit()  # with what is written once

    def milliseconds() -> float:
        started = process_time()
        for _ in range(10):
            pruner.commit()
        return 1e3 * (process_time() - started) / 10

    times = alternate({"ours": milliseconds}, repeats)["ours"]
    return Row(f"commit after {epochs:,} epochs", samples, None, "ms", times)


def commits(pruner: Pruner, repeats: int) -> Row:
    """As many commits as the run has epochs."""

    def all_epochs() -> None:
        for _ in pruner.history:
            pruner.commit()

    times = alternate({"ours": _wall(all_epochs)}, repeats)["ours"]
    return _beside_paper("commits of a run", pruner.samples, None, times)


def whole_run(samples: int, batch: int, epochs: int, repeats: int, folder: Path) -> tuple[Row, Pruner]:
    """All that the library does in a run: select, order, record, end each epoch, commit. And the last of these runs."""
    losses = np.random.default_rng(0).random(batch)
    schedule = Schedule(epochs, 60, 20, 5, 4, attenuation=2)
    runs = (Pruner(samples, schedule, prune=0.25, store=folder / f"{turn}.zarr") for turn in count())
    pruner = next(runs)

    def go() -> None:
        for epoch in pruner.epochs():
            for ids in epoch.batches(batch):
                pruner.observe(losses[: ids.size], ids)

    times = []
    for _ in range(repeats):
        pruner = next(runs)
        times.append(_wall(go)())
    return _beside_paper("all of a run", samples, batch, times), pruner


def _beside_paper(part: str, samples: int, batch: int | None, times: list[float]) -> Row:
    peers = {"the paper's overhead, as printed": [PAPER_SECONDS] * len(times)} if samples == 50_000 else {}
    return Row(part, samples, batch, "s", times, peers)


def added_to_an_epoch(samples: int, batch: int, repeats: int) -> Row:
    """What an epoch of ready tensors takes longer through the adapter than through a plain DataLoader."""
    dataset = TensorDataset(torch.rand(samples))
    plain = DataLoader(dataset, batch_size=batch, shuffle=True)
    pruner = Pruner(samples, Schedule(1_000, 1_000, 999, 1, 1), prune=0.25)
    pruned = wrap(plain, pruner)

    def theirs() -> None:
        for (losses,) in plain:
            losses.mean()

    def ours() -> None:
        pruner.begin_epoch()
        for (losses,) in pruned:
            pruned.observe(losses)
        pruner.end_epoch()

    def timed(call: Callable[[], None]) -> Callable[[], float]:
        def microseconds() -> float:
            started = process_time()
            call()
            return 1e6 * (process_time() - started) / samples

        return microseconds

    times = alternate({"ours": timed(ours), "theirs": timed(theirs)}, repeats)
    added = [mine - other for mine, other in zip(times["ours"], times["theirs"], strict=True)]
    return Row(
        "added to an epoch", samples, batch, "us a sample", added, {"plain DataLoader, all of it": times["theirs"]}
    )


def _wall(call: Callable[[], object]) -> Callable[[], float]:
    def seconds() -> float:
        started = perf_counter()
        call()
        return perf_counter() - started

    return seconds


def _write(file: Path, content: bytes) -> None:
    part = file.with_suffix(".partial")
    with part.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    part.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
