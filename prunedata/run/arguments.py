"""What a run was given: checked once, frozen, and described as the store records it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from prunedata.checks import whole
from prunedata.errors import PrunedataError
from prunedata.plan.cost import count_pruned
from prunedata.plan.schedule import Schedule
from prunedata.policies.high import High
from prunedata.policies.protocol import Policy, Watcher, describe
from prunedata.run.ledger import Ledger
from prunedata.run.plan import RunPlan, policy_of, warn_of_small_prune
from prunedata.types import Mask

__all__ = ["RunArguments"]


@dataclass(frozen=True)
class RunArguments:
    """The arguments of a :class:`prunedata.Pruner` but for its store, with the same meaning."""

    samples: int
    schedule: Schedule
    prune: int | float | str
    policy: Policy | Literal["auto"]
    seed: int
    batch_size: int | None
    observe_only: bool
    classes: int | None
    without: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise PrunedataError(f"Expected a Schedule. Got {self.schedule!r}.")
        samples = whole("samples", self.samples, 1)
        num_pruned = count_pruned(samples, self.prune)
        plain = {
            "samples": samples,
            "seed": whole("seed", self.seed, -(1 << 63), (1 << 64) - 1),
            "prune": num_pruned,
            "batch_size": None if self.batch_size is None else whole("batch_size", self.batch_size, 1),
            "observe_only": bool(self.observe_only),
            "classes": None if self.classes is None else whole("classes", self.classes, 2),
        }
        policy_of(self.policy, self.classes)  # raises if it is none
        if self.without is not None:
            object.__setattr__(self, "without", _mask(self.without, samples))
        warn_of_small_prune(samples, self.prune, num_pruned)
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @property
    def auto(self) -> bool:
        """Whether the run does what it is advised."""
        return isinstance(self.policy, str)

    def plan(self) -> RunPlan:
        """When and how much the run prunes, before its first epoch."""
        num_pruned = count_pruned(self.samples, self.prune)
        plan = RunPlan(
            self.samples, self.schedule, num_pruned, self.batch_size, auto=self.auto, observe_only=self.observe_only
        )
        plan.leave_out(self.without)
        return plan

    def ledger(self, longest_window: int) -> Ledger:
        """The empty records of the run."""
        policy = policy_of(self.policy, self.classes)
        watchers: list[Watcher] = [] if self.classes is None else [High(self.classes, self.schedule.epochs)]
        watchers += [policy] if isinstance(policy, Watcher) else []
        return Ledger(self.samples, longest_window, self.schedule.epochs, watchers)

    def describe(self) -> dict[str, Any]:
        """Plain values, as the store records them."""
        # Named only where they are in use: a run recorded before they were known is the same run without them.
        options = {"observe_only": self.observe_only, "classes": self.classes}
        return {
            "samples": self.samples,
            "schedule": self.schedule.to_dict(),
            "prune": self.prune,
            "policy": {"name": "auto"} if isinstance(self.policy, str) else describe(self.policy),
            "seed": self.seed,
            "batch_size": self.batch_size,
            **{name: value for name, value in options.items() if value},
        }


def _mask(without: Any, samples: int) -> Mask:
    """The samples to leave out for good as a mask of shape (samples,), from a mask or from ids."""
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
