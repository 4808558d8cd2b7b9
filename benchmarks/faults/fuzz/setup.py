"""What a training is made of, as plain values: it is drawn, printed, sent to another process and made simpler."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

__all__ = ["BY_RANK", "OWN", "REPEATING", "STREAMS", "Loaded", "Pass", "Setup", "draw", "simpler"]


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


DTYPES = ("float32", "float32", "float64", "float16", "bfloat16")
LOSSES = ("plain", "plain", "signed", "large", "ties", "constant")


def draw(chance: random.Random, most_ranks: int = 1) -> Setup:
    """Return a setup for one process, or for 2 to ``most_ranks``, now and then with another number later on."""
    samples, epochs = chance.randint(20, 90), chance.randint(2, 4)
    window = chance.randint(2, epochs + 1)
    block = chance.randint(1, 3)
    policy = chance.choice(["count", "count", "rate", "running", "random"])
    shared = most_ranks > 1
    loaders, halves = _loaders(chance, samples, shared)
    observes = policy != "random" or chance.random() < 0.5
    if not observes:  # what was fetched and not trained on cannot be told from what was, nor who came twice
        orders = dict.fromkeys(REPEATING, "own")
        loaders = tuple(
            replace(one, ahead=False, stateful=False, order=orders.get(one.order, one.order)) for one in loaders
        )
    if shared:  # gloo has threads: a fork of a process that has some may wait for ever
        loaders = tuple(replace(one, workers=0) for one in loaders)
    # Without losses nobody knows that a batch was fetched and not trained on; a saved position would be behind it.
    may_forget = policy != "random" and not any(one.stateful for one in loaders)
    plan = _plan(chance, epochs, loaders, halves, may_forget, shared)
    phases = 1 + sum(one.then in ("save", "rest") for passes in plan for one in passes)
    worlds = _worlds(chance, phases, most_ranks)
    return Setup(
        samples=samples,
        prune=chance.randint(0, samples // 2),
        whole=chance.choice([None, None, None, loaders[0].batch]) if len({one.batch for one in loaders}) == 1 else None,
        window=window,
        start=chance.randint(1, window - 1),
        block=block,
        per_block=chance.randint(1, block),
        policy=policy,
        tolerance=chance.choice([0.0, 0.0, 0.3]) if policy in ("count", "rate") else 0.0,
        observes=observes,
        seed=chance.randrange(1 << 16),
        dtype=chance.choice(DTYPES),
        losses=chance.choice(LOSSES),
        late=chance.random() < 0.15,
        loop=chance.choice(["epochs", "calls"]),
        states="own" if chance.random() < 0.3 and len(set(worlds)) == 1 else "all",
        worlds=worlds,
        loaders=loaders,
        plan=plan,
    )


def _worlds(chance: random.Random, phases: int, most: int) -> tuple[int, ...]:
    if most == 1:
        return (1,) * phases
    first = chance.randint(2, most)
    if chance.random() < 0.5:
        return (first,) * phases
    return (first, *(chance.randint(1, most) for _ in range(phases - 1)))


def _loaders(chance: random.Random, samples: int, shared: bool) -> tuple[tuple[Loaded, ...], bool]:
    """One or two loaders, and whether each gives a half."""
    orders = ("distributed", "distributed in order") * 5 if shared else OWN * 2
    orders = (*orders, *STREAMS * 2, *BY_RANK) if shared else (*orders, "list stream", "dealt stream", *BY_RANK * 2)
    if not shared and chance.random() < 0.12:
        kinds = [chance.choice(["subset", "own", "batches"]) for _ in range(2)]
        return tuple(_loader(chance, kind, samples, half) for half, kind in enumerate(kinds)), True
    if chance.random() < 0.25:
        kinds = [chance.choice([*OWN[2:], "list stream"] if shared else [*OWN, "own", "list stream"]) for _ in range(2)]
        return tuple(_loader(chance, kind, samples) for kind in kinds), False
    return (_loader(chance, chance.choice(orders), samples),), False


def _loader(chance: random.Random, order: str, samples: int, half: int | None = None) -> Loaded:
    with_ids = chance.random() < 0.35
    ahead = with_ids and chance.random() < 0.4
    distributed = order.startswith("distributed")
    uneven = chance.choice([None, None, "weights", "drop", "pad"]) if distributed else None
    if order in STREAMS:
        uneven = chance.choice([None, "weights", "drop"])
    return Loaded(
        order=order,
        batch=chance.choice([1, 1, 1, 1, 2, 3, 4, 8, 16] if uneven == "pad" else [1, 2, 3, 4, 5, 8, 12, 16, 24]),
        drop_last=chance.random() < 0.3 and order not in ("batches",),
        workers=2 if chance.random() < 0.01 and not distributed and order not in STREAMS else 0,
        with_ids=with_ids,
        ahead=ahead,
        half=half,
        length=chance.choice([samples // 2, samples, samples + 9]),
        uneven=uneven,
        sampler_drops=distributed and chance.random() < 0.3,
        stateful=not ahead and chance.random() < 0.12 and order not in STREAMS,
    )


def _plan(
    chance: random.Random, epochs: int, loaders: tuple[Loaded, ...], halves: bool, may_forget: bool, shared: bool
) -> tuple[tuple[Pass, ...], ...]:
    plan = []
    for epoch in range(epochs):
        passes = _halves(chance) if halves else _passes(chance, loaders, may_forget, shared)
        if chance.random() < 0.1 and epoch < epochs - 1:
            passes = (*passes[:-1], Pass(passes[-1].loader, forget=passes[-1].forget, skip=True, then="rest"))
        plan.append(passes)
    return tuple(plan)


def _halves(chance: random.Random) -> tuple[Pass, ...]:
    """A pass over each of two loaders; now and then the first is left early, and both are iterated again."""
    whole = (Pass(0, then="on"), Pass(1))
    if chance.random() < 0.7:
        return whole
    first, second = Pass(0, stop=chance.randint(1, 3), then="on"), Pass(1, then="end")
    if chance.random() < 0.3:
        first, second = Pass(0, then="on"), Pass(1, stop=chance.randint(1, 3), then="end")
    return (first, second, *whole)


def _passes(chance: random.Random, loaders: tuple[Loaded, ...], may_forget: bool, shared: bool) -> tuple[Pass, ...]:
    """What is done in an epoch: perhaps something goes wrong, and at last all that remains is trained on."""
    passes: list[Pass] = []
    while len(passes) < 3 and chance.random() < 0.3:
        if len(passes) < 2 and not shared and chance.random() < 0.15:
            at = chance.randrange(len(loaders))
            passes += [_left(chance, at, may_forget, "mark"), _left(chance, at, may_forget, "back")]
        else:
            then = chance.choice(["again", "end", "end", "save"])
            passes.append(_left(chance, chance.randrange(len(loaders)), may_forget, then))
    at = chance.randrange(len(loaders))
    if may_forget and loaders[at].with_ids and chance.random() < 0.4:
        forget = _some(chance)
        if chance.random() < 0.5:
            return (*passes, Pass(at, forget=forget, skip=True))
        return (*passes, Pass(at, forget=forget, then="end"), Pass(at))
    return (*passes, Pass(at))


def _left(chance: random.Random, at: int, may_forget: bool, then: str) -> Pass:
    stop, fetched = chance.randint(0, 6), may_forget and chance.random() < 0.3
    return Pass(at, stop=stop if fetched else max(1, stop), fetched=fetched, then=then)


def _some(chance: random.Random) -> tuple[int, ...]:
    return tuple(sorted(chance.sample(range(6), chance.randint(1, 3))))
