"""Stock models of transformers: where nothing is pruned, a run is plain Trainer's, bit for bit, dropout included."""

import os
from functools import partial

import pytest
import torch
import transformers
from torch.utils.data import DataLoader
from transformers import BertForTokenClassification

from prunedata import Pruner, Schedule
from tests.adapters.helpers.ranks import launched, meet, start
from tests.adapters.huggingface.trainers import PrunedTrainer, Unpruned, build, weights

__all__ = ["SAMPLES", "STOCK", "stock_model", "stock_rows"]

SAMPLES = 18
WORDS, CLASSES, LENGTH = 13, 3, 6
SIZES = {"vocab_size": WORDS, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
ENCODER = SIZES | {"intermediate_size": 8, "max_position_embeddings": 16, "num_labels": CLASSES, "pad_token_id": 0}
DISTIL = {"vocab_size": WORDS, "dim": 8, "hidden_dim": 8, "n_layers": 1, "n_heads": 2, "num_labels": CLASSES}
MODERN = ENCODER | {"bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 1, "sep_token_id": 1}
LLAMA = ENCODER | {"num_key_value_heads": 2, "attention_dropout": 0.1}
T5 = {"vocab_size": WORDS, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_layers": 1, "num_heads": 2}
VIT = {"image_size": 4, "patch_size": 2, "hidden_dropout_prob": 0.1, "num_labels": CLASSES}
GPT2 = {"vocab_size": WORDS, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
STOCK = {
    "BertForSequenceClassification": ("BertConfig", ENCODER, "classes"),
    "RobertaForSequenceClassification": ("RobertaConfig", ENCODER, "classes"),
    "DistilBertForSequenceClassification": ("DistilBertConfig", DISTIL, "classes"),
    "DebertaV2ForSequenceClassification": ("DebertaV2Config", ENCODER, "classes"),
    "ElectraForSequenceClassification": ("ElectraConfig", ENCODER | {"embedding_size": 8}, "classes"),
    "ModernBertForSequenceClassification": ("ModernBertConfig", MODERN, "classes"),
    "LlamaForSequenceClassification": ("LlamaConfig", LLAMA, "classes"),
    "BertForTokenClassification": ("BertConfig", ENCODER, "tags"),
    "BertForMaskedLM": ("BertConfig", ENCODER, "words"),
    "T5ForConditionalGeneration": ("T5Config", T5 | {"decoder_start_token_id": 0}, "words"),
    "ViTForImageClassification": ("ViTConfig", SIZES | {"intermediate_size": 8} | VIT, "images"),
    "GPT2LMHeadModel": ("GPT2Config", GPT2 | {"bos_token_id": 1, "eos_token_id": 1}, "words"),
}
"""Of each model its configuration, its sizes, and what its rows are."""


def stock_model(name):
    config, sizes, _ = STOCK[name]
    sizes = {size: value for size, value in sizes.items() if size != "vocab_size" or config != "ViTConfig"}
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**sizes))


def stock_rows(kind):
    """Sentences of different lengths, or images; labels are classes, tags, or the words themselves."""
    generator = torch.Generator().manual_seed(0)
    every_word = torch.randint(2, WORDS, (SAMPLES, LENGTH), generator=generator)
    images = torch.randn(SAMPLES, 3, 4, 4, generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (SAMPLES,), generator=generator)
    if kind == "images":
        return [
            {"pixel_values": image, "labels": words[0] % CLASSES}
            for image, words in zip(images, every_word, strict=True)
        ]
    rows = []
    for words, length in zip(every_word, lengths, strict=True):
        real = torch.arange(LENGTH) < length
        labels = {"classes": words[0] % CLASSES, "tags": words % CLASSES, "words": words}[kind]
        labels = torch.where(real, labels, -100) if labels.ndim else labels
        rows.append({"input_ids": torch.where(real, words, 0), "attention_mask": real.long(), "labels": labels})
    return rows


pytestmark = [
    pytest.mark.filterwarnings("ignore:`loss_type=None`"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),  # DebertaV2 of 5.3
    pytest.mark.filterwarnings("ignore:Expected a run that prunes:prunedata.errors.NeverPrunesWarning"),
]


def train(name, folder, trainer, *, accumulate, **options):
    """Train a model on the rows in their order, with an evaluation after each epoch: (model, pruner)."""
    options = {
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulate, "learning_rate": 0.05,
        "train_sampling_strategy": "sequential", "eval_strategy": "epoch",
    } | options  # fmt: skip
    if "WORLD_SIZE" in os.environ:
        options["ddp_backend"] = "gloo"
    pruner = Pruner(SAMPLES, Schedule(2, window=2, start=2, block=2, pruned_per_block=1), prune=0.3)
    model, rows = options.pop("model", None) or stock_model(name), stock_rows(STOCK[name][2])
    made, _ = build(pruner, folder, trainer=trainer, model=model, dataset=rows, **options)
    made.eval_dataset = rows
    made.train()
    return made.model, pruner


def same(model, other):
    return torch.equal(weights(model), weights(other))


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("name", STOCK)
def test_a_stock_model_is_trained_as_without_the_mixin(name, accumulate, tmp_path):
    pruned, pruner = train(name, tmp_path, PrunedTrainer, accumulate=accumulate)
    plain, _ = train(name, tmp_path, Unpruned, accumulate=accumulate)
    assert same(pruned, plain)
    assert not same(pruned, stock_model(name))
    assert pruner.visits.tolist() == [2] * SAMPLES


@pytest.mark.parametrize(
    "options", [{"label_smoothing_factor": 0.1}, {"average_tokens_across_devices": False}], ids=str
)
@pytest.mark.parametrize("name", ["BertForTokenClassification", "GPT2LMHeadModel"])
def test_arguments_that_change_the_loss_change_it_as_without_the_mixin(name, options, tmp_path):
    pruned, _ = train(name, tmp_path, PrunedTrainer, accumulate=2, **options)
    plain, _ = train(name, tmp_path, Unpruned, accumulate=2, **options)
    assert same(pruned, plain)


class Tagger(BertForTokenClassification):
    """A class of a user's own, from whose name transformers concludes that it is a causal language model."""


def test_labels_are_read_as_the_model_reads_them_whatever_its_name(tmp_path):
    name = "BertForTokenClassification"
    _, expected = train(name, tmp_path, PrunedTrainer, accumulate=2)
    model = stock_model(name)
    tagger = Tagger(model.config)
    tagger.load_state_dict(model.state_dict())
    _, pruner = train(name, tmp_path, PrunedTrainer, accumulate=2, model=tagger)
    losses = [[record["mean_loss"] for record in each.history] for each in (expected, pruner)]
    assert losses[0] == losses[1]
    assert pruner.counts.tolist() == expected.counts.tolist()


# -- two processes


class Recorded(PrunedTrainer):
    """Remembers which samples each of its batches had."""

    batches = ()

    def training_step(self, model, inputs, *args, **options):
        Recorded.batches += (inputs["prunedata_ids"].ids.tolist(),)
        return super().training_step(model, inputs, *args, **options)


class Replayed(Unpruned):
    """Plain Trainer on the same batches. accelerate would deal other samples to each process."""

    def get_train_dataloader(self):
        half = len(Recorded.batches) // 2
        return DataLoader(self.train_dataset, batch_sampler=Epochs(half), collate_fn=self.data_collator)


class Epochs:
    """A batch sampler of the recorded batches, epoch by epoch."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        batches, Recorded.batches = Recorded.batches[: self.length], Recorded.batches[self.length :]
        return iter(batches)


def work(rank, folder, accumulate):
    launched(rank, folder)
    found = {}
    for name in STOCK:
        Recorded.batches = ()
        pruned, pruner = train(name, folder, Recorded, accumulate=accumulate, eval_strategy="no")
        assert len(Recorded.batches) == 6
        plain, _ = train(name, folder, Replayed, accumulate=accumulate, eval_strategy="no")
        untouched = same(pruned, plain) and not same(pruned, stock_model(name))
        total = sum(float(each.detach().double().sum()) for each in pruned.parameters())
        found[name] = untouched, total, pruner.visits.tolist()
    torch.distributed.destroy_process_group()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_processes_train_stock_models_as_without_the_mixin(accumulate, tmp_path):
    meet(tmp_path)
    ranks = start(partial(work, accumulate=accumulate), tmp_path)
    assert [name for name, (untouched, _, _) in ranks[0].items() if not untouched] == []
    assert ranks[0] == ranks[1]
    assert list(ranks[0]) == list(STOCK)
