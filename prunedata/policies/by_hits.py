"""By which hits a policy sorts samples: those of the window, or those of the whole run."""

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Known

__all__ = ["check_by", "hit_rate"]


def hit_rate(known: Known) -> npt.NDArray[np.uint16]:
    """Hits over visits of the whole run in steps of 1/65535, shape (samples,); 0 for samples never seen."""
    scaled = known.hits.astype(np.uint64) * np.uint64(65535)
    return (scaled // np.maximum(known.visits, 1)).astype(np.uint16)


def check_by(by: str, *known: str) -> None:
    """Raise :class:`PrunedataError` if `by` is none of `known`."""
    if by not in known:
        some = ", ".join(map(repr, known[:-1]))
        raise PrunedataError(f"Expected by={some} or {known[-1]!r}. Got {by!r}.")
