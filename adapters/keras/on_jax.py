"""Record losses on the JAX backend, where a step is compiled: a callback passes the losses to the host."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from prunedata.adapters.keras.recorders import UNSEEN, StepRecorder, two_likeliest, weights_in
from prunedata.counting import guess
from prunedata.counting.batches import NOTHING
from prunedata.errors import LossError
from prunedata.run.pruner import Pruner
from prunedata.types import Array, SomeIds


class JaxRecorder(StepRecorder):
    """Nothing may be raised within a callback, where JAX would wrap it: what came is checked when it is handed over."""

    def __init__(self, pruner: Pruner) -> None:
        super().__init__(pruner)
        self._came: list[tuple[SomeIds, Array, Array, Array]] = []
        self._classes = 0

    def forget(self) -> None:
        """Drop the losses that are not recorded yet."""
        jax.effects_barrier()
        self._came.clear()

    def weights_of(self, ids: Any) -> Any:
        """Return what the losses of a batch weigh."""
        if not self._pruner.is_weighed:
            return None
        shape = jax.ShapeDtypeStruct((2, *ids.shape), np.float32)
        # Read on the host in each step: an array would be compiled in, as it was in the first epoch.
        weights, counting = io_callback(self._read, shape, ids, ordered=True)
        return weights, counting > 0

    def _read(self, ids: Any) -> Any:
        found = np.ones((2, len(ids)), np.float32)
        if self._epoch is not None:
            found[:] = weights_in(self._epoch, np.asarray(ids))
        return found

    def add(
        self, ids: Any, losses: Any, logits: Any = None, labels: Any = None, *, sizes: Sequence[int] | None = None
    ) -> None:
        """Append a batch; several are observed at once."""
        if sizes is not None:
            self._handed_over += len(ids)
            guesses, classes = (None, None) if logits is None else guess.two_likeliest(logits)
            self._pruner.record(np.asarray(losses), ids, sizes, guesses, classes=classes)
            return
        if losses.shape != ids.shape:
            raise LossError(f"Expected losses of shape {tuple(ids.shape)}, one per sample. Got {tuple(losses.shape)}.")
        said = np.full(ids.shape, NOTHING, np.int32)
        if logits is not None:
            said, self._classes = two_likeliest(logits)
        if labels is None or not self._takes_labels:
            labels = np.full(ids.shape, UNSEEN, np.int32)
        io_callback(self._take, None, ids, jax.lax.stop_gradient(losses), said, labels, ordered=True)

    def _take(self, *came: Any) -> None:
        ids, losses, said, labels = map(np.array, came)
        self._came.append((ids, losses, said, labels))

    @staticmethod
    def joined(parts: Sequence[Any]) -> Any:
        """Return the tensors of several batches as one."""
        return np.concatenate(jax.device_get(parts))

    @property
    def count(self) -> int:
        """Losses since the epoch was begun."""
        jax.effects_barrier()  # steps run behind Python
        return self._handed_over + sum(ids.size for ids, *_ in self._came)

    def held_back(self) -> list[tuple[Any, ...]]:
        """Hand over everything, as it came."""
        jax.effects_barrier()
        came, self._came = [batch for batch in self._came if batch[0].size], []
        if not came:
            return []
        ids, losses, said, labels = (np.concatenate(parts) for parts in zip(*came, strict=True))
        self._handed_over += ids.size
        self._see_labels(ids, labels)
        sizes = np.array([batch.size for batch, *_ in came])
        if not self._classes:
            return [(ids, losses, sizes)]
        self._pruner.expect_classes(self._classes)
        return [(ids, losses, sizes, said)]
