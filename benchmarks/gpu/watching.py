"""What ``prunedata watch`` adds to a step of 5 ms on a device, and how often it makes the host wait for that."""

import warnings
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.common.records import Facts
from benchmarks.common.timing import alternate
from benchmarks.gpu.costs import Piece, Place, named
from benchmarks.overhead.watching import WIDTH, trained

__all__ = ["pieces"]

TRAINERS = ("huggingface", "lightning")
FIRST = 20
"""Steps that are not timed."""


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


def _measured(place: Place, kind: str) -> Facts:
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


def pieces(place: Place) -> list[Piece]:
    """A piece for each trainer."""
    return [Piece(f"watch/{kind}", 25, partial(_measured, place, kind)) for kind in TRAINERS]
