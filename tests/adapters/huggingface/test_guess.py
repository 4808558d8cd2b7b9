"""What the Trainer's model takes samples for is kept by itself, where its labels are classes."""

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments

from prunedata import Pruner
from prunedata.adapters.huggingface.losses import logits_of
from prunedata.policies import Random
from tests.adapters.huggingface.trainers import SAMPLES, Net, PrunedTrainer, Rows, build, pruner_of


class Seen(Net):
    """Keeps what it said of each sample in the pass that was trained on."""

    def forward(self, points, labels=None, number=None):
        outputs = super().forward(points, labels, number)
        if torch.is_grad_enabled():
            self.said[-1].append((number.numpy(), outputs["logits"].detach().numpy()))
        return outputs


class Steps(PrunedTrainer):
    """As many batches in a step as there are, and what the model said in each epoch."""

    def _run_epoch(self, **options):
        self.model.said.append([])
        return super()._run_epoch(**options)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 3}])
@pytest.mark.parametrize("kind", [{}, {"holdout": 0.1}, {"labels": Rows().labels}])
def test_a_trainer_keeps_them_by_itself(tmp_path, options, kind):
    run, model = pruner_of(policy=Random(), **kind), Seen()
    model.said = []
    trainer, _ = build(run, tmp_path, trainer=Steps, model=model, **options)
    trainer.train()
    by_hand = pruner_of(policy=Random(), **kind)
    for said in model.said:
        by_hand.begin_epoch().apply_weights()
        for ids, logits in said:
            by_hand.observe(np.zeros(len(ids)), ids, logits=logits)
        by_hand.skip(SAMPLES)
        by_hand.end_epoch()
    guess = run.arrays["guess"]
    assert guess.tolist() == by_hand.arrays["guess"].tolist()
    trained = run.visits > 0
    assert (guess[trained] >= 0).all()
    assert (guess[~trained] == -1).all()
    if "labels" in kind:
        assert (guess == 1 - Rows().labels.numpy()).all()


def test_a_trainer_that_leaves_out_by_weight_keeps_them_too(tmp_path):
    run = pruner_of(leave_out="weight")
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=6, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", logging_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = run.wrap(Trainer(model=Net(), args=arguments, train_dataset=Rows()))
    trainer.train()
    assert set(run.arrays["guess"].tolist()) == {0, 1}


def test_the_labels_may_be_named():
    run = Pruner(epochs=6, labels="labels", leave_out="weight")
    arguments = TrainingArguments("unused", num_train_epochs=6, report_to=[], use_cpu=True)
    run.wrap(Trainer(model=Net(), args=arguments, train_dataset=Rows()))
    assert run._engine.options.labels.numbers.tolist() == Rows().labels.tolist()


@pytest.mark.parametrize(
    ("logits", "labels", "known"),
    [
        (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), True),
        (torch.zeros(4, 1), torch.zeros(4), False),
        (torch.zeros(4, 3), torch.zeros(4, 3), False),
        (torch.zeros(4, 5, 3), torch.zeros(4, 5, dtype=torch.long), False),
        (None, torch.zeros(4, dtype=torch.long), False),
    ],
    ids=["classes", "regression", "several labels", "tokens", "no logits"],
)
def test_only_classes_of_whole_samples_are_taken(logits, labels, known):
    assert (logits_of({"logits": logits}, {"labels": labels}, Net()) is not None) == known


def test_choices_that_are_no_classes_are_left_alone():
    """As of a model of multiple choice, whose questions may have other numbers of answers."""

    class Choice(Net):
        class config:
            num_labels = 2

    outputs, inputs = {"logits": torch.zeros(4, 5)}, {"labels": torch.zeros(4, dtype=torch.long)}
    assert logits_of(outputs, inputs, Choice()) is None
