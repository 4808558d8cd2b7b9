"""Plain loops of one's own over pairs (ids, batch): a softmax that learns, the same by hand, and poisoned labels."""

import numpy as np
import pytest
import torch

from prunedata import Dealer, Pruner, Schedule
from prunedata.errors import UnweighedWarning
from prunedata.policies import DroppingCount, LossRanked, RunningLoss
from tests.adapters.helpers.ranks import losses_of, model_of, weights_of
from tests.adapters.helpers.torch import make_pruner

__all__ = ["POLICIES", "ours", "plain", "plain_loss", "run_of"]

SAMPLES, BATCH, CLASSES = 61, 6, 3
NUMBERS = np.random.default_rng(3)
INPUTS, LABELS = NUMBERS.normal(size=(SAMPLES, 4)), NUMBERS.integers(0, CLASSES, SAMPLES)
FIGURES = [0.2, 0.6, 0.8, 0.9, 0.9, 0.6, 0.4, 0.2, 0.1, 0.1]


class Weighing(DroppingCount):
    """Prunes as ever, and lets the kept samples of high number count more."""

    def weights(self, keep, known):
        return np.where(keep, np.linspace(0.5, 2, keep.size), 0)


RUNS = {
    "held out": {"holdout": 0.25},
    "left out by weight": {"leave_out": "weight"},
    "held out and left out by weight": {"leave_out": "weight", "holdout": 0.25},
    "left out for good": {"leave_out": "weight", "without": np.arange(SAMPLES) % 5 == 0},
    "weighed": {"policy": Weighing()},
    "weighed and held out": {"holdout": 0.25, "policy": Weighing()},
}
MODES = {"batches of one": {"size": 1}, "without a remainder": {"drop": True}, "resumed": {"stop": 14}}


def start(**run):
    return Pruner(SAMPLES, Schedule(3, window=3, start=1, block=2, pruned_per_block=1), prune=0.3, seed=4, **run)


def with_figures():
    return Pruner(SAMPLES, Schedule.steady(len(FIGURES)), prune="30%", policy="auto", seed=3, classes=CLASSES)


def softmax(weights, ids, labels):
    """Losses, and their gradients by the logits."""
    guess = np.exp(INPUTS[ids] @ weights)
    guess /= guess.sum(axis=1, keepdims=True)
    return -np.log(guess[np.arange(ids.size), labels[ids]]), guess - np.eye(CLASSES)[labels[ids]]


def labels_in(epoch, poison):
    """Labels of an epoch: others, where they must not be learnt."""
    weightless = epoch.detached().loss_weights(np.arange(SAMPLES)) == 0
    return np.where(weightless, (LABELS + poison) % CLASSES, LABELS)


class Loop:
    """Weights that are trained, and which batches they were trained on."""

    def __init__(self, poison, weigh):
        self.weights, self.batches = np.zeros((4, CLASSES)), []
        self._poison, self._weigh = poison, weigh

    def step(self, epoch, ids, factors):
        """Learn from a batch; return its losses."""
        losses, gradients = softmax(self.weights, ids, labels_in(epoch, self._poison))
        factors = factors() if self._weigh else None
        factors = np.ones(ids.size) if factors is None else factors
        self.weights = self.weights - 0.5 * INPUTS[ids].T @ (gradients * factors[:, np.newaxis]) / ids.size
        self.batches.append((epoch.detached(), ids))
        return losses


def train(make, run, *, poison=0, weigh=True, size=BATCH, drop=False, stop=None):
    """Train over ``make(pruner, size, drop)``; a loop that is stopped goes on from the state."""
    loop, pruner = Loop(poison, weigh), start(**run)
    while pruner.next_epoch < 3:
        over_epochs(make, pruner, loop, size, drop, stop)
        pruner, before, stop = start(**run), pruner, None
        pruner.load_state_dict(before.state_dict())
    return loop


def over_epochs(make, pruner, loop, size, drop, stop):
    loader = make(pruner, size, drop)
    for epoch in pruner.epochs():
        for pair in loader:
            ids = np.asarray(pair[0])
            pruner.observe(loop.step(epoch, ids, lambda ids=ids, epoch=epoch: epoch.factors(ids)), ids)
            if len(loop.batches) == stop:
                return
        if drop:
            pruner.skip(int(epoch.remaining.sum()) % size)


def over_deals(_, run, *, poison=0, weigh=True, size=BATCH, stop=None):
    """The same by a dealer, which begins and ends the epochs."""
    loop, dealer = Loop(poison, weigh), Dealer(start(**run), size)
    while not dealer.is_finished:
        deal = dealer.deal("one")
        assert dealer.observe(deal, loop.step(dealer.pruner.current, deal.ids, lambda deal=deal: deal.weights))
        if len(loop.batches) == stop:
            before, dealer = dealer, Dealer(start(**run), size)
            dealer.load_state_dict(before.state_dict())
    return loop


def alone(batches):
    """The same steps on what counts of each batch and on nothing else."""
    weights = np.zeros((4, CLASSES))
    for epoch, ids in batches:
        weighing = epoch.loss_weights(ids)
        left, own = ids[weighing > 0], weighing[weighing > 0]
        if left.size:
            gradients = softmax(weights, left, LABELS)[1] * own[:, np.newaxis]
            weights = weights - 0.5 * INPUTS[left].T @ gradients / left.size
    return weights


def assert_learns_no_more(train, make, run, **options):
    loop = train(make, run, **options)
    assert any((epoch.loss_weights(ids) != 1).any() for epoch, ids in loop.batches)
    assert np.array_equal(loop.weights, train(make, run, poison=1, **options).weights)
    np.testing.assert_allclose(loop.weights, alone(loop.batches), rtol=0, atol=1e-6)


def assert_warned_unless_it_weighs(train, make, run):
    with pytest.warns(UnweighedWarning):
        train(make, run, weigh=False)


def with_each_figure(make, pruner, loop, stop=None, *, drop=False):
    """Train with a figure for each epoch, or up to a moment before one; return the state there, or what is known."""
    loader, goes_on = make(pruner, BATCH, drop), pruner.awaits_figure
    for epoch in pruner.epochs():
        came = 0
        for pair in loader:
            ids = np.asarray(pair[0])
            pruner.observe(loop.step(epoch, ids, lambda ids=ids, epoch=epoch: epoch.factors(ids)), ids)
            came += ids.size
        assert came == (0 if goes_on else epoch.kept - epoch.kept % BATCH * drop)
        goes_on = False
        if epoch.number == stop:
            return pruner.state_dict()
        pruner.validated(FIGURES[epoch.number])
    records = [{key: record.get(key) for key in ("kept", "mean_loss", "validation")} for record in pruner.history]
    return records, pruner.counts.tolist(), loop.weights.tolist()


def assert_figures_are_not_lost(make, stopped, *, drop=False):
    """Stop between an epoch's last batch and its figure: the pass that goes on is empty, and the run as one whole."""
    whole = with_each_figure(make, with_figures(), Loop(0, True), drop=drop)
    assert min(record["kept"] for record in whole[0]) < SAMPLES, "it turns and prunes"
    loop, later = Loop(0, True), with_figures()
    later.load_state_dict(with_each_figure(make, with_figures(), loop, stopped, drop=drop))
    assert later.awaits_figure
    assert with_each_figure(make, later, loop, drop=drop) == whole


POLICIES = {"counts": DroppingCount(), "running": RunningLoss(), "weighs": LossRanked()}


def run_of(policy="running", **options):
    return make_pruner(policy=POLICIES[policy], leave_out="weight", classes=3, **options)


def plain_loss(epoch, losses, ids):
    """The mean of a batch over what counts, written down by hand."""
    if not epoch.zero_weights:
        return losses.mean()
    epoch.apply_weights()
    counted = torch.from_numpy(epoch.trained[ids])
    weights = torch.from_numpy(epoch.weights[ids]).double()
    return (losses * weights)[counted].sum() / max(1, int(counted.sum()))


def plain(run, batches_of, accumulate=1, *, once=False):
    """Train on the batches that ``batches_of(epoch)`` lists, without a loader; return weights and what is known.

    With ``once``, what pads the last batch is not observed.
    """
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in run.epochs():
        batches = list(batches_of(epoch))
        for number, ids in enumerate(batches, 1):
            losses = losses_of(model, ids)
            (plain_loss(epoch, losses, np.asarray(ids)) / accumulate).backward()
            new = len(ids) if not once or number < len(batches) else epoch.kept - (number - 1) * len(batches[0])
            run.observe(losses.detach().numpy()[:new], np.asarray(ids)[:new])
            if number % accumulate == 0 or number == len(batches):
                optimizer.step()
                optimizer.zero_grad()
        run.skip(epoch.kept - len(np.unique(np.concatenate(batches))))
    return found(model, run)


def ours(run, loader, model, accumulate=1, steps=None):
    """Train through a pruned loader; leave after some batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    done = 0
    for _ in run.epochs():
        length = len(loader)
        for number, (_, ids) in enumerate(loader, 1):
            (loader.observe(losses_of(model, ids)) / accumulate).backward()
            done += 1
            if number % accumulate == 0 or number == length:
                optimizer.step()
                optimizer.zero_grad()
            if done == steps:
                return None
    return found(model, run)


def found(model, run):
    return {
        "weights": weights_of(model),
        "counts": run.counts.tolist(),
        "visits": run.visits.tolist(),
        "arrays": {name: array.tolist() for name, array in run.arrays.items()},
        "history": [[record[name] for name in ("kept", "observed", "mean_loss")] for record in run.history],
        "by_weight": [record.get("by_weight", 0) for record in run.history],
    }
