"""What must not be learnt leaves no trace: its labels are poisoned, and the weights stay the same, bit for bit."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset, IterableDataset
from transformers import Trainer

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import PruneTrainerMixin, wrap
from prunedata.policies import DroppingCount, LossRanked, Random
from tests.adapters.huggingface.by_weight import test_sft
from tests.adapters.huggingface.test_sft import WORDS, questions
from tests.adapters.huggingface.trainers import Own, PrunedTrainer, margin, quiet, weights

SAMPLES, EPOCHS = 50, 3
SCHEDULE = Schedule(EPOCHS, window=EPOCHS, start=1, block=2, pruned_per_block=1)
LEFT_OUT = {
    "held out": {"holdout": 0.3},
    "by weight": {"leave_out": "weight", "policy": Random()},
    "for good": {"leave_out": "weight", "without": np.arange(0, SAMPLES, 3)},
    "for good, never pruned": {"leave_out": "weight", "policy": "auto", "without": np.arange(0, SAMPLES, 3)},
    "held out by weight": {"leave_out": "weight", "holdout": 0.2, "without": np.arange(0, SAMPLES, 7)},
    "weighed": {"holdout": 0.2, "policy": LossRanked()},
    "weighed by weight": {"leave_out": "weight", "holdout": 0.2, "policy": LossRanked()},
}
MODES = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 4},
    "bf16": {"bf16": True},
    "resumed": {"save_strategy": "steps", "save_steps": 1, "gradient_accumulation_steps": 2},
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Label smoothing"),
    pytest.mark.filterwarnings("ignore:Expected a validation figure in each epoch:prunedata.errors.NeverPrunesWarning"),
]


def run_of(what):
    options = {"prune": 14, "seed": 3, "policy": DroppingCount()} | LEFT_OUT[what]
    return Pruner(SAMPLES, SCHEDULE, **options)


class Poisoned(Dataset):
    """Points whose labels are wrong as long as the open epoch must not learn them."""

    def __init__(self, run, *, poisons):
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(SAMPLES, 4, generator=generator)
        self.labels = (self.points.sum(1) > 0).long() + (self.points[:, 0] > 0.5).long()
        self.run, self.poisons, self.poisoned = run, poisons, 0

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        wrong = int(self.poisons and not self.run.current.trained[number])
        self.poisoned += wrong
        return {"points": self.points[number], "labels": (self.labels[number] + wrong) % 3}


class Net(torch.nn.Module):
    """With dropout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3)
        )
        self.config = type("Config", (), {"problem_type": None, "use_cache": False})()

    def forward(self, points, labels=None):
        logits = self.layers(points)
        return {"logits": logits} | ({} if labels is None else {"loss": F.cross_entropy(logits, labels)})


class MixedOwn(PruneTrainerMixin, Own):
    """The same with a loss of one's own."""

    def sample_losses(self, outputs, inputs):
        return margin(outputs, inputs)


def trainer_of(folder, run, dataset, *, own=False, mixes=False, id=None, **options):
    options = {"per_device_train_batch_size": 4, "num_train_epochs": EPOCHS, "learning_rate": 0.02} | options
    given = {"model": Net(), "args": quiet(folder, **options), "train_dataset": dataset}
    if mixes:
        return (MixedOwn if own else PrunedTrainer)(**given, pruner=run)
    return wrap((Own if own else Trainer)(**given), run, id=id, sample_losses=margin if own else None)


def trained(folder, what, *, poisons, resume=None, **options):
    """The weights, and the run, after training."""
    run = run_of(what)
    dataset = Poisoned(run, poisons=poisons)
    trainer = trainer_of(folder, run, dataset, **options)
    trainer.train(resume_from_checkpoint=resume)
    assert bool(dataset.poisoned) == poisons
    return weights(trainer), run


def holds(folder, what, mode, **options):
    options |= MODES[mode]
    clean, run = trained(folder / "clean", what, poisons=False, **options)
    poisoned, other = trained(folder / "poisoned", what, poisons=True, **options)
    assert torch.equal(clean, poisoned)
    assert run.visits.tolist() == other.visits.tolist()
    assert run.counts.tolist() == other.counts.tolist()
    if run.holdout is not None:  # their losses were looked at, and say that labels are wrong
        assert all(
            record["validation"] > poison["validation"]
            for record, poison in zip(run.history, other.history, strict=True)
        )
    if mode == "resumed":
        path = folder / "poisoned" / "checkpoint-4"
        again, _ = trained(folder / "again", what, poisons=True, resume=str(path), **options)
        assert torch.equal(clean, again)


QUICK = {("held out", "accumulated"), ("by weight", "resumed"), ("for good", "plain"), ("weighed", "plain")}
QUICK |= {("for good, never pruned", "accumulated")}


def cases():
    """All that goes together: the mixin shortens epochs, and policies weigh cross entropies alone."""
    for what, options in LEFT_OUT.items():
        for mode in MODES:
            several = mode == "accumulated" and not what.startswith("weighed")
            for loss in ("stock", "smoothed", "own") if several else ("stock",):
                for mixes in (False,) if "leave_out" in options else (True, False):
                    quick = (what, mode) in QUICK and not (loss == "smoothed" and not mixes)
                    name = f"{what}-{mode}-{loss}-{'mixin' if mixes else 'prune'}"
                    yield pytest.param(what, mode, loss, mixes, id=name, marks=[] if quick else pytest.mark.slow)


@pytest.mark.parametrize(("what", "mode", "loss", "mixes"), list(cases()))
def test_poisoned_labels_leave_no_trace(what, mode, loss, mixes, tmp_path):
    options = {"label_smoothing_factor": 0.2} if loss == "smoothed" else {}
    holds(tmp_path, what, mode, own=loss == "own", mixes=mixes, **options)


class Stream(Poisoned, IterableDataset):
    """The same as a stream, with an id that is no position."""

    def __iter__(self):
        for number in np.random.default_rng(5).permutation(SAMPLES).tolist():
            yield self[number] | {"uid": number}


@pytest.mark.parametrize("what", ["by weight", "for good", "held out by weight"])
def test_poisoned_labels_in_a_stream_leave_no_trace(what, tmp_path):
    found = []
    for poisons in (False, True):
        run = run_of(what)
        stream = Stream(run, poisons=poisons)
        trainer = trainer_of(tmp_path, run, stream, id="uid", max_steps=24, per_device_train_batch_size=5)
        trainer.train()
        assert bool(stream.poisoned) == poisons
        found.append((weights(trainer), run.visits.tolist()))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


# -- tokens


def poison(trainer, run):
    """Let a trainer see other labels of what must not be learnt; returns a list of how many they were."""
    count, found = trainer._get_num_items_in_batch, []

    def look(batches, *args):
        for batch in batches:
            epoch, ids = run.current, np.asarray(batch["prunedata_ids"])
            out = torch.from_numpy(~epoch.trained[ids])
            if "position_ids" in batch:  # packed: which of the row's samples a token is of
                out = out[((batch["position_ids"] == 0).cumsum(-1) - 1).clamp(max=len(ids) - 1)]
            labels = batch["labels"]
            other = torch.where(labels == -100, labels, (labels + 3) % len(WORDS))
            batch["labels"] = torch.where(out.view(-1, 1) if out.ndim == 1 else out, other, labels)
            found.append(int((batch["labels"] != labels).sum()))
        return count(batches, *args)

    trainer._get_num_items_in_batch = look
    return found


SFT = {
    "plain": {"gradient_accumulation_steps": 2},
    "dft": {"loss_type": "dft"},
    "smoothed": {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2},
    "packed": {"packing": True, "max_length": 24},
    "packed dft": {"packing": True, "max_length": 24, "loss_type": "dft", "gradient_accumulation_steps": 2},
    "packed smoothed": {"packing": True, "max_length": 24, "label_smoothing_factor": 0.1},
}
SOON = {("held out", "dft"), ("held out by weight", "packed"), ("held out", "smoothed")}
CHOSEN = [
    pytest.param(what, name, marks=[] if (what, name) in SOON else pytest.mark.slow)
    for what in ("held out", "for good", "held out by weight")
    for name in SFT
    if what != "held out" or "packed" not in name
]


@pytest.mark.parametrize(("what", "name"), CHOSEN)
@pytest.mark.filterwarnings("ignore:Padding-free training is enabled:UserWarning")
@pytest.mark.filterwarnings("ignore:.*flash.*:UserWarning")
def test_poisoned_answers_leave_no_trace(what, name, tmp_path):
    found = []
    for poisons in (False, True):
        run = run_of(what)
        dataset = questions()[0].select(range(SAMPLES))
        trainer = wrap(test_sft.build(tmp_path / str(poisons), dataset, **SFT[name]), run)
        poisoned = poison(trainer, run) if poisons else [1]
        trainer.train()
        assert sum(poisoned) > 0
        found.append((weights(trainer), run.visits.tolist(), [record.get("validation") for record in run.history]))
    (clean, visits, figures), (other, same, others) = found
    assert torch.equal(clean, other)
    assert visits == same
    if run.holdout is not None:
        assert all(figure != wrong for figure, wrong in zip(figures, others, strict=True))
