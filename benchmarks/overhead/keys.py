"""What keys cost, and what is read where there are none."""

from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.common.timing import Row, alternate
from prunedata import Pruner
from prunedata.findings.searched import state_of

__all__ = ["keys"]

MOST = 1e9 / 1_280_000
"""Nanoseconds a key, with which 1.28 million take a second."""
BLOCK = 1024
"""Samples in a batch whose losses are recorded."""


def keys(samples: int, repeats: int) -> Iterator[Row]:
    """File names as keys: to begin with, for each visit, in a store; and items that are read without them."""
    names = [f"train/n{number % 1000:08d}/n{number % 1000:08d}_{number:07d}.JPEG" for number in range(samples)]

    def begin() -> float:
        started = process_time()
        _run(samples, names)
        return 1e9 * (process_time() - started) / samples

    yield Row(
        "a run begins, with keys", samples, None, "ns a key", alternate({"ours": begin}, repeats)["ours"], goal=MOST
    )
    runs = {"ours": _run(samples, names), "without keys": _run(samples, None)}
    times = alternate({name: lambda run=run: _epoch(run) for name, run in runs.items()}, repeats)  # type: ignore[misc]
    ours = times.pop("ours")
    yield Row("an epoch is recorded, with keys", samples, None, "ns a visit", ours, times)
    kept = [sum(array.nbytes for array in state_of(run).arrays.values()) for run in runs.values()]
    yield Row("keys in a store", samples, None, "bytes a sample", [(kept[0] - kept[1]) / samples] * repeats, goal=8.0)
    yield Row("read without keys", samples, None, "items", [float(_read(samples)) for _ in range(repeats)], goal=32.0)


def _run(samples: int, names: list[str] | None) -> Pruner:
    return Pruner(samples, epochs=1_000, leave_out="nothing", keys=names)


def _epoch(run: Pruner) -> float:
    """Nanoseconds a visit, of recording an epoch and ending it."""
    losses, seconds = np.ones(BLOCK), 0.0
    epoch = run.begin_epoch()
    for ids in epoch.batches(BLOCK):
        some = losses[: len(ids)].copy()
        started = process_time()
        run.observe(some, ids)
        seconds += process_time() - started
    started = process_time()
    run.end_epoch()
    return 1e9 * (seconds + process_time() - started) / run.samples


class _Items:
    """A data set that counts how often it is read."""

    def __init__(self, samples: int) -> None:
        self.samples, self.read = samples, 0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int) -> Any:
        self.read += 1
        return number


def _read(samples: int) -> int:
    """How many items are read when a loader without keys is wrapped, and its run saved."""
    run, items = Pruner(samples, epochs=2), _Items(samples)
    run.wrap(DataLoader(items, batch_size=BLOCK))  # type: ignore[arg-type]
    run.state_dict()
    return items.read
