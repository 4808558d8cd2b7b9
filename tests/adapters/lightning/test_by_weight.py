"""Left out by weight under Lightning: what must not be learnt moves no weight, and the mean is a plain loop's."""

import os
import warnings

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.lightning import observe, wrap
from tests.adapters.helpers.loops import found, plain, run_of
from tests.adapters.helpers.ranks import GLOBAL, WORLD, group, losses_of, model_of, sampler_of, start
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items
from tests.adapters.lightning.helpers import QUIET, trainer_of
from tests.adapters.torch.poison import Learner
from tests.adapters.torch.poison import run_of as poisoned_run

# What must not be learnt is not, under Lightning: labels and inputs of it are changed, and no weight moves.


pytestmark = QUIET


class Poisoned(pl.LightningModule):
    """Holds each step's gradient to that of a plain loop over what counts."""

    def __init__(self, pruner, *, poisoned, with_ids=False, accumulate=1):
        super().__init__()
        self.learner = Learner(poisoned=poisoned)
        self.model, self.pruner, self.with_ids, self.accumulate = self.learner.model, pruner, with_ids, accumulate
        self.expected, self.worst = None, 0.0

    def training_step(self, batch, _):
        ids, (_, index) = batch if self.with_ids else (None, batch)
        epoch = self.pruner.current
        losses = self.learner.losses(epoch, index)
        plain = [each / self.accumulate for each in self.learner.plain(epoch, index, losses)]
        self.expected = plain if self.expected is None else [a + b for a, b in zip(self.expected, plain, strict=True)]
        return observe(self, losses, ids)

    def on_before_optimizer_step(self, optimizer):
        got = [each.grad for each in self.model.parameters()]
        differences = [float((a - b).abs().max()) for a, b in zip(got, self.expected, strict=True)]
        self.worst, self.expected = max(self.worst, *differences), None

    def configure_optimizers(self):
        return torch.optim.Adam(self.model.parameters(), lr=0.02)


def loader_of(run, *, stream=False, source=DataLoader, **options):
    if not stream:
        return wrap(source(Items(), BATCH, shuffle=True, **options), run)
    raw = [{"n": number} for number in range(SAMPLES)]
    raw = prune_stream(raw, run, id="n", then=lambda one: (0, one["n"]))
    return wrap(DataLoader(raw, BATCH, **options), run, with_ids=True)


def fit_poisoned(kind, folder, *, poisoned, stop=None, accumulate=1, stream=False, **options):
    checkpoint, worst = None, 0.0
    for _ in range(2 if stop else 1):
        run = poisoned_run(kind)
        net = Poisoned(run, poisoned=poisoned, with_ids=stream, accumulate=accumulate)
        saver = ModelCheckpoint(folder, filename=f"{poisoned}-{{step}}", save_top_k=-1, every_n_train_steps=stop or 100)
        trainer = trainer_of(run, saver, accumulate_grad_batches=accumulate)
        trainer.fit(net, loader_of(run, stream=stream, **options), ckpt_path=checkpoint)
        checkpoint, worst = folder / f"{poisoned}-step={stop}.ckpt", max(worst, net.worst)
    return net.learner.weights(), worst


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *[(kind, {}) for kind in ("all of it", "for good", "weighed, held out")],
        ("all of it", {"accumulate": 3}),
        ("all of it", {"drop_last": True}),
        ("all of it", {"stream": True}),
        ("all of it", {"stop": 16}),
        ("held out", {"stop": 13, "source": StatefulDataLoader}),
    ],
)
def test_what_must_not_be_learnt_moves_no_weight(kind, options, tmp_path):
    clean, error = fit_poisoned(kind, tmp_path, poisoned=False, **options)
    poisoned, _ = fit_poisoned(kind, tmp_path, poisoned=True, **options)
    assert torch.equal(clean, poisoned)
    assert error < 1e-12


# Left out by weight under Lightning: all batches come, and the weights are those of a plain weighted loop.


STEPS = -(-SAMPLES // BATCH)


class Fitted(pl.LightningModule):
    """The model of the plain loop, and a diary of the samples that came."""

    def __init__(self, *, with_ids=False):
        super().__init__()
        self.model, self.with_ids, self.came = model_of(), with_ids, []

    def training_step(self, batch, _):
        ids, (_, index) = batch if self.with_ids else (None, batch)
        self.came += index.tolist()
        return observe(self, losses_of(self.model, index), ids)

    def configure_optimizers(self):
        self.total = None if self.with_ids else self.trainer.estimated_stepping_batches  # a stream has none
        return torch.optim.SGD(self.parameters(), lr=0.2)


def fit(run, loader, *callbacks, checkpoint=None, with_ids=False, **options):
    net = Fitted(with_ids=with_ids)
    trainer_of(run, *callbacks, **options).fit(net, loader, ckpt_path=checkpoint)
    return net


def close(got, expected):
    assert [got[name] for name in ("counts", "visits", "by_weight")] == [
        expected[name] for name in ("counts", "visits", "by_weight")
    ]
    np.testing.assert_allclose(got["weights"], expected["weights"], rtol=1e-9)


@pytest.mark.parametrize("policy", ["counts", "weighs"])
@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 3)])
def test_it_trains_as_a_plain_weighted_loop(policy, workers, accumulate):
    run = run_of(policy)
    loader = wrap(DataLoader(Items(), BATCH, shuffle=True, num_workers=workers), run)
    net = fit(run, loader, accumulate_grad_batches=accumulate)
    expected = plain(run_of(policy), lambda epoch: epoch.batches(BATCH), accumulate)
    close(found(net.model, run), expected)
    assert sum(expected["by_weight"]) == 2 * 30
    assert np.bincount(net.came).tolist() == [5] * SAMPLES
    assert net.total == 5 * -(-STEPS // accumulate)  # all epochs are alike


@pytest.mark.parametrize(("kind", "workers"), [(DataLoader, 0), (StatefulDataLoader, 0), (StatefulDataLoader, 2)])
@pytest.mark.parametrize("step", [STEPS, STEPS + 3, 2 * STEPS])
def test_it_goes_on_from_any_batch_of_an_epoch(tmp_path, kind, workers, step):
    def again(checkpoint=None):
        run = run_of("counts")
        loader = wrap(kind(Items(), BATCH, shuffle=True, num_workers=workers), run)
        saver = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, every_n_train_steps=1)
        net = fit(run, loader, saver, checkpoint=checkpoint)
        return found(net.model, run), net

    whole, net = again()
    later, rest = again(tmp_path / f"step={step}.ckpt")
    assert later == whole
    done = step // STEPS * SAMPLES + step % STEPS * BATCH
    assert rest.came == net.came[done:]


def work(rank, folder):
    warnings.simplefilter("ignore")
    os.environ["LOCAL_RANK"] = str(rank)
    told = {}
    with group(rank, folder):
        for uneven, options in ((None, {"shuffle": True}), ("weights", {"sampler": sampler_of(rank, WORLD)})):
            run = run_of("counts")
            loader = wrap(DataLoader(Items(), GLOBAL // WORLD, **options), run, uneven=uneven)
            net = fit(run, loader, strategy="ddp", devices=WORLD, use_distributed_sampler=False)
            told[uneven or "pad"] = found(net.model, run)
    return told


def test_two_processes_train_as_one_does(tmp_path):
    one, other = start(work, tmp_path)
    assert one == other
    close(one["weights"], plain(run_of("counts"), lambda epoch: epoch.batches(GLOBAL)))
    padded = plain(run_of("counts"), padded_batches, once=True)
    assert SAMPLES % WORLD
    close(one["pad"], padded)


def padded_batches(epoch):
    order = np.concatenate(list(epoch.order()))
    order = np.append(order, order[: -SAMPLES % WORLD])
    return [order[first : first + GLOBAL] for first in range(0, SAMPLES, GLOBAL)]
