"""Left out by weight under Lightning: all batches come, and the weights are those of a plain weighted loop."""

import json
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
from tests.adapters.helpers.by_weight import found, plain, run_of
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.helpers.ranks_training import GLOBAL, losses_of, model_of, sampler_of
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items
from tests.adapters.lightning.helpers import QUIET, trainer_of

pytestmark = QUIET
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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_delivers_everything(workers):
    run = run_of("running")
    raw = [{"n": number} for number in range(SAMPLES)]
    stream = prune_stream(raw, run, id="n", then=lambda one: (0, one["n"]))
    loader = wrap(DataLoader(stream, BATCH, num_workers=workers), run, with_ids=True)

    net = fit(run, loader, with_ids=True)
    assert np.bincount(net.came).tolist() == [5] * SAMPLES
    if not workers:
        close(found(net.model, run), plain(run_of("running"), lambda epoch: epoch.batches(BATCH, shuffle=False)))
    assert [record["observed"] for record in run.history] == [103, 73, 103, 73, 103]


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
    (folder / f"{rank}.json").write_text(json.dumps(told))


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
