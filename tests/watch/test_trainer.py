"""Scripts with a Trainer of transformers, unchanged: same weights, each loss with its row."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from prunedata.store.run_store import read_run
from tests.watch.watched import (
    BY_HAND,
    STEADY,
    TRAINER,
    TRAINS,
    environment,
    plain,
    rows_told,
    run_both,
    same_by_hand,
    watched,
)

NO_DROPOUT = "hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0"


def test_weights_are_the_unwatched_ones_and_the_rows_those_of_the_users_data(tmp_path):
    done, same = run_both(tmp_path, TRAINER + TRAINS)
    assert same
    assert "watched:" not in done.stderr
    wrong, told = np.load(tmp_path / "wrong.npy"), rows_told(done.stderr)
    assert len(told) == 20
    assert np.isin(told[:10], wrong).sum() >= 8
    assert " pos " in done.stderr
    assert "good" in done.stderr
    assert "prunedata report train.zarr --review" in done.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert run.samples == 150
    assert (run.visits == 2).all()
    again = plain("-m", "prunedata", "suspects", "train.zarr", "--top", "20", "--json", cwd=tmp_path)
    assert {one["row"] for one in json.loads(again.stdout)["suspects"]} == set(told)
    again = plain("-m", "prunedata", "report", "train.zarr", "--review", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"row {told[0]}" in (tmp_path / "review.html").read_text()


@pytest.mark.slow
def test_losses_are_those_of_a_loop_written_by_hand(tmp_path):
    script = TRAINER.replace("learning_rate=0.02", STEADY).replace("num_labels=2", f"num_labels=2, {NO_DROPOUT}")
    begin = "begin = {name: value.clone() for name, value in model.state_dict().items()}"
    same_by_hand(tmp_path, f"{script}\n{begin}\n{TRAINS}", BY_HAND.replace("SHIFTED", "False"))


OWN_LOSS = (
    TRAINER
    + """
from transformers import TrainerCallback

class Looks(TrainerCallback):
    def on_epoch_end(self, args, state, control, train_dataloader=None, **others):
        print([sorted(batch) for batch in train_dataloader], type(train_dataloader))

class Weighted(Trainer):
    def __init__(self, **options):
        super().__init__(callbacks=[Looks()], **options)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 3.0]))
        return (loss, outputs) if return_outputs else loss

KIND = Weighted
"""
    + TRAINS
)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--max-steps", "25"), ("--workers", "2")])
def test_a_loss_of_its_own_steps_and_workers(arguments, tmp_path):
    done, same = run_both(tmp_path, OWN_LOSS, *arguments)
    assert same
    run = read_run(tmp_path / "train.zarr").state
    assert len(run.history) == 2
    assert run.visits.sum() == (198 if "--max-steps" in arguments else 300)
    assert len(rows_told(done.stderr)) == 20


@pytest.mark.slow
def test_live_lists_suspects_after_each_epoch_with_what_they_look_like(tmp_path):
    (tmp_path / "train.py").write_text(TRAINER + TRAINS)
    assert plain("train.py", cwd=tmp_path).returncode == 0
    before = torch.load(tmp_path / "weights.pt")
    done = watched("--live", "--top", "3", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(before, torch.load(tmp_path / "weights.pt"))
    heads = [line for line in done.stderr.splitlines() if line.startswith("prunedata:")]
    assert [head.split(" samples in ")[1].split(" ->")[0] for head in heads] == ["1 epoch", "2 epochs"]
    assert len(rows_told(done.stderr)) == 3
    assert "looks like" in done.stderr


UNKNOWN = (
    TRAINER
    + """
class Unknown(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, labels=None, **inputs):
        logits = self.inner(**inputs).logits
        return {"loss": (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()}

model = Unknown()
arguments.remove_unused_columns = False
"""
    + TRAINS.replace('rows["train"]', 'rows["train"].remove_columns("text")')
)


BY_ONE_OUTPUT = UNKNOWN.replace(
    '{"loss": (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()}',
    '{"loss": torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], (labels > 0).float())}',
).replace('rows["train"].remove_columns("text")', 'list(rows["train"].remove_columns("text"))')


@pytest.mark.slow
def test_two_classes_told_apart_by_one_output_are_known_if_the_model_returns_only_its_loss(tmp_path):
    own = BY_ONE_OUTPUT + "np.save('labels.npy', [row['label'] > 0 for row in rows['train']])\n"
    done, same = run_both(tmp_path, own)
    assert same, done.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert np.array_equal(run.arrays["label"] - 2, np.load(tmp_path / "labels.npy"))
    assert "looks like" in done.stderr


IN_ITS_ORDER = "data_collator=DataCollatorWithPadding(tokenizer)"
SORTS = TRAINER + TRAINS.replace(
    IN_ITS_ORDER,
    """data_collator=lambda rows: DataCollatorWithPadding(tokenizer)(
    sorted(rows, key=lambda row: row["label"])
)""",
)


OTHER_ROWS = TRAINER + """
class Selects(Trainer):
    def get_train_dataloader(self):
        selected = self.train_dataset.SELECTED.remove_columns("text")
        return torch.utils.data.DataLoader(selected, batch_size=8, shuffle=True, collate_fn=self.data_collator)

KIND = Selects
""" + TRAINS  # fmt: skip
NO_DATA = OTHER_ROWS.replace("self.train_dataset.SELECTED", 'rows["train"]')
NO_DATA = NO_DATA.replace('train_dataset=rows["train"], ', "")
DROPS = TRAINER + TRAINS.replace(
    IN_ITS_ORDER,
    """data_collator=lambda rows: DataCollatorWithPadding(tokenizer)(
    [row for row in rows if row["input_ids"][0] % 8]
)""",
)


@pytest.mark.parametrize(("script", "why"), [
    (UNKNOWN, "watched no longer: its model returns no logits"),
    (SORTS, "watched no longer: its collate function changes"),
    (OTHER_ROWS.replace("SELECTED", "select(range(9, 150))"), "watched no longer: Expected get_train_dataloader to"),
    (OTHER_ROWS.replace("SELECTED", "shuffle(seed=1)"), "watched no longer: Expected get_train_dataloader to"),
    (NO_DATA, "not watched: Selects has no train_dataset: pass"),
    (DROPS, "watched no longer: Expected a loss for each of 8 samples of a batch"),
])  # fmt: skip
def test_what_cannot_be_watched_is_said_once_and_trains_on(script, why, tmp_path):
    done, same = run_both(tmp_path, script)
    assert same
    assert done.stderr.count(f"prunedata: {why}") == 1
    assert done.stderr.count("prunedata:") == 1
    assert not list(tmp_path.glob("*.zarr"))  # the first epoch was not recorded to its end


FAILS = (
    TRAINER
    + """
class Fails(Trainer):
    def training_step(self, *args, **options):
        if self.state.global_step == 20:
            raise ArithmeticError("no more")
        return super().training_step(*args, **options)

KIND = Fails
os.makedirs("deep", exist_ok=True)
os.chdir("deep")
"""
    + TRAINS
)


def frames(stderr):
    return [line for line in stderr.splitlines() if line.lstrip().startswith("File ")]


@pytest.mark.slow
def test_one_that_fails_shows_its_own_traceback_and_what_was_seen(tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    one = plain("train.py", cwd=tmp_path)
    other = watched("train.py", "--max-steps", "30", cwd=tmp_path)
    assert one.returncode == other.returncode == 1
    assert other.stderr.index("ArithmeticError: no more") < other.stderr.index("the 20 most suspect")
    assert frames(one.stderr) == frames(other.stderr)
    run = read_run(tmp_path / "train.zarr").state  # where the command was given, though the script left that folder
    assert run.visits.sum() == 158
    assert f"-> {tmp_path / 'train.zarr'}" in other.stderr


FORKS = (
    TRAINER
    + """
class Forks(Trainer):
    def training_step(self, *args, **options):
        if self.state.global_step == 20 and not os.fork():
            sys.exit(0)
        return super().training_step(*args, **options)

KIND = Forks
"""
    + TRAINS
)


@pytest.mark.slow
def test_a_child_that_ends_within_the_training_says_nothing(tmp_path):
    done, same = run_both(tmp_path, FORKS)
    assert same
    assert done.stderr.count("prunedata:") == 1, done.stderr
    assert (read_run(tmp_path / "train.zarr").state.visits == 2).all()


@pytest.mark.slow
def test_an_interrupted_one_keeps_what_it_saw(tmp_path):
    slow = TRAINS.replace(
        "trainer.train()", "print('on', flush=True); arguments.num_train_epochs = 2000; trainer.train()"
    )
    (tmp_path / "train.py").write_text(TRAINER + slow)
    command = [sys.executable, "-m", "prunedata", "watch", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as program:  # fmt: skip
        while program.stdout.readline() != "on\n":
            pass
        while not (tmp_path / "train.zarr" / "visits-0").exists():
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        output = program.communicate()[1]
    assert program.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in output
    assert len(rows_told(output)) == 20
    assert os.fspath(tmp_path / "train.zarr")
    assert read_run(tmp_path / "train.zarr").state.visits.sum() >= 150


@pytest.mark.slow
def test_doubted_samples_are_left_out_where_that_is_asked_for(tmp_path):
    (tmp_path / "train.py").write_text(TRAINER.replace("num_train_epochs=2", "num_train_epochs=12") + TRAINS)
    done = watched("-o", "runs", "--leave-out", "--top", "3", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(rows_told(done.stderr)) == 3
    run = read_run(tmp_path / "runs" / "train.zarr").state
    assert run.run["leave_out"] == "weight"
    assert run.labels is not None
    assert run.history[-1]["by_weight"] > 0
    left_out = torch.load(tmp_path / "weights.pt")
    by_hand = TRAINS.replace("trainer.train()", "Pruner(epochs=12, leave_out='weight').wrap(trainer).train()")
    by_hand = "from prunedata import Pruner\n" + by_hand.replace("assert type(trainer) is KIND", "")
    (tmp_path / "hand.py").write_text(TRAINER.replace("num_train_epochs=2", "num_train_epochs=12") + by_hand)
    hand = plain("hand.py", cwd=tmp_path)
    assert hand.returncode == 0, hand.stderr
    assert torch.equal(left_out, torch.load(tmp_path / "weights.pt"))


TWICE = (
    TRAINER
    + TRAINS.replace('train_dataset=rows["train"]', "train_dataset=Drawn()")
    + """
trainer.train()
torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), "weights.pt")
"""
)
DRAWN = """
import random as pythons

class Drawn(torch.utils.data.Dataset):
    def __init__(self):
        own = np.random.default_rng(0), pythons.Random(0), torch.Generator(), np.random.RandomState(0)
        self.own = {"drawing": lambda: int(own[0].integers(2) + own[1].randint(0, 1) + own[3].randint(2)
                                           + torch.randint(2, (), generator=own[2])) // 2}

    def __len__(self):
        return 40

    def __getitem__(self, place):
        row = {name: rows["train"][place][name] for name in ("input_ids", "label")}
        drop = int(torch.randint(2, ())) + np.random.randint(2) + pythons.randint(0, 1)
        drop = (drop + self.own["drawing"]()) // 2
        return row | {"input_ids": row["input_ids"][: 4 - drop]}
"""


@pytest.mark.slow
def test_samples_that_are_read_for_previews_draw_no_random_numbers_of_the_scripts(tmp_path):
    done, same = run_both(tmp_path, TWICE.replace("trainer = KIND", f"{DRAWN}\ntrainer = KIND", 1))
    assert same
    assert "watched:" not in done.stderr
    assert len(rows_told(done.stderr)) == 20
    assert [path.name for path in sorted(tmp_path.glob("*.zarr"))] == ["train-2.zarr", "train.zarr"]


CAPTURED = (
    TRAINER
    + """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, labels=None, **inputs):
        loss = torch.nn.CrossEntropyLoss()(self.inner(**inputs).logits, labels)
        return {"loss": 2 * loss + torch.nn.L1Loss()(self.inner.classifier.weight, torch.zeros(2, 16)) / 1e3}

model = Scaled()
arguments.remove_unused_columns = False
"""
    + TRAINS.replace('rows["train"]', 'rows["train"].remove_columns("text")')
)


@pytest.mark.slow
def test_a_model_that_returns_its_loss_alone_is_watched_by_the_loss_functions_that_it_calls(tmp_path):
    done, same = run_both(tmp_path, CAPTURED)
    assert same
    assert done.stderr.count("prunedata: the losses do not include l1_loss:") == 1
    assert "watched" not in done.stderr.replace("prunedata watch", "")
    assert np.isin(rows_told(done.stderr)[:10], np.load(tmp_path / "wrong.npy")).sum() >= 8
    assert (read_run(tmp_path / "train.zarr").state.visits == 2).all()


@pytest.mark.slow
def test_a_step_with_a_loss_and_logits_that_are_nan_is_watched_on(tmp_path):
    """As where float16 overflows, and a GradScaler leaves the step out."""
    overflows = """
class Kind(Trainer):
    def compute_loss(self, *args, **options):
        if self.state.global_step != 3:
            return super().compute_loss(*args, **options)
        spoils = self.model.classifier.register_forward_hook(
            lambda module, given, out: out.index_fill(0, torch.tensor([0]), torch.nan)
        )
        loss = super().compute_loss(*args, **options)
        spoils.remove()
        return torch.nan_to_num(loss)

KIND = Kind
"""
    done, same = run_both(tmp_path, TRAINER + overflows + TRAINS)
    assert same, done.stderr
    assert "watched no longer" not in done.stderr
    assert (read_run(tmp_path / "train.zarr").state.visits == 2).all()


SEARCHES = (
    TRAINER.replace("num_train_epochs=2", "num_train_epochs=1")
    + """
import copy
models = []
def made():
    models.append(copy.deepcopy(model))
    return models[-1]

trainer = Trainer(model_init=made, args=arguments, train_dataset=rows["train"],
                  eval_dataset=rows["test"], data_collator=DataCollatorWithPadding(tokenizer))
trainer.hyperparameter_search(lambda trial: {"num_train_epochs": trial.suggest_int("epochs", 3, 3)}, n_trials=1)
assert "_hp_search_setup" not in vars(trainer)
torch.save(torch.cat([each.detach().flatten() for each in models[-1].parameters()]), "weights.pt")
"""
)


@pytest.mark.slow
def test_a_trial_of_a_search_is_watched_for_as_many_epochs_as_it_has(tmp_path):
    pytest.importorskip("optuna")
    done, same = run_both(tmp_path, SEARCHES)
    assert same
    assert "watched no longer" not in done.stderr
    assert (read_run(tmp_path / "train.zarr").state.visits == 3).all()
