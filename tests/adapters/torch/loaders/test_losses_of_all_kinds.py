"""Losses of unusual dtypes, layouts and places: recorded as others are, or refused with the way on."""

import numpy as np
import pytest
import torch

from prunedata.adapters.torch import watch, wrap
from prunedata.adapters.torch.losses import Recorder
from prunedata.errors import LossError
from tests.adapters.helpers.torch import loader_of, make_pruner


@pytest.fixture
def opened():
    """A pruner in its first epoch, its loader, and how many samples its first batch has."""
    pruner = make_pruner()
    loader = wrap(loader_of(), pruner)
    pruner.begin_epoch()
    return pruner, loader, len(next(iter(loader))[1])


VALUES = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_is_recorded_and_its_mean_has_a_gradient(opened, dtype):
    pruner, loader, _ = opened
    source = torch.tensor(VALUES, requires_grad=True)
    mean = loader.observe(source.to(dtype))
    assert mean.item() == 2.25
    mean.backward()
    assert source.grad.sum() == 1
    assert pruner.counts.sum() == 4


def test_integers_are_recorded_as_they_are_from_numpy(opened):
    pruner, loader, size = opened
    assert loader.observe(torch.arange(size)).item() == 3.5
    assert pruner.counts.sum() == 4


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (
            lambda: torch.tensor(VALUES).to_sparse(),
            r"dense Tensor\. Got layout torch\.sparse_coo: pass losses\.to_",
        ),
        (lambda: torch.empty(8, device="meta"), r"that were computed\. Got those of the device meta"),
        (lambda: torch.quantize_per_tensor(torch.rand(8), 0.1, 0, torch.quint8), "a quantized one: give"),
        (lambda: torch.nested.nested_tensor([torch.rand(1)] * 8), "a nested one: give"),
        (lambda: torch.nested.nested_tensor([torch.rand(2)] * 8, layout=torch.jagged), "a nested one: give"),
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
    with pytest.raises(LossError, match=r"torch\.func\.grad or vmap: .* has_aux=True"):
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
