"""A checkpoint at every moment of a training with validation figures, in every loop: it goes on as never stopped."""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.attacks.weights import train
from benchmarks.faults.weighed.setup import Weighed

__all__ = ["Checkpoints"]

IN_LOOPS = (
    *("plain", "loader", "loader with ids", "stateful", "own sampler", "own batches", "stream", "accelerate"),
    *("iterable", "webdataset", "grain", "tf.data"),
)
"""Loops in the user's hands, which validate within an epoch, after it, or before its last moment."""
IN_TRAINERS = ("trainer", "trainer by weight", "lightning")
"""Loops of trainers, which validate by themselves."""
MOMENTS = 60
"""No training has more. A moment that does not come is no case."""


class Checkpoints(Attack):
    """A case is a loop, where it validates, what it leaves out, and the moment at which new objects go on."""

    name = "checkpoints"
    about = (
        "a training stopped at any step, or before its validation figure, in every loop: as never stopped, bit for bit"
    )
    many, few = len(IN_LOOPS + IN_TRAINERS) * 8 * MOMENTS, 40  # more than there are: the search ends with the last
    loops: ClassVar[tuple[str, ...]] = (*IN_LOOPS, *IN_TRAINERS)

    @property
    def total(self) -> int:
        return len(_setups(self.loops)) * MOMENTS

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        setup = _setups(self.loops)[case % len(_setups(self.loops))]
        moment = case // len(_setups(self.loops)) + 1
        whole = _whole(setup)
        if moment >= whole["moments"]:
            return
        first = train(setup, False, None, moment)
        state = first.pop("state", None)
        if state is None:
            yield Attempt(Verdict.UNCLEAR, f"moment {moment} did not come in {setup}")
            return
        second = train(setup, False, [state], None)
        told = _difference(whole, first, second)
        yield (
            Attempt(Verdict.WRONG, f"{told}, stopped at moment {moment} of {setup}") if told else Attempt(Verdict.EXACT)
        )


@cache
def _setups(loops: tuple[str, ...]) -> list[Weighed]:
    """One for each loop, way to validate, and way to leave out."""
    base = {"samples": 22, "batch": 8, "epochs": 8, "policy": "auto", "prune": 8}
    found = []
    for loop in loops:
        ways = ["weight"] if loop.endswith("by weight") else ["delivery", "weight"]
        if loop == "trainer":
            ways = ["delivery"]
        for leave_out in ways:
            found.append(Weighed(loop=loop, leave_out=leave_out, figure="within", **base))  # type: ignore[arg-type]
            if loop in IN_LOOPS:
                found.append(Weighed(loop=loop, leave_out=leave_out, figure="within", calls=True, **base))  # type: ignore[arg-type]
                found.append(Weighed(loop=loop, leave_out=leave_out, figure="after", calls=True, **base))  # type: ignore[arg-type]
            found.append(Weighed(loop=loop, leave_out=leave_out, holdout=0.2, **base))  # type: ignore[arg-type]
    return found


@cache
def _whole(setup: Weighed) -> dict[str, Any]:
    """The training that is never stopped."""
    return train(setup, False, None, None)


def _difference(whole: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> str:
    """Say in what two halves differ from the whole; nothing if in nothing."""
    gradients = first["gradients"] + second["gradients"]
    if len(gradients) != len(whole["gradients"]):
        return f"{len(gradients)} steps in the place of {len(whole['gradients'])}"
    step = next(
        (at for at, both in enumerate(zip(gradients, whole["gradients"], strict=True)) if (both[0] != both[1]).any()),
        None,
    )
    if step is not None:
        return f"other gradients from step {step} on"
    figures = [[record.get("validation") for record in one["history"]] for one in (whole, second)]
    if figures[0] != figures[1]:
        return f"figures {figures[1]} in the place of {figures[0]}"
    kept = [[record["kept"] for record in one["history"]] for one in (whole, second)]
    if kept[0] != kept[1]:
        return f"{kept[1]} samples in the place of {kept[0]}"
    return ""
