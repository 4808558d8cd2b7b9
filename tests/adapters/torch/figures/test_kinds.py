"""Validation figures as people have them, on 100 labels: macro accuracy, F1 or a loss, each epoch or now and then."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score, f1_score

from prunedata import Pruner

SAMPLES, FEW, EPOCHS = 800, 100, 24
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = torch.tensor(IMAGES / 16, dtype=torch.float32)
KINDS = {
    "macro accuracy": lambda scores, labels: balanced_accuracy_score(labels, scores.argmax(1)),
    "macro F1": lambda scores, labels: f1_score(labels, scores.argmax(1), average="macro"),
    "loss": lambda scores, labels: F.cross_entropy(scores, torch.tensor(labels)).item(),
}


def trained(kind, every, wrong_share):
    """Train by ``auto``; return which labels are wrong, and the samples that each epoch left out."""
    random = np.random.default_rng(0)
    labels, wrong = DIGITS.copy(), random.random(len(DIGITS)) < wrong_share
    labels[wrong] = (labels[wrong] + random.integers(1, 10, wrong.sum())) % 10
    train, few = np.split(random.permutation(len(DIGITS))[: SAMPLES + FEW], [SAMPLES])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pruner, out = Pruner(SAMPLES, epochs=EPOCHS), []
    for epoch in pruner.epochs():
        out.append(~epoch.keep)
        for ids in epoch.batches(32):
            at = train[ids]
            losses = F.cross_entropy(model(IMAGES[at]), torch.tensor(labels[at]), reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            pruner.observe(losses.detach().numpy(), ids)
        if epoch.number % every == 0:
            with torch.no_grad():
                pruner.validated(KINDS[kind](model(IMAGES[few]), labels[few]), lower_is_better=kind == "loss")
    return wrong[train], np.array(out)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_labels_are_left_out_and_of_clean_data_hardly_any_sample(kind, every):
    wrong, out = trained(kind, every, 0.4)
    last = out[-1]
    assert wrong[last].mean() > 0.85
    assert last[wrong].mean() > 0.5
    _, out = trained(kind, every, 0)
    assert out.mean(1).max() < 0.1
