"""SeTa's rule (Zhou et al., 2025), as its paper and its program have it: a window that slides from easy to hard."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

__all__ = ["SlidingWindow"]


@dataclass
class SlidingWindow:
    """Which samples each epoch is trained on; how many follows from the losses.

    In every epoch a random part is left out. The others are put into groups by their last losses (k-means), of which an
    epoch keeps those in a window; from epoch to epoch the window moves on to harder ones, and then begins anew. The
    first epoch and the last ones keep all groups.

    Parameters
    ----------
    samples, epochs, seed : int
    ratio : float
        Share that is left out at random. With the others, what its authors take for CIFAR.
    groups : int
    window : float
        Share of the groups that an epoch keeps.
    until : float
        Share of the epochs after which all groups are kept.
    """

    samples: int
    epochs: int
    seed: int
    ratio: float = 0.1
    groups: int = 5
    window: float = 0.9
    until: float = 0.875
    losses: NDArray[np.float32] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.losses = np.full(self.samples, np.inf, np.float32)

    def ids(self, epoch: int) -> NDArray[np.int64]:
        """Those of an epoch, in random order."""
        some = np.random.default_rng((self.seed, epoch)).permutation(self.samples)
        some = some[: round((1 - self.ratio) * self.samples)]
        if epoch == 0 or epoch >= self.until * self.epochs:
            return some
        losses = self.losses[some]
        seen = np.isfinite(losses)  # what was never trained on is as hard as anything
        losses[~seen] = losses[seen].max()
        groups = min(self.groups, np.unique(losses).size)
        found = KMeans(groups, random_state=0, n_init=1).fit(losses[:, np.newaxis])
        place = np.argsort(np.argsort(found.cluster_centers_.ravel()))[found.labels_]
        size = max(1, round(groups * self.window))
        first = epoch % (groups - size + 1)
        return np.asarray(some[(place >= first) & (place < first + size)])

    def observe(self, ids: NDArray[np.integer[Any]], losses: NDArray[np.float32]) -> None:
        """Keep the last loss of each sample."""
        self.losses[ids] = losses
