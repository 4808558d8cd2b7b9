"""The saved position of a loader, checked before it is used."""

from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

CUT = {"ranks": 1, "batch_size": 1, "workers": 0}
"""What a position depends on, and the least value of each: how many ranks, samples in a batch, and worker processes."""
NUMBERS = {"epoch": (0, None), "delivered": (0, None), "seed": (0, 0), "skipped": (0, 0)}
NUMBERS |= {name: (least, 1) for name, least in CUT.items()}
"""For each number in the state: the least value, and the value if it is missing; None where it must be there."""


def check_position(state: object) -> None:
    """Raise :class:`PrunedataError` unless a state is what a loader's ``state_dict()`` returned."""
    if not isinstance(state, Mapping):
        raise _refused(f"a {type(state).__name__}")
    for name, (least, absent) in NUMBERS.items():
        value = state.get(name, absent)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise _refused(f"{name}={shown(value)}")
    if "loader" not in state or not isinstance(state["loader"], Mapping | None) or state["loader"] == {}:
        raise _refused(f"loader={shown(state.get('loader'))}")


def is_cut_alike(state: Mapping[str, Any], cut: Mapping[str, int], pruner: Pruner) -> bool:
    """Return whether a position was saved by a loader that cuts an epoch in the same way: see ``CUT``.

    Raises :class:`PrunedataError` if it was not, and the samples that remain are unknown without it.
    """
    differ = [name for name in CUT if state.get(name, cut[name]) != cut[name]]
    if differ and not pruner.policy.needs_losses:
        before, now = (", ".join(f"{name}={one[name]}" for name in differ) for one in (state, cut))
        raise PrunedataError(
            f"Expected {before} to resume within epoch {state['epoch']}. Got {now}, with a policy that needs "
            "no losses, so that the run does not know which samples were trained on: resume with the same, or "
            "from a checkpoint between two epochs; or call observe() for every batch, and load no state of the loader."
        )
    return not differ


def resume_at(begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Begin at the position that was loaded; raise :class:`PrunedataError` if the loader cannot read it."""
    try:
        return begin()
    except PrunedataError:
        raise
    except Exception as error:
        raise _refused(f"one that the loader cannot resume from ({error})") from error


def _refused(got: str) -> PrunedataError:
    return PrunedataError(
        f"Expected the result of the loader's state_dict(). Got {got}: save it as it is, and load it as it was saved."
    )
