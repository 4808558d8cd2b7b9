"""TRL's SFTTrainer with the mixin: a tiny language model of random weights, and answers of which a quarter is wrong."""

import numpy as np
import pytest
import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import PruneTrainerMixin
from prunedata.adapters.huggingface.left_out import Part
from prunedata.adapters.huggingface.losses import losses_and_counts
from prunedata.errors import PrunedataError
from prunedata.policies import LossRanked, RunningLoss
from tests.adapters.huggingface.trainers import Watcher, quiet, weights

ROWS, KINDS = 120, 6
RUNNING = RunningLoss()
WORDS = ["<pad>", "<eos>", "<unk>", "what", "colour", "has", "it", "is"] + [
    f"{word}{number}" for word in ("thing", "colour") for number in range(KINDS)
]


class PrunedSFTTrainer(PruneTrainerMixin, trl.SFTTrainer):
    """As a user writes it."""


def questions():
    """Prompts and completions of different lengths, and which of them are wrong."""
    generator = np.random.default_rng(0)
    things, wrong = generator.integers(0, KINDS, ROWS), generator.random(ROWS) < 0.25
    answers = np.where(wrong, (things + generator.integers(1, KINDS, ROWS)) % KINDS, things)
    prompts = [f"what colour has thing{thing}" + " it is" * (row % 2) for row, thing in enumerate(things)]
    return Dataset.from_dict({"prompt": prompts, "completion": [f" colour{answer}" for answer in answers]}), wrong


def tokenizer():
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def tiny():
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    special = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **sizes, **heads, **special))


def sft(folder, dataset=None, kind=trl.SFTTrainer, given=None, **options):
    """An SFTTrainer, or one of another kind, of a tiny model."""
    options = {"activation_checkpointing": False, "bf16": False} | options
    if "activation_checkpointing" not in trl.SFTConfig.__dataclass_fields__:
        options["gradient_checkpointing"] = options.pop("activation_checkpointing")
    return kind(
        model=tiny(),
        args=quiet(folder, trl.SFTConfig, **options),
        train_dataset=questions()[0] if dataset is None else dataset,
        processing_class=tokenizer(),
        **given or {},
    )


def build(pruner, folder, dataset=None, trainer=PrunedSFTTrainer, **options):
    options = {"num_train_epochs": pruner.schedule.epochs, "gradient_accumulation_steps": 2} | options
    given = {"pruner": pruner, "eval_dataset": questions()[0].select(range(8))}
    made = sft(folder, dataset, trainer, given, **options)
    made.add_callback(watcher := Watcher(pruner, made.model))
    return made, watcher


def pruner_of(policy=RUNNING, epochs=8):
    return Pruner(ROWS, Schedule.steady(epochs=epochs), prune=0.25, policy=policy)


def test_wrong_answers_are_pruned_more_often_than_right_ones(tmp_path):
    pruner, (_, wrong) = pruner_of(), questions()
    trainer, watcher = build(pruner, tmp_path, eval_strategy="epoch")
    trainer.train()
    kept = [record["kept"] for record in pruner.history]
    assert kept == 2 * [120] + 6 * [90]
    assert [record["observed"] for record in pruner.history] == kept
    assert watcher.steps == 2 * [8] + 6 * [6]  # of two batches of 8 samples
    assert trainer.state.global_step == trainer.state.max_steps == sum(watcher.steps)
    assert watcher.rates[-1] == 0
    assert watcher.evaluated == list(range(1, 9))
    pruned = 8 - pruner.visits
    assert pruned[wrong].mean() > 3 * pruned[~wrong].mean()
    assert pruner.history[-1]["mean_loss"] < 0.5 * pruner.history[0]["mean_loss"]


def test_a_run_goes_on_within_an_epoch(tmp_path):
    trainer, _ = build(pruner_of(epochs=3), tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    for step in (8, 10):
        resumed, watcher = build(pruner_of(epochs=3), tmp_path / "again")
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert sum(watcher.steps) == trainer.state.max_steps - step
        assert torch.equal(weights(trainer), weights(resumed))


class Smoothed(PrunedSFTTrainer):
    """Remembers the losses of the forward passes that have gradients."""

    trained = ()

    def training_step(self, model, inputs, *args, **options):
        labels = inputs["labels"]

        def look(module, called_with, outputs):
            if torch.is_grad_enabled():
                self.trained += tuple(losses_and_counts(outputs, {"labels": labels}, shifted=True)[0].tolist())

        with model.register_forward_hook(look):
            return super().training_step(model, inputs, *args, **options)


@pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning")
def test_with_label_smoothing_the_pass_that_is_trained_on_is_recorded(tmp_path):
    """TRL makes another one, for metrics, whose dropout is another."""
    pruner = pruner_of(epochs=3)
    trainer, _ = build(pruner, tmp_path, trainer=Smoothed, label_smoothing_factor=0.1)
    for module in trainer.model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.4
    trainer.train()
    ends = np.cumsum([record["observed"] for record in pruner.history])
    means = [part.mean() for part in np.split(np.array(trainer.trained), ends[:-1])]
    assert [record["mean_loss"] for record in pruner.history] == pytest.approx(means, rel=1e-6)
    assert len(trainer.trained) == ends[-1]


def test_weights_of_samples_weigh_their_tokens(tmp_path):
    """The step of a batch whose samples weigh alike is as many times as long; a sample that weighs 0 has no part."""
    pruner = pruner_of(policy=LossRanked(), epochs=3)
    trainer, _ = build(pruner, tmp_path)
    trainer.train()
    assert "loss" in pruner.arrays
    batch = trainer.data_collator([trainer.train_dataset[number] for number in range(4)])

    def gradient(weights):
        trainer.model.zero_grad()
        size = len(batch["labels"])
        weights = np.ones(size, np.float32) if weights is None else np.array(weights, np.float32)
        part = trainer._part = Part(np.arange(size), weights, np.ones(size, np.bool_))
        with trainer._watch.over(trainer.model, batch, *part.weighed()), trainer._weighing():
            trainer.compute_loss(trainer.model, dict(batch)).backward()
        return torch.cat([each.grad.flatten() for each in trainer.model.parameters()])

    trainer.model.eval()
    plain = gradient(None)
    assert torch.allclose(gradient([2.0, 2, 2, 2]), 2 * plain, rtol=1e-3, atol=1e-6)
    assert torch.allclose(gradient([2.0, 1, 1, 1]) + gradient([0.0, 1, 1, 1]), 2 * plain, rtol=1e-3, atol=1e-6)
    alone = trainer.data_collator([trainer.train_dataset[0]])
    without = gradient([0.0, 1, 1, 1])
    batch = alone
    part = gradient(None)
    share = (plain - without).dot(part) / part.dot(part)
    assert torch.allclose(plain - without, share * part, rtol=1e-2, atol=1e-5)
    assert 0 < share < 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"packing": True, "max_length": 32}, "Expected packing to be left out"),
        ({"padding_free": True, "max_length": None}, "Expected padding_free to be left out"),
        ({"shuffle_dataset": True}, "Expected shuffle_dataset to be left out.*ids are positions in the dataset"),
    ],
    ids=["packing", "padding_free", "shuffle_dataset"],
)
def test_what_is_refused(options, told, tmp_path):
    with pytest.raises(PrunedataError, match=told):
        build(pruner_of(), tmp_path, **options)
