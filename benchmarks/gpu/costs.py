"""What ``observe`` adds to a step, and how near the trainer comes to what the card can do."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common.networks import build
from benchmarks.common.records import Facts
from benchmarks.common.timing import alternate
from benchmarks.gpu.pieces import Piece, Place, named
from benchmarks.study.data import study_data
from benchmarks.study.recipe import Recipe
from benchmarks.study.training_step import Images, Trainer
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

__all__ = ["pieces"]


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
