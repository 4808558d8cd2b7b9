"""What a page tells of one run, worked out once from the state of the run."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.findings.advice import Advice
from prunedata.findings.advice_now import advise_now
from prunedata.findings.inspection import histogram, times_pruned
from prunedata.findings.searched import Stateful, num_held_out, num_without, searched, searched_visits, state_of
from prunedata.findings.suspects import most_suspect
from prunedata.plan.cost import count_kept
from prunedata.plan.savings import savings, seconds_of_whole_epoch, would_save
from prunedata.plan.schedule import Schedule
from prunedata.plan.turn import LARGEST, Figures, find_turn
from prunedata.store.run_store import StoreLike
from prunedata.store.state import RunState
from prunedata.types import Counts, Floats, Ids, Mask

__all__ = ["RunFacts", "Stateful", "facts_of"]


def facts_of(run: StoreLike | Stateful, name: str | None = None) -> RunFacts:
    """Return the facts of a run, live or in a store; `name` is what the page calls it."""
    return RunFacts(name or ("run" if hasattr(run, "state_dict") else _last_part(run)), state_of(run))


def _last_part(location: object) -> str:
    """The last part of a path or URL: the rest may name a machine, or hold a key."""
    if not isinstance(location, str | PathLike):  # a zarr store, which has no name
        return "run"
    text = str(location).partition("?")[0].replace("\\", "/").rstrip("/")
    return text.rpartition("/")[2] or "run"


class RunFacts:
    """The facts of one run.

    Parameters
    ----------
    name : str
        What the page calls it.
    state : RunState
    """

    def __init__(self, name: str, state: RunState) -> None:
        state.check_size()
        self.name, self.state = name, state
        self.samples, self.history = state.samples, state.history
        self.schedule = Schedule.from_dict(state.schedule)
        self.total = self.schedule.epochs
        self.done = len(state.history)

    # -- its epochs

    @cached_property
    def kept(self) -> Floats:
        """Samples that each finished epoch trained on, shape (epochs,)."""
        return self._column("kept") - self._parts("by_weight", "held_out")

    @cached_property
    def losses(self) -> Floats:
        """Mean loss of each finished epoch, shape (epochs,); NaN where none was observed."""
        return self._column("mean_loss")

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of training of each finished epoch, shape (epochs,)."""
        return self._column("seconds")

    @cached_property
    def overhead(self) -> Floats:
        """Seconds spent in this library in each finished epoch, shape (epochs,)."""
        return self._column("overhead")

    @cached_property
    def agreement(self) -> Floats:
        """Share of those left out that the pruned epoch before left out too, shape (epochs,); NaN if not known."""
        return self._column("agreement")

    @cached_property
    def validation(self) -> Floats:
        """The validation figure of each finished epoch, shape (epochs,); NaN if none was given."""
        return self._column("validation")

    @cached_property
    def figures(self) -> Figures:
        """Whether they have turned."""
        return find_turn(self.history)

    @cached_property
    def agreement_by_chance(self) -> Floats:
        """What two sets of these sizes would agree by chance, shape (epochs,); NaN where there is no agreement."""
        shares = np.full(self.done, np.nan)
        before = np.nan
        for epoch in np.flatnonzero(self.pruned):
            shares[epoch], before = before, 1 - self.kept[epoch] / self._whole[epoch]
        return np.where(np.isnan(self.agreement), np.nan, shares)

    @property
    def pruned(self) -> Mask:
        """Which finished epochs left samples out, shape (epochs,)."""
        return np.asarray(self.kept < self._whole)

    @property
    def shortened(self) -> Mask:
        """Which finished epochs delivered fewer samples, shape (epochs,): none, where a run leaves out by weight."""
        return np.asarray(self._column("kept") < self.samples - self._parts("without"))

    @property
    def _whole(self) -> Floats:
        """Samples that each finished epoch trained on, or would have without pruning, shape (epochs,)."""
        return self.samples - self._parts("without", "held_out")

    def _parts(self, *names: str) -> Floats:
        return np.asarray(np.sum([np.nan_to_num(self._column(name)) for name in names], axis=0), dtype=np.float64)

    def _column(self, name: str) -> Floats:
        found = np.full(self.done, np.nan)
        for at, record in enumerate(self.history):
            value = record.get(name)
            if isinstance(value, int | float) and abs(value) <= LARGEST:  # what is larger nobody can draw
                found[at] = value
        return found

    @cached_property
    def planned(self) -> tuple[bool, ...]:
        """For each epoch of the whole run whether it left samples out, or will."""
        decided = self.verdict == "prune" if self.auto else True
        would = not self.watches_only and decided and self.left_out > 0
        ahead = (would and self.schedule.prunes(epoch) for epoch in range(self.done, self.total))
        return (*map(bool, self.pruned), *ahead)

    @property
    def left_out(self) -> int:
        """Samples that a pruned epoch leaves out, whole batches kept."""
        prune = int(self.state.run["prune"])
        if self._advised is not None:
            prune = min(prune, self._advised.prune)
        return self.trainable - count_kept(self.trainable, prune, self.batch_size)

    @cached_property
    def searched(self) -> Mask:
        """The samples that the run may train on, shape (samples,)."""
        return searched(self.state)

    @cached_property
    def trainable(self) -> int:
        """How many these are."""
        return int(np.count_nonzero(self.searched))

    @cached_property
    def held_out(self) -> int:
        """How many samples are delivered and never trained on."""
        return num_held_out(self.state)

    @cached_property
    def without(self) -> int:
        """How many samples were left out for good."""
        return num_without(self.state)

    # -- what it was given

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch, if the Pruner was given ``batch_size``."""
        size: int | None = self.state.run.get("batch_size")
        return size

    @property
    def watches_only(self) -> bool:
        """Whether the run only watches."""
        return bool(self.state.run.get("leave_out") == "nothing")

    @property
    def auto(self) -> bool:
        """Whether the run does what it is advised."""
        return bool(self.state.run["policy"].get("name") == "auto")

    @property
    def verdict(self) -> str | None:
        """What a run with the policy auto was advised."""
        return None if self._advised is None else self._advised.verdict

    @cached_property
    def _advised(self) -> Advice | None:
        """That advice; None if there is none, or it is damaged."""
        try:
            return None if self.state.advice is None else Advice.from_dict(self.state.advice)
        except PrunedataError:
            return None

    @property
    def policy(self) -> str:
        """The policy with its settings, as it would be written."""
        settings = dict(self.state.run["policy"])
        name = settings.pop("name", "?")
        return name if self.auto else f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"

    # -- what it has come to

    @cached_property
    def saved(self) -> dict[str, Any]:
        """As :func:`prunedata.plan.savings.savings`."""
        return savings(self.history, self.samples, self.batch_size)

    @property
    def visits_saved_in_all(self) -> float:
        """Share of the sample visits that the whole run saves, what is still ahead as planned."""
        ahead = sum(self.planned[self.done :]) * self.left_out
        ahead = 0 if self.state.run.get("leave_out") == "weight" else ahead
        in_all = self.saved["visits"] + self.saved["visits_saved"]
        in_all += (self.total - self.done) * (self.samples - self.without)
        return float((self.saved["visits_saved"] + ahead) / max(1, in_all))

    @property
    def would_save(self) -> float:
        """Share of the visits so far that pruning would have saved in a run that only watched."""
        return would_save(self.history, self.samples)

    @cached_property
    def predicted(self) -> Floats | None:
        """Seconds that each finished epoch should take by its batches, shape (epochs,); None if there is no measure.

        The measure is the time of an epoch on all samples, see
        :func:`prunedata.plan.savings.seconds_of_whole_epoch`.
        """
        whole, size = seconds_of_whole_epoch(self.history, self.samples), self.batch_size or 1
        if whole is None:
            return None
        of_whole = np.ceil((self.samples - self._parts("without")) / size)
        return np.asarray(whole * np.ceil(self._column("kept") / size) / np.maximum(1, of_whole))

    @cached_property
    def observed(self) -> bool:
        """Whether any losses were observed."""
        return bool(self.visits.any())

    @cached_property
    def visits(self) -> Counts:
        """Visits of the whole run, shape (samples,); 0 for samples that are not searched."""
        return searched_visits(self.state)

    @cached_property
    def times_left_out(self) -> dict[int, int]:
        """How many of the searched samples were left out in so many epochs."""
        return histogram(times_pruned(self.state)[self.searched])

    @cached_property
    def counts(self) -> dict[int, int]:
        """How many of the searched samples have each count of the window."""
        return histogram(self.state.counted("counts")[self.searched])

    @cached_property
    def scores(self) -> Floats:
        """How suspect each sample looks, shape (samples,)."""
        return self.state.mean_excess

    def suspects(self, top: int) -> Ids:
        """Ids of the most suspect samples, the worst first."""
        return most_suspect(self.scores, self.visits, top)

    @cached_property
    def advice(self) -> tuple[Advice | None, str]:
        """What the run was advised, or would be now, and else why there is none."""
        try:
            if self.state.advice is not None:
                return Advice.from_dict(self.state.advice), ""
            return advise_now(self.state), ""
        except PrunedataError as error:
            return None, str(error)
