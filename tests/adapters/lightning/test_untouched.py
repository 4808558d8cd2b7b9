"""With nothing pruned, Lightning trains the weights that it trains without us, bit for bit."""

import lightning.pytorch as pl
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR, StepLR

from prunedata.adapters.lightning import DataPruning, observe, wrap
from tests.adapters.helpers.untouched import EPOCHS, Own, assert_same, layers, loader, watching
from tests.adapters.lightning.helpers import QUIET

pytestmark = QUIET


class Net(pl.LightningModule):
    def __init__(self, interval):
        super().__init__()
        self.layers, self.interval, self.validated = layers(), interval, []

    def training_step(self, batch, _):
        features, labels = batch
        return observe(self, cross_entropy(self.layers(features), labels, reduction="none"))

    def validation_step(self, batch, _):
        self.validated.append(float(cross_entropy(self.layers(batch[0]), batch[1])))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = self.trainer.estimated_stepping_batches
        rate = OneCycleLR(optimizer, 0.5, total_steps=steps) if self.interval == "step" else StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": self.interval}}


def fit(batches, callbacks, interval, **options):
    net = Net(interval)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=EPOCHS, callbacks=callbacks, accelerator="cpu", enable_checkpointing=False, **quiet, **options
    )
    trainer.fit(net, batches, loader())
    return net


@pytest.mark.parametrize(
    ("interval", "options"),
    [
        ("step", {}),
        ("step", {"accumulate_grad_batches": 2, "val_check_interval": 0.5}),
        ("step", {"precision": "bf16-mixed", "gradient_clip_val": 0.5}),
        ("epoch", {"accumulate_grad_batches": 2, "val_check_interval": 3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("given", [{}, {"num_workers": 2}, {"own": True}], ids=str)
def test_a_fit(given, interval, options):
    made = [loader(**({"sampler": Own()} if "own" in given else given)) for _ in range(2)]
    pruner = watching()
    ours = fit(wrap(made[1], pruner), [DataPruning(pruner)], interval, **options)
    theirs = fit(made[0], [], interval, **options)
    assert [record["observed"] for record in pruner.history] == [45] * EPOCHS
    assert ours.validated == theirs.validated
    assert_same(ours, theirs)
