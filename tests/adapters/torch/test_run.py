"""The one run of all loaders of a pruner, and the functions of the front door that know it."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner
from prunedata.adapters import torch as adapter
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, SkippedSamples
from prunedata.policies import LossRanked, Random
from tests.adapters.helpers.torch import BATCH, Items, loader_of, losses_of, make_pruner, pass_over

# One adapter for a run, however many loaders are wrapped, and what it says if another loader was iterated.


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


class TestTheRawLoaderIteratedByMistake:
    def test_is_told_with_its_first_batch(self):
        pruner, raw = make_pruner(), loader_of()
        loader = wrap(raw, pruner)
        pruner.begin_epoch()
        pass_over(loader, 0)
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


# ``pruner.wrap(loader)`` and ``pruner.observe(losses)``: what they do is what the adapter's own functions do.


FEW = 24
DATA = TensorDataset(torch.arange(FEW, dtype=torch.float32)[:, None], torch.arange(FEW) % 3)


def shuffled():
    return DataLoader(DATA, batch_size=5, shuffle=True)


def trained(pruner, loader, observe, *, with_ids=False):
    torch.manual_seed(0)
    model = nn.Linear(1, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in pruner.epochs():
        for batch in loader:
            ids, (inputs, targets) = batch if with_ids else (None, batch)
            losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            optimizer.zero_grad()
            (observe(losses) if ids is None else observe(losses, ids)).backward()
            optimizer.step()
    return [each.detach().clone() for each in model.parameters()], pruner.history


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"policy": Random()}, {"policy": LossRanked()}, {"policy": "auto", "holdout": 0.25},
        {"leave_out": "weight", "policy": Random()},
    ],
)  # fmt: skip
def test_it_trains_as_the_adapters_own_functions_do(with_ids, options):
    options = {"epochs": 4, "prune": 6, **options}
    torch.manual_seed(1)
    own = Pruner(FEW, **options)
    loader = adapter.wrap(shuffled(), own, with_ids=with_ids)
    weights, history = trained(own, loader, loader.observe, with_ids=with_ids)
    torch.manual_seed(1)
    run = Pruner(**options)
    wrapped = run.wrap(shuffled(), with_ids=with_ids)
    again, repeated = trained(run, wrapped, run.observe, with_ids=with_ids)
    assert all(torch.equal(one, other) for one, other in zip(weights, again, strict=True))
    told = ("kept", "observed", "mean_loss", "pruned")
    assert [[one[key] for key in told] for one in history] == [[one[key] for key in told] for one in repeated]


def test_of_two_loaders_it_is_the_one_that_waits():
    run = Pruner(FEW, epochs=2)
    first, second = run.wrap(shuffled()), run.wrap(shuffled())
    for loader in (first, second):
        run.begin_epoch()
        for inputs, _ in loader:
            assert run.observe(inputs[:, 0]) == inputs.mean()
        run.end_epoch()


def test_two_loaders_that_wait_are_told_apart_by_themselves():
    run = Pruner(FEW, epochs=2)
    first, second = run.wrap(shuffled()), run.wrap(shuffled())
    run.begin_epoch()
    kept = iter(first), iter(second)
    batches = [next(one) for one in kept]
    with pytest.raises(LossError, match="2 wrapped loaders that wait"):
        run.observe(batches[0][0][:, 0])


def test_with_none_that_waits_it_says_so():
    run = Pruner(FEW, epochs=2)
    loader = run.wrap(shuffled())
    run.begin_epoch()
    with pytest.raises(LossError, match="Expected a batch that waits"):
        run.observe(torch.ones(5))
    assert len(loader) == 5


def test_watched_batches_are_known_as_well():
    run = Pruner(FEW, epochs=2, leave_out="weight")
    batches = [(torch.arange(at, at + 8), torch.ones(8)) for at in range(0, FEW, 8)]
    watched = adapter.watch(batches, run, ids=0)
    for _ in run.epochs():
        for _, losses in watched:
            assert run.observe(losses) == 1
    assert [record["observed"] for record in run.history] == [FEW] * 2
