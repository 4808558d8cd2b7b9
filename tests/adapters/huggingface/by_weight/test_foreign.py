"""Trainers as Axolotl's and LLaMA-Factory's: with a ``compute_loss`` that passes on to the Trainer's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import Trainer, TrainingArguments

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import wrap
from prunedata.errors import PrunedataError
from prunedata.policies import RunningLoss
from tests.adapters.huggingface.test_sft import tiny

SAMPLES, LENGTH = 24, 8


def rows():
    """Tokens that follow a rule, of various length; what is asked has no label."""
    random = np.random.default_rng(0)
    found = []
    for number in range(SAMPLES):
        tokens = torch.from_numpy(random.integers(6, 18, LENGTH))
        labels = tokens.clone()
        labels[: 2 + number % 4] = -100
        found.append({"input_ids": tokens, "labels": labels, "attention_mask": torch.ones(LENGTH, dtype=torch.long)})
    return found


def of_samples(outputs, inputs):
    """As the page has it."""
    losses = F.cross_entropy(outputs["logits"][:, :-1].float().mT, inputs["labels"][:, 1:], reduction="none")
    return losses.sum(1) / (inputs["labels"][:, 1:] != -100).sum(1).clamp(min=1)


class Theirs(Trainer):
    """As Axolotl has it: the tokens are counted on the way."""

    seen = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.seen += inputs["labels"].numel()
        return super().compute_loss(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)


class JoinsItself(Theirs):
    """As it is put in the place of LLaMA-Factory's class."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.run = run_of()
        wrap(self, self.run, sample_losses=of_samples)


def run_of():
    schedule = Schedule(3, window=3, start=1, block=2, pruned_per_block=1)
    return Pruner(SAMPLES, schedule, prune=6, policy=RunningLoss(), leave_out="weight", seed=2)


def trained(folder, kind, run=None, accumulate=1, **options):
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(folder), num_train_epochs=3, per_device_train_batch_size=4, learning_rate=0.01, seed=1, use_cpu=True,
        dataloader_pin_memory=False, disable_tqdm=True, logging_strategy="no", report_to=[], save_strategy="no",
        gradient_accumulation_steps=accumulate,
    )  # fmt: skip
    trainer = kind(model=tiny(), args=arguments, train_dataset=rows())
    if run is not None:
        wrap(trainer, run, **options)
    trainer.train()
    run = run or trainer.run
    return torch.cat([each.detach().flatten() for each in trainer.model.parameters()]), run


@pytest.mark.parametrize("accumulate", [1, 2])
def test_they_train_as_the_plain_trainer_of_the_models_own_loss(accumulate, tmp_path):
    """Their loss is divided by the labels of the whole step, which their values show."""
    weights, plain = trained(tmp_path, Trainer, run_of(), accumulate)
    assert [record.get("by_weight", 0) for record in plain.history] == [0, 6, 0]
    for kind, run, options in ((Theirs, run_of(), {"sample_losses": of_samples}), (JoinsItself, None, {})):
        found, other = trained(tmp_path, kind, run, accumulate, **options)
        torch.testing.assert_close(found, weights, rtol=1e-4, atol=1e-5)
        assert other.visits.tolist() == plain.visits.tolist()
        for name, array in plain.arrays.items():
            np.testing.assert_allclose(other.arrays[name], array, rtol=1e-3, atol=1e-4)


class Fifth(Theirs):
    """A loss of which nobody knows by what it is divided."""

    def compute_loss(self, *args, **options):
        loss, outputs = super().compute_loss(*args, **options | {"return_outputs": True})
        return (loss / 5, outputs) if options.get("return_outputs") else loss / 5


class Said(Fifth):
    """The same, which its class says."""

    loss_is_scaled_for_ga = True


def test_a_loss_that_nobody_knows_the_divisor_of_is_refused_until_the_class_says_it(tmp_path):
    with pytest.raises(PrunedataError, match="set loss_is_scaled_for_ga"):
        trained(tmp_path, Fifth, run_of(), 2, sample_losses=of_samples)
    assert trained(tmp_path, Said, run_of(), 2, sample_losses=of_samples)[1].next_epoch == 3
