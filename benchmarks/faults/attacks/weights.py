"""Random trainings in which some samples must not be learned: their labels are poisoned, and no weight may move."""

import random
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

from benchmarks.faults.attack import Attempt, RandomTrainings, Verdict
from benchmarks.faults.fuzz.pool import Pool, hangs_after
from benchmarks.faults.weighed.setup import Weighed, draw, simpler

__all__ = ["Weights", "WeightsInFrameworks", "WeightsOnRanks", "train"]

NEAR = 1e-6
"""How far a gradient may lie from the plain loop's: what a loss weighs is a float32."""
LONGEST = 120
"""Seconds after which a training is taken to hang."""
ALONE: dict[str, float] = {"plain": 2, "dealer": 2, "loader": 4, "loader with ids": 2, "stateful": 2, "own sampler": 2}
ALONE |= {
    "own batches": 2,
    "id_key": 2,
    "stream": 2,
    "watch by weight": 2,
    "accelerate": 2,
    "iterable": 2,
    "webdataset": 1,
}
"""Loops, and how often each is drawn."""
FRAMEWORKS: dict[str, float] = {
    "tf.data": 1,
    "grain": 2,
    "keras": 1,
    "trainer": 3,
    "trainer by weight": 3,
    "lightning": 3,
}
SHARED: dict[str, float] = {
    "loader": 4,
    "loader with ids": 2,
    "own sampler": 2,
    "own batches": 2,
    "id_key": 2,
    "stream": 3,
}
REFUSALS = (
    r"at least one batch of N samples in each epoch",
    r"more samples than the N that pruned epochs leave out",
    r"one process",
    r"every rank to have as many batches in epoch N",
)
"""What a run may be refused with, by what is drawn."""


class Weights(RandomTrainings[Weighed]):
    """A case is one training in one process, and the same with poison."""

    name = "weights"
    about = (
        "a training in a random loop with samples that must not be learned: gradients, and with their labels poisoned"
    )
    many, few = 3000, 40
    loops: ClassVar[dict[str, float]] = ALONE
    most_ranks: ClassVar[int] = 1
    refusals = REFUSALS

    def draw(self, chance: random.Random) -> Weighed:
        return draw(chance, self.loops, self.most_ranks)

    def simpler(self, setup: Weighed) -> Iterator[Weighed]:
        return simpler(setup)

    def judge(self, setup: Weighed) -> Attempt:
        """Train as a setup says, with and without poison, and look at the gradients of every step."""
        from benchmarks.faults.weighed.setup import farthest, plain  # noqa: PLC0415
        from prunedata.errors import PrunedataError  # noqa: PLC0415

        try:
            trained, poisoned = (self.whole(setup, poisoned=poisoned) for poisoned in (False, True))
        except PrunedataError as error:
            return Attempt(Verdict.REFUSED, str(error))
        except Exception as error:  # of whatever framework: it is told
            return Attempt(Verdict.UNCLEAR, f"{type(error).__name__}: {error}")
        leaks, off = farthest(_mean(trained), _mean(poisoned)), farthest(_mean(trained), plain(setup, trained))
        came = len(trained[0]["history"])
        told = [
            f"leak: with poison gradients are {leaks:g} off" if leaks else "",
            f"gradients: {off:g} off a plain loop over what counts" if off > NEAR else "",
            f"epochs: {came} of {setup.epochs} came" if came != setup.epochs else "",
        ]
        wrong = next(filter(None, told), None)
        return Attempt(Verdict.EXACT) if wrong is None else Attempt(Verdict.WRONG, wrong)

    def whole(self, setup: Weighed, *, poisoned: bool) -> list[dict[str, Any]]:
        """Train to the end, with new objects after each stop; return what each rank trained on."""
        states: list[Any] | None = None
        told: list[dict[str, Any]] = []
        for stop in (*setup.stops, None):
            parts = self.play(setup, poisoned, states, stop)
            told = parts if not told else [_joined(*both) for both in zip(told, parts, strict=True)]
            states = [part.pop("state", None) for part in parts]
            if states[0] is None:
                break
        return told

    def play(self, setup: Weighed, poisoned: bool, states: Any, stop: int | None) -> list[dict[str, Any]]:
        """Train in this process, and give up after a while."""
        with hangs_after(LONGEST):
            return [train(setup, poisoned, states, stop)]


class WeightsInFrameworks(Weights):
    """The same where a framework has the loop or the data."""

    name = "weights-frameworks"
    about = "the same in fit of Keras and Lightning, in the Trainer, and over tf.data and Grain"
    many, few = 500, 8
    loops = FRAMEWORKS


class WeightsOnRanks(Weights):
    """The same on ranks over gloo."""

    name = "weights-ranks"
    about = "the same on 2 or 3 ranks over gloo: the mean over the ranks of their gradients"
    many, few = 1000, 12
    loops = SHARED
    most_ranks = 3

    @cached_property
    def _pool(self) -> Pool:
        return Pool(self.most_ranks, self.folder)

    def play(self, setup: Weighed, poisoned: bool, states: Any, stop: int | None) -> list[dict[str, Any]]:
        """Train in the pool."""
        from prunedata.errors import PrunedataError  # noqa: PLC0415

        played = self._pool.run(
            setup.worlds[0], "benchmarks.faults.attacks.weights", "on_rank", setup, poisoned, states, stop
        )
        errors = [one for one in played if isinstance(one, str)]
        for one in sorted(errors, key=lambda each: "gloo" in each.lower()):  # what the others' end brings comes last
            kind, _, told = one.partition(": ")
            raise (PrunedataError if kind == "refused" else RuntimeError)(told)
        return played

    def close(self) -> None:
        """End the ranks."""
        self._pool.close()


def train(
    setup: Weighed, poisoned: bool, states: Any, stop: int | None, rank: int = 0, ranks: int = 1
) -> dict[str, Any]:
    """Train from some states to the end, or to a moment. A loop that is warned of its weights is an error."""
    from benchmarks.faults.weighed.frameworks import LOOPS  # noqa: PLC0415 (it imports frameworks)
    from prunedata.errors import UnweighedWarning  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UnweighedWarning)
        return LOOPS[setup.loop](setup, poisoned=poisoned, rank=rank, ranks=ranks, states=states).train(stop)


def on_rank(
    rank: int, ranks: int, setup: Weighed, poisoned: bool, states: Any, stop: int | None
) -> tuple[bool, dict[str, Any] | str]:
    """Train on a rank; return whether all went well, and an error as text, as it has to travel."""
    from prunedata.errors import PrunedataError  # noqa: PLC0415

    try:
        return True, train(setup, poisoned, states, stop, rank, ranks)
    except PrunedataError as error:
        return False, f"refused: {error}"
    except Exception as error:
        return False, f"raised: {type(error).__name__}: {error}"


def _mean(trained: list[dict[str, Any]]) -> list[Any]:
    """Of each step, the mean over the ranks of their gradients; one that has no more steps adds nothing."""
    from benchmarks.faults.weighed.setup import aligned  # noqa: PLC0415

    return [
        sum(one["gradients"][at] for one, at in zip(trained, places, strict=True) if at is not None) / len(trained)
        for _, places in aligned(trained)
    ]


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        "epochs": one["epochs"] | other["epochs"],
        "shared": one["shared"] | other["shared"],
        "steps": one["steps"] + other["steps"],
        "gradients": one["gradients"] + other["gradients"],
        "history": other["history"],
    }
