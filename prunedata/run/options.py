"""The options of a run: checked once, frozen, and described as the store records them."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any, Literal

import numpy as np

from prunedata.checks import integer, warn
from prunedata.errors import NeverPrunesWarning, OtherData, PrunedataError, ScheduleError
from prunedata.options import OPTIONS
from prunedata.plan.cost import count_pruned
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy, describe
from prunedata.policies.rules import RecentLoss
from prunedata.run.labels import LABELS, given_labels
from prunedata.types import Arrays, Ids, Keys, LeaveOut, Mask

FEW, LIKELY_PERCENT = 0.05, 400
"""Below this share of the samples, and with more samples than this, an integer below 100 is likely a percentage."""
BYTES = 16  # what a run keeps of a sample within an epoch, at least
AUTO_PRUNES = "45%"  # the most that ``policy="auto"`` leaves out by default: more than half of the samples stay


@dataclass(frozen=True)
class RunOptions:
    """The arguments of a :class:`prunedata.Pruner` but for its store, with the same meaning."""

    samples: int
    schedule: Schedule
    prune: Any  # as the argument of :class:`prunedata.Pruner`; after the checks the number of samples
    policy: Policy | Literal["auto"]
    seed: int
    batch_size: int | None
    leave_out: LeaveOut
    classes: int | None
    holdout: float | None = None
    without: Any = None
    labels: Any = None
    keys: Keys | None = None
    follow: bool = False
    _named: tuple[Ids, Keys] | None = field(default=None, init=False)
    """Ids and keys of verdicts that were applied by id, as the run had no keys yet."""

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise PrunedataError(f"Expected a Schedule. Got {self.schedule!r}: pass a number of epochs as epochs=30.")
        samples = integer("samples", self.samples, 1)
        _check_memory(samples)
        prune = self.prune
        if prune is None:
            if not self.auto and self.leave_out != "nothing":
                raise ScheduleError(
                    "Expected prune, how much a pruned epoch leaves out, such as '20%'. Got none: only runs with "
                    'policy="auto" or leave_out="nothing" need none.'
                )
            prune = AUTO_PRUNES if self.auto else 0
        num_pruned = count_pruned(samples, prune)
        plain = {option.name: option.plain(option.name, getattr(self, option.name)) for option in OPTIONS}
        for name, value in {"samples": samples, "prune": num_pruned, **plain}.items():
            object.__setattr__(self, name, value)
        if self.keys is not None and self.keys.size != samples:
            raise PrunedataError(f"Expected a key for each of {samples:,} samples. Got {self.keys.size:,} keys.")
        if self.without is not None:
            if self.keys is None and isinstance(self.without, str | PathLike):
                from prunedata.findings.verdicts import named_in  # noqa: PLC0415 (as below)

                object.__setattr__(self, "_named", named_in(self.without))
            object.__setattr__(self, "without", _mask(self.without, samples, self.keys))
        if self.labels is not None:
            object.__setattr__(self, "labels", given_labels(self.labels, samples))
        _ = self.chosen  # raises if it is none
        warn_of_small_prune(samples, prune, num_pruned)

    def check_named(self, keys: Keys | None) -> None:
        """Raise :class:`OtherData` if verdicts that were applied by id may belong to other rows, by the run's keys."""
        ids, named = (None, None) if self._named is None else self._named
        if ids is None or not ids.size:
            return
        if keys is None:
            raise OtherData(
                "Expected a run with keys, as the verdicts in the file for without= belong to rows with keys. Got a "
                "run without keys, whose ids may mean other rows: pass keys=...; or, if the ids in the file are those "
                "of this run, pass them, without=[...]."
            )
        if others := int(np.count_nonzero(keys[ids] != named)):
            raise OtherData(
                "Expected the rows of the verdicts in the file for without= at the ids in that file. Got other rows at "
                f"{others} of {ids.size}: pass keys=..., or no number of samples, as in Pruner(epochs=30), and "
                "verdicts are matched with rows by key."
            )

    @property
    def auto(self) -> bool:
        """Whether the run follows its own advice."""
        return isinstance(self.policy, str)

    @cached_property
    def chosen(self) -> Policy:
        """The policy, or with ``"auto"`` the one that advice names."""
        if not isinstance(self.policy, str):
            describe(self.policy)  # raises if it is no policy
            return self.policy
        if self.policy != "auto":
            raise PrunedataError(f'Expected a policy such as DroppingCount(), or "auto". Got {self.policy!r}.')
        return RecentLoss()

    @property
    def saved(self) -> Arrays:
        """The arrays to save, by name; not copies."""
        return {} if self.labels is None else {LABELS: self.labels.numbers}

    @cached_property
    def description(self) -> dict[str, Any]:
        """Plain values, as the store records them."""
        values = {option: getattr(self, option.name) for option in OPTIONS}
        return {
            "samples": self.samples,
            "schedule": self.schedule.to_dict(),
            "prune": self.prune,
            "policy": {"name": "auto"} if isinstance(self.policy, str) else describe(self.policy),
            **{one.name: value for one, value in values.items() if one.always or value != one.default},
            **({} if self.labels is None else {LABELS: self.labels.described}),
        }


def _check_memory(samples: int) -> None:
    """Raise if a run of so many samples exceeds this machine's memory: systems promise more than they have."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system without these numbers
        return
    if samples * BYTES > memory:
        raise PrunedataError(
            f"Expected samples whose counts fit into memory. Got {samples:,}, which take "
            f"{samples * BYTES / 1e9:,.0f} GB at {BYTES} bytes each, and this machine has {memory / 1e9:,.0f} GB: pass "
            "the length of the data set, and names or large ids as keys=..."
        )


def scheduled(schedule: Schedule | None, epochs: int | None) -> Schedule:
    """Return the given schedule, or the steady one of so many epochs. Raises if both are given, or neither."""
    if schedule is None and epochs is not None:
        return Schedule.steady(epochs)
    if schedule is None or epochs is not None:
        got = "neither" if schedule is None else f"epochs={epochs!r} and a schedule, which has epochs of its own"
        raise ScheduleError(f"Expected epochs, as in Pruner(samples, epochs=30), or a schedule. Got {got}.")
    return schedule


def _mask(without: Any, samples: int, keys: Keys | None) -> Mask:
    """The samples to leave out for good as a mask of shape (samples,), from a mask, ids, or a file of verdicts."""
    if isinstance(without, str | PathLike):
        from prunedata.findings.verdicts import judged_wrong  # noqa: PLC0415 (only a run with such a file needs it)

        without = judged_wrong(without, samples, keys)
    given = np.asarray(without)
    if given.dtype == np.bool_ and given.shape == (samples,):
        return given.copy()
    ids = given.astype(np.int64) if given.dtype.kind in "iu" or not given.size else None
    bits = ids is not None and samples == ids.size > 2 > ids.max()  # 0 and 1: a mask, not ids
    if ids is None or ids.ndim != 1 or (ids.size and not 0 <= ids.min() <= ids.max() < samples) or bits:
        raise PrunedataError(
            f"Expected without to be a mask of shape ({samples},), True for the samples to leave out, or their ids, "
            f"from 0 to {samples - 1}. Got shape {given.shape}, {given.dtype}."
        )
    mask = np.zeros(samples, dtype=np.bool_)
    mask[ids] = True
    return mask


def warn_of_small_prune(samples: int, prune: object, num_pruned: int) -> None:
    """Warn of an integer that looks like a percentage, such as 20 of 1,000 samples, which saves hardly anything."""
    if hasattr(prune, "__index__") and 0 < num_pruned < 100 and num_pruned < FEW * samples and samples > LIKELY_PERCENT:
        warn(
            f"Expected an amount to prune that saves something. Got prune={prune}: {num_pruned} of {samples:,} "
            f"samples. For {num_pruned} percent write prune='{num_pruned}%' or prune={num_pruned / 100:g}; for so few "
            f"samples write prune={num_pruned / samples:.2g}.",
            NeverPrunesWarning,
        )
