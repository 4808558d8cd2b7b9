"""Losses of unusual dtypes, layouts and places, and logits beside them: recorded as others are, or refused."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner
from prunedata.adapters.torch import watch, wrap
from prunedata.adapters.torch.losses import Recorder
from prunedata.errors import LossError, PrunedataError
from tests.adapters.helpers.torch import make_pruner, pruned

# Losses of unusual dtypes, layouts and places: recorded as others are, or refused with the way on.


@pytest.fixture
def opened():
    """A pruner in its first epoch, its loader, and how many samples its first batch has."""
    pruner, loader = pruned()
    pruner.begin_epoch()
    return pruner, loader, len(next(iter(loader))[1])


VALUES = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", [*FLOAT8, torch.int64], ids=str)
def test_what_has_no_mean_is_recorded_and_its_mean_has_a_gradient(opened, dtype):
    pruner, loader, _ = opened
    source = torch.tensor(VALUES, requires_grad=True)
    losses = source.to(dtype)
    mean = loader.observe(losses)
    whole = losses.detach().float()
    assert mean.item() == whole.mean()
    if dtype in FLOAT8:
        mean.backward()
        assert source.grad.sum() == 1
    assert pruner.counts.sum() == (whole > whole.mean()).sum()


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (
            lambda: torch.tensor(VALUES).to_sparse(),
            r"torch\.sparse_coo",
        ),
        (lambda: torch.empty(8, device="meta"), r"that were computed\. Got those of the device meta"),
        (lambda: torch.quantize_per_tensor(torch.rand(8), 0.1, 0, torch.quint8), "a quantized one"),
        (lambda: torch.nested.nested_tensor([torch.rand(1)] * 8), "a nested one"),
        (lambda: torch.nested.nested_tensor([torch.rand(2)] * 8, layout=torch.jagged), "a nested one"),
        (lambda: torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "Got torch.float4"),
        (lambda: torch.ones(8, dtype=torch.bool), r"a floating dtype, .*\. Got .*bool"),
        (lambda: torch.ones(8, dtype=torch.complex64), r"a floating dtype, .*\. Got .*complex64"),
    ],
    ids=["sparse", "meta", "quantized", "nested", "jagged", "float4", "bool", "complex"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*quantiz")
@pytest.mark.parametrize("watched", [False, True])
def test_what_is_no_loss_is_refused_at_once(opened, losses, message, watched):
    pruner, loader, _ = opened
    if watched:
        pruner = make_pruner(leave_out="weight")
        loader = watch([(None, torch.arange(8))], pruner, ids=1)
        pruner.begin_epoch()
        next(iter(loader))
    with pytest.raises(LossError, match=message):
        loader.observe(losses())
    assert pruner.counts.sum() == 0


@pytest.mark.parametrize(
    "transform", [torch.func.grad, torch.func.vjp, torch.func.vmap], ids=lambda each: each.__name__
)
def test_within_a_transform_the_way_out_is_said(opened, transform):
    _, loader, _ = opened

    def step(weight):
        return loader.observe(weight * torch.tensor(VALUES))

    given = torch.ones(2) if transform is torch.func.vmap else torch.tensor(1.0)
    with pytest.raises(LossError, match="has_aux=True"):
        transform(step, given) if transform is torch.func.vjp else transform(step)(given)


def test_the_way_out_works(opened):
    pruner, loader, _ = opened

    def step(weight):
        losses = weight * torch.tensor(VALUES)
        return losses.mean(), losses

    gradient, losses = torch.func.grad(step, has_aux=True)(torch.tensor(1.0))
    loader.observe(losses)
    assert gradient.item() == 2.25
    assert pruner.counts.sum() == 4


@pytest.mark.parametrize("dtype", [*FLOAT8, torch.int32], ids=str)
def test_on_a_device_they_are_recorded_too(monkeypatch, dtype):
    """By the block of a device, which is the processor here."""
    found = []
    for on_device in (False, True):
        pruner = make_pruner()
        recorder = Recorder(pruner)
        pruner.begin_epoch()
        losses = torch.arange(8.0).to(dtype)
        if on_device:
            monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False))
        recorder.add(np.arange(8), losses)
        for ids, held, sizes in recorder.held_back():
            pruner.record(held, ids, sizes)
        found.append(pruner.counts.tolist())
    assert found[0] == found[1]
    assert sum(found[0]) == 4
    with pytest.raises(LossError, match="dense Tensor"):
        recorder.add(np.arange(8), torch.arange(8.0).to_sparse())
    with pytest.raises(LossError, match=r"a floating dtype, .*complex64"):
        recorder.add(np.arange(8), torch.ones(8, dtype=torch.complex64))


# ``observe(losses, logits=...)`` behind a loader: the same as by hand, in every way that losses go.


SAMPLES, CLASSES, WRONG = 200, 4, 30


class Data(TensorDataset):
    """Four heaps of points, the first of which have the label of another heap."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.truth = torch.arange(SAMPLES) % CLASSES
        points = torch.randn(SAMPLES, CLASSES, generator=generator) + 4 * torch.eye(CLASSES)[self.truth]
        self.targets = torch.where(torch.arange(SAMPLES) < WRONG, (self.truth + 1) % CLASSES, self.truth)
        super().__init__(points, self.targets)


def train(pruner, *, by_hand=None, says=True):
    """Train a linear model through a pruned loader, with logits if it `says` them; `by_hand` sees the same batches."""
    torch.manual_seed(0)
    model = nn.Linear(CLASSES, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = wrap(DataLoader(Data(), batch_size=16, shuffle=True), pruner, with_ids=True)
    for _ in pruner.epochs():
        if by_hand is not None:
            by_hand.begin_epoch()
        for ids, (points, targets) in loader:
            logits = model(points)
            losses = cross_entropy(logits, targets, reduction="none")
            if by_hand is not None:
                by_hand.observe(losses.detach().numpy(), ids, logits=logits.detach().numpy())
            optimizer.zero_grad()
            loader.observe(losses, ids, logits=logits if says else None).backward()
            optimizer.step()
        if by_hand is not None:
            by_hand.end_epoch()
    return pruner


def run(**options):
    return Pruner(SAMPLES, epochs=6, **options)


def test_a_loader_keeps_what_a_loop_by_hand_keeps_and_it_is_right():
    labels = Data().targets
    by_hand = run(labels=labels.numpy())
    pruner = train(run(labels=labels), by_hand=by_hand)
    assert {name: array.tolist() for name, array in pruner.arrays.items()} == {
        name: array.tolist() for name, array in by_hand.arrays.items()
    }
    assert (pruner.arrays["guess"][:WRONG] == Data().truth[:WRONG].numpy()).mean() > 0.9
    assert (pruner.arrays["guess"] != labels.numpy()).all()


def guesses(data, *, known=True):
    """The most likely class of each point, other than its label if that is known."""
    return (data.tensors[0] - 1e9 * torch.eye(CLASSES)[data.targets] * known).argmax(1)


@pytest.mark.parametrize("buffered", [False, True])
def test_logits_that_are_nan_say_nothing_where_a_run_is_only_watched(buffered, monkeypatch):
    monkeypatch.setattr(Recorder, "buffers_all", buffered)
    pruner = run()
    pruner.forgive()
    loader = wrap(DataLoader(Data(), batch_size=SAMPLES), pruner)
    pruner.begin_epoch()
    for points, targets in loader:
        points[3, 1] = torch.nan
        loader.observe(torch.ones(len(targets)), logits=points)
    pruner.end_epoch()
    expected = guesses(Data())
    expected[3] = -1
    assert pruner.arrays["guess"].tolist() == expected.tolist()


def test_the_losses_alone_train_the_same_network():
    with_logits, without = (train(run(), says=says) for says in (True, False))
    assert with_logits.history[-1]["mean_loss"] == without.history[-1]["mean_loss"]
    assert set(with_logits.arrays) - set(without.arrays) == {"guess"}


@pytest.mark.parametrize("how", ["pruner", "watch", "loader"])
@pytest.mark.parametrize("labels", [False, True])
def test_every_observe_takes_them(how, labels):
    pruner, data = run(**({"leave_out": "weight"} if how == "watch" else {})), Data()
    batches = DataLoader(data, batch_size=50)
    loader = wrap(batches, pruner) if how != "watch" else None
    pruner.begin_epoch()
    source = loader if how != "watch" else watch([(torch.arange(SAMPLES), *data[:])], pruner, ids=0)
    for *_, points, targets in source:
        observe = pruner.observe if how == "pruner" else source.observe
        observe(torch.ones(len(targets)), logits=points, **({"labels": targets} if labels else {}))
    known = labels or how != "watch"  # of a loader, by its batches
    assert np.array_equal(pruner.arrays["guess"], guesses(data, known=known).numpy())


@pytest.mark.parametrize(
    ("logits", "told"),
    [
        (np.zeros((16, 4)), "Expected logits as a Tensor"),
        (torch.zeros(8, 4), "Expected logits of 16 samples on cpu, as their losses. Got those of 8"),
        (torch.zeros(16, 4, device="meta"), "Got those of 16 on meta"),
        (torch.zeros(16, 4, 2), "Expected logits of shape"),
    ],
)
def test_logits_of_another_kind_are_refused_and_nothing_is_lost(logits, told):
    pruner = run()
    loader = wrap(DataLoader(Data(), batch_size=16), pruner, with_ids=True)
    pruner.begin_epoch()
    ids, _ = next(iter(loader))
    with pytest.raises(LossError, match=told):
        loader.observe(torch.ones(16), ids, logits=logits)
    loader.observe(torch.ones(16), ids)
    assert pruner.visits.sum() == 16


@pytest.mark.parametrize("given", ["samples", "loader", "number"])
def test_labels_may_be_a_column_of_the_data_set(given):
    data = Data()
    samples = {"samples": data, "loader": None, "number": SAMPLES}[given]
    pruner = Pruner(samples, epochs=6, labels="targets")
    if given != "samples":
        with pytest.raises(PrunedataError, match="or the column of their labels, are not known yet"):
            pruner.begin_epoch()
        pruner.wrap(DataLoader(data, batch_size=16))
    assert pruner.samples == SAMPLES
    assert pruner._engine.options.labels.numbers.tolist() == data.targets.tolist()


def test_a_column_that_is_not_there_is_told():
    with pytest.raises(PrunedataError, match="Expected a data set with the column 'colour'"):
        Pruner(Data(), epochs=6, labels="colour")
