"""Stock models of transformers: where nothing is pruned, a run is plain Trainer's, bit for bit, dropout included."""

import os
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import BertForTokenClassification

from prunedata import Pruner, Schedule
from tests.adapters.helpers.ranks import launched, meet, start
from tests.adapters.huggingface.stock import SAMPLES, STOCK, StockRows, stock_model
from tests.adapters.huggingface.trainers import PrunedTrainer, Unpruned, build

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
    model, rows = options.pop("model", None) or stock_model(name), StockRows(STOCK[name][2])
    made, _ = build(pruner, folder, trainer=trainer, model=model, dataset=rows, **options)
    made.eval_dataset = rows
    made.train()
    return made.model, pruner


def same(model, other):
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(one, two) for one, two in pairs)


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
