"""What would come out wrong without a word is refused, with the line that mends it."""

import lightning.pytorch as pl
import pytest
import pytorch_lightning
import torch
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, SequentialSampler

from prunedata import Pruner
from prunedata.adapters.lightning import wrap
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import NotInEpoch, PrunedataError
from tests.adapters.lightning.helpers import BATCH, QUIET, Net, data, loader_of, pruner_of, trainer_of, validation
from tests.common.programs import WORKERS

pytestmark = QUIET
LENGTHS = [10, 6, 8]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("framework", [pl, pytorch_lightning], ids=lambda module: module.__name__)
def test_a_pruned_loader_without_the_callback(framework, begun):
    pruner = pruner_of(LENGTHS)
    if begun:
        pruner.begin_epoch()
    module = type(
        "Theirs", (framework.LightningModule,), {name: vars(Net)[name] for name in ("training_step", "losses")}
    )()
    module.configure_optimizers = lambda: torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    trainer = framework.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(PrunedataError, match=r"write Trainer\(callbacks=\[DataPruning\(pruner\)\]\)"):
        trainer.fit(module, loader_of(pruner))


class Around:
    """A wrapper of the user's around a pruned loader."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:  # noqa: UP028 (as users write)
            yield batch


def test_a_pruned_loader_within_something_else():
    pruner = pruner_of(LENGTHS)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="DataPruning"):
        trainer_of(pruner, callbacks=[]).fit(Net(schedule=False), Around(loader_of(pruner)))


def test_a_loop_of_the_users_own_within_a_hook_is_none_of_lightnings():
    pruner = pruner_of(LENGTHS)
    loader = loader_of(pruner)

    class Own(Net):
        def on_train_epoch_start(self):
            pruner.begin_epoch()
            self.own = [ids.tolist() for _, ids in loader]

    net = Own(schedule=False)
    trainer_of(pruner, callbacks=[], max_epochs=1).fit(net, validation())
    assert len(net.own) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": 2}, r"Expected Trainer\(max_epochs=3\).* Got 2"),
        ({"max_epochs": -1}, r"Expected Trainer\(max_epochs=3\).* Got -1"),
        ({"max_steps": 20}, "max_steps=-1, as by default. Got 20: the run would end within an epoch"),
        ({"limit_train_batches": 0.5}, "limit_train_batches=1.0, as by default. Got 0.5"),
        ({"limit_train_batches": 3}, "Make the data set a Subset"),
        ({"limit_train_batches": 1}, r"limit_train_batches=1\.0, as by default\. Got 1: .*Make the data set a Subset"),
        ({"overfit_batches": 2}, "overfit_batches=0.0, as by default. Got 2"),
    ],
    ids=str,
)
def test_settings(options, message):
    pruner = pruner_of(LENGTHS)
    trainer = trainer_of(pruner, **options)
    with pytest.raises(PrunedataError, match=message):
        trainer.fit(Net(), loader_of(pruner))
    assert type(trainer) is pl.Trainer
    assert pruner.next_epoch == 0


@WORKERS
@pytest.mark.parametrize("options", [{}, {"check_val_every_n_epoch": 2}], ids=str)
def test_an_interval_of_validations_that_a_later_epoch_is_too_short_for(options, workers):
    pruner, net = pruner_of([10, 9, 6, 8]), Net()
    trainer = trainer_of(pruner, val_check_interval=7, **options)
    with pytest.raises(
        PrunedataError, match=r"val_check_interval of at most 6 .* epoch 2 has. Got 7: .*every_n_epoch=None"
    ):
        trainer.fit(net, loader_of(pruner, num_workers=workers), validation())
    assert not net.epochs
    assert pruner.next_epoch == 0
    trainer_of(pruner, val_check_interval=6, **options).fit(net, loader_of(pruner), validation())
    assert net.lengths == [10, 9, 6, 8]


@pytest.mark.parametrize(
    ("options", "validated"),
    [
        ({"val_check_interval": 7, "check_val_every_n_epoch": None}, [0, 1, 2]),
        ({"val_check_interval": 7, "limit_val_batches": 0}, []),
        ({"val_check_interval": 0.5}, [0, 0, 1, 1, 2, 2]),
    ],
    ids=str,
)
def test_other_intervals_of_validations(options, validated):
    pruner, net = pruner_of(LENGTHS), Net()
    trainer_of(pruner, **options).fit(net, loader_of(pruner), validation())
    assert net.lengths == LENGTHS
    assert net.validated == validated


def test_an_interval_of_validations_that_only_a_finished_epoch_was_too_short_for(tmp_path):
    pruner, saver = pruner_of([6, 10, 8]), ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer_of(pruner, saver).fit(Net(), loader_of(pruner), validation())
    pruner, net = pruner_of([6, 10, 8]), Net()
    trainer = trainer_of(pruner, ModelCheckpoint(tmp_path), val_check_interval=8)
    trainer.fit(net, loader_of(pruner), validation(), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert net.validated == [1, 2]


def test_an_average_of_weights_that_would_train_one_epoch_more():
    pruner = pruner_of(LENGTHS)
    net = Net(schedule=False)
    net.norm = torch.nn.BatchNorm1d(2)
    averaging = pl.callbacks.StochasticWeightAveraging(0.1, swa_epoch_start=1)
    with pytest.raises(PrunedataError, match=r"Expected max_epochs to stay 3\. Got 4 .*StochasticWeightAveraging"):
        trainer_of(pruner, averaging, enable_checkpointing=False).fit(net, loader_of(pruner))
    assert not net.epochs


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_a_pruned_loader_to_do_anything_but_train_on(method):
    pruner = pruner_of(LENGTHS)

    class All(Net):
        def test_step(self, batch, index):
            self.losses(batch)

        predict_step = test_step

    with pytest.raises(PrunedataError, match=f"isn't pruned to {method} on"):
        getattr(trainer_of(pruner), method)(All(), loader_of(pruner))


@pytest.mark.parametrize(
    ("loaders", "message"),
    [
        (
            lambda pruner: DataLoader(data(), batch_size=BATCH),
            r"Got torch\.utils\.data\.dataloader\.DataLoader: wrap it",
        ),
        (lambda pruner: {"a": loader_of(pruner), "b": validation()}, "Got builtins.dict"),
        (lambda pruner: loader_of(pruner_of(LENGTHS)), "of one Pruner"),
    ],
    ids=["plain", "two", "another"],
)
def test_loaders(loaders, message):
    pruner = pruner_of(LENGTHS)
    trainer = trainer_of(pruner)
    with pytest.raises(PrunedataError, match=message):
        trainer.fit(Net(schedule=False), loaders(pruner))
    assert trainer.reload_dataloaders_every_n_epochs == 0
    assert pruner.attach(TorchRun(pruner)).leader is None


def test_a_pruned_loader_to_validate_on():
    pruner = pruner_of(LENGTHS)
    with pytest.raises(PrunedataError, match="isn't pruned to validate on"):
        trainer_of(pruner).fit(Net(), loader_of(pruner), loader_of(pruner, shuffle=False))


def test_two_processes_need_a_loader_that_they_share_evenly(monkeypatch):
    from prunedata.adapters.lightning import settings

    pruner = pruner_of(LENGTHS)
    trainer = trainer_of(pruner)
    own = wrap(DataLoader(data(), batch_size=BATCH, sampler=type("Own", (SequentialSampler,), {})(data())), pruner)
    trainer.fit_loop._combined_loader = type("Combined", (), {"iterables": own})()
    monkeypatch.setattr(pl.Trainer, "world_size", 2)
    with pytest.raises(PrunedataError, match="Expected a loader that 2 processes can share evenly"):
        settings.check_training(trainer, pruner)


def test_a_strategy_that_copies_the_pruner():
    pruner = pruner_of(LENGTHS)
    with pytest.raises(TypeError, match="use 'ddp', or torchrun"):
        trainer_of(pruner, strategy="ddp_spawn", devices=2).fit(Net(), loader_of(pruner))


def test_a_module_that_observes_nothing():
    pruner = pruner_of(LENGTHS)

    class Silent(Net):
        def training_step(self, batch, _):
            return self.losses(batch).mean()

    net = Silent(schedule=False)
    with pytest.raises(PrunedataError, match="40 of them were delivered"):
        trainer_of(pruner).fit(net, loader_of(pruner))


def test_after_fit_plain_loops_are_as_ever():
    pruner = pruner_of(LENGTHS)
    loader = loader_of(pruner)
    trainer_of(pruner).fit(Net(), loader)
    with pytest.raises(NotInEpoch):
        iter(loader)


def test_what_fabric_set_up_before_is_refused_with_the_way_to_go():
    prepared = Fabric(accelerator="cpu", devices=1).setup_dataloaders(DataLoader(range(8)))
    with pytest.raises(PrunedataError, match=r"fabric\.setup_dataloaders\(pruner\.wrap\(loader\)\)"):
        Pruner(epochs=3).wrap(prepared)
