"""sentence-transformers' trainer and SetFit's, unchanged: one number for a pair of sentences, without logits."""

import numpy as np
import pytest

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, python_of, rows_told, run_both

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
PYTHON = python_of("llama")
MODEL = """
import numpy as np, torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

words = ["[PAD]", "[UNK]", *"i like the is nice dog cat car house tree bread a my our".split()]
tokenizer = Tokenizer(models.WordLevel({{word: n for n, word in enumerate(words)}}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained("tiny")
torch.manual_seed(0)
BertModel(BertConfig(
    vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    hidden_dropout_prob={dropout}, attention_probs_dropout_prob={dropout},
)).save_pretrained("tiny")
random = np.random.default_rng(0)
things = ["dog", "cat", "car", "house", "tree", "bread"]
"""
PAIRS = (
    MODEL
    + """
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments, losses

which, same, wrong = random.integers(0, 6, 96), random.integers(0, 2, 96), random.random(96) < 0.1
rows = Dataset.from_dict({{
    "sentence1": [f"i like the {{things[at]}}" for at in which],
    "sentence2": [f"the {{things[(at + 1 - one) % 6]}} is nice" for at, one in zip(which, same)],
    "score": np.where(wrong, 1 - same, same).astype(float).tolist(),
}}).shuffle(seed=0)
model = SentenceTransformer("tiny", device="cpu")
begin = {{name: value.clone() for name, value in model.state_dict().items()}}
arguments = SentenceTransformerTrainingArguments(
    "out", report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, {options},
)
trainer = SentenceTransformerTrainer(
    model=model, args=arguments, train_dataset={rows}, loss=losses.CosineSimilarityLoss(model),
)
trainer.train()
torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), "weights.pt")
np.save("wrong.npy", np.flatnonzero(wrong))
"""
)
STEADY = (
    "num_train_epochs=3, per_device_train_batch_size=96, optim='sgd', learning_rate=0.5, lr_scheduler_type='constant', "
    "max_grad_norm=0.0"
)
BY_HAND = """
model.load_state_dict(begin)
model.train()
optimizer, expected = torch.optim.SGD(model.parameters(), 0.5), 0
for epoch in range(3):
    first, second = (
        model({name: value for name, value in model.tokenize(list(rows[column])).items() if torch.is_tensor(value)})
        for column in ("sentence1", "sentence2")
    )
    likeness = torch.cosine_similarity(first["sentence_embedding"], second["sentence_embedding"])
    each = (likeness - torch.tensor(rows["score"]).float()) ** 2
    expected = expected + (each - each.mean()).detach().numpy() / 3
    optimizer.zero_grad()
    each.mean().backward()
    optimizer.step()
np.save("expected.npy", expected)
"""
SETFIT = (
    MODEL
    + """
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments

which, wrong = random.integers(0, 2, 24), np.arange(24) % 8 == 0
begins = ["i like the", "my", "our", "a", "the", "is the"]
texts = [f"{{begins[random.integers(6)]}} {{things[at + 2 * random.integers(3)]}}" for at in which]
rows = Dataset.from_dict({{"text": texts, "label": np.where(wrong, 1 - which, which).tolist()}})
model = SetFitModel.from_pretrained("tiny", device="cpu")
trainer = Trainer(
    model=model, args=TrainingArguments(batch_size=16, num_epochs=1, report_to="none", body_learning_rate=1e-3),
    train_dataset=rows,
)
trainer.train()
torch.save(torch.cat([each.detach().flatten() for each in model.model_body.parameters()]), "weights.pt")
"""
)


def test_pairs_of_sentences(tmp_path):
    script = PAIRS.format(dropout=0.1, rows="rows", options="num_train_epochs=12, learning_rate=0.01")
    done, same = run_both(tmp_path, script, by=PYTHON)
    assert same
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    wrong = np.load(tmp_path / "wrong.npy")
    assert np.isin(rows_told(done.stderr)[: len(wrong)], wrong).mean() > 0.8
    assert "i like the" in done.stderr


def test_several_data_sets_are_numbered_one_after_another(tmp_path):
    both = "dict(one=rows.select(range(40)), two=rows.select(range(40, 96)))"
    script = PAIRS.format(dropout=0.1, rows=both, options="num_train_epochs=12, learning_rate=0.01")
    done, same = run_both(tmp_path, script, by=PYTHON)
    assert same
    assert "96 of 96 samples in 12 epochs" in done.stderr
    wrong = np.load(tmp_path / "wrong.npy")
    order = np.random.default_rng(0).permutation(96)  # as shuffle(seed=0)
    told = order[rows_told(done.stderr)[: len(wrong)]]
    assert np.isin(told, wrong).mean() > 0.8


def test_losses_are_those_of_a_loop_written_by_hand(tmp_path):
    script = PAIRS.format(dropout=0.0, rows="rows", options=STEADY)
    _, same = run_both(tmp_path, script, by=PYTHON)
    assert same
    (tmp_path / "hand.py").write_text(script + BY_HAND)
    hand = plain("hand.py", cwd=tmp_path, by=PYTHON)
    assert hand.returncode == 0, hand.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert (run.visits == 3).all()
    np.testing.assert_allclose(run.mean_excess, np.load(tmp_path / "expected.npy"), atol=1e-6)


def test_the_pairs_that_setfit_makes_of_texts(tmp_path):
    done, same = run_both(tmp_path, SETFIT.format(dropout=0.1), by=PYTHON)
    assert same
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    assert "sentence_1: " in done.stderr
    assert (read_run(tmp_path / "train.zarr").state.visits > 0).all()
