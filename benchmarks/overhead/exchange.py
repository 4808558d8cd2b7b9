"""What ranks tell each other at the end of an epoch, beside a plain all_reduce of a byte a sample.

    python -m benchmarks.overhead.exchange                  two processes of this machine, over gloo
    python -m benchmarks.overhead.exchange --ranks 4
    python -m benchmarks.overhead.exchange --json

Each rank has observed its share of the samples. The exchange packs two bits a sample, sends and unpacks them, and adds
up the losses. A row of its own has what comes before it where ranks share batches: the means of the global batches,
and which losses lie above them. Another has what it would cost to send the bits of the kept samples alone.
Milliseconds are those of the clock, as ranks wait for one another; in these two rows, which wait for little, the
processor's. Turns alternate. Bytes are those that a rank sends if each part of what is reduced goes round once to be
added up and once to be known.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.common.commands import positive, program
from benchmarks.common.processes.ranks import in_ranks
from benchmarks.common.timing import Row, alternate, machine, show_rows
from prunedata import Pruner, Schedule
from prunedata.adapters.torch.ranks import Ranks
from prunedata.counting.counts import Tally
from prunedata.policies import DroppingCount
from prunedata.run.meter import EpochSums
from prunedata.run.waiting import SharedBatches, WaitingLosses
from prunedata.types import Mask

__all__ = ["main"]

BATCH = 256
"""Samples in a global batch."""
PRUNED = 0.25
"""Share of the samples that the epoch leaves out."""
FEW = 5
"""Repeats of what takes tens of milliseconds."""
GOALS = {50_000: 1.0, 1_280_000: 3.0}
"""Milliseconds with two ranks, by samples."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.overhead.exchange", __doc__)
    add = parser.add_argument
    add("--samples", type=positive, nargs="+", default=list(GOALS), help="default: 50000 1280000")
    add("--ranks", type=positive, default=2, help="default: %(default)s")
    add("--repeats", type=positive, default=25, help="default: %(default)s")
    add("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    rows = [Row(**row) for row in in_ranks(options.ranks, _all_rows, options.samples, options.repeats)]
    show_rows(rows, machine(), options.json)
    if not options.json:
        for samples in options.samples:
            told = ", ".join(f"{name} {sent:,}" for name, sent in _bytes(samples, options.ranks).items())
            print(f"\nbytes that a rank sends, of {samples:,} samples: {told}")
    return 0


def _bytes(samples: int, ranks: int) -> dict[str, int]:
    twice = 2 * (ranks - 1) / ranks
    return {"the exchange": round(twice * 2 * -(-samples // 8)), "a byte a sample": round(twice * samples)}


def _all_rows(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    return [row for samples in sizes for row in _rows(samples, repeats)]


def _rows(samples: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Measure as a rank of the group."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pruner = Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=0.25, policy=DroppingCount())
    adapter, tally = Ranks(pruner, []), Tally(samples)
    ids = np.arange(rank, samples, ranks)
    tally.add(ids, np.random.default_rng(rank).random(ids.size) < 0.4)
    totals = list(astuple(EpochSums()))
    packed, byte = tally.packed.copy(), torch.zeros(samples, dtype=torch.uint8)

    def exchange() -> None:
        adapter.meet(totals, None, tally, None)
        adapter.merge(tally, {})

    def run(call: Callable[[], object], clock: Callable[[], float] = perf_counter) -> Callable[[], float]:
        def timed() -> float:
            tally.packed[:] = packed
            dist.barrier()
            started = clock()
            call()
            return 1e3 * (clock() - started)

        return timed

    def row(part: str, ours: list[float], **more: Any) -> dict[str, Any]:
        return {"part": f"{part}, {ranks} ranks", "samples": samples, "batch": None, "unit": "ms", "times": ours} | more

    times = alternate({"ours": run(exchange), "all_reduce of uint8": run(lambda: dist.all_reduce(byte))}, repeats)
    yield row("exchange", times.pop("ours"), peers=times, goal=GOALS.get(samples) if ranks == 2 else None)

    keep, other = np.random.default_rng(0).random(samples) >= PRUNED, Tally(samples)
    alone = run(lambda: _kept_alone(tally, keep, other), process_time)
    times = alternate(
        {"kept": alone, "all": run(lambda: other.set_bits(tally.bits()), process_time)}, min(FEW, repeats)
    )
    yield row("bits of the kept alone", times["kept"], peers={"bits of all": times["all"]})

    waiting = WaitingLosses.none(SharedBatches(BATCH, True), samples)
    waiting.losses[ids] = np.random.default_rng(rank).random(ids.size)
    epoch = pruner.begin_epoch()
    means = run(lambda: waiting.settle(epoch, tally.packed != 0, adapter.add_up)[0].hits(0.0), process_time)
    times = alternate({"ours": means}, min(FEW, repeats))
    yield row(f"means of global batches of {BATCH}", times["ours"])


def _kept_alone(tally: Tally, keep: Mask, other: Tally) -> None:
    """Pack the bits of the samples that the epoch keeps, and take them over, as an exchange of these alone would."""
    other.packed[:] = 0
    for flags, value in ((tally.packed != 0, 1), (tally.packed > Tally.LIMIT, Tally.LIMIT + 1)):
        kept = flags[keep]
        other.packed[keep] += np.unpackbits(np.packbits(kept), count=kept.size) * np.uint32(value)


if __name__ == "__main__":
    raise SystemExit(main())
