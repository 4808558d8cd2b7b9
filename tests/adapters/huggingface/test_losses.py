"""One loss for each sample, what is trained on, and the weights of policies."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from prunedata.adapters.huggingface.agreement import shift_by_own_loss
from prunedata.adapters.huggingface.losses import losses_and_counts, shifts_labels
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, PrunedataError
from prunedata.policies import DroppingCount, LossRanked
from tests.adapters.huggingface.trainers import SAMPLES, Net, Rows, build, pruner_of, weights

WORDS, RATE = 11, 0.02
SMALL = {"vocab_size": WORDS, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}


def llama():
    config = LlamaConfig(**SMALL, intermediate_size=8, num_key_value_heads=1, max_position_embeddings=16)
    return LlamaForCausalLM(config)


MODELS = {
    "Llama": llama,
    "GPT-2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_embd=8, n_layer=1, n_head=1, n_positions=16, bos_token_id=0, eos_token_id=1)
    ),
    "BERT": lambda: BertForMaskedLM(BertConfig(**SMALL, intermediate_size=8, max_position_embeddings=16)),
    "T5": lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=WORDS, d_model=8, d_ff=8, d_kv=8, num_layers=1, num_heads=1, decoder_start_token_id=0)
    ),
}


@pytest.mark.filterwarnings("ignore:`loss_type=None`")
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_sample_is_the_one_that_the_model_has_of_it_alone(name):
    """Without a graph or padding that is taken for tokens, and with the model's own shift."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    labels = torch.randint(2, WORDS, (5, 7))
    inputs = {"input_ids": labels.clone(), "labels": labels}
    for row, length in enumerate((7, 5, 3, 6, 2)):
        labels[row, length:] = -100
        labels[row, 0] = -100
    with torch.no_grad():
        outputs = model(**inputs)
        losses, counts = losses_and_counts(outputs, inputs, shifted=shifts_labels(model))
        alone = [model(**{key: part[row : row + 1] for key, part in inputs.items()}).loss for row in range(5)]
    assert losses.tolist() == pytest.approx([float(loss) for loss in alone], rel=1e-4)
    assert counts.tolist() == [6, 4, 2, 5, 1]
    for guess in (False, True):  # at random weights both readings have much the same mean
        assert shift_by_own_loss(outputs, inputs, shifted=guess) == shifts_labels(model)
    with torch.no_grad():
        half = model.to(torch.bfloat16)(**inputs)
    assert shift_by_own_loss(half, inputs, shifted=shifts_labels(model)) == shifts_labels(model)


def test_a_models_own_loss_is_a_mean_over_its_batch_or_over_the_whole_step():
    logits, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, -100])
    mean = F.cross_entropy(logits, labels)

    def says(loss, items=None, **more):
        inputs = {"labels": labels, "num_items_in_batch": items}
        return shift_by_own_loss({"loss": loss, "logits": logits, **more}, inputs, shifted=False)

    assert says(mean) is says(mean, 12) is says(mean, torch.tensor(12)) is says(mean * 3 / 12, 12) is False
    assert says(None) is says(mean * 7, aux_loss=mean) is says(mean * torch.nan) is None
    for loss, items in ((mean * 3 / 12, None), (mean * 2, 12), (mean * 1.03, 12), (mean * 0, 12)):
        with pytest.raises(PrunedataError, match="so it is another loss: define sample_losses"):
            says(loss, items)


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(2, 4),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_token_losses_are_the_mean_over_a_samples_own_tokens(samples, tokens, classes, shifted, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, tokens, classes, generator=generator)
    labels = torch.randint(0, classes, (samples, tokens), generator=generator)
    labels[torch.rand(samples, tokens, generator=generator) < 0.4] = -100
    losses, counts = losses_and_counts({"logits": logits}, {"labels": labels}, shifted=shifted)
    for row in range(samples):
        places = [
            (place - shifted, int(labels[row, place]))
            for place in range(int(shifted), tokens)
            if labels[row, place] != -100
        ]
        each = [float(F.cross_entropy(logits[row, place], torch.tensor(label))) for place, label in places]
        assert float(losses[row]) == pytest.approx(np.mean(each) if each else 0, abs=1e-5)
        assert int(counts[row]) == len(each)


def test_losses_of_classes():
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    losses, counts = losses_and_counts({"logits": logits}, {"labels": labels}, shifted=False)
    assert torch.allclose(losses, F.cross_entropy(logits, labels, reduction="none"))
    assert counts.tolist() == [1] * 6


@pytest.mark.parametrize(
    ("outputs", "labels", "told"),
    [
        (
            {"logits": torch.zeros(4, 3)},
            torch.zeros(4, 3),
            r"Got logits of shape \(4, 3\) and labels of shape \(4, 3\)",
        ),
        ({"logits": torch.zeros(4, 1)}, torch.zeros(4, dtype=torch.long), r"Got logits of shape \(4, 1\)"),
        ({"logits": torch.zeros(4, 3)}, torch.zeros(5, dtype=torch.long), r"labels of shape \(5,\)"),
        ({"loss": torch.zeros(())}, torch.zeros(4, dtype=torch.long), "Got no logits"),
        ({"logits": torch.zeros(4, 3)}, None, "no labels"),
    ],
)
def test_models_without_a_cross_entropy_are_refused(outputs, labels, told):
    with pytest.raises(LossError, match=told + r".*define sample_losses\(self, outputs, inputs\)"):
        losses_and_counts(outputs, {"labels": labels}, shifted=False)


class Other(Net):
    """A model whose loss is not what its logits and labels say."""

    def forward(self, points, labels=None, number=None):
        outputs = super().forward(points, labels, number)
        return outputs | {"loss": outputs["logits"].square().sum()}


def test_a_model_with_another_loss_is_noticed(tmp_path):
    trainer, _ = build(pruner_of(), tmp_path, model=Other())
    with pytest.raises(
        PrunedataError, match="Expected the loss of the model to be the mean cross entropy of the batch"
    ):
        trainer.train()


# -- what is trained on: as in a loop of one's own


def sentences():
    """Words, of which a part has no label."""
    words = torch.randint(2, WORDS, (SAMPLES, 6), generator=torch.Generator().manual_seed(0))
    labels = words.clone()
    for number in range(SAMPLES):
        labels[number, 2 + number % 5 :] = -100
    return [{"input_ids": row, "labels": own} for row, own in zip(words, labels, strict=True)]


class Quiet(Net):
    """Without dropout."""

    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Identity()


def ignoring():
    """A model that ignores the number of labels of the step: the Trainer adds up the means of its batches."""
    dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    return BertForMaskedLM(BertConfig(**SMALL, **dropout, intermediate_size=8, max_position_embeddings=16))


def loop(model, dataset, pruner, accumulate):
    """A loop of one's own: SGD on weighted losses, a step for each `accumulate` batches."""
    shifted = shifts_labels(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loader = wrap(DataLoader(dataset, batch_size=8, shuffle=True), pruner, with_ids=True)
    for epoch in pruner.epochs():
        batches = list(loader)
        for first in range(0, len(batches), accumulate):
            group, seen = batches[first : first + accumulate], []
            labels = sum(int((batch["labels"][..., 1:] != -100).sum()) for _, batch in group)
            for ids, batch in group:
                names = ("points", "labels", "number") if "points" in batch else ("input_ids", "labels")
                outputs = model(**{name: batch[name] for name in names})
                losses, counts = losses_and_counts(outputs, batch, shifted=shifted)
                weights = torch.from_numpy(epoch.loss_weights(ids))
                if "points" in batch:
                    loss = (weights * losses).mean() / len(group)
                elif not shifted:
                    loss = (weights * losses * counts).sum() / counts.sum()
                else:
                    loss = (weights * losses * counts).sum() / labels
                loss.backward()
                seen.append((ids, losses.detach()))
            ids, losses = zip(*seen, strict=True)
            pruner.observe(torch.cat(losses).numpy(), np.concatenate(ids))
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("policy", [DroppingCount(), LossRanked()], ids=["counted", "weighed"])
@pytest.mark.parametrize("kind", [Quiet, llama, ignoring], ids=["classes", "tokens", "ignoring"])
def test_a_trainer_trains_as_a_loop_of_ones_own(kind, policy, accumulate, tmp_path):
    pruners = [pruner_of(policy=policy) for _ in range(2)]
    dataset = Rows() if kind is Quiet else sentences()
    torch.manual_seed(0)
    models = [kind(), kind()]
    models[1].load_state_dict(models[0].state_dict())
    trainer, _ = build(
        pruners[0], tmp_path, model=models[0], dataset=dataset, gradient_accumulation_steps=accumulate,
        optim="sgd", learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0,
    )  # fmt: skip
    trainer.train()
    loop(models[1], dataset, pruners[1], accumulate)
    assert torch.allclose(weights(models[0]), weights(models[1]), rtol=1e-4, atol=1e-6)
    assert pruners[0].visits.tolist() == pruners[1].visits.tolist()
    weighed = pruners[0].policy == LossRanked()
    assert weighed == (pruners[0].history[1]["kept"] < SAMPLES and "loss" in pruners[0].arrays)
