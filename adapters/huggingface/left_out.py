"""What of a Trainer's batch is left out by weight: its labels, or its rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prunedata.adapters.huggingface.losses import IGNORED, token_losses
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds

__all__ = ["Part", "is_flat", "losses_of_sequences", "without_labels", "without_rows"]

LABELS = ("labels", "shift_labels")


@dataclass
class Part:
    """What counts of a batch.

    Attributes
    ----------
    ids : ndarray of int64, shape (n,)
        Of all its samples.
    counted : ndarray of bool, shape (n,)
    rows : bool
        Whether only the rows that count are in the batch; of one of which none counts, the first.
    factor : float
        What to multiply the loss of the batch by, if it is a mean over the batch: so that what is trained on is the
        mean over what counts in the whole step.
    """

    ids: SomeIds
    counted: npt.NDArray[np.bool_]
    rows: bool = False
    factor: float = 1.0

    @property
    def none(self) -> bool:
        """Whether nothing of it counts."""
        return not self.counted.any()


def is_flat(batch: Any) -> bool:
    """Whether a batch is one row of many samples, as TRL packs them."""
    return "cu_seq_lens_q" in batch or "seq_idx" in batch


def of_sequences(batch: Any, samples: int) -> Any:
    """Of a flat batch, which sample each token is of, shape (1, tokens). What pads the end counts as the last one's."""
    begins = (batch["position_ids"] == 0).cumsum(-1) - 1
    return begins.clamp(max=samples - 1)


def without_labels(batch: Any, counted: npt.NDArray[np.bool_]) -> None:
    """Let no label of what is left out count, in place of the batch's labels."""
    which = torch.from_numpy(counted).to(batch["labels"].device)
    for name in LABELS:
        labels = batch.get(name)
        if labels is None:
            continue
        if is_flat(batch):
            keep = which[of_sequences(batch, len(counted))]
        else:
            keep = which.view(-1, *[1] * (labels.ndim - 1))
        batch[name] = labels.masked_fill(~keep, IGNORED)


def without_rows(batch: Any, counted: npt.NDArray[np.bool_]) -> None:
    """Leave the rows out that don't count; of a batch in which none does, all but the first."""
    if not counted.any():
        counted = np.arange(counted.size) == 0
    size, which = counted.size, torch.from_numpy(np.flatnonzero(counted))
    for name, value in list(batch.items()):
        if isinstance(value, torch.Tensor) and value.ndim and len(value) == size:
            batch[name] = value[which.to(value.device)]
        elif isinstance(value, (list, tuple)) and len(value) == size:
            batch[name] = type(value)(value[row] for row in which.tolist())
        elif isinstance(value, torch.Tensor):
            raise PrunedataError(
                f'Expected one row for each of {size} samples in the batch, with by="weight" and a loss of your own. '
                f"Got {name} of shape {tuple(value.shape)}: use a Pruner that shortens epochs."
            )


def losses_of_sequences(outputs: Any, inputs: Any, samples: int, *, shifted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss of each sample of a flat batch over its own tokens, and how many these are."""
    each, mask = token_losses(outputs, inputs, shifted=shifted)
    owner = of_sequences(inputs, samples)[:, -each.shape[1] :]  # of the token that is predicted, or the one before it
    sums = torch.zeros(samples, dtype=each.dtype, device=each.device)
    counts = torch.zeros_like(sums)
    sums = sums.scatter_add(0, owner[0], (each * mask)[0])
    counts = counts.scatter_add(0, owner[0], mask[0].to(each.dtype))
    return sums / counts.clamp(min=1), counts
