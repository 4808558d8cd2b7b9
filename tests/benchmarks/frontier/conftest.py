"""A task that a small network can learn by heart."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.frontier.data.material import HeadTask, Part


@pytest.fixture(scope="module")
def task():
    """Ten clusters in more dimensions than a network needs to know 500 labels by heart, 40 % of them wrong."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(10, 200))

    def part(samples):
        labels = rng.integers(0, 10, samples)
        features = 0.12 * centres[labels] + 0.5 * rng.normal(size=(samples, 200))
        return features.astype(np.float32), labels

    features, labels = part(500)
    wrong = rng.random(500) < 0.4
    noisy = np.where(wrong, (labels + rng.integers(1, 10, 500)) % 10, labels)
    held_out, test = ((torch.from_numpy(x), torch.from_numpy(y)) for x, y in (part(200), part(1000)))
    return HeadTask(
        "random40",
        Part(torch.from_numpy(features), torch.from_numpy(noisy)),
        Part(*held_out),
        Part(*test),
        wrong,
        labels,
        10,
    )
