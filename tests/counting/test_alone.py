"""Batches of one sample: their losses are held against the mean of the epoch so far."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from prunedata import Pruner, Schedule
from prunedata.policies import DroppingCount, RunningLoss

LOSSES = st.floats(-1e3, 1e3, width=32)


def run_of(samples, **options):
    return Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=1, **options)


def plainly(losses, sizes):
    """The excess of each sample's one loss, in the order of the epoch."""
    excess, total, number, first = [], 0.0, 0, 0
    for size in sizes:
        batch = losses[first : first + size]
        first, total, number = first + size, total + sum(batch), number + size
        mean = total / number if size == 1 else sum(batch) / size
        excess += [loss - mean for loss in batch]
    return excess


@given(st.lists(st.lists(LOSSES, min_size=1, max_size=4), min_size=2, max_size=30), st.data())
def test_the_excess_is_that_of_the_plain_rule_wherever_the_run_is_read_or_stopped(batches, data):
    losses, sizes = [loss for batch in batches for loss in batch], [len(batch) for batch in batches]
    policy = RunningLoss(decay=0)
    run, ids = run_of(len(losses), policy=policy), np.arange(len(losses))
    run.begin_epoch()
    first = 0
    for size in sizes:
        run.observe(np.array(losses[first : first + size]), ids[first : first + size])
        first += size
        done = data.draw(st.sampled_from(["go on", "read", "stop"]))
        if done == "read":
            assert run.visits[:first].all()
        elif done == "stop":
            state, run = run.state_dict(), run_of(len(losses), policy=policy)
            run.load_state_dict(state)
            run.begin_epoch()
    run.end_epoch()
    np.testing.assert_allclose(run.arrays["mean_excess"], plainly(losses, sizes), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(run.arrays["excess"], plainly(losses, sizes), rtol=1e-4, atol=1e-3)


def test_the_papers_count_needs_batches():
    run = run_of(3, policy=DroppingCount())
    run.begin_epoch()
    for number in range(3):
        run.observe([float(number)], [number])
    run.end_epoch()
    assert run.counts.tolist() == [0, 0, 0]
    assert run.arrays["mean_excess"].tolist() == [0.0, 0.5, 1.0]


def trained(batch, epochs=6):
    """A linear classifier of digits, a fifth of them labelled wrong, with steps of 16 samples; suspects by AUC."""
    images, digits = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    wrong = random.random(len(digits)) < 0.2
    labels = np.where(wrong, (digits + random.integers(1, 10, len(digits))) % 10, digits)
    inputs, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    run = Pruner(len(digits), epochs=epochs, leave_out="nothing")
    for epoch in run.epochs():
        for ids in epoch.batches(16):
            optimizer.zero_grad()
            for part in np.split(ids, range(batch, len(ids), batch)):
                losses = torch.nn.functional.cross_entropy(model(inputs[part]), labels[part], reduction="none")
                run.observe(losses.detach().numpy(), part)
                (losses.sum() / len(ids)).backward()
            optimizer.step()
    return roc_auc_score(wrong, run.arrays["mean_excess"])


def test_suspects_are_found_as_well_as_in_batches_of_16():
    assert trained(1) == pytest.approx(trained(16), abs=0.01)
    assert trained(1) > 0.9
