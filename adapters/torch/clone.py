"""A loader like the user's, of its own class and with its own attributes, that prunes."""

from functools import cache
from typing import Any

import torch
from torch.utils.data import DataLoader

from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.errors import PrunedataError

__all__ = ["clone", "subclass_of"]


def clone(loader: DataLoader[Any], replaced: dict[str, Any]) -> Any:
    """Return a loader like the user's, of a class that prunes, with the attributes in ``replaced`` replaced.

    All other attributes are the user's own objects. ``__init__`` is not called: a loader can't be made anew from its
    arguments, because nobody knows what a subclass of the user's was built from.
    """
    attributes = vars(loader) | replaced
    if loader.generator is None:  # WorkerSeeds seeds it in each epoch
        attributes["generator"] = torch.Generator()
    # The user's loader may stand within an epoch; the new one stands at the beginning. The last two attributes are
    # StatefulDataLoader's, which reads them when it is iterated.
    attributes |= {"_iterator": None, "_initial_iter_for_state_dict": False, "next_iter_state": None}
    kind: Any = type(loader)
    pruned: Any = object.__new__(subclass_of(kind))
    vars(pruned).update(attributes)  # DataLoader refuses to set some of them one by one
    return pruned


@cache
def subclass_of(kind: type) -> type:
    """Return a subclass of a loader's class that prunes.

    Of PyTorch's own class it is ``(PrunedLoader, DataLoader)``. Of a user's subclass it is the user's class before
    that: so its ``__iter__`` gets batches from ours, which has taken the ids off.
    """
    base = next((each for each in kind.__mro__ if each.__module__.partition(".")[0] in ("torch", "torchdata")), None)
    if base is None:
        raise PrunedataError(
            f"Expected a DataLoader of PyTorch's or a subclass. Got {kind.__module__}.{kind.__qualname__}, which wraps "
            "one: wrap the loader first, with with_ids=True, and let the wrapper prepare the result."
        )
    if kind is base:
        return type(f"Pruned{base.__name__}", (PrunedLoader, base), {})
    return type(f"Pruned{kind.__name__}", (kind, subclass_of(base)), {})
