"""Tiny models and data for Hugging Face's Trainer, and runs of any lengths."""

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import PruneTrainerMixin

__all__ = [
    "BATCH", "SAMPLES", "Exact", "Net", "Own", "PrunedTrainer", "Rows", "Stop", "Unpruned", "Watcher",
    "build", "joined", "lines", "margin", "pruner_of", "quiet", "weights", "with_lengths",
]  # fmt: skip

SAMPLES = 96
BATCH = 8


class Rows(Dataset):
    """Points, half-planes as their labels, and the position of each."""

    def __init__(self, samples=SAMPLES):
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(samples, 4, generator=generator)
        self.labels = (self.points.sum(1) > 0).long()

    def __len__(self):
        return len(self.points)

    def __getitem__(self, number):
        return {"points": self.points[number], "labels": self.labels[number], "number": number, "unused": "text"}


def lines():
    """Rows that have ``input_ids``, of lengths that differ."""
    return [row | {"input_ids": [0] * (number % 7 + 1)} for number, row in enumerate(Rows())]


class Net(torch.nn.Module):
    """Linear, with dropout, so that a resumed run needs its random numbers. Remembers what it was trained on."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(4, 2), torch.nn.Dropout(0.2)
        self.seen = []

    def forward(self, points, labels=None, number=None):
        if self.training:
            self.seen.append(number.tolist())
        logits = self.linear(self.dropout(points))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Exact(torch.nn.Module):
    """Linear, in float64, without dropout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 2).double()
        self.config = type("Config", (), {"problem_type": None, "use_cache": False})()

    def forward(self, points, labels=None, number=None):
        logits = self.linear(points.double())
        return {"logits": logits} | ({} if labels is None else {"loss": F.cross_entropy(logits, labels)})


class PrunedTrainer(PruneTrainerMixin, Trainer):
    """As a user writes it."""


class Own(Trainer):
    """Another loss, as a user writes it."""

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        outputs = model(**inputs)
        loss = F.multi_margin_loss(outputs["logits"], inputs["labels"])
        return (loss, outputs) if return_outputs else loss


def margin(outputs, inputs):
    """The losses of single samples under :class:`Own`."""
    return F.multi_margin_loss(outputs["logits"], inputs["labels"], reduction="none")


class Unpruned(Trainer):
    """The Trainer as it is."""

    def __init__(self, *args, pruner, **options):
        super().__init__(*args, **{**options, "callbacks": []})


class Watcher(TrainerCallback):
    """What a callback sees, and in which epoch the model saw which samples."""

    def __init__(self, pruner, model):
        self.pruner, self.model = pruner, model
        self.kept, self.seen, self.steps, self.evaluated, self.epochs, self.rates = [], [], [], [], [], []
        self.totals = None

    def on_train_begin(self, args, state, control, **others):
        self.totals = state.num_train_epochs, state.max_steps

    def on_epoch_begin(self, args, state, control, **others):
        self.steps.append(0)
        self.seen.append([])
        self.kept.append(None)
        self.model.seen = self.seen[-1]

    def on_step_begin(self, args, state, control, **others):
        self.kept[-1] = np.flatnonzero(self.pruner.current.keep).tolist()

    def on_step_end(self, args, state, control, lr_scheduler=None, **others):
        self.steps[-1] += 1
        self.epochs.append(state.epoch)
        self.rates.append(lr_scheduler.get_last_lr()[0])

    def on_evaluate(self, args, state, control, **others):
        self.evaluated.append(state.epoch)


class Stop(TrainerCallback):
    """Stops the run after a step, or the epoch."""

    def __init__(self, step, what="should_training_stop"):
        self.step, self.what = step, what

    def on_step_end(self, args, state, control, **others):
        if state.global_step == self.step:
            setattr(control, self.what, True)


def pruner_of(*, start=1, epochs=6, **options):
    options = {"prune": 0.3, "seed": 3} | options
    return Pruner(SAMPLES, Schedule(epochs, window=epochs, start=start, block=2, pruned_per_block=1), **options)


def with_lengths(lengths):
    """A run whose epochs have so many batches. No schedule makes such, but a trainer has to follow any."""
    pruner = pruner_of(epochs=len(lengths))
    kept = [BATCH * length for length in lengths]
    engine, pruning = pruner._engine, pruner._engine.pruning

    class Varied(type(pruning)):
        num_pruned = property(lambda self: SAMPLES - kept[min(engine.ledger.next_epoch, len(kept) - 1)])

        def prunes(self, epoch):
            return kept[epoch] < SAMPLES

        def kept_in(self, epoch):
            return kept[epoch]

    pruning.__class__ = Varied
    return pruner


def quiet(folder, kind=TrainingArguments, **options):
    """Arguments of a Trainer on the CPU, which prints and saves nothing."""
    defaults = {
        "learning_rate": 0.01, "per_device_train_batch_size": BATCH, "seed": 1, "use_cpu": True, "save_strategy": "no",
        "dataloader_pin_memory": False, "disable_tqdm": True, "logging_strategy": "no", "report_to": [],
    }  # fmt: skip
    return kind(str(folder), **defaults | options)


def build(pruner, folder, *, trainer=PrunedTrainer, model=None, callbacks=(), dataset=None, **options):
    """A trainer of the pruner's epochs, with a callback that watches: (trainer, watcher)."""
    torch.manual_seed(0)
    model = Net() if model is None else model
    watcher = Watcher(pruner, model)
    made = trainer(
        model=model,
        args=quiet(folder, **{"num_train_epochs": 6 if pruner is None else pruner.schedule.epochs} | options),
        train_dataset=Rows() if dataset is None else dataset,
        eval_dataset=Rows(16),
        callbacks=[watcher, *callbacks],
        pruner=pruner,
    )
    return made, watcher


def joined(pruner, **given):
    """A trainer for :func:`build` that joins by ``wrap``."""
    return pruner.wrap(Trainer(**given))


def weights(trainer):
    """All weights of a trainer's model, or of a model, as one tensor."""
    model = getattr(trainer, "model", trainer)
    return torch.cat([each.detach().flatten() for each in model.parameters()])
