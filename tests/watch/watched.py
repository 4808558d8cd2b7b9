"""Scripts as people have them, run by Python and by ``prunedata watch``."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from prunedata.store.run_store import read_run

__all__ = ["BY_HAND", "ROOT", "STEADY", "TRAINER", "TRAINS", "environment", "plain", "python_of", "rows_told",
           "run_both", "same_by_hand", "watched"]  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = Path(os.environ.get("PRUNEDATA_ENVIRONMENTS", ROOT / ".venv"))
"""Where the environments lie of what cannot be installed beside the rest."""
TRAINER = """
import argparse, os, sys
import numpy as np, torch
from datasets import ClassLabel, Dataset, Features, Value
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast
from transformers import Trainer, TrainingArguments

options = argparse.ArgumentParser()
options.add_argument("--max-steps", type=int, default=-1)
options.add_argument("--workers", type=int, default=0)
options = options.parse_args()
random = np.random.default_rng(0)
words = ["<pad>", "<unk>", *(f"{kind}{n}" for kind in ("good", "bad", "the") for n in range(20))]
tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")
right = random.integers(0, 2, 200)
def text(kind):
    return " ".join([f"the{random.integers(20)}", *(f"{kind}{random.integers(20)}" for _ in range(3))])

texts = [text(("bad", "good")[one]) for one in right]
wrong = random.random(200) < 0.1
labels = np.where(wrong, 1 - right, right)
rows = Dataset.from_dict({"text": texts, "label": labels.tolist()},
                         features=Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])}))
rows = rows.train_test_split(0.25, seed=0).map(lambda batch: tokenizer(batch["text"]), batched=True)
torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(
    vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    num_labels=2,
))
arguments = TrainingArguments(
    "out", num_train_epochs=2, max_steps=options.max_steps, per_device_train_batch_size=8, learning_rate=0.02,
    report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, dataloader_num_workers=options.workers,
)
KIND = Trainer
"""
TRAINS = """
trainer = KIND(model=model, args=arguments, train_dataset=rows["train"], processing_class=tokenizer,
               data_collator=DataCollatorWithPadding(tokenizer))
trainer.train()
torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), "weights.pt")
np.save("wrong.npy", np.flatnonzero(wrong))
assert type(trainer) is KIND
"""
STEADY = "learning_rate=0.02, optim='sgd', lr_scheduler_type='constant', max_grad_norm=0.0"
"""Arguments of a Trainer for those of :data:`BY_HAND`; its model is to have no dropout."""
BY_HAND = """
import torch.nn.functional as F
from transformers import set_seed

model.load_state_dict(begin)
model.train()
set_seed(42)
sampler = trainer.get_train_dataloader().batch_sampler.sampler
optimizer, step = torch.optim.SGD(model.parameters(), 0.02), 8 * trainer.args.gradient_accumulation_steps
names, seen = ("input_ids", "attention_mask", "label", "labels"), []
for epoch in range(trainer.args.num_train_epochs):
    sampler.set_epoch(epoch)
    order = list(sampler)
    for places in (order[at : at + step] for at in range(0, len(order), step)):
        losses, total, labeled = [], 0, 0
        for batch in (places[at : at + 8] for at in range(0, len(places), 8)):
            rows = [trainer.train_dataset[place] for place in batch]
            given = trainer.data_collator([{name: row[name] for name in names if name in row} for row in rows])
            labels, logits = given.pop("labels"), model(**given).logits
            if logits.ndim == 3:
                said = slice(None, -1) if SHIFTED else slice(None)
                labels, logits = labels[:, 1 if SHIFTED else 0 :], logits[:, said].transpose(1, 2)
            each, own = F.cross_entropy(logits, labels, reduction="none").view(len(rows), -1), labels != -100
            own = own.view(len(rows), -1)
            losses += (each.sum(1) / own.sum(1)).tolist()
            total, labeled = total + each.sum(), labeled + own.sum()
        seen += zip(places, losses - np.mean(losses))
        optimizer.zero_grad()
        (total / labeled).backward()
        optimizer.step()
np.save("visits.npy", np.bincount([place for place, _ in seen]))
np.save("expected.npy", np.bincount(*zip(*((place, excess) for place, excess in seen))) / np.load("visits.npy"))
torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), "by-hand.pt")
"""
"""Trains as a script's ``trainer`` did, in a loop of its own, from the weights in ``begin``."""


def environment(**more):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**os.environ, **quiet, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def python_of(name):
    """The Python of an environment of its own; :func:`plain` skips the test where there is none."""
    return os.fspath(ENVIRONMENTS / name / "bin" / "python")


def plain(*command, cwd, python=(), by=sys.executable, **more):
    if not os.path.exists(by):
        pytest.skip(f"no {by}: make test-trainers installs it, on Linux on x86_64")
    return subprocess.run([by, *python, *command], cwd=cwd, env=environment(**more), capture_output=True,
                          text=True, timeout=240, check=False)  # fmt: skip


def watched(*command, cwd, **more):
    return plain("-m", "prunedata", "watch", *command, cwd=cwd, **more)


def run_both(folder, script, *arguments, command=("train.py",), **options):
    """Run a script by Python and watched; return what came of it watched, and whether the weights are the same."""
    (folder / "train.py").write_text(script)
    one = plain(*command, *arguments, cwd=folder, **options)
    assert one.returncode == 0, one.stderr
    before = torch.load(folder / "weights.pt")
    (folder / "weights.pt").unlink()
    other = watched(*command, *arguments, cwd=folder, **options)
    assert other.returncode == 0, other.stderr
    assert other.stdout == one.stdout or any(timed in one.stdout for timed in ("it/s", "time"))
    return other, torch.equal(before, torch.load(folder / "weights.pt"))


def same_by_hand(folder, script, by_hand):
    """Train watched, which is returned, and by hand; compare weights, and each sample's losses by its row."""
    done, same = run_both(folder, script)
    assert same, done.stderr
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    (folder / "hand.py").write_text(script + by_hand)
    hand = plain("hand.py", cwd=folder)
    assert hand.returncode == 0, hand.stderr
    weights = torch.load(folder / "by-hand.pt")
    torch.testing.assert_close(torch.load(folder / "weights.pt"), weights, rtol=1e-6, atol=1e-6)
    run = read_run(folder / "train.zarr").state
    np.testing.assert_array_equal(run.visits, np.load(folder / "visits.npy"))
    np.testing.assert_allclose(run.mean_excess, np.load(folder / "expected.npy"), rtol=1e-6, atol=1e-6)
    return done


def rows_told(output):
    """The rows that a watched program listed when it ended, the most suspect first."""
    lines = output.splitlines()
    head = next(at for at, line in enumerate(lines) if line.split()[:2] == ["row", "excess"])
    ends = next(at for at in range(head, len(lines)) if lines[at].startswith("to look at them"))
    return [int(line.split()[0]) for line in lines[head + 1 : ends]]
