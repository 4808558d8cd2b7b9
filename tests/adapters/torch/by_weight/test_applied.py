"""Whether a loop trains on what losses weigh shows in its gradients: who goes back from another mean is warned."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils.data import DataLoader

from prunedata.adapters.torch import watch, wrap
from prunedata.errors import UnweighedWarning
from prunedata.policies import LossRanked
from tests.adapters.helpers.loops import ours, run_of
from tests.adapters.helpers.ranks import losses_of, model_of
from tests.adapters.helpers.torch import BATCH, Items, make_pruner
from tests.adapters.torch.poison import Batches

RUNS = {
    "by weight": run_of,
    "held out": lambda: make_pruner(holdout=0.2),
    "weighed by the policy": lambda: make_pruner(policy=LossRanked(), classes=3),
}


def pruned(run):
    return wrap(DataLoader(Items(), BATCH, shuffle=True), run)


def from_mean(loader, losses, number, parameters):
    loader.observe(losses).backward()


def accumulating(loader, losses, number, parameters):
    (loader.observe(losses) / 4).backward()


def only_some(loader, losses, number, parameters):
    mean = loader.observe(losses)
    if number == 3:
        mean.backward()


def by_grad(loader, losses, number, parameters):
    torch.autograd.grad(loader.observe(losses), parameters)


def by_functional_grad(loader, losses, number, parameters):
    torch.autograd.grad(loader.observe(losses) + parameters[0].sum() * 1e-4, parameters, create_graph=True)


def scaled(loader, losses, number, parameters):
    torch.amp.GradScaler("cpu", init_scale=8.0).scale(loader.observe(losses)).backward()


RIGHT = [from_mean, accumulating, only_some, by_grad, by_functional_grad, scaled]


def own_mean(loader, losses, number, parameters):
    loader.observe(losses)
    losses.mean().backward()


def detached(loader, losses, number, parameters):
    loader.observe(losses.detach())
    losses.mean().backward()


def trained(run, loader, step, model):
    for _ in run.epochs():
        for number, (_, ids) in enumerate(loader):
            step(loader, losses_of(model, ids), number, list(model.parameters()))


@pytest.mark.parametrize("step", RIGHT)
@pytest.mark.parametrize("kind", RUNS)
def test_a_loop_that_goes_back_from_what_observe_returned_is_not_warned(kind, step):
    run = RUNS[kind]()
    trained(run, pruned(run), step, model_of())  # a warning is an error in tests
    assert any(record["pruned"] for record in run.history)


@pytest.mark.parametrize("step", [own_mean, detached])
@pytest.mark.parametrize("kind", RUNS)
def test_a_loop_that_goes_back_from_its_own_mean_is_warned_once(kind, step):
    run = RUNS[kind]()
    with pytest.warns(UnweighedWarning) as told:
        trained(run, pruned(run), step, model_of())
    assert len(told) == 1


@pytest.mark.parametrize(("step", "right"), [(from_mean, True), (own_mean, False)])
def test_watched_batches_too(step, right):
    run = run_of()
    with nullcontext() if right else pytest.warns(UnweighedWarning):
        trained(run, watch(Batches(BATCH), run, ids=1), step, model_of())


def test_who_asks_for_factors_applies_them():
    run, model = run_of(), model_of()
    loader = pruned(run)
    for epoch in run.epochs():
        for _, ids in loader:
            losses = losses_of(model, ids)
            loader.observe(losses.detach())
            (torch.from_numpy(epoch.factors(ids.numpy())) * losses).mean().backward()
    assert [record.get("by_weight", 0) for record in run.history] == [0, 30, 0, 30, 0]


@pytest.mark.parametrize("step", [from_mean, own_mean])
def test_an_epoch_that_goes_on_says_nothing(step):
    """What was trained before may have been right."""
    run, model = run_of(), model_of()
    ours(run, pruned(run), model, steps=18)  # within the second epoch, which leaves out
    state, run = run.state_dict(), run_of()
    run.load_state_dict(state)
    loader = pruned(run)
    run.begin_epoch()
    for number, (_, ids) in enumerate(loader):
        step(loader, losses_of(model, ids), number, None)
    run.end_epoch()


def test_an_epoch_that_was_seen_whole_before_says_nothing():
    run, model = run_of(), model_of()
    loader = pruned(run)
    for number in range(2):
        run.begin_epoch()
        for _, ids in loader:
            from_mean(loader, losses_of(model, ids), number, None)
        state = run.state_dict()  # after the epoch's last batch
        run.end_epoch()
    again = run_of()
    again.load_state_dict(state)
    for epoch in again.epochs():  # ends the second one
        assert epoch.number == 2
        break


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # see test_compiled
@pytest.mark.parametrize("right", [True, False])
def test_a_step_that_is_compiled_shows_it_too(right):
    torch.compiler.reset()
    run, model = run_of(), model_of()
    loader = pruned(run)

    def step(ids):
        losses = losses_of(model, ids)
        mean = loader.observe(losses)
        return mean * 2 if right else losses.mean() * 2

    step = torch.compile(step, backend="eager")
    with nullcontext() if right else pytest.warns(UnweighedWarning):
        for epoch in run.epochs():
            for _, ids in loader:
                step(ids).backward()
            if epoch.number == 2:
                break
    torch.compiler.reset()
