"""What the Trainer cannot do with a pruned run, in which release, and with which losses: each is refused."""

import re
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler
from transformers import Trainer, default_data_collator

from prunedata.adapters.huggingface import PruneTrainerMixin, UntestedReleaseWarning
from prunedata.adapters.huggingface.checks import NEWEST, OLDEST, check_release
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, PrunedataError, SkippedSamples
from prunedata.policies import LossRanked
from tests.adapters.huggingface.trainers import (
    SAMPLES,
    Net,
    PrunedTrainer,
    Rows,
    Stop,
    Unpruned,
    build,
    joined,
    lines,
    pruner_of,
)

# What cannot be trained as the schedule says is refused, with the reason and the way on.


ARGUMENTS = {
    "max_steps": ({"max_steps": 100}, "Expected num_train_epochs=6, as pruning goes by epochs. Got max_steps=100"),
    "epochs": ({"num_train_epochs": 5.5}, "Expected num_train_epochs=6, as many as the pruner's schedule has. Got 5.5"),
    "batch size": ({"auto_find_batch_size": True}, "Expected auto_find_batch_size to be left out"),
    "accelerate's batches": (
        {"accelerator_config": {"split_batches": True}},
        "accelerator_config without split_batches",
    ),
    "samples": ({"dataset": Rows(95)}, "Expected a train_dataset of 96 samples, like the Pruner. Got one of 95"),
    "batches of its own": (
        {"train_sampling_strategy": "batch_rebalance", "dataset": lines()},
        "Got train_sampling_strategy='batch_rebalance'",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments(case, tmp_path):
    options, told = ARGUMENTS[case]
    with pytest.raises(PrunedataError, match=re.escape(told)):
        build(pruner_of(), tmp_path, **options)


class Endless(IterableDataset):
    def __iter__(self):
        return iter(Rows())


def test_a_stream(tmp_path):
    with pytest.raises(PrunedataError, match=r"Expected a map-style train_dataset.* Got the stream Endless"):
        build(pruner_of(), tmp_path, dataset=Endless())


def test_the_mixin_behind_the_trainer():
    with pytest.raises(PrunedataError, match=r"Expected class Late\(PruneTrainerMixin, Trainer\)"):
        type("Late", (Trainer, PruneTrainerMixin), {})


def test_no_pruner(tmp_path):
    with pytest.raises(PrunedataError, match=r"Expected a Pruner as pruner. Got str"):
        PrunedTrainer(model=Net(), train_dataset=Rows(), pruner="pruner")


def shortest_first(rows):
    return default_data_collator(sorted(rows, key=lambda row: row["labels"]))


@pytest.mark.parametrize(("kind", "leave_out"), [
    (PrunedTrainer, "delivery"), (joined, "delivery"), (joined, "weight"),
])  # fmt: skip
def test_a_collator_that_sorts(kind, leave_out, tmp_path):
    trainer, _ = build(pruner_of(leave_out=leave_out), tmp_path, trainer=kind)
    trainer.data_collator = shortest_first
    with pytest.raises(PrunedataError, match="keeps the order of its samples"):
        trainer.train()


class Theirs(Trainer):
    """As a user's own, to which the mixin is added."""

    loader: DataLoader

    def get_train_dataloader(self):
        return self.accelerator.prepare(self.loader)


class Added(PruneTrainerMixin, Theirs):
    """It with the mixin."""


def test_a_loader_of_the_users_own(tmp_path):
    trainer, watcher = build(pruner_of(), tmp_path, trainer=Added, remove_unused_columns=False)
    trainer.loader = DataLoader(Rows(), batch_size=8, shuffle=True, collate_fn=collate)
    trainer.train()
    assert watcher.steps == [12, 9, 12, 9, 12, 9]


class Unwarned(Trainer):
    """With a pruned loader, and without the mixin."""

    def __init__(self, *args, pruner, **options):
        super().__init__(*args, **options)
        self.pruner = pruner

    def get_train_dataloader(self):
        loader = wrap(DataLoader(Rows(), batch_size=8, shuffle=True, collate_fn=collate), self.pruner)
        return self.accelerator.prepare(loader) if self.args.dataloader_drop_last else loader


@pytest.mark.parametrize("prepared", [False, True])
def test_a_pruned_loader_without_the_mixin(prepared, tmp_path):
    pruner = pruner_of()
    pruner.begin_epoch()
    trainer, _ = build(pruner, tmp_path, trainer=Unwarned, remove_unused_columns=False, dataloader_drop_last=prepared)
    with pytest.raises(PrunedataError, match=r"write class MyTrainer\(PruneTrainerMixin, Trainer\)"):
        trainer.train()


def collate(rows):
    return {name: torch.as_tensor([row[name].tolist() for row in rows]) for name in ("points", "labels")} | {
        "number": torch.tensor([row["number"] for row in rows])
    }


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        (
            lambda: DataLoader(Rows(), sampler=SubsetRandomSampler(range(50)), batch_size=8),
            "Expected a sampler that returns each of 96 samples once.* Got SubsetRandomSampler of 50 samples",
        ),
        (lambda: DataLoader(Rows(), batch_sampler=[[0, 1], [2, 3]]), "Expected a sampler.* Got list"),
        (lambda: DataLoader(Rows(), batch_size=None), "Expected a sampler.* Got NoneType"),
        (lambda: DataLoader(Rows(90)), "Expected a dataset of 96 samples"),
        (lambda: [1, 2], "Expected a torch.utils.data.DataLoader. Got a builtins.list"),
        (
            lambda: DataLoader(Rows(), batch_size=8, collate_fn=lambda rows: [row["points"] for row in rows]),
            "Expected batches that are dicts.* Got list",
        ),
    ],
    ids=["some", "batches", "no batches", "others", "list", "tuples"],
)
def test_other_loaders_are_refused(loader, told, tmp_path):
    trainer, _ = build(pruner_of(), tmp_path, trainer=Added)
    trainer.loader = loader()
    with pytest.raises(PrunedataError, match=told):
        trainer.train()


class OwnLoader(PrunedTrainer):
    """A loader of its own in front of the mixin."""

    def get_train_dataloader(self):
        return DataLoader(Rows(), batch_size=8, shuffle=True, collate_fn=collate)


def test_a_loader_that_hides_the_mixins(tmp_path):
    trainer, _ = build(pruner_of(), tmp_path, trainer=OwnLoader)
    with pytest.raises(
        PrunedataError, match=r"Expected the get_train_dataloader of PruneTrainerMixin. Got .* OwnLoader"
    ):
        trainer.train()


def test_a_run_that_has_begun(tmp_path):
    pruner = pruner_of()
    trainer, _ = build(pruner, tmp_path)
    trainer.train()
    with pytest.raises(
        PrunedataError, match=r"Got a pruner at epoch 6.* call wrap\(trainer, make_pruner\) on a Trainer without the"
    ):
        trainer.train()


def test_an_epoch_that_is_left_early(tmp_path):
    trainer, _ = build(pruner_of(), tmp_path, callbacks=[Stop(5, "should_epoch_stop")])
    with pytest.raises(SkippedSamples, match="Expected all 96 kept samples of epoch 0"):
        trainer.train()


def test_a_run_that_is_stopped_leaves_its_epoch_open(tmp_path):
    pruner = pruner_of()
    trainer, _ = build(pruner, tmp_path, callbacks=[Stop(5)])
    trainer.train()
    assert pruner.next_epoch == 0
    assert pruner.begin_epoch().remaining.sum() == SAMPLES - 40


def test_checkpoints_of_other_runs(tmp_path):
    plain, _ = build(pruner_of(), tmp_path, trainer=Unpruned, save_strategy="steps", save_steps=7)
    plain.train()
    trainer, _ = build(pruner_of(), tmp_path)
    with pytest.raises(PrunedataError, match=r"Expected the pruner's state in the checkpoint.*pruner_0.pt. Got none"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))

    pruned, _ = build(pruner_of(), tmp_path / "pruned", save_strategy="steps", save_steps=7)
    pruned.train()
    checkpoint = str(tmp_path / "pruned" / "checkpoint-7")
    other, _ = build(pruner_of(seed=4), tmp_path)
    with pytest.raises(PrunedataError, match="seed"):
        other.train(resume_from_checkpoint=checkpoint)
    trainer, _ = build(pruner_of(), tmp_path, gradient_accumulation_steps=4)
    with pytest.raises(PrunedataError, match=r"Expected gradient_accumulation_steps=1, as the checkpoint.* Got 4"):
        trainer.train(resume_from_checkpoint=checkpoint)


class OwnLoss(PrunedTrainer):
    """A loss of its own, which nobody can take apart."""

    def compute_loss(self, model, inputs, *args, **options):
        return model(**inputs)["logits"].square().mean()


class OwnLosses(OwnLoss):
    """And the loss of each sample."""

    def sample_losses(self, outputs, inputs):
        assert "prunedata_ids" not in inputs
        return outputs["logits"].square().mean(1)


class OneLoss(OwnLoss):
    """One loss for the whole batch."""

    def sample_losses(self, outputs, inputs):
        return outputs["logits"].mean()


class NotTheModel(OwnLosses):
    """Goes past the model that it is given."""

    def compute_loss(self, model, inputs, *args, **options):
        return model.linear(inputs["points"]).square().mean()


def test_a_loss_of_the_users_own_needs_the_losses_of_its_samples(tmp_path):
    with pytest.raises(PrunedataError, match=r"Expected sample_losses.* as OwnLoss\.compute_loss may compute any loss"):
        build(pruner_of(), tmp_path, trainer=OwnLoss)
    pruner = pruner_of()
    trainer, watcher = build(pruner, tmp_path, trainer=OwnLosses)
    trainer.train()
    assert watcher.steps == [12, 9, 12, 9, 12, 9]
    assert pruner.history[-1]["mean_loss"] < pruner.history[0]["mean_loss"]
    trainer, _ = build(pruner_of(), tmp_path, trainer=OneLoss)
    with pytest.raises(
        LossError, match=r"Expected sample_losses to return one loss for each of 8 samples.* Got shape \(\)"
    ):
        trainer.train()
    trainer, _ = build(pruner_of(), tmp_path, trainer=NotTheModel)
    with pytest.raises(LossError, match="Expected compute_loss to call the model in its arguments"):
        trainer.train()


def test_a_loss_function_needs_the_losses_of_its_samples(tmp_path):
    def loss_of(outputs, labels, num_items_in_batch=None):
        return torch.nn.functional.cross_entropy(outputs["logits"], labels)

    options = {"model": Net(), "train_dataset": Rows(), "compute_loss_func": loss_of}
    with pytest.raises(PrunedataError, match=r"Expected sample_losses.* as compute_loss_func may compute any loss"):
        PrunedTrainer(**options, args=build(pruner_of(), tmp_path)[0].args, pruner=pruner_of())


@pytest.mark.parametrize(
    ("trainer", "options", "told"),
    [
        (OwnLosses, {}, r"Got OwnLoss\.compute_loss"),
        (PrunedTrainer, {"label_smoothing_factor": 0.1}, "Got label_smoothing_factor=0.1"),
    ],
)
@pytest.mark.filterwarnings("ignore:Label smoothing")
def test_losses_that_cannot_be_weighed(trainer, options, told, tmp_path):
    model = Net()
    model.config = type("Config", (), {"problem_type": None, "use_cache": False})()
    with pytest.raises(PrunedataError, match=f"as LossRanked weights the loss of each sample. {told}"):
        build(pruner_of(policy=LossRanked()), tmp_path, trainer=trainer, model=model, **options)


# Which releases of transformers are served: those whose Trainer has what is needed, whatever their number.


ROOT = Path(__file__).resolve().parents[3]


def test_the_oldest_and_the_newest_release_are_those_that_the_tests_run_with():
    for name, release in (("constraints-oldest.txt", OLDEST), ("constraints.txt", NEWEST)):
        assert f"\ntransformers=={release}." in (ROOT / name).read_text()


@pytest.mark.parametrize("release", ["5.3.0", "5.11.2", "5.24.1", f"{NEWEST}.9"])
def test_releases_up_to_the_newest_that_was_tested_are_served_in_silence(release):
    with warnings.catch_warnings(action="error"):
        check_release(release=release)


@pytest.mark.parametrize("release", ["5.25.0", "5.40.0.dev0", "6.0.0"])
def test_newer_releases_are_served_with_a_warning(release):
    with pytest.warns(UntestedReleaseWarning, match=f"Expected transformers up to {NEWEST}, .* Got {release}"):
        check_release(release=release)
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", UntestedReleaseWarning)
        check_release(release=release)


class Older(Trainer):
    """As of a release that runs its epochs elsewhere."""

    _run_epoch = None


class Changed(Trainer):
    """As of one that counts the steps of an epoch elsewhere."""

    def _run_epoch(self, *, epoch, steps_in_epoch):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("trainer", "told"),
    [
        (
            Older,
            r"has _run_epoch\(epoch, steps_in_epoch, num_update_steps_per_epoch\). Got 5.3.0, .* none: pip install",
        ),
        (Changed, r"has _run_epoch.* Got 5.3.0, whose Trainer has none with num_update_steps_per_epoch: pip install"),
    ],
)
def test_a_trainer_without_what_is_needed_is_refused(trainer, told):
    with pytest.raises(PrunedataError, match=told):
        check_release(trainer, "5.3.0")


class OtherValues(Trainer):
    """As of a release that gives its values in another order."""

    def set_initial_training_values(self, args, dataloader):
        return super().set_initial_training_values(args, dataloader)[::-1]


class OtherSteps(Trainer):
    """As of a release that goes by steps of its own."""

    def _init_training_state(self, *args, **options):
        super()._init_training_state(*args, **options)
        self.state.max_steps = 72


@pytest.mark.parametrize(
    ("base", "told"),
    [
        (
            OtherValues,
            r"Expected a Trainer whose set_initial_training_values gives seven values.* Got \(.*works otherwise",
        ),
        (
            OtherSteps,
            r"Expected a Trainer that trains 63 steps in 6 epochs, as it was told. Got 72 in 6.*works otherwise",
        ),
    ],
)
def test_a_trainer_that_works_otherwise_is_noticed_before_its_first_step(base, told, tmp_path):
    kind = type("Mixed", (PrunedTrainer, base), {})
    trainer, _ = build(pruner_of(), tmp_path, trainer=kind)
    before = [each.clone() for each in trainer.model.parameters()]
    with pytest.raises(PrunedataError, match=told):
        trainer.train()
    assert all(map(torch.equal, before, trainer.model.parameters()))
