"""The protocol of policies. A policy gives each sample a score; a pruned epoch leaves out the highest ones.

For every policy the run keeps the counts of Algorithm 1, and each sample's hits and visits of the whole run. A policy
is a small frozen dataclass, which can be added without a change to others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from prunedata.checks import real
from prunedata.errors import PrunedataError
from prunedata.types import Array, Counts, Ids, Losses, Mask


@dataclass(frozen=True, eq=False)
class Known:
    """The arrays of all finished epochs, from which a policy computes its scores. Don't change them.

    Attributes
    ----------
    counts : ndarray of unsigned int, shape (samples,)
        DroppingCount: hits in the current window.
    hits, visits : ndarray of unsigned int, shape (samples,)
        Hits, and times observed, in the whole run.
    arrays : mapping of str to ndarray, shape (samples,)
        ``mean_excess``, which every run keeps: how far a sample's losses were above the means of their batches, on
        average. And the policy's own arrays by name, if it is a :class:`Watcher`.
    num_pruned : int
        How many samples will be pruned (PruningNum).
    """

    counts: Counts
    hits: Counts
    visits: Counts
    arrays: Mapping[str, Array]
    num_pruned: int


class Policy(Protocol):
    """The attributes and methods that a policy must have. It may also be a :class:`Watcher` or a :class:`Weigher`."""

    @property
    def tolerance(self) -> float:
        """Algorithm 1's tolerance: how far above its batch's mean a loss must lie to be a hit."""

    @property
    def needs_losses(self) -> bool:
        """Whether an epoch without observed losses is an error."""

    def scores(self, known: Known) -> Array:
        """Score each sample, shape (samples,), an integer or floating dtype without NaN; the highest are pruned."""


@runtime_checkable
class Watcher(Protocol):
    """A policy that keeps arrays of its own, with one number per sample. The run saves and restores them."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """Return the arrays as a run begins, by name: shape (samples,), integers or floats of up to 64 bits."""

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Update the arrays by some losses, in place.

        ``ids``, ``losses``, and ``means``, the mean loss of each sample's batch, have the shape (n,). They are checked,
        and valid during the call only. A sample comes at most once in a call, and its visits come in their order. Don't
        rely on which samples come in one call: it need not be a batch.
        """


@runtime_checkable
class Weigher(Protocol):
    """A policy that gives the losses of a pruned epoch weights."""

    def weights(self, keep: Mask, known: Known) -> Array:
        """Return the weight of each sample's loss, shape (samples,); those of pruned samples are ignored.

        ``keep`` is True for the samples that the epoch keeps; ``known`` is the same as for ``scores``.
        """


def describe(policy: Policy) -> dict[str, Any]:
    """Return the policy's name and parameters, as the store records them: plain values, which JSON returns unchanged.

    Raises :class:`PrunedataError` if it is no policy, lacks something that a policy must have, or has a parameter that
    cannot be stored.
    """
    name = type(policy).__name__
    if isinstance(policy, type):
        name = policy.__name__
        raise PrunedataError(f"Expected a policy such as DroppingCount(). Got the class {name}: call it, {name}().")
    if not is_dataclass(policy) or not policy.__dataclass_params__.frozen:
        raise PrunedataError(_not_a_dataclass(policy))
    if not callable(getattr(policy, "scores", None)):
        raise PrunedataError(f"Expected {name}.scores(known), which scores each sample. Got none: see Policy.")
    real(f"{name}.tolerance", getattr(policy, "tolerance", None), 0.0)
    needs_losses = getattr(policy, "needs_losses", None)
    if not isinstance(needs_losses, bool | np.bool_):
        raise PrunedataError(f"Expected {name}.needs_losses to be True or False. Got {needs_losses!r}.")
    methods = [method for method in ("arrays", "update") if callable(getattr(policy, method, None))]
    if len(methods) == 1:
        raise PrunedataError(f"Expected {name}.arrays and {name}.update, both or neither. Got {methods[0]} only.")
    parameters = {each.name: _plain(f"{name}.{each.name}", getattr(policy, each.name)) for each in fields(policy)}
    if "name" in parameters:
        raise PrunedataError(
            f"Expected fields of {name} with other names than 'name', which a store has for the name of the policy."
        )
    return {"name": name} | parameters


def _not_a_dataclass(policy: object) -> str:
    """Return the error message for an object that is no frozen dataclass."""
    if not hasattr(policy, "scores"):
        return f"Expected a policy such as DroppingCount() or Random(). Got {policy!r}."
    lack = "isn't frozen" if is_dataclass(policy) else "is not a dataclass"
    name = type(policy).__name__
    return f"Expected a frozen dataclass. Got {name}, which {lack}: write @dataclass(frozen=True) above its class."


def _plain(name: str, value: object) -> Any:
    """Return a parameter as JSON returns it, or raise if it cannot be stored."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, each) for key, each in value.items()}
    raise PrunedataError(
        f"Expected {name} to be None, a bool, a finite number, a string, or a list, tuple or dict (with strings as "
        f"keys) of these, as a store can keep. Got {value!r}. Numbers for each sample belong in arrays()."
    )
