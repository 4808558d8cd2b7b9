"""TRL's SFTTrainer by weight: packed samples have the losses that they have alone, and what is left out no part."""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
import torch
import trl
from datasets import Dataset, IterableDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import wrap
from prunedata.adapters.huggingface.ids import packed_starts
from prunedata.errors import OtherData, PrunedataError
from prunedata.policies import RunningLoss
from tests.adapters.huggingface.test_sft import questions, sft, tiny, tokenizer
from tests.adapters.huggingface.trainers import weights

ROWS = 40
SCHEDULE = Schedule(3, window=3, start=1, block=2, pruned_per_block=1)
pytestmark = [
    pytest.mark.filterwarnings("ignore:Padding-free training is enabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*flash.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning"),
]


def build(folder, dataset=None, **options):
    dataset = questions()[0].select(range(ROWS)) if dataset is None else dataset
    return sft(folder, dataset, **{"num_train_epochs": 3, "per_device_train_batch_size": 2} | options)


def run_of(samples=ROWS, **options):
    return Pruner(
        samples, SCHEDULE, **{"prune": 10, "policy": RunningLoss(), "leave_out": "weight", "seed": 2, **options}
    )


def observed(trainer, run):
    """Train, and return the losses that were observed: of each epoch one for each sample."""
    found, add = [], trainer._run.recorder.add

    def look(ids, losses, *said):
        if run.next_epoch == len(found):
            found.append(np.full(run.samples, np.nan))
        found[-1][ids] = losses.numpy()
        add(ids, losses, *said)

    trainer._run.recorder.add = look
    trainer.train()
    return found


def rows_of(trainer):
    """The tokens of each sample of a packed dataset, and its labels."""
    rows = []
    for row in trainer.train_dataset:
        edges = np.cumsum([0, *row["seq_lengths"]])
        rows += [(row["input_ids"][first:last], row["labels"][first:last]) for first, last in pairwise(edges)]
    return rows


@pytest.mark.parametrize("options", [{"packing": True, "max_length": 24}, {"padding_free": True, "max_length": None}])
def test_each_packed_sample_has_the_loss_that_it_has_alone(options, tmp_path):
    trainer = build(tmp_path, learning_rate=0.0, **options)
    wrap(trainer, run := run_of())
    if options.get("packing"):
        assert packed_starts(trainer.train_dataset)[-1] == ROWS > len(trainer.train_dataset)
    rows = (
        rows_of(trainer) if options.get("packing") else [(r["input_ids"], r["labels"]) for r in trainer.train_dataset]
    )
    found, model = observed(trainer, run), trainer.model.eval()
    for number, (tokens, labels) in enumerate(rows):
        with torch.no_grad():
            alone = model(torch.tensor([tokens]), labels=torch.tensor([labels])).loss.item()
        assert found[0][number] == pytest.approx(alone, abs=1e-5)
    assert run.visits.sum() == 2 * ROWS + ROWS - 10


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("options", [{}, {"packing": True, "max_length": 24}], ids=["padded", "packed"])
def test_a_step_is_the_mean_over_the_tokens_that_count(options, smoothing, accumulate, tmp_path):
    """By hand: the same batches, of which the labels of what is left out were taken away one by one."""
    more = {"gradient_accumulation_steps": accumulate, "label_smoothing_factor": smoothing, "max_grad_norm": 0.0}
    more |= {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}
    trainer = build(tmp_path / "one", **options, **more)
    wrap(trainer, run := run_of())
    steps, count = [], trainer._get_num_items_in_batch

    def look(batches, *args):
        ids = [np.array(batch["prunedata_ids"]) for batch in batches]
        steps.append([run.current.trained, [dict(batch) for batch in batches], ids])
        return count(batches, *args)

    trainer._get_num_items_in_batch = look
    trainer.train()
    plain = build(tmp_path / "two", **options, **more)
    plain.create_optimizer()
    for counted, batches, ids in steps:
        for batch, own in zip(batches, ids, strict=True):
            del batch["prunedata_ids"]
            flat, owner = batch["labels"], None
            if "position_ids" in batch:
                owner = own[(batch["position_ids"][0] == 0).cumsum(0) - 1]
            for row in range(flat.shape[0]):
                for place in range(flat.shape[1]):
                    sample = owner[place] if owner is not None else own[row]
                    if not counted[int(sample)]:
                        flat[row, place] = -100
        items = max(1, int(sum((batch["labels"][..., 1:] != -100).sum() for batch in batches)))
        plain.current_gradient_accumulation_steps = len(batches)
        for batch in batches:
            if (batch["labels"] != -100).any():
                plain.training_step(plain.model, batch, torch.tensor(items))
        plain.optimizer.step()
        plain.optimizer.zero_grad()
    torch.testing.assert_close(weights(trainer), weights(plain), rtol=1e-4, atol=1e-6)
    assert [record.get("by_weight", 0) for record in run.history] == [0, 10, 0]


def test_packed_runs_without_a_sample_left_out_are_those_of_the_plain_trainer(tmp_path):
    made = [build(tmp_path / name, packing=True, max_length=24, gradient_accumulation_steps=2) for name in "ab"]
    wrap(made[0], run_of(leave_out="nothing"))
    for each in made:
        each.train()
    assert torch.equal(weights(made[0]), weights(made[1]))


def test_a_packed_run_goes_on_where_it_was_saved(tmp_path):
    options = {"packing": True, "max_length": 24}
    whole = wrap(build(tmp_path, save_strategy="steps", save_steps=1, **options), run_of())
    whole.train()
    again = wrap(build(tmp_path / "again", **options), run_of())
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert torch.equal(weights(whole), weights(again))
    assert whole.pruner.visits.tolist() == again.pruner.visits.tolist()


def test_another_packed_dataset_is_noticed(tmp_path):
    rows, store = questions()[0], tmp_path / "run.zarr"
    for first in (0, 0, 40):
        trainer = build(tmp_path, rows.select(range(first, first + ROWS)), packing=True, max_length=24)
        with pytest.raises(OtherData, match="at 30 of the 30 places") if first else nullcontext():
            wrap(trainer, Pruner(ROWS, SCHEDULE, leave_out="nothing", store=store, resume=True)).pruner.commit()


def test_a_stream_of_tokens(tmp_path):
    rows = [{**row, "uid": number} for number, row in enumerate(questions()[0].select(range(ROWS)))]
    dataset = IterableDataset.from_generator(lambda: iter(rows))
    trainer = build(tmp_path, dataset, max_steps=50)
    wrap(trainer, run := run_of(), id="uid")
    trainer.train()
    assert run.next_epoch == 2
    assert [record["observed"] for record in run.history] == [ROWS, ROWS - 10]


def test_pairs_are_refused_with_the_reason(tmp_path):
    pairs = Dataset.from_dict({"prompt": ["what"] * 8, "chosen": [" colour1"] * 8, "rejected": [" colour2"] * 8})
    config = trl.DPOConfig(str(tmp_path), report_to=[], use_cpu=True, bf16=False)
    trainer = trl.DPOTrainer(
        model=tiny(), ref_model=tiny(), args=config, train_dataset=pairs, processing_class=tokenizer()
    )
    with pytest.raises(PrunedataError, match="DPOTrainer"):
        wrap(trainer, run_of(8, prune=2))


def test_one_that_is_made_from_sfttrainer_and_generates_answers_is_refused(tmp_path):
    trainer = build(tmp_path)
    theirs = type("GKDTrainer", (trl.SFTTrainer,), {"__module__": "trl.experimental.gkd.gkd_trainer"})
    trainer.__class__ = type("Mine", (theirs,), {})
    with pytest.raises(PrunedataError, match="GKDTrainer"):
        wrap(trainer, run_of())


@pytest.mark.parametrize(
    ("options", "samples", "told"),
    [
        (
            {"packing": True, "max_length": 24},
            7,
            rf"Got one of {ROWS} in \d+ packed rows: build the Pruner with {ROWS}",
        ),
        (
            {"packing": True, "max_length": 24, "packing_strategy": "wrapped"},
            ROWS,
            "which cuts samples across rows",
        ),
        ({"max_length": 6}, ROWS, r"Got one of 2\d: .* SFTTrainer drops samples of which max_length leaves no label"),
        ({"packing": True, "max_length": 24}, ROWS + 1, "max_length leaves no label"),
    ],
)
def test_what_is_refused(options, samples, told, tmp_path):
    with pytest.raises(PrunedataError, match=told):
        wrap(build(tmp_path, **options), run_of(samples, prune=3))
