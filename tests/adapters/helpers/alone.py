"""Batches of one sample, of which sixteen make a step: suspects are found as well as in batches of sixteen."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch.utils.data import Dataset

from prunedata import Pruner

__all__ = ["EPOCHS", "Digits", "check_batches_of_one"]

STEP, EPOCHS, SAMPLES = 16, 4, 1000


class Digits(Dataset):
    """Digits, a fifth of them labelled wrong."""

    def __init__(self):
        images, digits = load_digits(return_X_y=True)
        images, digits, random = images[:SAMPLES], digits[:SAMPLES], np.random.default_rng(0)
        self.wrong = random.random(SAMPLES) < 0.2
        labels = np.where(self.wrong, (digits + random.integers(1, 10, SAMPLES)) % 10, digits)
        self.inputs, self.labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, at):
        return self.inputs[at], self.labels[at]


def check_batches_of_one(train):
    """``train(pruner, data, model, batch, accumulate)`` trains a run whose optimizer steps are of as many samples."""
    data, found = Digits(), []
    for batch in (STEP, 1):
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 10)
        pruner = Pruner(SAMPLES, epochs=EPOCHS, leave_out="nothing")
        train(pruner, data, model, batch, STEP // batch)
        assert pruner.visits.tolist() == [EPOCHS] * SAMPLES
        found.append(roc_auc_score(data.wrong, pruner.arrays["mean_excess"]))
    assert abs(found[0] - found[1]) < 0.01, found
    assert min(found) > 0.9, found
