"""How many batches a second one dealer deals and records, from many callers that do nothing else.

    python -m benchmarks.overhead.callers                      threads, and Ray actors: about five minutes
    python -m benchmarks.overhead.callers --callers 64 --most 1,8 --kill
    python -m benchmarks.overhead.callers --recorded           the table of docs/frameworks/scale.md

Each caller asks for batches and reports their losses until the run is done. In Ray at most eight processes have all
callers, as threads: more would measure this machine's memory. With ``--kill`` one of these processes is killed when a
part of the batches is done. After each run every kept sample has been observed once: anything else is an error.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.common.commands import markdown, positive, program
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import Row, alternate, made_on
from prunedata import Dealer, Pruner, Schedule, Wait
from prunedata.findings.searched import state_of

__all__ = ["RESULTS", "Called", "in_ray", "in_threads", "keys", "main", "table"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
PROCESSES = 8
BATCH = 32
POLL = 0.05
"""Seconds until a caller asks again, while others have the last batches of an epoch."""
EPOCHS = 2
DONE_FIRST = 0.3
"""Of the first epoch, when a process is killed."""


@dataclass(frozen=True)
class Called:
    """What came of one run.

    Attributes
    ----------
    where : "threads" or "Ray"
    callers, processes, most : int
        Who asked, in how many processes, and for how many batches at a time.
    killed : bool
        Whether one of the processes was killed meanwhile.
    batches : int
    seconds : float
    """

    where: str
    callers: int
    processes: int
    most: int
    killed: bool
    batches: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, record and print; return the exit status."""
    parser = program("benchmarks.overhead.callers", __doc__)
    add = parser.add_argument
    add("--callers", type=_numbers, default=(1, 8, 64, 256), help="default: 1,8,64,256")
    add("--most", type=_numbers, default=(1, 8), help="batches asked for at a time; default: 1,8")
    add("--batches", type=positive, default=1500, help="of an epoch; default: %(default)s")
    add("--kill", action="store_true", help="only on Ray, with a process killed among them")
    add("--results", type=Runs, metavar="FILE", help="where to record; default: nowhere")
    add("--recorded", action="store_true", help="measure nothing, print what was recorded")
    options = parser.parse_args(arguments)
    if options.recorded:
        print(table((options.results or RESULTS).read()))
        return 0
    found = []
    with on_ray():
        for callers in options.callers:
            for most in options.most:
                if not options.kill:
                    found.append(in_threads(callers, most, options.batches))
                found.append(in_ray(callers, most, options.batches, kill=options.kill))
    facts = [_facts(one) for one in found]
    for one in facts if options.results else ():
        options.results.add(f"{one['kind']}/{one['name']}", one)
    print(table(facts), json.dumps(made_on("ray", "numpy")), sep="\n\n")
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(one) for one in text.split(","))


def _facts(one: Called) -> Facts:
    name = f"{one.where}-{one.callers}-most{one.most}{'-kill' * one.killed}"
    return {"kind": "callers", "name": name, **asdict(one), **made_on("ray", "numpy")}


def table(facts: Sequence[Facts]) -> str:
    """Batches a second of each run."""
    order = sorted(facts, key=lambda one: (one["where"] == "Ray", one["killed"], one["most"], one["callers"]))
    lines = [
        [
            one["where"],
            str(one["callers"]),
            str(one["processes"]),
            str(one["most"]),
            "one of the processes" if one["killed"] else "nobody",
            f"{one['batches'] / one['seconds']:,.0f}",
            f"{1e6 * one['seconds'] / one['batches']:,.0f} us",
        ]
        for one in order
    ]
    columns = ("callers are", "callers", "processes", "batches at a time", "killed", "batches/s", "a batch")
    return markdown(columns, lines)


def _maker(batches: int) -> Callable[[], Pruner]:
    def make() -> Pruner:
        return Pruner(BATCH * batches, Schedule.steady(EPOCHS), prune=0.2)

    return make


def _work(dealer: Any, name: str, most: int) -> None:
    """Ask and report until the run is done."""
    while (found := dealer.deal_many(name, most)) is not None:
        if isinstance(found, Wait):
            time.sleep(POLL)
        else:
            dealer.observe_many([(deal, np.cos(deal.ids)) for deal in found])


def _together(dealer: Any, names: Sequence[str], most: int) -> None:
    threads = [threading.Thread(target=_work, args=(dealer, name, most), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_threads(callers: int, most: int, batches: int) -> Called:
    """All callers are threads of this process, which has the dealer."""
    dealer = Dealer(_maker(batches)(), BATCH)
    since = time.perf_counter()
    _together(dealer, [f"caller {number}" for number in range(callers)], most)
    seconds = time.perf_counter() - since
    return Called("threads", callers, 1, most, False, _checked(dealer.pruner), seconds)


def in_ray(callers: int, most: int, batches: int, *, kill: bool = False) -> Called:
    """The callers are threads of actors, and the dealer is in an actor of its own. Ray has to run."""
    import ray  # noqa: PLC0415 (takes seconds, and --help needs it not)

    from prunedata.adapters.ray import serve  # noqa: PLC0415

    class Callers:
        def ready(self) -> bool:
            return True

        def work(self, dealer: Any, names: Sequence[str], most: int) -> None:
            _together(dealer, names, most)

    actor: Any = ray.remote(num_cpus=0)(Callers)
    processes = min(callers, PROCESSES)
    made = [actor.remote() for _ in range(processes)]
    ray.get([one.ready.remote() for one in made])
    dealer = serve(_maker(batches), BATCH)
    names = [f"caller {number}" for number in range(callers)]
    since = time.perf_counter()
    ends = [one.work.remote(dealer, names[place::processes], most) for place, one in enumerate(made)]
    if kill:
        while dealer.ask(lambda run: float(run.visits.mean())) < DONE_FIRST:
            time.sleep(0.01)
        ray.kill(made[0])
    ray.get(ends[1:] if kill else ends)
    seconds = time.perf_counter() - since
    for one in made:
        ray.kill(one)
    return Called("Ray", callers, processes, most, kill, dealer.ask(_checked), seconds)


def _checked(pruner: Pruner) -> int:
    """How many batches a run had. Raises :class:`RuntimeError` unless each kept sample was observed once."""
    history = pruner.history
    if [one["observed"] for one in history] != [one["kept"] for one in history] or len(history) != EPOCHS:
        raise RuntimeError(f"Expected each kept sample to be observed. Got {history}.")
    if int(pruner.visits.sum()) != sum(one["kept"] for one in history) or pruner.visits.max() > EPOCHS:
        raise RuntimeError(f"Expected each of them once. Got {pruner.visits.sum()} visits.")
    return sum(-(-one["kept"] // BATCH) for one in history)


if __name__ == "__main__":
    raise SystemExit(main())


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
