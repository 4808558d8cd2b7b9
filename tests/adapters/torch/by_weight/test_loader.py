"""Left out by weight through a DataLoader: the weights, counts and records of a plain weighted loop."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.torch import wrap
from prunedata.errors import LossError
from tests.adapters.helpers.loops import POLICIES, ours, plain, run_of
from tests.adapters.helpers.ranks import losses_of, model_of
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, make_pruner


def same(one, other):
    np.testing.assert_allclose(one.pop("weights"), other.pop("weights"), rtol=1e-12)
    means = [[record.pop() for record in each["history"]] for each in (one, other)]
    np.testing.assert_allclose(*means, rtol=1e-12)
    for name, array in one.pop("arrays").items():
        np.testing.assert_allclose(array, other["arrays"][name], rtol=1e-6, equal_nan=True)
    del other["arrays"]
    assert one == other


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 3)])
def test_it_trains_as_a_plain_weighted_loop(policy, drop_last, workers, accumulate):
    run, options = run_of(policy), {"shuffle": True, "drop_last": drop_last, "num_workers": workers}
    loader = wrap(DataLoader(Items(), BATCH, **options), run)
    assert loader.lengths() == [SAMPLES // BATCH if drop_last else -(-SAMPLES // BATCH)] * 5
    got = ours(run, loader, model_of(), accumulate)
    same(got, plain(run_of(policy), lambda epoch: epoch.batches(BATCH, drop_last=drop_last), accumulate))
    assert [record["kept"] for record in run.history] == [SAMPLES] * 5
    assert run.saved["visits_saved"] == 0
    assert run.saved["visits_by_weight"] == 2 * 30


@pytest.mark.parametrize("policy", POLICIES)
def test_batches_that_lose_samples_train_the_same_weights_either_way(policy):
    """A batch sampler of the user's keeps its batches, so that leaving out and weighing differ in nothing."""
    got = []
    for leave_out in ("delivery", "weight"):
        run = make_pruner(policy=POLICIES[policy], leave_out=leave_out, classes=3)
        fixed = [range(first, min(first + BATCH, SAMPLES)) for first in range(0, SAMPLES, BATCH)]
        loader = wrap(DataLoader(Items(), batch_sampler=fixed[::-1]), run)
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        for _ in run.epochs():
            for _, ids in loader:
                optimizer.zero_grad()
                loader.observe(losses_of(model, ids)).backward()
                optimizer.step()
        got.append((torch.cat([each.detach().ravel() for each in model.parameters()]), run))
    (shorter, one), (weighed, other) = got
    torch.testing.assert_close(shorter, weighed, rtol=1e-12, atol=0)
    assert one.counts.tolist() == other.counts.tolist()
    assert one.visits.tolist() == other.visits.tolist()
    assert [record["mean_loss"] for record in one.history] == pytest.approx(
        [record["mean_loss"] for record in other.history], rel=1e-12
    )


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(("stop", "workers"), [(1, 0), (17, 0), (26, 0), (17, 2)])
def test_it_goes_on_within_an_epoch(kind, stop, workers):
    def make():
        run = run_of("counts")
        return run, wrap(kind(Items(), BATCH, shuffle=True, num_workers=workers), run), model_of()

    whole = ours(*make())
    run, loader, model = make()
    ours(run, loader, model, steps=stop)
    states = run.state_dict(), loader.state_dict()
    run, loader, _ = make()
    run.load_state_dict(states[0])
    loader.load_state_dict(states[1])
    rest = ours(run, loader, model)
    np.testing.assert_allclose(rest["weights"], whole["weights"])
    assert (rest["counts"], rest["visits"]) == (whole["counts"], whole["visits"])


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # without a finite mean
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_loss_that_overflowed_does_not_spoil_the_mean_of_the_others(dtype):
    run = run_of()
    loader = wrap(DataLoader(Items(), SAMPLES), run)
    for epoch in run.epochs():
        for _, ids in loader:
            losses = torch.rand(SAMPLES).to(dtype).requires_grad_()
            mean = loader.observe(losses)
            counted = torch.ones(SAMPLES, dtype=torch.bool)
            counted = counted if not epoch.zero_weights else torch.from_numpy(epoch.trained[ids.numpy()])
            assert mean.item() == pytest.approx(losses.detach()[counted].double().mean().item(), rel=1e-2)
            mean.backward()
    run = run_of(prune=1)
    loader = wrap(DataLoader(Items(), SAMPLES), run)
    for epoch in run.epochs():
        epoch.apply_weights()
        for _, ids in loader:
            losses = torch.ones(SAMPLES, dtype=dtype)
            if epoch.zero_weights:
                losses[torch.from_numpy(~epoch.trained[ids.numpy()])] = torch.inf
                run.skip(SAMPLES)
                with pytest.raises(LossError, match="finite"):  # it is said, as ever
                    loader.observe(losses)
            else:
                assert loader.observe(losses).item() == 1


def test_of_a_sampler_that_repeats_each_visit_counts():
    run, model = run_of("counts"), model_of()
    drawn = WeightedRandomSampler(torch.ones(SAMPLES), SAMPLES)
    loader = wrap(DataLoader(Items(), BATCH, sampler=drawn), run)
    for epoch in run.epochs():
        assert len(loader) == 13
        before, came = run.visits, np.zeros(SAMPLES, int)
        for _, ids in loader:
            np.add.at(came, ids.numpy(), 1)
            loader.observe(losses_of(model, ids)).backward()
        run.end_epoch()
        counted = np.ones(SAMPLES, bool) if not epoch.zero_weights else epoch.trained
        assert (run.visits - before).tolist() == (came * counted).tolist()
