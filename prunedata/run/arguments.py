"""What a run was given: checked once, frozen, and described as the store records it."""

from dataclasses import dataclass
from typing import Any, Literal

from prunedata.checks import whole
from prunedata.errors import PrunedataError
from prunedata.plan.cost import count_pruned
from prunedata.plan.schedule import Schedule
from prunedata.policies.high import High
from prunedata.policies.protocol import Policy, Watcher, describe
from prunedata.run.ledger import Ledger
from prunedata.run.plan import RunPlan, policy_of, warn_of_small_prune

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
        return RunPlan(
            self.samples, self.schedule, num_pruned, self.batch_size, auto=self.auto, observe_only=self.observe_only
        )

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
