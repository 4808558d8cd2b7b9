"""By which hits a policy orders samples: those of the window, or those of the whole run."""

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Known

__all__ = ["check_rank", "hit_rate"]


def hit_rate(known: Known) -> npt.NDArray[np.uint16]:
    """Hits over visits of the whole run in steps of 1/65535, shape (samples,); 0 for samples never seen."""
    scaled = known.hits.astype(np.uint64) * np.uint64(65535)
    return (scaled // np.maximum(known.visits, 1)).astype(np.uint16)


def check_rank(rank: str, *ranks: str) -> None:
    """Raise :class:`PrunedataError` if `rank` is none of `ranks`."""
    if rank not in ranks:
        some = ", ".join(map(repr, ranks[:-1]))
        raise PrunedataError(f"Expected rank {some} or {ranks[-1]!r}. Got {rank!r}.")
