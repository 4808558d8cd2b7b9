"""A run that is kept: where it stands goes to a store or a checkpoint, and comes back from it."""

from collections.abc import Iterator
from typing import Any, Literal, Never

from prunedata.checks import whole
from prunedata.errors import PrunedataError
from prunedata.findings.advice import Advice
from prunedata.plan.schedule import Schedule
from prunedata.policies.dropping_count import DroppingCount
from prunedata.policies.protocol import Policy, describe
from prunedata.run.epoch import Delivery, Epoch
from prunedata.run.meter import Meter
from prunedata.run.run import Run, discard
from prunedata.run.state import check_same_run, pack, unpack
from prunedata.store.run_store import RunStore, StoreLike
from prunedata.types import Array

__all__ = ["Pruner"]


class Pruner(Run):
    """Prunes a data set epoch by epoch by the losses that it is fed (Algorithms 1 and 2).

    Parameters
    ----------
    samples : int
        Samples in the data set; their ids are ``0 .. samples - 1``.
    schedule : Schedule
        When to prune.
    prune : int or float
        PruningNum: how many samples a pruned epoch leaves out, or what fraction of them.
    policy : Policy or "auto"
        Which samples to prune. ``"auto"`` prunes nothing while it watches the first sixth of the run, and then does
        what :func:`prunedata.advise` says: prune from there on, by the policy, amount and schedule that it names, but
        never more than ``prune``; or prune nothing, if that is the better way. See :attr:`advice`. It needs
        ``classes``.
    store : path, URL or zarr store, optional
        Where the run is kept. Without it the run lives in memory.
    seed : int
        Decides ties and orders.
    batch_size : int, optional
        Round the kept samples of pruned epochs up to whole batches, so that none ends with a tiny batch.
    resume : bool
        Go on with the run in ``store``; if nothing is there, begin. Without it an existing run is an error.
    observe_only : bool
        Prune nothing, and keep all counts as ever: to see on a live run, without risk, what pruning would save.
    classes : int, optional
        Classes to tell apart, at least 2. The run then counts for each sample the visits with a loss above
        ``ln(classes)``, that of a blind guess, in the array ``high`` (see :attr:`arrays`).

    Raises
    ------
    PrunedataError
        If an argument makes no sense, or the store is damaged, foreign, or of another run.

    Warns
    -----
    NeverPrunesWarning
        If schedule and amount never prune anything, and nobody said ``observe_only``; with ``policy="auto"`` also
        when the advice turns out to be not to prune.

    Examples
    --------
    >>> import numpy as np
    >>> from prunedata import Pruner, Schedule
    >>> pruner = Pruner(100, Schedule(4, window=4, start=2, block=2, pruned_per_block=1), prune=0.25)
    >>> for epoch in pruner.epochs():
    ...     for ids in epoch.batches(32):
    ...         pruner.observe(ids, np.cos(ids))  # a loss for each id
    >>> [record["kept"] for record in pruner.history]
    [100, 100, 75, 100]
    """

    def __init__(
        self,
        samples: int,
        schedule: Schedule,
        *,
        prune: int | float,
        policy: Policy | Literal["auto"] = DroppingCount(),  # noqa: B008 (frozen)
        store: StoreLike | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        resume: bool = False,
        observe_only: bool = False,
        classes: int | None = None,
    ) -> None:
        super().__init__(
            samples,
            schedule,
            prune=prune,
            policy=policy,
            seed=seed,
            batch_size=batch_size,
            observe_only=observe_only,
            classes=classes,
        )
        self._store = self._open_store(store, resume)

    def epochs(self) -> Iterator[Epoch]:
        """Yield the epochs of the run, from where it stands. Each is committed when the loop advances.

        Raises
        ------
        SkippedSamples
            At the end of an epoch in which kept samples were not observed.
        """
        if self._current is not None and self._is_complete():
            self.end_epoch()
        while self._current is not None or self._next < self.schedule.epochs:
            yield self.begin_epoch()
            self.end_epoch()

    def rewindow(self, window: int) -> None:
        """Let a new window of ``window`` epochs begin with the next epoch; the store records it."""
        self._pruning.schedule = self.schedule.rewindow(self._next + (self._current is not None), window)
        self._known.widen(self._pruning.longest_window)
        self.commit()

    # -- persistence

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected a Pruner to stay the only one of its run. Got a copy or a pickle of it: save state_dict(), and "
            "load it into a Pruner of the same arguments."
        )

    def commit(self) -> None:
        """Write where the run stands to its store, if it has one; at any time, also within an epoch."""
        if self._store is not None:
            self._store.write(*self._snapshot())

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands, also within an epoch, to be saved in a checkpoint beside the model.

        It holds dicts, lists, numbers, strings and bytes only, so that any format can save it
        (``torch.load`` reads it with ``weights_only=True``).
        """
        return pack(*self._snapshot())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` stood. Raises :class:`PrunedataError` if it is of another run."""
        self._restore(*unpack(state))

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, Array]]:
        self._flush()
        arrays: dict[str, Array] = dict(vars(self._known))
        arrays |= self._extras.standing(within=self._current is not None)
        if self._current is not None:
            arrays["tally"] = self._tally.packed
        state = {
            "run": self._describe(),
            "schedule": self.schedule.to_dict(),
            "epoch": self._next,
            "open": self._current is not None,
            "complete": self._current is not None and self._is_complete(),
            "excused": self._delivery.allowed,
            "observed": self._tally.observed,
            "meter": self.meter.to_dict(),
            "history": self.history,
            **({} if self.advice is None else {"advice": self.advice.to_dict()}),
        }
        return state, arrays

    def _restore(self, state: dict[str, Any], arrays: dict[str, Array]) -> None:
        check_same_run(state, arrays, self._describe(), self._extras.wanted(within=state["open"]))
        # What can be refused is made first: a state that is refused changes nothing.
        schedule, meter = Schedule.from_dict(state["schedule"]), Meter(**state["meter"])
        advice = None if state.get("advice") is None else Advice.from_dict(state["advice"])
        self._next = whole("the state's epoch", state["epoch"], 0, schedule.epochs - state["open"])
        self._pruning.restore(schedule, advice)
        self.meter = meter
        for name in vars(self._known):
            setattr(self._known, name, arrays[name].copy())
        self._extras.restore(arrays, within=state["open"])
        self.history = [dict(record) for record in state["history"]]
        self._delivery = Delivery(excused=state["excused"], exhausted=state["complete"])
        self._record = discard
        for drain in self.sources:  # what adapters hold back is of the epoch that is left
            drain()
        self._block.start()
        self._record, self._current = self._refuse, None
        if state["open"]:
            self._tally.packed[:] = arrays["tally"]
            self._tally.observed = state["observed"]
            self._current = self._select()

    def _open_store(self, location: StoreLike | None, resume: bool) -> RunStore | None:
        if location is None:
            if resume:
                raise PrunedataError("Expected a store to resume from. Got resume=True without store=.")
            return None
        store = RunStore(location)
        found = store.read() if resume else None
        if found is None:
            store.create(self._snapshot()[0])
        elif store.generation:
            self._restore(*found)
        else:  # created, but stopped before its first epoch was done
            check_same_run(found[0], None, self._describe(), {})
        return store

    def _describe(self) -> dict[str, Any]:
        # Named only where they are in use: a run recorded before they were known is the same run without them.
        options = {"observe_only": self.observe_only, "classes": self.classes}
        return {
            "samples": self.samples,
            "schedule": self._pruning.given.to_dict(),
            "prune": self.prune,
            "policy": {"name": "auto"} if self._pruning.auto else describe(self.policy),
            "seed": self.seed,
            "batch_size": self.batch_size,
            **{name: value for name, value in options.items() if value},
        }
