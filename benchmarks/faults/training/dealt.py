"""Kill the workers and the dealer of an asynchronous run at random instants; see that each sample is visited once.

    python -m benchmarks.faults.training.dealt --workers 50 --dealers 50

Workers are Ray actors, and so is the dealer. All are killed with SIGKILL. A worker is replaced by a new one, while the
others go on. After the dealer every worker has to end with a ``DealerDied``, and a new dealer goes on from the store.
Runs begin anew until there were as many kills as asked for. A batch's losses depend on its samples and the epoch only,
so that each run must end with the counts, hits and visits of a run that nobody disturbed.
"""

import argparse
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.common.processes.on_ray import on_ray
from prunedata import Pruner, Schedule
from prunedata.errors import DealerDied
from prunedata.types import Floats, SomeIds

__all__ = ["Kills", "kill_dealt_runs", "main"]

SAMPLES, BATCH, EPOCHS, WORKERS = 600, 20, 8, 3
LONGEST = 1.0
"""Seconds until the next kill, at most."""


@dataclass
class Kills:
    """What the kills came to.

    ``with_a_batch``: how many of the ``workers`` that were killed had one.
    ``different``: runs whose counts, hits or visits are not those of a run that nobody disturbed. ``unclear``: workers
    that ended with another error than ``DealerDied`` after their dealer was killed.
    """

    workers: int = 0
    dealers: int = 0
    with_a_batch: int = 0
    runs: int = 0
    different: int = 0
    unclear: int = 0

    @property
    def good(self) -> bool:
        return not (self.different or self.unclear)


def new_run(store: Path | None = None) -> Pruner:
    schedule = Schedule(EPOCHS, EPOCHS, 2, 2, 1)
    return Pruner(SAMPLES, schedule, prune=0.25, seed=1, store=store, resume=store is not None)


def losses_of(ids: SomeIds, epoch: int) -> Floats:
    losses: Floats = np.random.default_rng([3, epoch]).random(SAMPLES)[ids]
    return losses


def found(run: Pruner) -> list[Any]:
    """What has to be the same, whoever was killed."""
    return [run.counts.tolist(), run.hits.tolist(), run.visits.tolist(), [epoch["observed"] for epoch in run.history]]


class DealtWorker:
    """What runs in a worker's process."""

    def pid(self) -> int:
        return os.getpid()

    def train(self, dealer: Any, name: int) -> None:
        for deal in dealer.deals(name, poll=0.01):
            sleep(0.02)
            dealer.observe(deal, losses_of(deal.ids, deal.epoch))


class DealtRun:
    """One run that is disturbed: its dealer, and its workers by name."""

    def __init__(self, store: Path) -> None:
        from prunedata.adapters.ray import serve  # noqa: PLC0415 (Ray takes seconds, and --help needs it not)

        self.dealer = serve(lambda: new_run(store), BATCH)
        self.workers: dict[int, tuple[Any, Any, Any]] = {}
        self.names = 0
        self.pid = self.dealer.ask(lambda run: os.getpid())
        for _ in range(WORKERS):
            self.add()

    def add(self) -> None:
        import ray  # noqa: PLC0415

        actor: Any = ray.remote(DealtWorker).options(num_cpus=0).remote()
        self.names += 1
        # RunOptions before it trains, and read when it is to be killed: actors take seconds to start.
        self.workers[self.names] = actor, actor.pid.remote(), actor.train.remote(self.dealer, self.names)

    def kill(self, name: int) -> None:
        import ray  # noqa: PLC0415

        _, pid, _ = self.workers.pop(name)
        os.kill(ray.get(pid), signal.SIGKILL)

    def busy(self) -> list[int]:
        """The workers that have a batch; not those that were killed."""
        return [name for name in self.dealer.outstanding if isinstance(name, int) and name in self.workers]

    def wait_for_work(self) -> None:
        """Wait until training goes on, as it takes actors seconds to start."""
        while not (self.busy() or self.dealer.is_finished):
            sleep(0.01)

    def ends(self) -> list[Any]:
        """How each worker ended: None, or its error."""
        import ray  # noqa: PLC0415

        told: list[Any] = []
        for _, _, done in self.workers.values():
            try:
                ray.get(done)
                told.append(None)
            except Exception as error:
                told.append(error)
        return told


def kill_dealt_runs(folder: Path, workers: int, dealers: int, seed: int, tick: Callable[[], object]) -> Kills:
    """Kill so many workers and dealers, of runs in ``folder``; ``tick`` is called at each."""
    choose, outcome = random.Random(seed), Kills()
    plain = new_run()
    for epoch in plain.epochs():
        for ids in epoch.batches(BATCH):
            plain.observe(losses_of(ids, epoch.number), ids)
    expected = found(plain)
    left = ["worker"] * workers + ["dealer"] * dealers
    choose.shuffle(left)
    while left:
        store = folder / f"run-{outcome.runs}.zarr"
        outcome.runs += 1
        run = DealtRun(store)
        while left:
            run.wait_for_work()
            sleep(choose.uniform(0, LONGEST))
            if run.dealer.is_finished:
                break
            if left.pop() == "worker":
                busy = run.busy()
                name = choose.choice(busy or list(run.workers))
                outcome.with_a_batch += bool(busy)
                run.kill(name)
                outcome.workers += 1
                run.add()
            else:
                os.kill(run.pid, signal.SIGKILL)
                outcome.dealers += 1
                outcome.unclear += sum(not isinstance(_cause(error), DealerDied) for error in run.ends())
                run = DealtRun(store)
            tick()
        run.ends()
        outcome.different += run.dealer.ask(found) != expected
    return outcome


def _cause(error: Any) -> Any:
    """What a worker raised, of Ray's error about it; None if it was done before the dealer died."""
    return getattr(error, "cause", error) if error is not None else DealerDied()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status, 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.training.dealt", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--workers", type=int, default=50, help="how many workers to kill (50)")
    parser.add_argument("--dealers", type=int, default=50, help="how many dealers to kill (50)")
    parser.add_argument("--seed", type=int, default=0, help="decides whom, and the instants (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with (
        TemporaryDirectory(prefix="prunedata-kill-") as folder,
        on_ray(),
        tqdm(total=options.workers + options.dealers, desc="killing", unit=" kills") as bar,
    ):
        outcome = kill_dealt_runs(Path(folder), options.workers, options.dealers, options.seed, bar.update)
    print(json.dumps(asdict(outcome), indent=2) if options.json else _told(outcome))
    return 0 if outcome.good else 1


def _told(outcome: Kills) -> str:
    return (
        f"{outcome.workers} kills of workers, {outcome.with_a_batch} of them with a batch, and {outcome.dealers} of "
        f"dealers, over {outcome.runs} runs:\n{outcome.different} runs ended otherwise than the one that nobody "
        f"disturbed, and {outcome.unclear} workers without a clear error"
    )


if __name__ == "__main__":
    sys.exit(main())
