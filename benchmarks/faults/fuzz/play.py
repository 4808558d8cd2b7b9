"""A training with the library, on one rank, that writes down all that its user sees."""

import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.faults.fuzz.plain_epochs import Expected, PlainEpochs, check, mode
from benchmarks.faults.fuzz.setup import STREAMS, Loaded, Pass, Setup
from benchmarks.faults.fuzz.sources import loader_of, losses_of, turn
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies import DroppingCount, Random, RunningLoss

__all__ = ["Calls", "Entry", "Epochs", "Place", "Step", "on_rank", "one_ahead", "play"]

Entry = dict[str, Any]
"""What was seen: its ``kind`` says what."""


class Calls:
    """The loop that begins and ends epochs itself."""

    ready: Any = None
    """The epoch that has begun already."""

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def begin(self) -> Any:
        return self.pruner.begin_epoch()

    def end(self) -> None:
        self.pruner.end_epoch()

    def leave(self) -> None:
        """Nothing was begun."""


class Epochs(Calls):
    """The loop ``for epoch in pruner.epochs()``, which may be left and run again."""

    loop: Any = None

    def begin(self) -> Any:
        if self.ready is not None:
            epoch, self.ready = self.ready, None
            return epoch
        self.leave()
        self.loop = self.pruner.epochs()
        return next(self.loop, None)

    def end(self) -> None:
        self.ready = next(self.loop, None)

    def leave(self) -> None:
        """Break."""
        if self.loop is not None:
            self.loop.close()
        self.loop = self.ready = None


def one_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Fetch a batch before the one before is given, as prefetchers do."""
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
    if waiting is not None:
        yield waiting


TOLERANCES = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


class Step:
    """One step.

    Parameters
    ----------
    setup : Setup
    loader : Loaded
    due : Expected
    parts : list of dict or None
        The batch of each rank, None where it has none.
    where : str
        For messages.
    """

    def __init__(self, setup: Setup, loader: Loaded, due: Expected, parts: list[Entry | None], where: str) -> None:
        self.setup, self.parts, self.where = setup, parts, where
        self.shares = due.shares
        self.weighs = loader.order in STREAMS or mode(loader) == "weights"
        """Whether each sample of a global batch counts alike, and stand-ins not at all."""
        self.known_order = due.batches is not None
        self.real: list[list[bool]] = []
        """Of each rank's samples, whether they stand for themselves and not in for none."""

    def look(self, remaining: set[int], seen: set[int]) -> None:
        """Find the real samples, which have neither come before nor been observed in an earlier pass."""
        for part in self.parts:
            flags = []
            for at, each in enumerate([] if part is None else part["ids"]):
                new = each not in seen and each in remaining and not self._weightless(part, at)
                flags.append(new or not self.shares)
                if flags[-1]:
                    seen.add(each)
            self.real.append(flags)
        if not self.known_order and self.weighs:
            strange = sorted({each for part in self.parts if part for each in part["ids"]} - remaining)
            check(not strange, f"{self.where}: {strange} came again after they were observed")

    def _weightless(self, part: Entry | None, at: int) -> bool:
        """Whether it stands in for none, beside another rank that has the sample itself."""
        if part is None or not (self.shares and self.weighs and part["observed"]) or part["weights"][at] != 0:
            return False
        return any(other is not None and other is not part and part["ids"][at] in other["ids"] for other in self.parts)

    def learn(self, known: PlainEpochs) -> None:
        """Record what was observed, batch by batch, global ones where ranks share them."""
        ranks = range(len(self.parts))
        for group in [list(ranks)] if self.shares else [[rank] for rank in ranks]:
            parts = {rank: part for rank in group if (part := self.parts[rank]) is not None and part["observed"]}
            ids = [each for rank, part in parts.items() for each in self._real_of(rank, part["ids"])]
            losses = [loss for rank, part in parts.items() for loss in self._real_of(rank, part["losses"])]
            if ids:
                known.learn(ids, losses, group[0], exact=len(group) == 1)
            for rank, part in parts.items():
                self._check_gradient(part, rank, len(group), len(ids))
            if ids and len(parts) == len(group):
                self._check_value(list(parts.values()), losses)
        for part in self.parts:
            if part is not None and part.get("skipped"):
                known.skipped += len(part["ids"])

    def _real_of(self, rank: int, values: list[Any]) -> list[Any]:
        return [value for value, real in zip(values, self.real[rank], strict=True) if real]

    def _check_gradient(self, part: Entry, rank: int, ranks: int, total: int) -> None:
        """The mean over the ranks gives each sample of a global batch the same weight."""
        for each, weight, real in zip(part["ids"], part["weights"], self.real[rank], strict=True):
            right = 1 / len(part["ids"])
            if self.weighs and ranks > 1:
                right = ranks / total if real else 0.0
            near = abs(weight - right) <= TOLERANCES[self.setup.dtype] * max(right, 0.01)
            told = f"sample {each} has the weight {weight}, expected {right}, of {total} in all"
            check(near, f"{self.where}, rank {rank}: {told}")

    def _check_value(self, parts: list[Entry], losses: list[float]) -> None:
        """So does the mean over the ranks of what was returned."""
        values = losses if self.weighs else [loss for part in parts for loss in part["losses"]]
        mean, got = sum(values) / len(values), sum(part["total"] for part in parts) / len(parts)
        near = abs(got - mean) <= TOLERANCES[self.setup.dtype] * max(1e-3, *map(abs, values))
        check(near, f"{self.where}: the ranks' mean loss is {got}, expected {mean}")


Place = tuple[int, int]
"""An epoch, and the pass of it that comes next."""


def play(setup: Setup, place: Place, rank: int, ranks: int, states: list[Any]) -> tuple[list[Entry], Place, Any]:
    """Train from a place of the plan, to its end or until new objects are to go on.

    Returns the entries, the place to go on from, and there what was saved; None at the end.
    """
    player = _Player(setup, rank, ranks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that schedules never prune, that runs are finished
        state = None
        try:
            player.make(states)
            place, state = player.go(place)
        except Exception as error:
            refused = isinstance(error, PrunedataError) and not isinstance(error, SkippedSamples)
            told = str(error) if refused else "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
            player.note("refused" if refused else "raised", message=told)
    return player.entries, place, state


def on_rank(rank: int, ranks: int, setup: Setup, place: Place, states: list[Any]) -> tuple[bool, Any]:
    """Train on a rank; return whether it came to its end, and what :func:`play` returns."""
    played = play(setup, place, rank, ranks, states)
    return not played[0] or played[0][-1]["kind"] not in ("refused", "raised"), played


class _Player:
    def __init__(self, setup: Setup, rank: int, ranks: int) -> None:
        self.setup, self.rank, self.ranks = setup, rank, ranks
        self.entries: list[Entry] = []
        self.loaders: list[tuple[Any, Any]] = []
        self.marked: Any = None
        self.fresh = True

    def note(self, kind: str, **seen: Any) -> None:
        self.entries.append({"kind": kind} | seen)

    def make(self, states: list[Any]) -> None:
        setup = self.setup
        policies: dict[str, Any] = {
            "count": DroppingCount(setup.tolerance),
            "rate": DroppingCount(setup.tolerance, "run"),
            "running": RunningLoss(),
            "random": Random(),
        }
        schedule = Schedule(setup.epochs, setup.window, setup.start, setup.block, setup.per_block)
        self.pruner = Pruner(
            setup.samples, schedule, prune=setup.prune, policy=policies[setup.policy], seed=setup.seed,
            batch_size=setup.whole,
        )  # fmt: skip
        self.loop = (Epochs if setup.loop == "epochs" else Calls)(self.pruner)
        if not setup.late:
            self.prune()
        if states:
            self.load(states)

    def prune(self) -> None:
        for one in self.setup.loaders:
            uneven: Any = one.uneven
            loader, source = loader_of(one, self.setup, self.pruner, self.rank, self.ranks)
            self.loaders.append((wrap(loader, self.pruner, with_ids=one.with_ids, uneven=uneven), source))

    def load(self, states: list[Any]) -> None:
        own = self.setup.states == "own" and len(states) > self.rank
        self.pruner.load_state_dict(states[self.rank][0] if own else [state for state, _ in states])
        if len(states) == self.ranks:
            for (loader, _), position in zip(self.loaders, states[self.rank][1], strict=False):
                loader.load_state_dict(position)

    def save(self) -> tuple[Any, list[Any]]:
        return self.pruner.state_dict(), self.positions

    # -- the plan

    def go(self, place: Place) -> tuple[Place, Any]:
        for number in range(place[0], self.setup.epochs):
            first = place[1] if number == place[0] else 0
            if not self.begin(number):
                continue
            if self.setup.late and not self.loaders:
                self.prune()
            passes = self.setup.plan[number]
            for at in range(first, len(passes)):
                self.walk(number, at, passes[at])
                if passes[at].then == "save":
                    return (number, at + 1), self.save()
                if self.after(number, passes[at]):
                    break
            else:
                self.note("stuck", message=self.entries[-2].get("message", ""))
                return (number, len(passes)), None
            if passes[-1].then == "rest":
                self.positions = [each.state_dict() for each, _ in self.loaders]
                return (number + 1, 0), self.save()
        return (self.setup.epochs, 0), None

    def after(self, number: int, one: Pass) -> bool:
        """Do what is done after a pass; return whether the epoch has ended."""
        if one.then == "on":
            return False
        if one.then in ("next", "rest", "end") and self.end(number):
            return True
        if one.then == "mark":
            self.marked = self.save()
            self.note("mark")
        elif one.then == "back":
            self.loop.leave()
            self.pruner.load_state_dict(self.marked[0])
            for (loader, _), position in zip(self.loaders, self.marked[1], strict=True):
                loader.load_state_dict(position)
            self.note("back")
        self.loop.leave()
        if self.pruner.next_epoch > number:  # a loop that is left when all was seen ends the epoch
            self.note_ended(number)
            return True
        return not self.begin(number)

    def begin(self, number: int) -> bool:
        """Begin an epoch, or go on with it; return False if it had been seen whole, so that the next one began."""
        epoch = self.loop.begin()
        if epoch is None or epoch.number != number:
            self.note_ended(number, quiet=epoch is None)
            self.loop.ready = epoch
            return False
        self.fresh = bool((epoch.remaining == epoch.keep).all())
        keep = np.flatnonzero(epoch.keep).tolist()
        self.note("begin", epoch=number, pruned=epoch.pruned, keep=keep)
        return True

    def end(self, number: int) -> bool:
        """Try to end the epoch; write down what is known then, or what was told."""
        try:
            self.loop.end()
        except SkippedSamples as told:
            self.note("told", message=str(told))
            return False
        self.note_ended(number, quiet=self.setup.loop == "calls" or number == self.setup.epochs - 1)
        return True

    def note_ended(self, number: int, *, quiet: bool = True) -> None:
        """Write down what is known of a finished epoch; the counts only if no other one is open."""
        pruner = self.pruner
        record = pruner.history[number]
        self.note(
            "ended",
            hits=pruner.hits.tolist(),
            visits=pruner.visits.tolist(),
            counts=pruner.counts.tolist() if quiet else None,
            excess=pruner.arrays["excess"].tolist() if "excess" in pruner.arrays else None,
            observed=record["observed"],
            mean_loss=record["mean_loss"],
        )

    # -- a pass

    def walk(self, number: int, at: int, one: Pass) -> None:
        loader, source = self.loaders[one.loader]
        told = self.setup.loaders[one.loader]
        if source is not None:
            turn(source, number * 10 + at + 1000 * self.rank)
        batches: list[Entry] = []
        lengths = _lengths(loader, number) if self.fresh else None
        seen = {"loader": one.loader, "place": at, "batches": batches, "lengths": lengths, "whole": False}
        self.note("pass", **seen)
        entry = self.entries[-1]
        got = one_ahead(iter(loader)) if told.ahead else iter(loader)
        for step, batch in enumerate(got):
            if one.stop == step:
                break
            batches.append(self.train(loader, told, one, batch, (number, at, step)))
            if one.stop == step + 1 and not one.fetched:
                break
        else:
            entry["whole"] = True
        self.fresh, entry["done"] = False, True
        self.positions = [each.state_dict() for each, _ in self.loaders]

    def train(self, loader: Any, told: Loaded, one: Pass, batch: Any, place: tuple[int, int, int]) -> Entry:
        number, at, step = place
        given, data = batch if told.with_ids else (None, batch)
        ids = data.tolist()
        seen = {"ids": ids, "given": None if given is None else given.tolist(), "observed": False}
        if step in one.forget or not self.setup.observes:
            skipped = step in one.forget and one.skip
            if skipped:
                self.pruner.skip(len(ids))
            return seen | {"skipped": skipped}
        losses = losses_of(self.setup, ids, number, step + 17 * at)
        total = loader.observe(losses) if given is None else loader.observe(losses, given)
        total.backward()
        grad = torch.zeros(len(ids)) if losses.grad is None else losses.grad
        return seen | {
            "observed": True,
            "losses": losses.detach().double().tolist(),
            "weights": grad.double().tolist(),
            "total": float(total.detach().double()),
        }


def _lengths(loader: Any, number: int) -> tuple[int, int] | None:
    """What ``len`` and ``lengths`` say of an epoch; None if they say that nobody knows."""
    try:
        return len(loader), loader.lengths()[number]
    except TypeError:
        return None
