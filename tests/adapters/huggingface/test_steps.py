"""Runs whose steps change while they go on, and the Trainer's own figure, once an epoch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR
from transformers import TrainerCallback

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface.steps import Change, Steps, stretch
from prunedata.errors import PrunedataError
from tests.adapters.huggingface.trainers import SAMPLES, PrunedTrainer, Rows, Stop, build, joined, pruner_of, weights

# Runs whose number of steps changes while they go on, and how many steps a run has.


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 9))
def test_steps_are_those_of_a_loop_that_counts(batches, accumulate):
    steps, done = Steps(batches, accumulate), 0
    for epoch, length in enumerate(batches):
        assert steps.before(epoch) == done
        assert steps.of(epoch) == len(range(0, length, accumulate))
        done += steps.of(epoch)
    assert steps.total == done
    assert steps.of(len(batches)) == 0


def scheduler_of(old):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    return optimizer, LambdaLR(optimizer, lambda step: max(0, 1 - step / old))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.data())
def test_a_stretched_rate_goes_on_where_it_was_and_ends_where_it_should(old, new, newest, data):
    optimizer, scheduler = scheduler_of(old)
    at = data.draw(st.integers(0, min(old, new) - 1))
    again = data.draw(st.integers(at, min(new, newest) - 1)) if newest > at else None
    end, rates = new, [1.0]
    for step in range(1, 200):
        if step - 1 == at:
            stretch(scheduler, Change(at, old, new))
        if step - 1 == again:
            stretch(scheduler, Change(again, new, newest))
            end = newest
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
        if step == end:
            break
    assert rates[: at + 1] == pytest.approx([1 - step / old for step in range(at + 1)])
    assert rates[-1] == pytest.approx(0, abs=1e-9)
    assert all(np.diff(rates) < 0)


def test_a_scheduler_that_nobody_can_stretch_is_refused():
    optimizer, _ = scheduler_of(10)
    with pytest.raises(PrunedataError, match=r"as the run has 8 steps instead of 10 from step 5 on. Got ExponentialLR"):
        stretch(ExponentialLR(optimizer, 0.9), Change(5, 10, 8))


class Noisy(Rows):
    """Rows whose classes lie far apart. Every fourth has the wrong label."""

    def __init__(self):
        super().__init__()
        self.points *= 6
        self.labels[::4] = 1 - self.labels[::4]


class Validated(TrainerCallback):
    """Gives a figure in each epoch, which falls from the sixth on."""

    def __init__(self, pruner):
        self.pruner = pruner

    def on_epoch_end(self, args, state, control, **others):
        epoch = len(self.pruner.history)
        if not self.pruner.is_validated:
            self.pruner.validated(50 + epoch - 4 * max(0, epoch - 6))


def test_a_run_that_is_advised_on_its_way_ends_with_a_rate_of_zero_resumed_or_not(tmp_path):
    def run(folder, resume=None, stop=None):
        pruner = Pruner(SAMPLES, Schedule.steady(epochs=18), prune=0.4, policy="auto")
        options = {"dataset": Noisy(), "learning_rate": 0.3, "save_strategy": "steps", "save_steps": 5}
        trainer, watcher = build(
            pruner,
            tmp_path / folder,
            callbacks=[Stop(stop), Validated(pruner)],
            gradient_accumulation_steps=2,
            **options,
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer, watcher, pruner

    trainer, watcher, pruner = run("whole")
    assert pruner.advice.verdict == "prune"
    assert watcher.totals[1] == 18 * 6 > trainer.state.max_steps == trainer.state.global_step
    assert watcher.rates[-1] == pytest.approx(0, abs=1e-9)
    assert all(np.diff(watcher.rates) < 0)
    _, first, _ = run("parts", stop=45)
    resumed, second, _ = run("parts", resume=True)
    assert first.rates + second.rates == watcher.rates
    assert torch.equal(weights(trainer), weights(resumed))


def test_a_run_is_lengthened_from_its_last_checkpoint(tmp_path):
    options = {"save_strategy": "epoch", "lr_scheduler_type": "constant"}
    trainer, _ = build(pruner_of(epochs=4), tmp_path, **options)
    trainer.train()
    longer = pruner_of(epochs=6)
    trainer, watcher = build(longer, tmp_path, **options)
    trainer.train(resume_from_checkpoint=True)
    assert longer.next_epoch == 6
    assert watcher.steps == [12, 9]
    assert trainer.state.global_step == trainer.state.max_steps == 63


# The Trainer's own figure, ``metric_for_best_model``, is handed to the pruner once an epoch.


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
        kind = PrunedTrainer if leave_out == "delivery" else joined
        trainer, _ = build(pruner, tmp_path / name, trainer=kind, **options)
        trainer.train(resume_from_checkpoint=resume)
        return weights(trainer), pruner.history, trainer

    whole, history, trainer = trained("whole")
    ends = [round(float(step["step"])) for step in trainer.state.log_history if "eval_loss" in step]
    saved = sorted(int(path.name.partition("-")[2]) for path in (tmp_path / "whole").glob("checkpoint-*"))
    both = sorted({*ends[:-1]} & {*saved})
    assert both
    for step in both:
        again, told, _ = trained("again", str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert torch.equal(whole, again)
        assert [record["validation"] for record in told] == [record["validation"] for record in history]
