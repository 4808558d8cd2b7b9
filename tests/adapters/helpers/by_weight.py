"""A training that leaves samples out by weight, and the plain weighted loop that it has to equal."""

import numpy as np
import torch

from prunedata.policies import DroppingCount, LossRanked, RunningLoss
from tests.adapters.helpers.ranks import losses_of, model_of, weights_of
from tests.adapters.helpers.torch import make_pruner

__all__ = ["POLICIES", "ours", "plain", "plain_loss", "run_of"]

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


def ours(run, loader, model, accumulate=1, steps=None, optimizer=None):
    """Train through a pruned loader; leave after some batches."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.2)
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
