"""What the frontier is trained on: fixed features of images, and labels of every kind."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.frontier import material
from benchmarks.frontier.features import PatchFeatures
from benchmarks.frontier.material import Material, Part


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


def test_a_task_knows_which_labels_are_wrong_and_keeps_the_held_out_ones_apart():
    truth = torch.arange(2300) % 10
    labels = {"worse": torch.where(torch.arange(2300) % 4 == 0, (truth + 1) % 10, truth)}
    features = torch.arange(2300.0)[:, None]
    test = Part(features[:50], truth[:50])
    task = Material(features, truth, labels, test).task("worse")
    assert task.wrong.sum() == 75
    assert (len(task.train), len(task.held_out), task.classes) == (300, 2000, 10)
    assert task.held_out.features[0] == 300
    assert torch.equal(task.held_out.labels, labels["worse"][300:])
    with pytest.raises(ValueError, match="Expected one of the kinds of labels"):
        Material(features, truth, labels, test).task("random40")


def test_material_is_made_once_and_kept(tmp_path, monkeypatch):
    made = []

    def make(data, people):
        made.append(data)
        labels = {kind: np.arange(2100) % 3 for kind in material.KINDS}
        features = np.random.default_rng(0).normal(size=(2100, 4)).astype(np.float16)
        return {
            "features": features,
            "truth": np.arange(2100) % 3,
            "test_features": features,
            "test_labels": np.arange(2100) % 3,
            **labels,
        }

    monkeypatch.setattr(material, "_make", make)
    cache = tmp_path / "new" / "kept.npz"
    first = material.load(tmp_path, tmp_path, cache)
    again = material.load(tmp_path, tmp_path, cache)
    assert len(made) == 1
    assert torch.equal(first.features, again.features)
    monkeypatch.setattr(material, "SAMPLES", 7)
    material.load(tmp_path, tmp_path, cache)
    assert len(made) == 2
