"""``wrap(trainer, pruner)`` of trainers that are already built, stock and foreign, by weight and by leaving out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import IterableDataset, Subset
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainerCallback, TrainingArguments

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import wrap
from prunedata.errors import OtherData, PrunedataError
from prunedata.policies import LossRanked, RunningLoss
from tests.adapters.huggingface.test_sft import tiny
from tests.adapters.huggingface.trainers import (
    BATCH,
    SAMPLES,
    Exact,
    Net,
    Own,
    PrunedTrainer,
    Rows,
    lines,
    margin,
    quiet,
    weights,
)

SCHEDULE = Schedule(4, window=4, start=1, block=2, pruned_per_block=1)
OUT = 28


def run_of(**options):
    return Pruner(SAMPLES, SCHEDULE, **{"prune": OUT, "seed": 3, "leave_out": "weight", **options})


class Stream(IterableDataset):
    """All rows, each with its number as its id, or with a name."""

    def __init__(self, names=range(SAMPLES)):
        self.names = names

    def __iter__(self):
        yield from (Rows()[at] | {"uid": name} for at, name in enumerate(self.names))


def build(folder, kind=Trainer, dataset=None, model=None, **options):
    torch.manual_seed(0)
    arguments = Seq2SeqTrainingArguments if kind is Seq2SeqTrainer else TrainingArguments
    dataset = Rows() if dataset is None else dataset
    given = quiet(folder, arguments, **{"num_train_epochs": 4} | options)
    return kind(model=model or Net(), args=given, train_dataset=dataset)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Trainer, {}),
        (Trainer, {"gradient_accumulation_steps": 5, "dataloader_num_workers": 2}),
        (Trainer, {"max_steps": 30, "num_train_epochs": 1}),
        (Trainer, {"train_sampling_strategy": "group_by_length", "dataset": lines()}),
        (Trainer, {"max_steps": 30, "dataset": Stream()}),
        (Trainer, {"dataloader_drop_last": True, "per_device_train_batch_size": 7}),
        (Seq2SeqTrainer, {}),
        (Own, {}),
    ],
    ids=["plain", "accumulated", "max_steps", "group_by_length", "stream", "drop_last", "seq2seq", "own"],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_where_nothing_is_left_out_the_weights_are_those_of_the_plain_trainer(kind, options, tmp_path):
    plain = build(tmp_path, kind, **options)
    plain.train()
    trainer = build(tmp_path, kind, **options)
    run = run_of(leave_out="nothing")
    stream = isinstance(options.get("dataset"), Stream)
    own = {"sample_losses": margin} if kind is Own else {}
    assert wrap(trainer, run, id="uid" if stream else None, **own) is trainer
    assert isinstance(trainer, kind)
    trainer.train()
    assert torch.equal(weights(plain), weights(trainer))
    steps = trainer.state.max_steps
    assert trainer.state.global_step == steps == plain.state.global_step
    assert run.visits.max() == 4 if "max_steps" not in options else run.next_epoch == 2


class Looks(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_epoch_end(self, args, state, control, model=None, train_dataloader=None, **others):
        with torch.no_grad():
            self.losses += [float(model(**batch)["loss"]) for batch in train_dataloader]


def test_a_callback_calls_the_model_with_the_batches_of_the_loader(tmp_path):
    found = []
    for watched in (False, True):
        trainer = build(tmp_path)
        trainer.add_callback(looks := Looks())
        if watched:
            wrap(trainer, run := run_of(leave_out="nothing"))
        trainer.train()
        found.append(looks.losses)
    assert found[0] == found[1]
    assert (run.visits == 4).all()


@pytest.mark.parametrize("leave_out", ["weight", "delivery"])
def test_the_losses_that_a_trainers_own_class_defines_are_taken(leave_out, tmp_path):
    class Defines(Own):
        def sample_losses(self, outputs, inputs):
            return margin(outputs, inputs)

    found = []
    for kind, own in ((Own, {"sample_losses": margin}), (Defines, {})):
        wrap(build(tmp_path, kind), run := run_of(leave_out=leave_out), **own).train()
        found.append(run)
    assert (found[0].visits == found[1].visits).all()
    np.testing.assert_array_equal(found[0].arrays["mean_excess"], found[1].arrays["mean_excess"])


SMOOTHING = 0.2
LEFT_OUT = {
    "by weight": {},
    "held out": {"leave_out": "delivery", "holdout": 0.3},
    "both": {"holdout": 0.2, "without": np.arange(0, SAMPLES, 9)},
}


def by_hand(kind, smoothing, logits, labels):
    """The loss of each sample, as the trainer's is the mean of."""
    if kind is Own:
        return F.multi_margin_loss(logits, labels, reduction="none")
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses * (1 - smoothing) - smoothing * F.log_softmax(logits, 1).mean(1)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(
    ("kind", "policy", "smoothing"),
    [(Trainer, None, 0), (Trainer, LossRanked(), 0), (Own, None, 0), (Trainer, None, SMOOTHING)],
    ids=["stock", "weighed", "own", "smoothed"],
)
@pytest.mark.parametrize("left_out", LEFT_OUT)
@pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning")
def test_a_step_is_the_mean_over_what_counts_in_it(left_out, kind, policy, smoothing, accumulate, tmp_path):
    run = run_of(**({} if policy is None else {"policy": policy}) | LEFT_OUT[left_out])
    options = {"gradient_accumulation_steps": accumulate, "max_grad_norm": 0.0, "optim": "sgd", "learning_rate": 0.1}
    options |= {"label_smoothing_factor": smoothing, "dataloader_drop_last": True}
    trainer = build(tmp_path, kind, model=Exact(), lr_scheduler_type="constant", **options)
    wrap(trainer, run, **({"sample_losses": margin} if kind is Own else {}))
    order, plain = [], trainer._get_num_items_in_batch

    def look(batches, *args):
        order.append((run.current, [np.asarray(batch["prunedata_ids"]) for batch in batches]))
        return plain(batches, *args)

    trainer._get_num_items_in_batch = look
    trainer.train()
    model, rows = Exact(), Rows()
    for epoch, batches in order:
        total, counting = 0.0, 0
        for ids in batches:
            own = ids if not epoch.zero_weights else ids[epoch.trained[ids]]
            counting += len(own)
            logits = model.linear(rows.points[own].double())
            losses = by_hand(kind, smoothing, logits, rows.labels[own])
            factors = torch.ones(len(own)) if epoch.weights is None else torch.from_numpy(epoch.weights[own])
            total = total + (losses * factors).sum()
        model.zero_grad()
        (total / counting).backward()
        with torch.no_grad():
            for each in model.parameters():
                each.sub_(each.grad, alpha=0.1)
    torch.testing.assert_close(weights(trainer), weights(model), rtol=1e-6, atol=1e-7 if smoothing else 1e-9)
    if left_out == "by weight":
        assert [record["kept"] for record in run.history] == [SAMPLES] * 4
        assert [record.get("by_weight", 0) for record in run.history] == [0, OUT, 0, OUT]
        assert run.visits.sum() == 4 * SAMPLES - 2 * OUT
    else:
        assert [record["held_out"] for record in run.history] == [run.history[0]["held_out"]] * 4


@pytest.mark.parametrize("stop", [5, 12, 17, 24])
def test_it_goes_on_where_it_was_saved(stop, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    runs = [run_of(), run_of()]
    whole = wrap(build(tmp_path, **options), runs[0])
    whole.train()
    again = wrap(build(tmp_path / "again"), runs[1])
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    assert torch.equal(weights(whole), weights(again))
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(runs[0], name), getattr(runs[1], name))
    assert [record["mean_loss"] for record in runs[0].history] == [record["mean_loss"] for record in runs[1].history]


def test_it_joins_by_leaving_out_as_the_mixin_does(tmp_path):
    def trained(join):
        run = run_of(leave_out="delivery")
        torch.manual_seed(0)
        if join:
            trainer = wrap(build(tmp_path), run)
        else:
            made = build(tmp_path)
            trainer = PrunedTrainer(model=made.model, args=made.args, train_dataset=Rows(), pruner=run)
        torch.manual_seed(5)
        trainer.train()
        return weights(trainer), run

    (one, first), (other, second) = trained(True), trained(False)
    assert torch.equal(one, other)
    assert first.visits.tolist() == second.visits.tolist()
    assert [record["kept"] for record in first.history] == [96, 68, 96, 68]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: wrap(Net(), run_of()), "Expected a Trainer of transformers"),
        (lambda folder: wrap(build(folder), 3), "Expected a Pruner"),
        (lambda folder: wrap(wrap(build(folder), run_of()), run_of()), "Got a wrapped one"),
        (lambda folder: wrap(build(folder, Own), run_of()), "Expected sample_losses"),
        (lambda folder: wrap(build(folder, dataset=Rows(7)), run_of()), "Got one of 7"),
        (lambda folder: wrap(build(folder, dataset=Stream(), max_steps=3), run_of()), "Got Stream without id"),
        (lambda folder: wrap(build(folder), run_of(), id="number"), "Expected id for a stream alone"),
        (
            lambda folder: wrap(build(folder), run_of(leave_out="delivery"), id="number"),
            'Expected id with leave_out="weight"',
        ),
        (lambda folder: wrap(build(folder, num_train_epochs=5), run_of()).train(), "Got 4, and 5 passes"),
        (lambda folder: wrap(build(folder, auto_find_batch_size=True), run_of()), "auto_find_batch_size"),
    ],
)
def test_what_is_refused(make, told, tmp_path):
    with pytest.raises(PrunedataError, match=told):
        make(tmp_path)


@pytest.mark.parametrize("leave_out", ["delivery", "weight", "nothing"])
def test_rows_in_another_order_are_noticed(leave_out, tmp_path):
    def run():
        return run_of(leave_out=leave_out, store=tmp_path / "run.zarr", resume=True)

    def trained(dataset=None):
        trainer = run().wrap(build(tmp_path, dataset=dataset, num_train_epochs=4))
        trainer.train()

    trained()
    run().wrap(build(tmp_path))
    with pytest.raises(OtherData, match=r"Got other samples at 30 of the 30 places"):
        run().wrap(build(tmp_path, dataset=Subset(Rows(), [*range(1, SAMPLES), 0])))


# Trainers as Axolotl's and LLaMA-Factory's: with a ``compute_loss`` that passes on to the Trainer's.


FEW, LENGTH = 24, 8


def rows():
    """Tokens that follow a rule, of various length; what is asked has no label."""
    random = np.random.default_rng(0)
    found = []
    for number in range(FEW):
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
        self.run = foreign_run()
        wrap(self, self.run, sample_losses=of_samples)


def foreign_run():
    schedule = Schedule(3, window=3, start=1, block=2, pruned_per_block=1)
    return Pruner(FEW, schedule, prune=6, policy=RunningLoss(), leave_out="weight", seed=2)


def trained(folder, kind, run=None, accumulate=1, **options):
    torch.manual_seed(0)
    given = {"num_train_epochs": 3, "per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulate}
    trainer = kind(model=tiny(), args=quiet(folder, **given), train_dataset=rows())
    if run is not None:
        wrap(trainer, run, **options)
    trainer.train()
    return weights(trainer), run or trainer.run


@pytest.mark.parametrize("accumulate", [1, 2])
def test_they_train_as_the_plain_trainer_of_the_models_own_loss(accumulate, tmp_path):
    """Their loss is divided by the labels of the whole step, which their values show."""
    expected, plain = trained(tmp_path, Trainer, foreign_run(), accumulate)
    assert [record.get("by_weight", 0) for record in plain.history] == [0, 6, 0]
    for kind, run, options in ((Theirs, foreign_run(), {"sample_losses": of_samples}), (JoinsItself, None, {})):
        found, other = trained(tmp_path, kind, run, accumulate, **options)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
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
        trained(tmp_path, Fifth, foreign_run(), 2, sample_losses=of_samples)
    assert trained(tmp_path, Said, foreign_run(), 2, sample_losses=of_samples)[1].next_epoch == 3


class Rates(TrainerCallback):
    """The learning rate and the epoch after each step."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, args, state, control, lr_scheduler, **others):
        self.seen.append((lr_scheduler.get_last_lr()[0], state.epoch))


@pytest.mark.parametrize("accumulate", [1, 5])
@pytest.mark.parametrize("length", [{"num_train_epochs": 4}, {"max_steps": 36}], ids=["epochs", "steps"])
@pytest.mark.parametrize("samples", [SAMPLES - 30, SAMPLES + 30], ids=["fewer", "more"])
def test_with_more_rows_or_fewer_it_goes_on_by_epochs_and_again_from_any_step(samples, length, accumulate, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1, "gradient_accumulation_steps": accumulate} | length
    if accumulate > 1 and "max_steps" in options:
        options["max_steps"] = 8

    def go_on(folder, rows, resume=None, **given):
        trainer = build(tmp_path / folder, dataset=Subset(Rows(SAMPLES + 40), rows), **options)
        trainer.add_callback(rates := Rates())
        run = Pruner(
            len(rows), SCHEDULE, prune="25%", policy=RunningLoss(), seed=3, leave_out="weight",
            keys=[f"row {row}" for row in rows], **given,
        )  # fmt: skip
        wrap(trainer, run)
        trainer.train(resume_from_checkpoint=None if resume is None else str(tmp_path / resume))
        return trainer, run, rates.seen

    def steps(samples):
        return -(-samples // (BATCH * accumulate))

    _, _, before = go_on("first", range(SAMPLES))
    two = 2 * steps(SAMPLES)
    rows = [*range(5, min(samples, SAMPLES) + 5), *range(SAMPLES + 5, samples + 5)]
    trainer, run, after = go_on("moved", rows, f"first/checkpoint-{two}", follow=True)
    total = options.get("max_steps", two + 2 * steps(samples))
    assert trainer.state.global_step == trainer.state.max_steps == total
    assert run.next_epoch == (total - two) // steps(samples) + 2
    assert after[0][1] == pytest.approx(2 + 1 / -(-samples // BATCH) * accumulate)
    rate = np.array([0.01, *(one for one, _ in before[:two]), *(one for one, _ in after)])
    falls = -np.diff(rate)
    assert falls[:two] == pytest.approx(falls[0])
    assert falls[two:] == pytest.approx(falls[-1])  # the rest of it is stretched
    assert rate[-1] == pytest.approx(0, abs=1e-9)
    middle = min(two + steps(samples) - 1, total - 1)
    again, same, seen = go_on("moved", rows, f"moved/checkpoint-{middle}")
    assert torch.equal(weights(again), weights(trainer))
    assert same.visits.tolist() == run.visits.tolist()
    assert seen == after[middle - two :]


def test_a_stream_goes_on_in_any_pass(tmp_path):
    options = {"max_steps": 3 * (SAMPLES // BATCH), "dataset": Stream(), "save_strategy": "steps", "save_steps": 1}
    whole = wrap(build(tmp_path, **options), run_of(), id="uid")
    whole.train()
    for step in (5, 12, 16, 24, 30):
        again = wrap(build(tmp_path / "again", **options), run := run_of(), id="uid")
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert torch.equal(weights(whole), weights(again)), step
        assert run.visits.tolist() == whole.pruner.visits.tolist(), step


@pytest.mark.parametrize("name", ["row {}".format, (2**62).__add__], ids=["names", "numbers"])
def test_a_stream_of_names_or_large_numbers(name, tmp_path):
    names = [name(at) for at in range(SAMPLES)]
    trainer = build(tmp_path, max_steps=2 * SAMPLES // BATCH, dataset=Stream(names))
    run = Pruner(epochs=4, keys=names[::-1], policy=RunningLoss(), leave_out="nothing")
    wrap(trainer, run, id="uid").train()
    assert run.visits.tolist() == [2] * SAMPLES
    with pytest.raises(PrunedataError, match=r"Expected an int as the id|Expected ids from 0 to 95"):
        wrap(build(tmp_path, max_steps=4, dataset=Stream(names)), run_of(), id="uid").train()
