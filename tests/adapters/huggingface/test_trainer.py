"""Hugging Face's Trainer with the mixin: batches, steps, learning rate, evaluations, checkpoints."""

import os
from contextlib import suppress

import numpy as np
import pytest
import torch
from transformers import TrainerCallback, __version__

from prunedata import Pruner, Schedule
from prunedata.errors import OtherData, PrunedataError
from prunedata.policies import BoundedLoss
from tests.adapters.helpers.alone import EPOCHS, check_batches_of_one
from tests.adapters.huggingface.trainers import (
    SAMPLES,
    Rows,
    Stop,
    build,
    joined,
    lines,
    pruner_of,
    weights,
    with_lengths,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # two workers on one core
EVERY_EPOCH = {"eval_strategy": "epoch", "save_strategy": "epoch"}


def test_the_release_is_the_one_that_was_asked_for():
    """test_oldest.py runs these tests with another one."""
    assert __version__ == os.environ.get("PRUNEDATA_OLDEST", __version__)


def check_seen(watcher):
    for kept, batches in zip(watcher.kept, watcher.seen, strict=True):
        assert sorted(number for batch in batches for number in batch) == kept


@pytest.mark.parametrize("workers", [0, 2], ids=["alone", "two workers"])
@pytest.mark.parametrize("lengths", [(10, 6, 8, 12), (6, 10, 8, 12), (12, 9, 12, 9, 12, 9)], ids=str)
def test_each_epoch_has_its_own_length(lengths, workers, tmp_path):
    pruner = pruner_of() if len(lengths) == 6 else with_lengths(lengths)
    options = {"dataloader_num_workers": workers, "dataloader_persistent_workers": workers > 0}
    trainer, watcher = build(pruner, tmp_path, **options, **EVERY_EPOCH)
    out = trainer.train()
    epochs, steps = len(lengths), sum(lengths)
    assert [len(batches) for batches in watcher.seen] == watcher.steps == list(lengths)
    check_seen(watcher)
    pruned = [kept for kept in watcher.kept if len(kept) < SAMPLES]
    assert len(set(map(tuple, pruned))) == len(pruned) == sum(record["pruned"] for record in pruner.history)
    assert [record["observed"] for record in pruner.history] == [len(kept) for kept in watcher.kept]
    assert watcher.evaluated == list(range(1, epochs + 1))
    assert not any("validation" in record for record in pruner.history), "without metric_for_best_model"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"checkpoint-{step}" for step in np.cumsum(lengths)
    )
    assert watcher.totals == (epochs, steps)
    assert out.global_step == trainer.state.max_steps == steps
    assert out.metrics["epoch"] == epochs
    assert watcher.rates == pytest.approx([0.01 * (1 - step / steps) for step in range(1, steps + 1)])
    assert watcher.epochs == pytest.approx(
        [epoch + batch / length for epoch, length in enumerate(lengths) for batch in range(1, length + 1)]
    )


def test_an_optimizer_step_never_spans_two_epochs(tmp_path):
    pruner = with_lengths((10, 7, 5, 10))
    trainer, watcher = build(pruner, tmp_path, gradient_accumulation_steps=4)
    trainer.train()
    assert watcher.steps == [3, 2, 2, 3]
    assert [len(batches) for batches in watcher.seen] == [10, 7, 5, 10]
    check_seen(watcher)
    assert watcher.totals == (4, 10)
    assert watcher.rates[-1] == 0


def test_drop_last(tmp_path):
    pruner = pruner_of(prune=30)
    trainer, watcher = build(pruner, tmp_path, dataloader_drop_last=True)
    trainer.train()
    assert watcher.steps == [12, 8, 12, 8, 12, 8]
    assert all(len(batch) == 8 for batches in watcher.seen for batch in batches)
    assert trainer.state.max_steps == 60
    assert [record["observed"] for record in pruner.history] == [96, 64, 96, 64, 96, 64]


RESUMED = {
    "between epochs": {"accumulate": 1, "stop": 21},
    "within an epoch": {"accumulate": 1, "stop": 26},
    "with accumulation": {"accumulate": 4, "stop": 7},
    "with workers": {"accumulate": 1, "stop": 26, "dataloader_num_workers": 2},
    "grouped by length": {"accumulate": 1, "stop": 26, "train_sampling_strategy": "group_by_length"},
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(case, tmp_path):
    options = dict(RESUMED[case])
    options |= {"gradient_accumulation_steps": options.pop("accumulate"), "save_strategy": "steps", "save_steps": 1}
    stop = options.pop("stop")
    if "train_sampling_strategy" in options:
        options |= {"dataset": lines()}

    def run(folder, resume=None, stops=()):
        pruner = pruner_of()
        trainer, watcher = build(pruner, tmp_path / folder, callbacks=stops, **options)
        trainer.train(resume_from_checkpoint=resume)
        return trainer, watcher, pruner

    whole, seen_whole, expected = run("whole")
    trainer, first, pruner = run("parts", stops=[Stop(stop)])
    assert trainer.state.global_step == stop
    assert pruner.next_epoch == 2
    resumed, second, got = run("parts", resume=True)
    assert resumed.state.global_step == whole.state.global_step
    assert resumed.state.epoch == whole.state.epoch == 6
    assert first.rates + second.rates == seen_whole.rates
    assert first.epochs + second.epochs == pytest.approx(seen_whole.epochs)
    assert torch.equal(weights(whole), weights(resumed))
    assert expected.counts.tolist() == got.counts.tolist()
    assert [record["mean_loss"] for record in expected.history] == [record["mean_loss"] for record in got.history]
    parts = [batch for batches in first.seen + second.seen for batch in batches]
    assert parts == [batch for batches in seen_whole.seen for batch in batches]


class SavedWithin(TrainerCallback):
    """Saves before an optimizer step is made, and stops: as ``enable_jit_checkpoint`` does on a signal."""

    def on_pre_optimizer_step(self, args, state, control, **others):
        if state.global_step == 26:
            self.trainer._save_checkpoint(self.trainer.model, trial=None)
            raise KeyboardInterrupt


def test_a_checkpoint_within_a_step_has_none_of_its_losses(tmp_path):
    def run(resume=None, callbacks=()):
        pruner = pruner_of()
        trainer, _ = build(pruner, tmp_path, callbacks=callbacks)
        for one in callbacks:
            one.trainer = trainer
        with suppress(KeyboardInterrupt):
            trainer.train(resume_from_checkpoint=resume)
        return trainer, pruner

    run(callbacks=[SavedWithin()])
    (again, got), (whole, expected) = run(resume=True), run()
    assert torch.load(tmp_path / "checkpoint-26" / "pruner_0.pt")["pruner"]["state"]["observed"] == 5 * 8
    assert again.state.global_step == whole.state.global_step == 63
    assert [record["observed"] for record in got.history] == [record["observed"] for record in expected.history]


class AtBegin(TrainerCallback):
    """What the pruner knows when the training goes on."""

    def __init__(self, pruner):
        self.pruner = pruner

    def on_train_begin(self, args, state, control, **others):
        self.visits, self.arrays = self.pruner.visits, self.pruner.arrays


FOLLOWED = {
    "shuffled": np.random.default_rng(0).permutation(SAMPLES).tolist(),
    "filtered": [row for row in range(SAMPLES) if row % 3],
    "appended": list(range(SAMPLES + 20)),
}


class Classifier(torch.nn.Module):
    """What a Trainer trains of a plain layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs, labels=None):
        logits = self.layer(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize("joins", ["by its class", pytest.param("wrapped", marks=pytest.mark.slow)])
def test_batches_of_one_with_accumulation_find_suspects_as_batches_of_16_do(joins, tmp_path):
    def train(pruner, data, layer, batch, accumulate):
        options = {"trainer": joined} if joins == "wrapped" else {}
        trainer, _ = build(
            pruner, tmp_path, dataset=[{"inputs": inputs, "labels": labels} for inputs, labels in data],
            model=Classifier(layer), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulate,
            num_train_epochs=EPOCHS, optim="sgd", learning_rate=0.2, lr_scheduler_type="constant", **options,
        )  # fmt: skip
        trainer.train()

    check_batches_of_one(train)


@pytest.mark.parametrize("leave_out", ["delivery", "weight"])
@pytest.mark.parametrize("change", FOLLOWED)
def test_a_checkpoint_goes_on_with_rows_that_have_moved(change, leave_out, tmp_path):
    def new(rows, *callbacks, **options):
        pruner = Pruner(
            len(rows), Schedule(4, window=4, start=1, block=2, pruned_per_block=1), prune="30%", policy=BoundedLoss(),
            keys=[f"row {row}" for row in rows], leave_out=leave_out, **options,
        )  # fmt: skip
        dataset = torch.utils.data.Subset(Rows(SAMPLES + 20), rows)
        built = {"num_train_epochs": 4, "per_device_train_batch_size": 8, "dataset": dataset, **EVERY_EPOCH}
        if leave_out == "weight":
            built |= {"trainer": joined}
        seen = AtBegin(pruner)
        return pruner, seen, *build(pruner, tmp_path, callbacks=[seen, *callbacks], **built)

    class AfterTwo(TrainerCallback):
        def on_save(self, args, state, control, **others):
            control.should_training_stop = state.epoch >= 2

    first, _, trainer, _ = new(range(SAMPLES), AfterTwo())
    trainer.train()
    assert first.next_epoch == 2
    rows = FOLLOWED[change]
    with pytest.raises(OtherData if change == "shuffled" else PrunedataError, match="follow=True"):
        new(rows)[2].train(resume_from_checkpoint=True)
    pruner, seen, trainer, watcher = new(rows, follow=True)
    trainer.train(resume_from_checkpoint=True)
    known = np.array(rows) < SAMPLES
    kept = np.array(rows)[known]
    for name, array in {"visits": first.visits, **first.arrays}.items():
        now = seen.visits if name == "visits" else seen.arrays[name]
        assert np.array_equal(now[known], array[kept]), name
        assert (now[~known] <= 0).all()  # -1 is what no guess is known of
    for kept, batches in zip(watcher.kept, watcher.seen, strict=True):
        assert sorted(row for batch in batches for row in batch) == sorted(rows[at] for at in kept)
    assert trainer.state.global_step == trainer.state.max_steps
    assert watcher.rates[-1] == 0
    assert pruner.next_epoch == 4
