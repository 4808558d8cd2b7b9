"""Stock heads whose loss is no cross entropy of classes, and what a model takes samples for."""

import datasets
import numpy as np
import pytest
import torch
import transformers
from transformers import Trainer

from prunedata import Pruner, Schedule
from prunedata.adapters.huggingface import wrap
from prunedata.adapters.huggingface.losses import FAR, ignored_labels, logits_of, losses_and_counts
from prunedata.errors import LossError, PrunedataError
from prunedata.policies import Random
from prunedata.run.frameworks import labels_in
from tests.adapters.huggingface.test_stock import ENCODER, LENGTH, SIZES, WORDS
from tests.adapters.huggingface.trainers import (
    SAMPLES,
    Net,
    PrunedTrainer,
    Rows,
    build,
    joined,
    pruner_of,
    quiet,
    weights,
)

# Stock heads whose loss is no cross entropy of classes: each sample's loss is what the head's own is the mean of.


EACH, RATE, VOID = 18, 0.05, 255
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = ENCODER | STILL | {"initializer_range": 0.5}  # so that losses differ
SPEECH = SIZES | {
    "intermediate_size": 8, "conv_dim": (4, 4), "conv_stride": (2, 2), "conv_kernel": (3, 3), "num_feat_extract_layers":
    2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "hidden_dropout": 0.0, "layerdrop": 0.0,
    "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0, "final_dropout": 0.0,
    "mask_time_prob": 0.0, "pad_token_id": 0, "feat_extract_norm": "layer",
}  # fmt: skip
PICTURES = {
    "num_labels": 3, "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [1, 1], "hidden_sizes": [8, 8],
    "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 1], "mlp_ratios": [1, 1],
    "decoder_hidden_size": 8, "drop_path_rate": 0.0, "classifier_dropout_prob": 0.0, "initializer_range": 0.5, **STILL,
}  # fmt: skip
HEADS = {
    "one number": ("BertForSequenceClassification", "BertConfig", BERT | {"num_labels": 1}),
    "numbers": ("BertForSequenceClassification", "BertConfig", BERT | {"problem_type": "regression"}),
    "several labels": ("BertForSequenceClassification", "BertConfig", BERT),
    "answers": ("BertForQuestionAnswering", "BertConfig", BERT | {"num_labels": 2}),
    "pixels": ("SegformerForSemanticSegmentation", "SegformerConfig", PICTURES),
    "speech": ("Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH | {"ctc_loss_reduction": "mean"}),
    "speech, added up": ("Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH | {"ctc_loss_reduction": "sum"}),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning"),
    # Losses of speech that are added up are large.
    pytest.mark.filterwarnings("ignore:Expected losses of about the size of:prunedata.errors.NeverPrunesWarning"),
]


def model_of(name):
    kind, config, sizes = HEADS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
    if name == "pixels":  # it mixes the samples of a batch, those that are held out too
        model.decode_head.batch_norm = torch.nn.Identity()
    return model


def rows_of(name):
    """Inputs and labels of all samples, as tensors."""
    draw = torch.Generator().manual_seed(0)
    words = torch.randint(2, WORDS, (EACH, LENGTH), generator=draw)
    if name == "pixels":
        labels = torch.randint(0, 3, (EACH, 8, 8), generator=draw)
        labels[:, :3] = torch.where(torch.rand(EACH, 3, 8, generator=draw) < 0.7, VOID, labels[:, :3])
        return {"pixel_values": torch.randn(EACH, 3, 8, 8, generator=draw), "labels": labels}
    if name.startswith("speech"):
        labels = torch.randint(1, WORDS, (EACH, 4), generator=draw)
        labels[::2, 2:] = -100
        return {"input_values": torch.randn(EACH, 64, generator=draw), "labels": labels}
    rows = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    if name == "answers":
        first = torch.randint(0, LENGTH, (EACH,), generator=draw)
        return rows | {"start_positions": first, "end_positions": (first + 1).clamp(max=LENGTH - 1)}
    size = {"one number": (EACH,)}.get(name, (EACH, 3))
    labels = torch.randn(size, generator=draw)
    return rows | {"labels": (labels > 0).float() if name == "several labels" else labels}


@pytest.mark.parametrize("name", HEADS)
def test_the_loss_of_a_sample_is_the_one_that_the_head_has_of_it_alone(name):
    model, rows = model_of(name).eval(), rows_of(name)
    with torch.no_grad():
        losses, counts = losses_and_counts(model(**rows), rows, shifted=False, model=model)
        alone = [model(**{key: part[row : row + 1] for key, part in rows.items()}).loss for row in range(EACH)]
        whole = float(model(**rows).loss)
    assert losses.tolist() == pytest.approx([float(loss) for loss in alone], rel=1e-4)
    mean = float((losses * counts).sum() / counts.sum())
    assert whole == pytest.approx(mean * (EACH if name.endswith("added up") else 1), rel=1e-4)
    assert losses.std() > 0.01


def test_an_answer_behind_the_end_of_its_text_has_no_loss():
    model, rows = model_of("answers").eval(), rows_of("answers")
    rows["start_positions"][3] = rows["end_positions"][3] = FAR
    with torch.no_grad():
        outputs = model(**rows)
        losses, counts = losses_and_counts(outputs, rows, shifted=False, model=model)
    assert (float(losses[3]), float(counts[3]), float(counts.sum())) == (0, 0, EACH - 1)
    assert float(outputs.loss) == pytest.approx(float(losses.sum() / counts.sum()), rel=1e-5)


def test_the_hint_for_losses_of_pixels_is_the_mean_over_those_that_have_a_label():
    labels = rows_of("pixels")["labels"]
    logits = torch.randn(EACH, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=VOID)
    run = run_of()
    run.begin_epoch()
    with pytest.raises(LossError, match="mean over the pixels or tokens") as caught:
        run.observe(losses.numpy(), np.arange(SAMPLES))
    told = str(caught.value).partition("have a label: ")[2].partition("). Got")[0]
    found = eval(told, {"losses": losses, "labels": labels, "ignore_index": VOID})
    expected = [
        float(torch.nn.functional.cross_entropy(logit[None], label[None], ignore_index=VOID))
        for logit, label in zip(logits, labels, strict=True)
    ]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


def run_of(**options):
    schedule = Schedule(2, window=2, start=1, block=1, pruned_per_block=1)
    return Pruner(EACH, schedule, **{"prune": 5, "policy": Random(), "seed": 1, **options})


def trainer_of(name, run, folder, accumulate):
    arguments = quiet(
        folder, num_train_epochs=2, per_device_train_batch_size=3, gradient_accumulation_steps=accumulate,
        optim="sgd", learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0.0,
    )  # fmt: skip
    columns = rows_of(name)
    rows = [{column: values[row] for column, values in columns.items()} for row in range(EACH)]
    return wrap(Trainer(model=model_of(name), args=arguments, train_dataset=rows), run)


def poison(batch, out, name):
    """Other labels for the rows that are left out."""
    for each in ("labels", "start_positions", "end_positions"):
        if each in batch:
            labels = batch[each]
            other = 1 - labels if labels.is_floating_point() else labels.roll(1, -1)
            if name == "answers":
                other = (labels + 2) % LENGTH
            batch[each] = torch.where(out.view(-1, *[1] * (labels.ndim - 1)), other, labels)


def steps_of(trainer, run, name, *, poisons):
    """Train; returns of each step the ids of what counts in each batch with its size, and by what it is divided."""
    steps, count = [], trainer._get_num_items_in_batch

    def look(batches, *args):
        counted = []
        for batch in batches:
            epoch, ids = run.current, np.asarray(batch["prunedata_ids"])
            which = epoch.trained[ids]
            counted.append((ids[which], len(ids)))
            if poisons:
                poison(batch, torch.from_numpy(~which), name)
        # The Trainer of this release divides by the number of batches only if it is not told the labels of the step.
        items = count(batches, *args)
        steps.append((counted, len(batches) if items is None else 1))
        return items

    trainer._get_num_items_in_batch = look
    trainer.train()
    return steps


@pytest.mark.parametrize("accumulate", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "left_out", [{"holdout": 0.3}, {"leave_out": "weight", "holdout": 0.2}], ids=["holdout", "by weight"]
)
@pytest.mark.parametrize("name", HEADS)
def test_it_trains_as_a_plain_loop_over_what_counts(name, left_out, accumulate, tmp_path):
    trainer = trainer_of(name, run := run_of(**left_out), tmp_path, accumulate)
    steps = steps_of(trainer, run, name, poisons=False)
    assert 0 < sum(len(ids) for step, _ in steps for ids, _ in step) < 2 * EACH
    model, rows = model_of(name).train(), rows_of(name)
    for step, divided in steps:
        counting, samples = sum(len(ids) for ids, _ in step), sum(size for _, size in step)
        model.zero_grad()
        for ids, size in step:
            if len(ids):
                loss = model(**{key: part[ids] for key, part in rows.items()}).loss
                share = 1 if name.endswith("added up") else len(ids) / size * samples / counting
                (loss * share / divided).backward()
        if counting:
            with torch.no_grad():
                for each in model.parameters():
                    if each.grad is not None:
                        each.sub_(each.grad, alpha=RATE)
    torch.testing.assert_close(weights(trainer), weights(model), rtol=1e-5, atol=1e-6)
    poisoned = trainer_of(name, other := run_of(**left_out), tmp_path, accumulate)
    steps_of(poisoned, other, name, poisons=True)
    assert torch.equal(weights(trainer), weights(poisoned)), "other labels of what must not be learnt"
    figures = [[record["validation"] for record in each.history] for each in (run, other)]
    assert all(0 < figure < 1 for figure in figures[0])
    assert figures[0] != figures[1]


def test_what_no_head_is_known_for_is_refused(tmp_path):
    rows = rows_of("several labels")
    for outputs in ({"logits": torch.zeros(EACH, 3)}, {"logits": torch.zeros(EACH, 2, 3)}):
        with pytest.raises(LossError, match="define sample_losses"):
            losses_and_counts(outputs, rows, shifted=False, model=torch.nn.Linear(1, 1))
    assert ignored_labels(torch.nn.Linear(1, 1), rows) == {}

    def halve(model, args, outputs):
        outputs["loss"] = outputs["loss"] / 2

    trainer = trainer_of("numbers", run_of(), tmp_path, 1)
    trainer.model.register_forward_hook(halve)
    with pytest.raises(PrunedataError, match="so it is another loss"):
        trainer.train()


# What the Trainer's model takes samples for is kept by itself, where its labels are classes.


class Seen(Net):
    """Keeps what it said of each sample in the pass that was trained on."""

    def forward(self, points, labels=None, number=None):
        outputs = super().forward(points, labels, number)
        if torch.is_grad_enabled():
            self.said[-1].append((number.numpy(), outputs["logits"].detach().numpy()))
        return outputs


class Steps(PrunedTrainer):
    """As many batches in a step as there are, and what the model said in each epoch."""

    def _run_epoch(self, **options):
        self.model.said.append([])
        return super()._run_epoch(**options)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 3}])
@pytest.mark.parametrize("kind", [{}, {"holdout": 0.1}, {"labels": Rows().labels}])
def test_a_trainer_keeps_them_by_itself(tmp_path, options, kind):
    run, model = pruner_of(policy=Random(), **kind), Seen()
    model.said = []
    trainer, _ = build(run, tmp_path, trainer=Steps, model=model, **options)
    trainer.train()
    by_hand = pruner_of(policy=Random(), **kind)
    for said in model.said:
        by_hand.begin_epoch().apply_weights()
        for ids, logits in said:
            labels = None if "labels" in kind else Rows().labels[ids]
            by_hand.observe(np.zeros(len(ids)), ids, logits=logits, labels=labels)
        by_hand.skip(SAMPLES)
        by_hand.end_epoch()
    guess = run.arrays["guess"]
    assert guess.tolist() == by_hand.arrays["guess"].tolist()
    expected = 1 - Rows().labels.numpy()  # of two classes the one that is not its label
    assert guess.tolist() == np.where(run.visits > 0, expected, -1).tolist()


@pytest.mark.parametrize("kind", [{"leave_out": "weight"}, {"leave_out": "weight", "holdout": 0.1}])
def test_labels_that_no_column_has_are_those_of_the_batches(kind, tmp_path):
    run = pruner_of(**kind)
    build(run, tmp_path, trainer=joined)[0].train()
    assert run.arrays["label"].tolist() == (Rows().labels + 2).tolist()
    assert not any("labels=" in sentence for sentence in run.advice.evidence)


class Signs(Rows):
    """Rows labeled -1 and 1, which are no classes."""

    def __init__(self):
        super().__init__()
        self.labels = 2 * self.labels - 1


class Hinge(PrunedTrainer):
    """Trains on such labels by a loss of its own."""

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        labels = inputs["labels"]
        outputs = model(**inputs | {"labels": (labels > 0).long()})
        loss = self.sample_losses(outputs, {"labels": labels}).mean()
        return (loss, outputs) if return_outputs else loss

    def sample_losses(self, outputs, inputs):
        return (1 - inputs["labels"] * (outputs["logits"][:, 1] - outputs["logits"][:, 0])).clamp(min=0)


def test_whole_numbers_that_are_no_classes_are_not_taken_for_labels(tmp_path):
    run = pruner_of()
    build(run, tmp_path, trainer=Hinge, dataset=Signs())[0].train()
    assert run.next_epoch == len(run.history) > 1
    assert "label" not in run.arrays


def test_the_labels_may_be_named():
    run = Pruner(epochs=6, labels="labels", leave_out="weight")
    run.wrap(Trainer(model=Net(), args=quiet("unused", num_train_epochs=6), train_dataset=Rows()))
    assert run._engine.options.labels.numbers.tolist() == Rows().labels.tolist()


class Choice(Net):
    """As a model of multiple choice, whose questions may have other numbers of answers."""

    class config:
        num_labels = 2


@pytest.mark.parametrize(
    ("logits", "labels", "kind", "known"),
    [
        (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), Net, True),
        (torch.zeros(4, 1), torch.zeros(4), Net, False),
        (torch.zeros(4, 3), torch.zeros(4, 3), Net, False),
        (torch.zeros(4, 5, 3), torch.zeros(4, 5, dtype=torch.long), Net, False),
        (None, torch.zeros(4, dtype=torch.long), Net, False),
        (torch.zeros(4, 5), torch.zeros(4, dtype=torch.long), Choice, False),
    ],
    ids=["classes", "regression", "several labels", "tokens", "no logits", "choices"],
)
def test_only_classes_of_whole_samples_are_taken(logits, labels, kind, known):
    assert (logits_of({"logits": logits}, {"labels": labels}, kind()) is not None) == known


# Whole numbers in a column are classes if the model is trained to tell so many apart.


COLUMN = np.arange(EACH) % 3


def classifier_of(tmp_path, column=COLUMN, name="label", head=HEADS["several labels"], **config):
    kind, config_of, sizes = head
    model = getattr(transformers, kind)(getattr(transformers, config_of)(**sizes | {"num_labels": 3} | config))
    words = torch.randint(2, WORDS, (EACH, LENGTH), generator=torch.Generator().manual_seed(0)).tolist()
    rows = datasets.Dataset.from_dict({"input_ids": words, name: list(column)})
    return Trainer(model, quiet(tmp_path, per_device_train_batch_size=6, num_train_epochs=2), train_dataset=rows)


@pytest.mark.parametrize("leave_out", ["delivery", "weight"])
@pytest.mark.parametrize("name", ["label", "labels"])
def test_a_classifiers_column_of_whole_numbers_has_its_classes(name, leave_out, tmp_path):
    pruner = Pruner(epochs=2, leave_out=leave_out)
    pruner.wrap(classifier_of(tmp_path, name=name)).train()
    saved = pruner.state_dict()["arrays"]["labels"]
    np.testing.assert_array_equal(np.frombuffer(saved["data"], saved["dtype"]), COLUMN)


@pytest.mark.parametrize("other", [
    {"problem_type": "regression"},
    {"problem_type": "multi_label_classification", "column": np.eye(3)[COLUMN]},
    {"num_labels": 1},
    {"num_labels": 2},
    {"column": COLUMN - 1},
    {"column": COLUMN * 0.5},
    {"name": "topic"},
    {"head": ("BertForTokenClassification", "BertConfig", BERT), "column": np.zeros((EACH, LENGTH), int)},
    {"head": ("BertForMaskedLM", "BertConfig", BERT)},
])  # fmt: skip
def test_other_columns_are_not_taken_for_classes(other, tmp_path):
    assert labels_in(classifier_of(tmp_path, **other)) is None


@pytest.mark.parametrize("options", [{}, {"return_flash_attn_kwargs": True}, {"return_seq_idx": True}])
def test_samples_that_the_collator_flattens_have_the_losses_that_they_have_alone(options):
    rows = [{"input_ids": torch.randint(1, WORDS, (size,)).tolist()} for size in (5, 3, 7)]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **SIZES | {"vocab_size": WORDS, "intermediate_size": 8, "num_key_value_heads": 2},
    ))  # fmt: skip
    batch = transformers.DataCollatorWithFlattening(**options)(rows)
    outputs = model(**batch, use_cache=False)  # with a cache the samples see each other
    losses, counts = losses_and_counts(outputs, batch, shifted=True, model=model, samples=3)
    assert counts.tolist() == [4, 2, 6]
    for row, loss in zip(rows, losses, strict=True):
        alone = torch.tensor([row["input_ids"]])
        torch.testing.assert_close(loss, model(alone, labels=alone).loss, rtol=1e-4, atol=1e-5)
