"""What must not be learnt is not, under Lightning: labels and inputs of it are changed, and no weight moves."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.lightning import observe, wrap
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items
from tests.adapters.lightning.helpers import QUIET, trainer_of
from tests.adapters.torch.poison import KINDS, Learner, run_of

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


def fit(kind, folder, *, poisoned, stop=None, accumulate=1, stream=False, **options):
    checkpoint, worst = None, 0.0
    for _ in range(2 if stop else 1):
        run = run_of(kind)
        net = Poisoned(run, poisoned=poisoned, with_ids=stream, accumulate=accumulate)
        saver = ModelCheckpoint(folder, filename=f"{poisoned}-{{step}}", save_top_k=-1, every_n_train_steps=stop or 100)
        trainer = trainer_of(run, saver, accumulate_grad_batches=accumulate)
        trainer.fit(net, loader_of(run, stream=stream, **options), ckpt_path=checkpoint)
        checkpoint, worst = folder / f"{poisoned}-step={stop}.ckpt", max(worst, net.worst)
    return net.learner.weights(), worst


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *[(kind, {}) for kind in KINDS],
        ("all of it", {"accumulate": 3}),
        ("all of it", {"drop_last": True}),
        ("all of it", {"stream": True}),
        ("all of it", {"stop": 16}),
        ("held out", {"stop": 13, "source": StatefulDataLoader}),
    ],
)
def test_what_must_not_be_learnt_moves_no_weight(kind, options, tmp_path):
    clean, error = fit(kind, tmp_path, poisoned=False, **options)
    poisoned, _ = fit(kind, tmp_path, poisoned=True, **options)
    assert torch.equal(clean, poisoned)
    assert error < 1e-12
