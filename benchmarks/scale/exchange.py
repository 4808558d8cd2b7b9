"""What two ranks exchange at the end of an epoch: bytes on the network, seconds and memory.

The ranks are alone in a network namespace of their own, so that every byte on its loopback device is theirs.
"""

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.scale.run import forget_peak, memory_now, memory_peak

__all__ = ["measure_exchange"]

BATCH, EPOCHS = 4096, 200
RANKS = 2


def measure_exchange(samples: int) -> dict[str, Any]:
    """Let two ranks end an epoch on all samples and a pruned one; return what each end took.

    Raises
    ------
    OSError
        If no network namespace can be made here.
    """
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "benchmarks.scale.exchange", str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"Expected two ranks in a network namespace of their own. Got {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(samples: int) -> None:
    """Start the ranks in the namespace that this process is in, and print what rank 0 found."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    from benchmarks.common.processes.ranks import in_ranks  # noqa: PLC0415 (whoever only prints tables needs no torch)

    steps = in_ranks(RANKS, _steps, samples)
    print(json.dumps({"samples": samples, "ranks": RANKS, "steps": steps}))


def _steps(samples: int) -> dict[str, dict[str, float]]:
    """Measure as a rank of the group."""
    import torch.distributed as dist  # noqa: PLC0415

    from prunedata import Pruner, Schedule  # noqa: PLC0415
    from prunedata.adapters.torch.ranks import Ranks  # noqa: PLC0415

    rank = dist.get_rank()
    pruner = Pruner(samples, Schedule(EPOCHS, EPOCHS, 1, 1, 1), prune=0.25)
    pruner.join(Ranks(pruner, settings=()))
    losses = np.random.default_rng(rank).random(BATCH, dtype=np.float32)
    steps = {}
    for kind in ("all", "pruned"):
        epoch = pruner.begin_epoch()
        for number, ids in enumerate(epoch.batches(BATCH)):
            if number % RANKS == rank:
                pruner.observe(losses[: ids.size], ids)
        dist.barrier()
        sent, at_first = _sent(), memory_now()
        forget_peak()
        wall, cpu = perf_counter(), process_time()
        pruner.end_epoch()
        seconds, cpu_seconds = perf_counter() - wall, process_time() - cpu
        dist.barrier()
        steps[f"exchange, {kind}"] = {
            "seconds": round(seconds, 6),
            "cpu_seconds": round(cpu_seconds, 6),
            "peak_bytes": memory_peak() - at_first,
            "sent_bytes": (_sent() - sent) // RANKS,
        }
        dist.barrier()
    return steps


def _sent() -> int:
    """Bytes that went over the loopback device of this namespace."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[8])


if __name__ == "__main__":
    main(int(sys.argv[1]))
