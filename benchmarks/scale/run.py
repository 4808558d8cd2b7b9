"""A run of many samples in this process, step by step: seconds and memory of each.

No network is trained. The losses are numbers at random, so that what is measured is what the library itself takes.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from prunedata import Pruner, Schedule
from prunedata.policies import DroppingCount, RunningLoss
from prunedata.policies.protocol import Policy
from prunedata.run.epoch import Epoch

__all__ = ["POLICIES", "forget_peak", "measure_run", "memory_now", "memory_peak"]


POLICIES: dict[str, Policy] = {"dropping-count": DroppingCount(), "running-loss": RunningLoss()}
BATCH = 4096
EPOCHS = 200
"""As the paper's runs have: counts of a byte."""


STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory_now() -> int:
    """Bytes in the memory of this process, as Linux counts it."""
    return _read("VmRSS")


def memory_peak() -> int:
    """Bytes in memory at most, since the process began or :func:`forget_peak`."""
    return _read("VmHWM")


def forget_peak() -> None:
    """Let :func:`memory_peak` begin anew."""
    FORGET.write_text("5")


def _read(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


class Steps:
    """What each step took: processor and wall seconds, and the most memory above what the process had at first."""

    def __init__(self) -> None:
        gc.collect()
        self._at_first = memory_now()
        self.found: dict[str, dict[str, float]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure what is within."""
        forget_peak()
        wall, cpu = perf_counter(), process_time()
        yield
        self.found[name] = {
            "seconds": round(perf_counter() - wall, 6),
            "cpu_seconds": round(process_time() - cpu, 6),
            "peak_bytes": memory_peak() - self._at_first,
            "bytes_after": memory_now() - self._at_first,
        }


def measure_run(samples: int, policy: str, folder: Path) -> dict[str, Any]:
    """Run an epoch on all samples and a pruned one, with a store in ``folder``; return what each step took.

    The step ``record`` includes what cuts the order into batches, and the order itself, which is also a step.
    """
    steps = Steps()
    store = folder / "run.zarr"

    def make(**more: Any) -> Pruner:
        schedule = Schedule(EPOCHS, EPOCHS, 1, 1, 1)
        return Pruner(samples, schedule, prune=0.25, policy=POLICIES[policy], store=store, **more)

    losses = np.random.default_rng(0).random(BATCH + 1_000_003, dtype=np.float32)
    with steps.step("make"):
        pruner = make()
    for number, kind in enumerate(("all", "pruned")):
        with steps.step(f"select, {kind}"):
            epoch = pruner.begin_epoch()
        with steps.step(f"order, {kind}"):
            _exhaust(epoch)
        with steps.step(f"record, {kind}"):
            _observe(pruner.observe, epoch, losses, number)
        with steps.step(f"end and commit, {kind}"):
            pruner.end_epoch()
        with steps.step(f"commit, {kind}"):
            pruner.commit()
    kept = epoch.kept
    size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    del pruner, epoch
    gc.collect()
    with steps.step("resume"):
        again = make(resume=True)
    assert again.next_epoch == 2, again.next_epoch
    return {"samples": samples, "policy": policy, "kept": kept, "store_bytes": size, "steps": steps.found}


def _exhaust(epoch: Epoch) -> None:
    for _ in epoch.order():
        pass


def _observe(observe: Callable[[Any, Any], None], epoch: Epoch, losses: Any, seed: int) -> None:
    start = seed
    for ids in epoch.batches(BATCH):
        start = (start + 7919) % 1_000_003
        observe(losses[start : start + ids.size], ids)


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(measure_run(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))))
