"""What a batch costs that comes from a dealer, in its own process and from a Ray actor, beside plain queues.

    python -m benchmarks.overhead.dealing            about a minute, and needs Ray
    python -m benchmarks.overhead.dealing --json

Each turn is one epoch: every batch is asked for and its losses are reported, one after the other. The peers give the
same ids and take nothing back. Seconds are the clock's, as processes wait for one another. Turns alternate.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.queues import Queue
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common.commands import positive, program
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.common.timing import Row, alternate, machine, show_rows
from prunedata import Dealer, Pruner, Schedule
from prunedata.policies import Random
from prunedata.types import Recorded, SomeIds

__all__ = ["main"]

Turn = Callable[[], float]
"""One turn of a competitor; returns microseconds a batch."""

AHEAD = 64
"""Batches that wait in a queue: enough that whoever takes them seldom waits for who puts them there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.overhead.dealing", __doc__)
    add = parser.add_argument
    add("--samples", type=positive, default=50_000, help="default: %(default)s")
    add("--batch-size", type=positive, default=128, help="default: %(default)s")
    add("--repeats", type=positive, default=9, help="default: %(default)s")
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with on_ray() as version:
        about = machine(ray=version)
        rows = list(_measure(options.samples, options.batch_size, options.repeats))
    show_rows(rows, about, options.json)
    return 0


def _measure(samples: int, batch: int, repeats: int) -> Iterator[Row]:
    from ray.util.queue import Queue as RayQueue  # noqa: PLC0415 (takes seconds, and --help needs it not)

    from prunedata.adapters.ray import serve  # noqa: PLC0415

    epochs, losses = repeats + 2, np.random.default_rng(0).random(samples, dtype=np.float32)
    schedule = Schedule(epochs, epochs, epochs - 1, 1, 1)
    ids = next(Pruner(samples, schedule, prune=0.2, policy=Random()).epochs()).batches(batch)
    batches = [np.array(some) for some in ids]

    def make() -> Pruner:
        return Pruner(samples, schedule, prune=0.2)

    with _queue(batches) as queue:
        here, peer = _dealt(Dealer(make(), batch), batches, losses), _got(queue.get, batches)
        peers = {"no dealer": _plain(make(), batch, losses), "multiprocessing.Queue": peer}
        yield _row("Dealer, in its own process", here, peers, samples, batch, repeats)
        shelf = RayQueue(maxsize=0)
        for _ in range(repeats + 1):
            shelf.put_nowait_batch(batches)
        peers = {"ray.util.queue.Queue": _got(shelf.get, batches), "multiprocessing.Queue": peer}
        actor = _dealt(serve(make, batch), batches, losses)
        yield _row("Dealer, in a Ray actor", actor, peers, samples, batch, repeats)


def _row(what: str, ours: Turn, peers: dict[str, Turn], samples: int, batch: int, repeats: int) -> Row:
    times = alternate({"ours": ours, **peers}, repeats)
    return Row(what, samples, batch, "us a batch", times.pop("ours"), times)


def _dealt(dealer: Any, batches: Sequence[SomeIds], losses: Recorded) -> Turn:
    """An epoch of a dealer's batches, each asked for and reported."""

    def turn() -> None:
        for _ in batches:
            deal = dealer.deal("one")
            dealer.observe(deal, losses[deal.ids])

    return _timed(turn, len(batches))


def _got(get: Callable[[], SomeIds], batches: Sequence[SomeIds]) -> Turn:
    """As many batches from a queue."""

    def turn() -> None:
        for _ in batches:
            get()

    return _timed(turn, len(batches))


def _plain(pruner: Pruner, batch: int, losses: Recorded) -> Turn:
    """An epoch's batches from a Pruner without a dealer; neither its beginning nor its end."""

    def turn() -> None:
        for ids in pruner.current.batches(batch):
            pruner.observe(losses[ids], ids)

    def run() -> float:
        pruner.begin_epoch()
        seconds = _timed(turn, -(-pruner.samples // batch))()
        pruner.end_epoch()
        return seconds

    return run


def _timed(turn: Callable[[], None], batches: int) -> Turn:
    def run() -> float:
        started = perf_counter()
        turn()
        return 1e6 * (perf_counter() - started) / batches

    return run


@contextmanager
def _queue(batches: list[SomeIds]) -> Iterator["Queue[SomeIds]"]:
    """A queue of index batches, which another process keeps full."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[SomeIds] = context.Queue(AHEAD)
    process = context.Process(target=_fill, args=(queue, batches), daemon=True)
    process.start()
    try:
        for _ in batches:
            queue.get()
        yield queue
    finally:
        process.terminate()
        process.join()
        queue.close()


def _fill(queue: "Queue[SomeIds]", batches: list[SomeIds]) -> None:
    while True:
        for ids in batches:
            queue.put(ids)


if __name__ == "__main__":
    raise SystemExit(main())
