"""The training to be killed, in numpy: it goes on from the run's store.

Each epoch leaves a checkpoint of the model in the folder of the run; the store says which one goes with it.

It says how far it is: ``ready``, ``resumed N`` at epoch N, and around each write ``saving N`` and ``saved N``. So what
must be there after a kill is known.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.faults.child import Say
from prunedata import Pruner, Schedule
from prunedata.types import Array

__all__ = ["BATCH", "CLASSES", "FEATURES", "SAMPLES", "SEED", "data", "finish", "new_pruner", "result", "train"]

SAMPLES, FEATURES, CLASSES, BATCH, SEED = 500, 16, 5, 32, 7
EPOCHS = 40


def data() -> tuple[Array, npt.NDArray[np.int64]]:
    """Noisy clusters, a fifth of them under a wrong label."""
    random = np.random.default_rng(SEED)
    labels = random.integers(CLASSES, size=SAMPLES)
    images = random.normal(size=(CLASSES, FEATURES))[labels] + random.normal(size=(SAMPLES, FEATURES))
    wrong = random.random(SAMPLES) < 0.2
    return images, np.where(wrong, random.integers(CLASSES, size=SAMPLES), labels)


def new_pruner(epochs: int, store: Path | None = None) -> Pruner:
    schedule = Schedule(epochs, window=max(4, epochs // 3), start=1, block=3, pruned_per_block=2)
    return Pruner(SAMPLES, schedule, prune=0.3, seed=SEED, store=store, resume=store is not None, keys=range(SAMPLES))


def train(folder: Path, say: Say) -> None:
    """Softmax regression with momentum. Checkpoints are numbered, and the store says which one goes with it."""
    images, labels = data()
    say("ready")
    pruner = new_pruner(EPOCHS, folder / "run.zarr")
    saved: dict[str, Array] = {
        "weights": np.zeros((FEATURES, CLASSES)),
        "velocity": np.zeros((FEATURES, CLASSES)),
        "trace": np.zeros(0, dtype="S64"),
    }
    if pruner.next_epoch:
        with np.load(folder / f"model-{pruner.next_epoch}.npz") as file:
            saved = dict(file)
    say(f"resumed {pruner.next_epoch}")
    weights, velocity, trace = saved.values()
    for epoch in pruner.epochs():
        if epoch.number:
            say(f"saved {epoch.number}")
        order = hashlib.sha256(epoch.keep.tobytes())
        for ids in epoch.batches(BATCH):
            scores = images[ids] @ weights
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            pruner.observe(-np.log(shares[np.arange(ids.size), labels[ids]]), ids)
            shares[np.arange(ids.size), labels[ids]] -= 1
            velocity = 0.9 * velocity + images[ids].T @ shares / ids.size
            weights = weights - 0.05 * velocity
            order.update(ids.astype("<i8").tobytes())
        trace = np.append(trace, order.hexdigest().encode())
        np.savez(folder / f"model-{epoch.number + 1}.npz", weights=weights, velocity=velocity, trace=trace)
        say(f"saving {epoch.number + 1}")
    say(f"saved {pruner.next_epoch}")
    finish(folder, pruner, trace.tolist(), weights.tobytes() + velocity.tobytes())


def finish(folder: Path, pruner: Pruner, trace: list[Any], weights: bytes) -> None:
    """Write what the run came to, all but its seconds, as bytes that are equal only if it is."""
    history = [
        {name: value for name, value in record.items() if name not in ("seconds", "overhead")}
        for record in pruner.history
    ]
    arrays = {name: getattr(pruner, name).tolist() for name in ("counts", "hits", "visits")}
    digest = {"trace": _digest(repr(trace).encode()), "weights": _digest(weights)}
    part = folder / "result.part"
    part.write_text(json.dumps({**digest, "history": history, **arrays}))
    part.replace(folder / "result.json")


def result(folder: Path) -> dict[str, Any]:
    """What a finished run came to: digests of ``trace`` (masks and orders of all epochs) and ``weights``; counts."""
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()
