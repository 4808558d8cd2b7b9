"""What a training is made of, as plain values: it can be printed, sent to another process and made simpler."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

__all__ = ["BY_RANK", "OWN", "REPEATING", "STREAMS", "Loaded", "Pass", "Setup", "shown", "simpler"]

OWN = ("random", "sequential", "distributed", "distributed in order")
"""Orders that the library draws itself: each sample comes once."""
STREAMS = ("list stream", "dealt stream", "shared stream")
BY_RANK = ("subset", "weighted", "replacement", "own", "repeating", "few", "batches", "batches in place", "batched own")
"""Samplers that say themselves what each rank gets."""
REPEATING = ("weighted", "replacement", "repeating", "few")
"""Those of them that give some samples more than once."""


@dataclass(frozen=True)
class Loaded:
    """One loader."""

    order: str = "random"
    batch: int = 4
    drop_last: bool = False
    workers: int = 0
    with_ids: bool = False
    ahead: bool = False
    """Whether the loop fetches a batch before it trains on the one before; needs ``with_ids``."""
    half: int | None = None
    """Which half of the samples its sampler gives; None for all."""
    length: int = 0
    """How many samples a sampler that repeats gives."""
    uneven: str | None = None
    sampler_drops: bool = False
    stateful: bool = False


@dataclass(frozen=True)
class Pass:
    """One loop over a loader.

    Attributes
    ----------
    stop : int or None
        Batches to train on before the loop is left; None for all.
    fetched : bool
        Whether the loop is left when it has fetched one more batch, without training on it.
    forget : tuple of int
        Batches whose losses are not observed.
    then : str
        ``"on"``: another pass, without a word. ``"again"``: the epoch is begun again. ``"end"``: the loop tries to end
        the epoch, and begins it again if it was told that samples are missing. ``"save"``: new objects, perhaps on
        another number of ranks, go on from what was saved. ``"mark"`` saves as well and goes on; ``"back"`` loads what
        was marked. ``"next"`` ends the epoch; ``"rest"`` ends it and goes on as ``"save"``.
    """

    loader: int = 0
    stop: int | None = None
    fetched: bool = False
    forget: tuple[int, ...] = ()
    skip: bool = False
    then: str = "next"


@dataclass(frozen=True)
class Setup:
    """One training."""

    samples: int = 24
    prune: int = 6
    whole: int | None = None
    """``batch_size`` of the Pruner."""
    window: int = 3
    start: int = 1
    block: int = 1
    per_block: int = 1
    policy: str = "count"
    tolerance: float = 0.0
    observes: bool = True
    seed: int = 0
    dtype: str = "float32"
    losses: str = "plain"
    late: bool = False
    """Whether ``wrap()`` is called within the loop over the epochs."""
    loop: str = "epochs"
    states: str = "all"
    worlds: tuple[int, ...] = (1,)
    """How many ranks train; one number for each time that new objects go on."""
    loaders: tuple[Loaded, ...] = (Loaded(),)
    plan: tuple[tuple[Pass, ...], ...] = ((Pass(),), (Pass(),))
    """The passes of each epoch."""

    @property
    def epochs(self) -> int:
        return len(self.plan)


def shown(value: Any) -> str:
    """A setup as Python code, without what stands at its default."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
    if not isinstance(value, Setup | Loaded | Pass):
        return repr(value)
    plain = type(value)()
    told = [(one.name, getattr(value, one.name)) for one in fields(value)]
    said = ", ".join(f"{name}={shown(own)}" for name, own in told if own != getattr(plain, name))
    return f"{type(value).__name__}({said})"


def simpler(setup: Setup) -> Iterator[Setup]:
    """Yield setups that are simpler in one thing."""
    plain = Setup()
    for name in ("policy", "tolerance", "observes", "dtype", "losses", "late", "loop", "whole", "states", "seed"):
        if getattr(setup, name) != getattr(plain, name) and (setup.observes or name != "policy"):
            yield replace(setup, **{name: getattr(plain, name)})
    yield from _fewer_epochs(setup)
    for at, loader in enumerate(setup.loaders):
        for name in ("drop_last", "workers", "ahead", "with_ids", "uneven", "sampler_drops", "stateful"):
            if getattr(loader, name) != getattr(Loaded(), name):
                changed = replace(loader, **{name: getattr(Loaded(), name)})
                yield replace(setup, loaders=(*setup.loaders[:at], changed, *setup.loaders[at + 1 :]))
    for samples in (setup.samples // 2, setup.samples - 8, setup.samples - 1):
        if samples >= 4 and all(one.length <= samples for one in setup.loaders):
            yield replace(setup, samples=samples, prune=min(setup.prune, samples // 2))
    if len(set(setup.worlds)) == 1 and setup.worlds[0] > 2:
        yield replace(setup, worlds=(2,) * len(setup.worlds))


def _fewer_epochs(setup: Setup) -> Iterator[Setup]:
    plan = setup.plan
    for at in range(len(plan)):
        if len(plan) > 1 and not any(one.then in ("save", "rest") for one in plan[at]):
            yield replace(setup, plan=(*plan[:at], *plan[at + 1 :]))
        if len(plan[at]) > 1 and not any(one.then in ("save", "mark", "back", "on") for one in plan[at]):
            yield replace(setup, plan=(*plan[:at], plan[at][-1:], *plan[at + 1 :]))
        for pass_at, one in enumerate(plan[at]):
            if one.forget and len(one.forget) > 1:
                fewer = replace(one, forget=one.forget[:1])
                yield replace(
                    setup,
                    plan=(*plan[:at], (*plan[at][:pass_at], fewer, *plan[at][pass_at + 1 :]), *plan[at + 1 :]),
                )
