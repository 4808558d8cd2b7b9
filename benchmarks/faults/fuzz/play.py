"""A training with the library, on one rank, that writes down all that its user sees."""

import traceback
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.faults.fuzz.loops import Calls, Epochs, one_ahead
from benchmarks.faults.fuzz.setup import Loaded, Pass, Setup
from benchmarks.faults.fuzz.sources import loader_of, losses_of, turn
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies import DroppingCount, Random, RunningLoss

__all__ = ["Entry", "Place", "on_rank", "play"]

Entry = dict[str, Any]
"""What was seen: its ``kind`` says what."""
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
