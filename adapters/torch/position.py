"""Where a loader stands, as its state has it: checked before anything is done by it."""

from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["check_position", "going_on", "is_of_as_many_ranks"]

NUMBERS = {"epoch": (0, None), "delivered": (0, None), "seed": (0, 0), "ranks": (1, 1)}
"""The least of each number, and what stands for one that is not there; None where it has to be."""


def check_position(state: object) -> None:
    """Raise :class:`PrunedataError` unless it is what a loader's ``state_dict()`` returned."""
    if not isinstance(state, Mapping):
        raise _refused(f"a {type(state).__name__}")
    for name, (least, absent) in NUMBERS.items():
        value = state.get(name, absent)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise _refused(f"{name}={shown(value)}")
    if "loader" not in state or not isinstance(state["loader"], Mapping | None) or state["loader"] == {}:
        raise _refused(f"loader={shown(state.get('loader'))}")


def is_of_as_many_ranks(state: Mapping[str, Any], now: int, pruner: Pruner) -> bool:
    """Whether a position is one in this rank's share, and not of an epoch that others had shared."""
    ranks = state.get("ranks", 1)
    if ranks != now and not pruner.policy.needs_losses:
        raise PrunedataError(
            f"Expected {ranks} ranks to go on within epoch {state['epoch']}. Got {now}, with a policy that needs "
            "no losses, so that nobody knows which samples were trained on: go on with as many ranks, or from a "
            "checkpoint between two epochs; or call observe() for every batch, and load no state of the loader."
        )
    return bool(ranks == now)


def going_on(begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Begin at the position that was loaded; raise :class:`PrunedataError` if the loader cannot read it."""
    try:
        return begin()
    except PrunedataError:
        raise
    except Exception as error:
        raise _refused(f"one that the loader cannot go on from ({error})") from error


def _refused(got: str) -> PrunedataError:
    return PrunedataError(
        f"Expected what the loader's state_dict() returned. Got {got}: save it as it is, and load it as it was saved."
    )
