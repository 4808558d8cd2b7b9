"""``observe(losses, logits=...)`` behind a loader: the same as by hand, in every way that losses go."""

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

SAMPLES, CLASSES, WRONG = 200, 4, 30


class Data(TensorDataset):
    """Four heaps of points, the first of which have the label of another heap."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.truth = torch.arange(SAMPLES) % CLASSES
        points = torch.randn(SAMPLES, CLASSES, generator=generator) + 4 * torch.eye(CLASSES)[self.truth]
        self.targets = torch.where(torch.arange(SAMPLES) < WRONG, (self.truth + 1) % CLASSES, self.truth)
        super().__init__(points, self.targets)


def train(pruner, observe_of, *, by_hand=None):
    """Train a linear model with what `observe_of` makes of the pruned loader; `by_hand` sees the same batches."""
    torch.manual_seed(0)
    model = nn.Linear(CLASSES, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = wrap(DataLoader(Data(), batch_size=16, shuffle=True), pruner, with_ids=True)
    observe = observe_of(loader)
    for epoch in pruner.epochs():
        if by_hand is not None:
            by_hand.begin_epoch()
        for ids, (points, targets) in loader:
            logits = model(points)
            losses = cross_entropy(logits, targets, reduction="none")
            if by_hand is not None:
                by_hand.observe(losses.detach().numpy(), ids, logits=logits.detach().numpy())
            optimizer.zero_grad()
            observe(losses, ids, logits=logits).backward()
            optimizer.step()
        if by_hand is not None:
            by_hand.end_epoch()
        del epoch
    return pruner


def run(**options):
    return Pruner(SAMPLES, epochs=6, **options)


def test_a_loader_keeps_what_a_loop_by_hand_keeps_and_it_is_right():
    labels = Data().targets
    by_hand = run(labels=labels.numpy())
    pruner = train(run(labels=labels), lambda loader: loader.observe, by_hand=by_hand)
    assert {name: array.tolist() for name, array in pruner.arrays.items()} == {
        name: array.tolist() for name, array in by_hand.arrays.items()
    }
    assert (pruner.arrays["guess"][:WRONG] == Data().truth[:WRONG].numpy()).mean() > 0.9
    assert (pruner.arrays["guess"] != labels.numpy()).all()


def test_what_goes_through_a_devices_buffer_is_the_same(monkeypatch):
    expected = train(run(), lambda loader: loader.observe).arrays["guess"]

    monkeypatch.setattr(Recorder, "buffers_all", True)
    monkeypatch.setattr(Recorder, "capacity", 50)
    assert np.array_equal(train(run(), lambda loader: loader.observe).arrays["guess"], expected)


@pytest.mark.parametrize("buffered", [False, True])
def test_logits_that_are_nan_say_nothing_where_a_run_is_only_watched(buffered, monkeypatch):
    monkeypatch.setattr(Recorder, "buffers_all", buffered)
    monkeypatch.setattr(Recorder, "passes_nan", True)
    pruner = run()
    loader = wrap(DataLoader(Data(), batch_size=SAMPLES), pruner)
    pruner.begin_epoch()
    for points, targets in loader:
        points[3, 1] = torch.nan
        loader.observe(torch.ones(len(targets)), logits=points)
    pruner.end_epoch()
    expected = Data().tensors[0].argmax(1)
    expected[3] = -1
    assert pruner.arrays["guess"].tolist() == expected.tolist()


def test_the_losses_alone_train_the_same_network():
    def alone(loader):
        return lambda losses, ids, logits: loader.observe(losses, ids)

    with_logits, without = (train(run(), of) for of in (lambda loader: loader.observe, alone))
    assert with_logits.history[-1]["mean_loss"] == without.history[-1]["mean_loss"]
    assert set(with_logits.arrays) - set(without.arrays) == {"guess"}


@pytest.mark.parametrize("how", ["pruner", "watch", "loader"])
def test_every_observe_takes_them(how):
    pruner, data = run(**({"leave_out": "weight"} if how == "watch" else {})), Data()
    batches = DataLoader(data, batch_size=50)
    loader = wrap(batches, pruner) if how != "watch" else None
    pruner.begin_epoch()
    source = loader if how != "watch" else watch([(torch.arange(SAMPLES), *data[:])], pruner, ids=0)
    for *_, points, targets in source:
        observe = pruner.observe if how == "pruner" else source.observe
        observe(torch.ones(len(targets)), logits=points)
    assert np.array_equal(pruner.arrays["guess"], data.tensors[0].argmax(1).numpy())


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
