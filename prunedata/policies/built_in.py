"""The policies that the library brings, by name: to make one again from what a store says of it."""

from collections.abc import Mapping
from typing import Any

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.policies.bounded_loss import BoundedLoss
from prunedata.policies.dropping_count import DroppingCount
from prunedata.policies.easy_pruning import EasyPruning
from prunedata.policies.loss_ranked import LossRanked
from prunedata.policies.protocol import Policy
from prunedata.policies.random import Random
from prunedata.policies.recent_loss import RecentLoss
from prunedata.policies.running_loss import RunningLoss

__all__ = ["BUILT_IN", "from_description"]

BUILT_IN: dict[str, type[Policy]] = {
    kind.__name__: kind
    for kind in (BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RecentLoss, RunningLoss)
}


def from_description(described: object) -> Policy:
    """Return the policy that :func:`prunedata.policies.protocol.describe` described.

    Raises
    ------
    PrunedataError
        If it is none of the library's own, or its parameters make no sense.
    """
    name = described.get("name") if isinstance(described, Mapping) else None
    if not isinstance(described, Mapping) or not isinstance(name, str) or name not in BUILT_IN:
        raise PrunedataError(f"Expected the description of one of {', '.join(BUILT_IN)}. Got {shown(described)}.")
    parameters: dict[str, Any] = {key: value for key, value in described.items() if key != "name"}
    try:
        return BUILT_IN[name](**parameters)
    except TypeError as error:  # as for a parameter of another version
        raise PrunedataError(f"Expected the parameters of {name}. Got {shown(parameters)}: {error}.") from error
