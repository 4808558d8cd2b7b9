"""The library as a whole: commits, all its work in a run, what it adds to an epoch."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.common.timing import Row, alternate
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

__all__ = ["added_to_an_epoch", "commit", "commit_after", "commits", "whole_run"]

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
