"""The facts of one run for its page, derived from its state."""

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from shlex import quote
from typing import Any

import numpy as np

from prunedata.checks import percent
from prunedata.errors import PrunedataError
from prunedata.findings.advice import Advice
from prunedata.findings.inspection import advise_now, outcome
from prunedata.findings.searched import Stateful, num_searched, num_unsearched, searched_visits, state_of
from prunedata.findings.table import rows_of, table_of
from prunedata.plan.onset import LARGEST
from prunedata.plan.savings import savings, would_save
from prunedata.store.run_store import StoreLike
from prunedata.store.state import RunState
from prunedata.types import Array, Counts, Floats, Mask


class RunFacts:
    """The facts of one run; ``name`` is what the page calls it, and ``place`` what a command calls its store."""

    def __init__(self, name: str, state: RunState) -> None:
        state.check_size()
        self.name, self.state = name, state
        self.place = "RUN" if name == "run" else quote(name)
        self.samples, self.history, self.total = state.samples, state.history, int(state.schedule["epochs"])
        self.done = len(self.history)
        self.finished = self.done >= self.total
        self.watches_only = state.run.get("leave_out") == "nothing"
        self.trainable, self.unsearched = num_searched(state), num_unsearched(state)
        self.saved: dict[str, Any] = savings(self.history, self.samples, state.run.get("batch_size"))
        self.would_save = would_save(self.history, self.samples)

    @property
    def progress(self) -> str:
        """How far the run is, in a sentence."""
        told = f"{'Finished: ' if self.finished else ''}{self.done:,} of {self.total:,} epochs are done"
        return f"{told}, and epoch {self.state.epoch:,} is open." if self.state.open else f"{told}."

    @property
    def policy(self) -> str:
        """The policy with its settings, as Python code."""
        given = dict(self.state.run["policy"])
        name = str(given.pop("name"))
        return name if name == "auto" else f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"

    @property
    def pruned(self) -> Mask:
        """Which finished epochs left samples out, shape (epochs,)."""
        return np.array([bool(record["pruned"]) for record in self.history], dtype=np.bool_)

    def column(self, name: str) -> Floats:
        """Return a number of the records of all finished epochs, shape (epochs,); NaN where there is none."""
        values = (record.get(name) for record in self.history)  # values beyond the largest cannot be drawn
        known = (value if isinstance(value, int | float) and abs(value) <= LARGEST else np.nan for value in values)
        return np.array(list(known), dtype=np.float64)

    @cached_property
    def visits(self) -> Counts:
        """Visits of the whole run, shape (samples,); 0 for samples that are not searched."""
        return searched_visits(self.state)

    @property
    def observed(self) -> bool:
        """Whether any losses were observed."""
        return bool(self.visits.any())

    def suspects(self, top: int, labels: Array | None = None, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The most suspect samples, the worst first: the columns of :func:`prunedata.findings.table.suspect_table`."""
        if not self.observed:
            return []
        found = table_of(self.state, top, labels, names)
        shown = ("id", "hits", "high", "visits", "score", "label", "guess")
        return rows_of({name: found[name] for name in shown if name in found})

    @cached_property
    def advice(self) -> Advice | str:
        """The advice of the run, as given or as it would be now; or why there is none."""
        try:
            return advise_now(self.state)
        except PrunedataError as error:
            return str(error)

    def plain(self) -> dict[str, Any]:
        """Return the facts as plain values that JSON can hold."""
        advice, (action, how) = self.advice, self._action()
        return {
            "outcome": advice if isinstance(advice, str) else outcome(self.state, advice),
            "action": action,
            "how": how,
            "samples": self.samples,
            "held_out": self.unsearched["held_out"],
            "without": self.unsearched["without"],
            "saved": self.saved,
            "epochs": self.total,
            "done": self.done,
            "advice": None if isinstance(advice, str) else advice.to_dict(),
            "would_save_percent": 100 * self.would_save if self.watches_only else None,
        }

    def _action(self) -> tuple[str, str]:
        """Return what to do now, in a few words and in a sentence; after a finished run, look at its suspects."""
        advice, judge = self.advice, "Judge the suspects one by one, and leave out those that are wrong."
        if isinstance(advice, str) or not self.observed:
            return "Observe losses first.", ""
        action = "Look at the samples below." if self.finished else ""
        if advice.schedule is None:
            return action or "Watch on.", judge if self.finished else ""
        many, start = f"{advice.prune:,} of {self.trainable:,} samples", advice.schedule.start
        saves = f", which saves {percent(advice.saving_percent / 100)} of the sample visits."
        if self.state.advice is not None and not self.watches_only:
            leaves = "left" if self.finished else "leaves"
            return action or "Go on.", f"This run {leaves} out {many} in every epoch from {start:,} on{saves}"
        again = f"{judge} Or train again, and leave out" if self.finished else "Leave out"
        return action or "Prune.", f"{again} {many} in every epoch from {start:,} on{saves}"


def facts_of(run: StoreLike | Stateful) -> RunFacts:
    """Return the facts of a run, live or in a store."""
    return RunFacts("run" if isinstance(run, Stateful) else _last_part(run), state_of(run))


def _last_part(location: object) -> str:
    """The last part of a path or URL: the rest may name a machine, or hold a key. A zarr store has no name."""
    location = location if isinstance(location, str | PathLike) else "run"
    return str(location).partition("?")[0].replace("\\", "/").rstrip("/").rpartition("/")[2] or "run"
