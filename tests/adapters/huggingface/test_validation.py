"""The Trainer's own figure, ``metric_for_best_model``, is handed to the pruner once an epoch."""

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from prunedata.adapters.huggingface import wrap
from tests.adapters.huggingface.trainers import PrunedTrainer, Unpruned, build, pruner_of


class Evaluated(TrainerCallback):
    """Keeps what the Trainer found."""

    def __init__(self):
        self.found = []

    def on_evaluate(self, args, state, control, metrics, **others):
        self.found.append((state.epoch, metrics["eval_loss"]))


def test_an_evaluation_in_each_epoch_makes_its_figure(tmp_path):
    pruner, seen = pruner_of(epochs=4), Evaluated()
    options = {"eval_strategy": "epoch", "metric_for_best_model": "loss", "greater_is_better": False}
    trainer, _ = build(pruner, tmp_path, callbacks=[seen], **options)
    trainer.train()
    assert [record["validation"] for record in pruner.history] == [loss for _, loss in seen.found]
    assert len(seen.found) == 4
    assert all(record["lower_is_better"] for record in pruner.history)
    trainer.evaluate()  # after training: it belongs to no epoch
    assert len(pruner.history) == 4


def test_evaluations_within_an_epoch_are_passed_over(tmp_path):
    pruner, seen = pruner_of(epochs=2), Evaluated()
    options = {"eval_strategy": "steps", "eval_steps": 4, "metric_for_best_model": "eval_loss"}
    trainer, _ = build(pruner, tmp_path, callbacks=[seen], **options)
    trainer.train()
    ends = {epoch: loss for epoch, loss in seen.found if float(epoch).is_integer()}
    assert len(seen.found) > len(ends)
    found = {number + 1.0: record.get("validation") for number, record in enumerate(pruner.history)}
    assert found == {epoch: ends.get(epoch) for epoch in (1.0, 2.0)}


def test_without_a_metric_nothing_is_handed_over(tmp_path):
    pruner = pruner_of(epochs=2)
    trainer, _ = build(pruner, tmp_path, eval_strategy="epoch")
    trainer.train()
    assert not any("validation" in record for record in pruner.history)
    assert np.isfinite([record["mean_loss"] for record in pruner.history]).all()


@pytest.mark.parametrize("leave_out", ["delivery", "weight"])
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.filterwarnings("error::prunedata.errors.NeverPrunesWarning")
def test_a_run_that_goes_on_from_an_epochs_last_step_has_the_epochs_figure(accumulate, leave_out, tmp_path):
    """Evaluations draw random numbers, as the dropout after them does."""
    options = {
        "eval_strategy": "epoch", "metric_for_best_model": "loss", "greater_is_better": False, "save_strategy": "steps",
        "save_steps": 3, "gradient_accumulation_steps": accumulate,
    }  # fmt: skip

    def trained(name, resume=None):
        pruner = pruner_of(epochs=4, leave_out=leave_out)
        kind = PrunedTrainer if leave_out == "delivery" else Unpruned
        trainer, _ = build(pruner, tmp_path / name, trainer=kind, **options)
        if leave_out == "weight":
            wrap(trainer, pruner)
        trainer.train(resume_from_checkpoint=resume)
        return torch.cat([each.detach().flatten() for each in trainer.model.parameters()]), pruner.history, trainer

    weights, history, trainer = trained("whole")
    ends = [round(float(step["step"])) for step in trainer.state.log_history if "eval_loss" in step]
    saved = sorted(int(path.name.partition("-")[2]) for path in (tmp_path / "whole").glob("checkpoint-*"))
    both = sorted({*ends[:-1]} & {*saved})
    assert both
    for step in both:
        again, told, _ = trained("again", str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert torch.equal(weights, again)
        assert [record["validation"] for record in told] == [record["validation"] for record in history]
