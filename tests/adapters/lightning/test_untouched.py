"""Under Lightning nothing changes what is learnt, in one process or in two."""

import json
import os
import warnings

import lightning.pytorch as pl
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR, StepLR
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.lightning import DataPruning, observe, wrap
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.helpers.untouched import EPOCHS, Own, assert_same, data, layers, loader, watching
from tests.adapters.lightning import helpers
from tests.adapters.lightning.helpers import QUIET

# With nothing pruned, Lightning trains the weights that it trains without us, bit for bit.


pytestmark = QUIET


class Normed(pl.LightningModule):
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
    net = Normed(interval)
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


# With nothing pruned, two processes of Lightning's ddp train the weights that they train without us, bit for bit.
#
# Both get a DistributedSampler in sequence: of a loader with shuffle=False, Lightning shuffles what it trains on.


CASES = {  # samples, the learning rate changes by, options of the Trainer
    "even": (44, "step", {}),
    "padded": (45, "step", {}),
    "accumulated": (44, "step", {"accumulate_grad_batches": 2, "val_check_interval": 0.5}),
    "half": (45, "step", {"precision": "bf16-mixed", "gradient_clip_val": 0.5}),
    "by epoch": (45, "epoch", {"accumulate_grad_batches": 2, "use_distributed_sampler": False}),
}
FEW = ["padded"]


def trained(name, *, pruned):
    samples, interval, options = CASES[name]
    sampler = DistributedSampler(data(samples), shuffle=False)
    batches, pruner = loader(samples=samples, sampler=sampler, batch_size=4), watching(samples)
    batches, callbacks = (wrap(batches, pruner), [DataPruning(pruner)]) if pruned else (batches, [])
    net = fit(batches, callbacks, interval, strategy="ddp", devices=WORLD, **options)
    return net.state_dict(), net.validated, [record["observed"] for record in pruner.history]


def keeps_the_order(rank, *, pruned):
    """Whether a loader with shuffle=False gives a process its share in the order of the data, in each epoch."""
    batches, pruner, net = DataLoader(helpers.data(44), batch_size=4), watching(44), helpers.Net(schedule=False)
    batches, callbacks = (wrap(batches, pruner), [DataPruning(pruner)]) if pruned else (batches, [])
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"accelerator": "cpu", "strategy": "ddp", "devices": WORLD, "enable_checkpointing": False}
    pl.Trainer(max_epochs=EPOCHS, callbacks=callbacks, **quiet, **options).fit(net, batches)
    share = list(range(rank, 44, WORLD))
    return [helpers.flat(net.epochs[epoch]) == share for epoch in range(EPOCHS)]


def work(rank, folder):
    warnings.simplefilter("ignore")
    os.environ["LOCAL_RANK"] = str(rank)
    found = {}
    with group(rank, folder):
        for name in json.loads((folder / "cases").read_text()):
            (ours, we_saw, observed), (theirs, they_saw, _) = (trained(name, pruned=pruned) for pruned in (True, False))
            different = [part for part in theirs if not torch.equal(ours[part], theirs[part])]
            found[name] = {"different": different, "validated": we_saw == they_saw, "observed": observed}
        found["in order"] = [keeps_the_order(rank, pruned=pruned) for pruned in (True, False)]
    return found


@pytest.mark.parametrize("names", [FEW, pytest.param(list(CASES), marks=pytest.mark.slow)], ids=["few", "all"])
def test_two_processes(names, tmp_path):
    (tmp_path / "cases").write_text(json.dumps(names))
    expected = {"different": [], "validated": True}
    for rank in start(work, tmp_path):
        assert rank.pop("in order") == [[True] * EPOCHS, [False] * EPOCHS]  # the page says so
        assert rank == {name: {**expected, "observed": [CASES[name][0]] * EPOCHS} for name in names}
