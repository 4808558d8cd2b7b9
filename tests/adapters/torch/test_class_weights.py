"""Losses that are weighed: by what a policy gives each sample, and by classes."""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner
from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import watch, wrap
from prunedata.adapters.torch.means import ALIKE, mean_of
from prunedata.errors import LossError, UnweighedWarning
from prunedata.policies import LossRanked, Random
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, losses_of, make_pruner

# A policy that weighs samples: what observe() returns.


@pytest.mark.parametrize("kind", ["map-style", "stream"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_observe_returns_the_weighted_mean_and_records_the_losses_as_they_are(kind, dtype):
    run = make_pruner(policy=LossRanked(), classes=2)
    items = [{"n": number} for number in range(SAMPLES)]
    loader = DataLoader(Items(), batch_size=BATCH, shuffle=True)
    if kind == "stream":
        loader = DataLoader(prune_stream(items, run, id="n", then=lambda item: (0, item["n"])), batch_size=BATCH)
    loader, weighted = wrap(loader, run), 0
    for number in range(run.schedule.epochs):
        epoch = run.begin_epoch()
        for _, ids in loader:
            losses = losses_of(ids, epoch.number).to(dtype).requires_grad_()
            mean = loader.observe(losses)
            expected = torch.ones(len(ids), dtype=dtype)
            if epoch.weights is not None:
                expected = torch.from_numpy(epoch.weights[ids.numpy()])  # of float32 also beside losses of bfloat16
            assert mean.item() == pytest.approx((expected * losses).mean().item())
            mean.backward()
            assert torch.allclose(losses.grad, (expected / len(ids)).to(dtype))
            weighted += bool((expected > 1).any())
        kept = np.flatnonzero(epoch.keep)
        run.end_epoch()
        recorded = losses_of(kept, epoch.number).to(dtype).double()
        assert run.history[number]["mean_loss"] == pytest.approx(recorded.mean().item())
        assert run.arrays["loss"][kept].tolist() == recorded.tolist()
    assert weighted > 5


# Weights of the user's own, as of classes: what is trained on is PyTorch's weighted mean, what is recorded is not.


FEW, CLASSES, EPOCHS = 40, 3, 3
CLASS_WEIGHTS = torch.tensor([0.3, 1.1, 5.7])


def data():
    torch.manual_seed(3)
    return TensorDataset(torch.arange(FEW), torch.randn(FEW, 4), torch.randint(0, CLASSES, (FEW,)))


def batches(workers=0):
    return DataLoader(data(), batch_size=8, num_workers=workers)


def train(pruner, loader, mean, dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Linear(4, CLASSES).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in pruner.epochs() if pruner else range(EPOCHS):
        for ids, inputs, targets in loader:
            optimizer.zero_grad()
            mean(ids, model(inputs.to(dtype)), targets).backward()
            optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def weighted_losses(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_left_out_it_trains_the_weights_of_pytorchs_own(workers, dtype):
    own = CLASS_WEIGHTS.to(dtype)
    plain = train(None, batches(), lambda _, outputs, targets: cross_entropy(outputs, targets, weight=own), dtype)
    run = Pruner(FEW, epochs=EPOCHS, leave_out="nothing")
    loader = run.wrap(batches(workers))
    ours = train(
        run,
        loader,
        lambda _, outputs, targets: run.observe(weighted_losses(outputs, targets), weights=own[targets]),
        dtype,
    )
    assert all(torch.equal(one, other) for one, other in zip(plain, ours, strict=True))


@given(st.integers(1, 1100), st.integers(0, 2**32), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_value_and_gradient_are_pytorchs(size, seed, dtype):
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, CLASSES, generator=random).to(dtype).requires_grad_()
    targets = torch.randint(0, CLASSES, (size,), generator=random)
    own = torch.rand(CLASSES, generator=random).to(dtype)
    plain = cross_entropy(scores, targets, weight=own)
    ours = mean_of(None, np.arange(size), weighted_losses(scores, targets), None, own=own[targets])
    gradients = [torch.autograd.grad(mean, scores)[0] for mean in (plain, ours)]
    if size <= ALIKE:
        assert torch.equal(plain, ours)
        assert torch.equal(*gradients)
    elif dtype != torch.bfloat16:  # of which PyTorch adds up so many to two digits
        torch.testing.assert_close(ours, plain)
        torch.testing.assert_close(*gradients)


def test_what_is_recorded_has_no_weights():
    runs = [Pruner(FEW, epochs=1, leave_out="nothing") for _ in range(2)]
    for run, weights in zip(runs, (None, CLASS_WEIGHTS), strict=True):
        loader = run.wrap(batches())
        for _ in run.epochs():
            for ids, _, targets in loader:
                run.observe(torch.cos(ids), weights=None if weights is None else weights[targets])
    assert runs[0].history[0]["mean_loss"] == runs[1].history[0]["mean_loss"]
    assert all(np.array_equal(runs[0].arrays[name], runs[1].arrays[name]) for name in runs[0].arrays)


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "auto", "holdout": 0.3},
        {"leave_out": "weight", "policy": Random(), "prune": 12},
        {"leave_out": "weight", "policy": LossRanked(), "prune": 12, "holdout": 0.2},
        {"leave_out": "weight", "without": [0, 1, 2, 3, 4, 5, 6, 7, 9], "policy": Random(), "prune": 9},
    ],
    ids=["held out", "by weight", "weighed and held out", "a whole batch for good"],
)
@pytest.mark.parametrize("watches", [False, True])
def test_what_counts_nothing_weighs_nothing(options, watches):
    """As the sums over what counts, made by hand."""
    if watches and "leave_out" not in options:
        options = {**options, "leave_out": "weight"}
    run = Pruner(FEW, epochs=EPOCHS, **options)
    loader = watch(batches(), run, ids=0) if watches else wrap(batches(), run)

    def compared(ids, outputs, targets):
        losses, own = weighted_losses(outputs, targets), CLASS_WEIGHTS[targets]
        epoch = run.current
        factors = torch.from_numpy(epoch.loss_weights(ids.numpy()))
        counts = own * (factors > 0)
        expected = (losses * own * factors).sum() / counts.sum() if counts.sum() else losses.sum() * 0
        mean = loader.observe(losses, weights=own)
        torch.testing.assert_close(mean, expected)
        return mean

    train(run, loader, compared)
    assert len(run.history) == EPOCHS


def test_a_batch_that_weighs_nothing_trains_nothing():
    run = Pruner(FEW, epochs=1, leave_out="nothing")
    loader = run.wrap(batches())
    for _ in run.epochs():
        for ids, _, _ in loader:
            losses = torch.cos(ids).requires_grad_()
            mean = run.observe(losses, weights=torch.zeros(len(ids)))
            mean.backward()
            assert mean == 0
            assert not losses.grad.any()


@pytest.mark.parametrize(
    "weights",
    [CLASS_WEIGHTS, 2.0, [1.0] * 8, torch.ones(8, device="meta")],
    ids=["by class", "a number", "list", "meta"],
)
def test_other_weights_are_refused_and_nothing_is_lost(weights):
    run = Pruner(FEW, epochs=1, leave_out="nothing")
    loader = run.wrap(batches())
    for _ in run.epochs():
        for ids, _, _ in loader:
            with pytest.raises(LossError, match=r"Expected weights as a Tensor of shape \(8,\) on cpu"):
                run.observe(torch.cos(ids), weights=weights)
            run.observe(torch.cos(ids))
    assert run.history[0]["observed"] == FEW


def test_losses_that_are_only_recorded_have_no_weights():
    run = Pruner(FEW, epochs=1)
    run.begin_epoch()
    with pytest.raises(LossError, match="Expected weights with the tensors of a wrapped DataLoader"):
        run.observe(np.ones(4), np.arange(4), weights=np.ones(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("by", ["loader", "hand"])
@pytest.mark.parametrize(
    ("loss", "warns"),
    [
        ({}, False),
        ({"label_smoothing": 0.1}, False),
        ({"weight": torch.tensor([1.0, 5.0, 1.0])}, True),
        ({"weight": torch.tensor([3.0, 3.0, 3.0])}, False),
    ],
    ids=["plain", "smoothed", "weighted", "all alike"],
)
def test_losses_that_were_multiplied_by_weights_of_their_classes_are_noticed(loss, warns, by, dtype):
    torch.manual_seed(0)
    inputs, targets = torch.randn(60, 3), torch.arange(60) % 3
    run = Pruner(60, epochs=6)
    loader = run.wrap(DataLoader(TensorDataset(inputs, targets), batch_size=15), with_ids=True)
    run.begin_epoch()
    with pytest.warns(UnweighedWarning, match="multiples") if warns else contextlib.nullcontext() as caught:
        for ids, (scores, labels) in loader:
            losses = cross_entropy(scores, labels, reduction="none", **loss).to(dtype)
            observe = loader.observe if by == "loader" else run.observe
            observe(losses, ids, logits=scores.to(dtype), labels=labels)
    assert not warns or len(caught) == 1  # once
    assert run.visits.tolist() == [1] * 60


@pytest.mark.parametrize("odd", [torch.inf, -torch.inf, 1e38])
def test_odd_logits_are_no_reason_to_warn(odd):
    """Of classes that were masked they are -inf, and a network that diverges has infinite ones."""
    scores = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    scores[:, 2], targets = odd, torch.arange(12) % 3
    run = Pruner(12, epochs=6)
    run.begin_epoch()
    run.observe(torch.rand(12).numpy(), np.arange(12), logits=scores.numpy(), labels=targets.numpy())
    run.end_epoch()
    assert run.visits.tolist() == [1] * 12
