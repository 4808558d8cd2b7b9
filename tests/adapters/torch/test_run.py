"""One adapter for a run, however many loaders are wrapped, and what it says if another loader was iterated."""

import pytest
import torch
from torch.utils.data import DataLoader

from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import LossError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.torch import BATCH, Items, loader_of, losses_of, make_pruner


@pytest.fixture
def begun(monkeypatch):
    """The adapters that were told of an epoch, each time."""
    told, begin_epoch = [], TorchRun.begin_epoch
    monkeypatch.setattr(TorchRun, "begin_epoch", lambda run, epoch: (told.append(run), begin_epoch(run, epoch)))
    return told


def test_loaders_that_are_wrapped_again_share_it(begun):
    """As by a cell of a notebook that is run again."""
    pruner = make_pruner()
    loaders = [wrap(loader_of(), pruner) for _ in range(5)]
    pruner.begin_epoch()
    loaders.append(wrap(loader_of(), pruner))
    assert len(begun) == 1


def test_a_loader_that_is_wrapped_again_takes_the_place_of_the_other():
    """What it delivers holds, and is not added to what the other had delivered before it was left."""
    pruner = make_pruner(policy=Random())
    first, second = (wrap(loader_of(), pruner) for _ in range(2))
    pruner.begin_epoch()
    for number, _ in enumerate(first):
        if number == 11:
            break
    for number, _ in enumerate(second):
        if number == 1:
            break
    with pytest.raises(SkippedSamples, match="did not deliver 87 of them"):
        pruner.end_epoch()


def test_losses_on_a_device_are_forgotten_with_the_epoch_they_are_of():
    pruner = make_pruner()
    loader = wrap(loader_of(), pruner)
    pruner.begin_epoch()
    state = pruner.state_dict()
    next(iter(loader))
    loader.observe(torch.zeros(BATCH))
    pruner.load_state_dict(state)
    epoch = pruner.begin_epoch()
    for _, index in loader:
        loader.observe(losses_of(index, epoch.number))
    pruner.end_epoch()
    assert pruner.history[0]["observed"] == pruner.samples


class TestTheRawLoaderIteratedByMistake:
    def test_is_told_with_its_first_batch(self):
        pruner, raw = make_pruner(), loader_of()
        loader = wrap(raw, pruner)
        pruner.begin_epoch()
        for _, index in loader:
            loader.observe(losses_of(index, 0))
        pruner.end_epoch()
        pruner.begin_epoch()
        _, index = next(iter(raw))
        with pytest.raises(LossError, match=r"what wrap\(\) returned"):
            loader.observe(losses_of(index, 1))

    @pytest.mark.parametrize("policy", [{}, {"policy": Random()}], ids=["DroppingCount", "Random"])
    def test_is_told_at_the_end_if_nothing_was_observed(self, policy):
        pruner, raw = make_pruner(**policy), loader_of()
        wrap(raw, pruner)
        pruner.begin_epoch()
        for _ in raw:
            pass
        with pytest.raises(SkippedSamples, match=r"loader that wrap\(\) returned .*epoch 0\. Got nothing from it"):
            pruner.end_epoch()

    def test_is_told_if_pruned_samples_were_observed(self):
        pruner, raw = make_pruner(), DataLoader(Items(), batch_size=BATCH)
        wrap(raw, pruner)
        for number in (0, 1):
            pruner.begin_epoch()
            for _, index in raw:
                pruner.observe(losses_of(index, number), index)
            if number == 0:
                pruner.end_epoch()
        with pytest.raises(LossError, match=r"Got nothing from it: .*30 pruned samples were observed"):
            pruner.end_epoch()

    def test_is_no_mistake_in_a_loop_by_hand(self):
        pruner = make_pruner()
        wrap(loader_of(), pruner)
        for epoch in pruner.epochs():
            for ids in epoch.batches(BATCH):
                pruner.observe(losses_of(ids, epoch.number), ids)
        assert [record["observed"] for record in pruner.history] == [103, 73, 103, 73, 103]
