"""What ``observe`` and ``prunedata watch`` add to a step, and how near the trainer comes to what the card can do."""

import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common.networks import build
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import alternate, made_on
from benchmarks.overhead.watching import FIRST, WIDTH, trained
from benchmarks.study.data import study_data
from benchmarks.study.recipe import Recipe
from benchmarks.study.training_step import Images, Trainer
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

__all__ = ["Piece", "Place", "go_through", "named", "pieces", "watch"]


@dataclass(frozen=True)
class Place:
    """Where the pieces run, and how large they are.

    Attributes
    ----------
    device : torch.device
    data, labels : Path or None
        Folder of CIFAR-10 in the hub's parquet layout, and CIFAR-10N's labels. Without data: digits, on a CPU only.
    compiled : bool
        Whether the arms of deep networks run through torch.compile.
    """

    device: torch.device
    data: Path | None = None
    labels: Path | None = None
    compiled: bool = False

    @property
    def full(self) -> bool:
        """Whether this is a GPU. A CPU runs every piece at a tiny size, so that no line is first run on a GPU."""
        return self.device.type == "cuda"

    def of(self, full: int, tiny: int) -> int:
        """One of two sizes."""
        return full if self.full else tiny


@dataclass(frozen=True)
class Piece:
    """One thing to do.

    Attributes
    ----------
    name : str
        Its part and its own name, with a slash between.
    seconds : float
        What it takes on a GPU, about. It does not begin with less time left.
    run : callable
        Returns its facts. ``right``, if there, says whether it came out as it must.
    """

    name: str
    seconds: float
    run: Callable[[], Facts]


def go_through(pieces: Iterable[Piece], recorded: Runs, until: float, again: bool = False) -> bool:
    """Run the pieces that are not recorded as right, as long as there is time, and record each as it ends.

    ``until`` is in seconds of ``time.monotonic()``. Returns whether all that ran came out right.
    """
    done = set() if again else {facts["name"] for facts in recorded.read() if facts.get("right", True)}
    well = True
    for piece in pieces:
        left = until - time.monotonic()
        if piece.name in done:
            continue
        if left < piece.seconds:
            print(f"{piece.name:<44} not begun: it takes {piece.seconds:.0f} s, {left:.0f} s are left", flush=True)
            continue
        began = time.monotonic()
        try:
            facts = piece.run()
        except Exception as error:  # the pieces that follow are worth their time
            traceback.print_exc()
            facts = {"right": False, "error": f"{type(error).__name__}: {error}"}
        took = time.monotonic() - began
        recorded.add(piece.name, {"name": piece.name, **facts, "took": round(took, 1)})
        well &= bool(facts.get("right", True))
        print(f"{piece.name:<44} {took:6.1f} s  {_shown(facts)}", flush=True)
    sys.stdout.flush()
    return well


def named(place: Place) -> str:
    """The hardware, as recorded runs have it."""
    return torch.cuda.get_device_name(place.device) if place.full else str(made_on(threads=1)["hardware"])


def _shown(facts: Facts) -> str:
    plain = {name: value for name, value in facts.items() if isinstance(value, str | int | float) and name != "name"}
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in plain.items() if name not in ("hardware", "torch"))[:150]  # fmt: skip


def elapsed(place: Place, work: Callable[[], object]) -> float:
    """Seconds that the device takes for some work, between two events; on a CPU by the clock."""
    if not place.full:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(place.device)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize(place.device)
    return float(begin.elapsed_time(end)) / 1000


def _recipe(place: Place, **options: Any) -> Recipe:
    given = {"network": "resnet18", "samples": 48_000, "batch_size": 256, "learning_rate": 0.1, "epochs": 30}
    small = {"network": "lenet", "samples": 320, "batch_size": 32, "epochs": 5}
    return Recipe(**{**(given if place.full else {**given, **small}), "rates": "cosine", **options})


def trainer_of(place: Place, recipe: Recipe, **options: Any) -> tuple[Trainer, torch.Tensor]:
    """A trainer that has captured its step, and the ids of a batch."""
    data = study_data(recipe, place.data)
    images = Images(data.train, place.device)
    trainer = Trainer(recipe, images, data.classes, **options)
    trainer.begin_epoch(0)
    ids = torch.arange(recipe.batch_size, device=place.device)
    for _ in range(5):
        trainer.step(ids)
    return trainer, ids


def _observe(place: Place, batch_size: int, graphs: bool, network: str = "resnet18") -> Facts:
    """A step with ``observe`` and the same step without, in turn: by the device's events, and by the host's clock."""
    recipe = _recipe(place, batch_size=batch_size, **({"network": network} if place.full else {}))
    trainer, ids = trainer_of(place, recipe, graphs=graphs)
    steps, repeats = place.of(60, 4), place.of(9, 2)
    samples = steps * batch_size * (repeats + 1)
    pruner = Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=0.2)
    loader: Any = wrap(DataLoader(range(samples), batch_size=batch_size), pruner)  # type: ignore[arg-type]
    pruner.begin_epoch()
    which = iter(loader)
    hosts: list[float] = []

    def plain() -> None:
        for _ in range(steps):
            trainer.step(ids)

    def observed() -> None:
        for _ in range(steps):
            next(which)
            losses = trainer.step(ids)
            began = time.perf_counter()
            pruner.observe(losses)
            hosts.append(time.perf_counter() - began)

    def loaded() -> None:
        for _ in range(steps):
            next(plainly)
            trainer.step(ids)

    plainly = iter(DataLoader(range(samples), batch_size=batch_size))  # type: ignore[arg-type]
    ways = {"plain": loaded, "observed": observed}
    times = alternate({name: partial(elapsed, place, way) for name, way in ways.items()}, repeats)
    per_step = {name: [took / steps for took in taken] for name, taken in times.items()}
    added = median(with_ / without - 1 for with_, without in zip(per_step["observed"], per_step["plain"], strict=True))
    bare = elapsed(place, plain) / steps
    return {
        "batch_size": batch_size, "network": recipe.network, "graphs": graphs, "n": repeats, "steps": steps,
        "step_ms": 1000 * median(per_step["plain"]), "observed_ms": 1000 * median(per_step["observed"]),
        "bare_ms": 1000 * bare, "added_percent": 100 * added, "host_us": 1e6 * median(hosts), "hardware": named(place),
        "times": per_step,
    }  # fmt: skip


def _ceilings(place: Place) -> Facts:
    """The rate of a large product in bfloat16 and of a large copy, bytes read and written, on random numbers."""
    side, cells, repeats = place.of(8192, 128), place.of(1 << 31, 1 << 16), place.of(20, 2)
    one, other = (torch.randn(side, side, device=place.device, dtype=torch.bfloat16) for _ in range(2))
    source = torch.randint(255, (cells,), dtype=torch.uint8, device=place.device)
    target = torch.empty_like(source)
    products = [elapsed(place, lambda: one @ other) for _ in range(repeats + 3)][3:]
    copies = [elapsed(place, lambda: target.copy_(source)) for _ in range(repeats + 3)][3:]
    return {
        "tflops": 2 * side**3 / median(products) / 1e12, "gigabytes_per_second": 2 * cells / median(copies) / 1e9,
        "n": repeats, "hardware": named(place), "torch": torch.__version__,
    }  # fmt: skip


def _pace(place: Place, **options: Any) -> Facts:
    """Samples a second of the trainer's steps, and what share of the card's products that is."""
    recipe = _recipe(place)
    began = time.perf_counter()
    trainer, ids = trainer_of(place, recipe, **options)
    ready = time.perf_counter() - began
    steps = place.of(60, 3)
    times = [elapsed(place, lambda: [trainer.step(ids) for _ in range(steps)]) for _ in range(place.of(5, 2))]
    operations = _operations(recipe.network)
    rate = steps * recipe.batch_size / median(times)
    memory = torch.cuda.max_memory_allocated(place.device) / 2**30 if place.full else 0.0
    return {
        "network": recipe.network, "batch_size": recipe.batch_size, **options, "samples_per_second": rate,
        "tflops": rate * operations / 1e12, "step_ms": 1000 * median(times) / steps, "n": len(times),
        "ready_seconds": ready, "memory_gib": memory, "hardware": named(place), "torch": torch.__version__,
    }  # fmt: skip


def _operations(network: str) -> int:
    """Floating-point operations of a sample's forward and backward pass."""
    model, image = build(network, 3, 10), torch.zeros(1, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        model(image).sum().backward()
    return int(counter.get_total_flops())


def pieces(place: Place) -> list[Piece]:
    """The costs of a step, then the trainer's pace."""
    return [
        Piece("step/gpu-bound", 12, partial(_observe, place, place.of(128, 16), True)),
        Piece("step/gpu-bound-small", 12, partial(_observe, place, place.of(64, 8), True)),
        Piece("step/launch-bound", 12, partial(_observe, place, place.of(128, 16), False, "lenet")),
        Piece("pace/ceilings", 4, partial(_ceilings, place)),
        Piece("pace/eager", 8, partial(_pace, place, graphs=False)),
        Piece("pace/graph", 8, partial(_pace, place, graphs=True)),
        Piece("pace/graph-compiled", 60, partial(_pace, place, graphs=True, compiled=True)),
    ]


TRAINERS = ("torch", "huggingface", "lightning")


class Busy(nn.Module):
    """A small layer, and products that keep the device busy and launch little."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3, device=place.device)
        self.products = place.of(28, 1)
        size = place.of(4096, 8)
        self.one = torch.full((size, size), 1 / size, device=place.device, dtype=torch.bfloat16)
        self.other = torch.empty_like(self.one)

    def forward(self, points: Tensor) -> Tensor:
        """Return the layer's scores."""
        with torch.no_grad():
            for _ in range(self.products):
                torch.mm(self.one, self.one, out=self.other)
        scores: Tensor = self.layer(points)
        return scores


def _waits(place: Place, kind: str, steps: int, *, watched: bool) -> int:
    """How often a training makes the host wait for the device."""
    if not place.full:
        trained(kind, steps, watched=watched, network=partial(Busy, place))
        return 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trained(kind, steps, watched=watched, network=partial(Busy, place), gpu=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in said)


def _watched(place: Place, kind: str) -> Facts:
    steps, repeats = place.of(300, 2 * FIRST), place.of(3, 1)

    def step(*, watched: bool) -> float:
        clock = trained(kind, steps, watched=watched, network=partial(Busy, place), gpu=place.full)
        return 1e3 * (clock.at[-1] - clock.at[FIRST]) / (steps - 1 - FIRST)

    step(watched=False)  # what is done once
    times = alternate({"plain": lambda: step(watched=False), "watched": lambda: step(watched=True)}, repeats)
    waits = {watched: _waits(place, kind, steps, watched=watched) for watched in (False, True)}
    added = median(watched - plain for plain, watched in zip(times["plain"], times["watched"], strict=True))
    return {
        "trainer": kind, "step_ms": median(times["plain"]), "watched_ms": median(times["watched"]), "steps": steps,
        "n": repeats, "added_us": 1e3 * added, "waits": waits[False], "waits_watched": waits[True],
        "hardware": named(place), "right": waits[True] - waits[False] < steps / 10,
    }  # fmt: skip


def watch(place: Place) -> list[Piece]:
    """A piece for each trainer: what ``prunedata watch`` adds to a step of 5 ms, and how often the host waits."""
    return [Piece(f"watch/{kind}", 25, partial(_watched, place, kind)) for kind in TRAINERS]
