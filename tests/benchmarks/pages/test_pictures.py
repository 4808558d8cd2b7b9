"""The study's pictures: what is drawn from which runs, and what is left out."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from matplotlib.image import imread

from benchmarks.common.records import Runs
from benchmarks.pages import pictures
from benchmarks.pages.curves import choose, spans
from benchmarks.pages.saving_pictures import draw_saving, savings
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.train import Options, train

# A network that has learned nothing has no loss above twice the mean.
pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")
NOISE = LabelNoise("random", 0.2)
SMALL = Recipe(samples=200, epochs=6, batch_size=32, noise=NOISE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Real runs, two seeds of two arms: results, a folder of arrays, and the names of the runs."""
    results, arrays = Runs(tmp_path_factory.mktemp("results") / "runs.jsonl.bz2"), tmp_path_factory.mktemp("arrays")
    recipes = [replace(SMALL, seed=seed) for seed in (0, 1)]
    recipes += [replace(one, arm="dropping-count-run", saving=0.25) for one in recipes]
    for recipe in recipes:
        facts = train(recipe, Options(arrays=arrays / f"{recipe.name}.npz", trace=20, every=3))
        results.add(recipe.name, facts)
    return results, arrays, [recipe.name for recipe in recipes]


def is_a_picture(path):
    pixels = imread(path)
    return min(pixels.shape[:2]) > 150 and pixels.std() > 0.01 and path.stat().st_size < 200_000


def facts_of(arm, seed=0, seconds=10.0, accuracy=50.0, visits=(100, 100, 100, 100), noise="clean", **more):
    """Facts as benchmarks.study.train records them, as far as pictures need them."""
    recipe = Recipe(arm=arm, saving=0.0 if arm == "regular" else 0.25, samples=100, epochs=5, batch_size=10, seed=seed)
    return {
        "network": "lenet", "data": "digits", "samples": 100, "policy": arm, "saving": recipe.saving, "seed": seed,
        "epochs": 5, "noise": noise, "visits_saved_percent": 100 * (1 - sum(visits) / 400), "seconds": seconds,
        "overhead_seconds": 0.0, "accuracy_best3": accuracy, "accuracy_final": accuracy, "recipe": recipe.as_dict(),
        "hardware": "a core", "versions": {"torch": "2"},
        "curves": [{"epoch": at, "pruned": n < 100, "visits": n, "loss": 1.0} for at, n in enumerate(visits)],
    } | more  # fmt: skip


def test_all_pictures_are_drawn_from_real_runs(runs, tmp_path):
    results, arrays, names = runs
    given = ["--results", str(results.file), "--arrays", str(arrays), "--out", str(tmp_path)]
    assert pictures.main([*given, "--sheet", names[2], "--top", "12"]) == 0
    setting = "lenet-digits-200x6.png"
    wanted = {
        f"accuracy-{setting}",
        f"curves-{setting}",
        f"samples-{setting}",
        f"suspects-{names[2]}.png",
    }
    assert {path.name for path in tmp_path.iterdir()} == wanted
    assert all(is_a_picture(path) for path in tmp_path.iterdir())


def in_turns(times, seconds=(10.0, 6.0), **more):
    """A run whose epochs are full and pruned in turn: ten batches, and six of which the last is half as large."""
    facts = facts_of("random", visits=(100, 55) * times, **more)
    for at, epoch in enumerate(facts["curves"]):
        epoch["seconds"] = seconds[at % 2] * (1 + at)  # a machine that grows slower
    return facts


def test_a_saving_is_predicted_from_batches_and_measured_in_seconds_of_neighbouring_epochs(tmp_path):
    (row,) = savings([in_turns(50), facts_of("regular")])
    assert row["predicted_percent"] == pytest.approx(40)
    assert row["measured_percent"] == pytest.approx(40, abs=1)
    assert is_a_picture(draw_saving(tmp_path / "saving.png", [in_turns(50), in_turns(9, hardware="another")]))


def test_the_samples_chosen_are_those_hit_most_and_least_and_those_that_differ():
    visits = np.full(10, 10)
    one = {"trace_ids": np.arange(10), "hits": np.array([9, 9, 0, 0, 8, 2, 5, 5, 5, 5]), "visits": visits}
    other = one | {"hits": np.array([9, 10, 0, 1, 2, 7, 5, 5, 5, 5])}
    assert choose(one, other) == {"hit most in both": [1, 0], "the runs differ": [4, 5], "hit least in both": [2, 3]}


@given(st.sets(st.integers(0, 40)))
def test_spans_hold_just_the_numbers(numbers):
    found = spans(sorted(numbers))
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


def test_a_sheet_refuses_the_data_of_another_run(runs, tmp_path):
    arrays = pictures.read_arrays(runs[1] / f"{runs[2][0]}.npz")
    with pytest.raises(ValueError, match="Expected the data that the run was trained on"):
        pictures.draw_sheet(tmp_path / "s.png", replace(SMALL, noise=LabelNoise()), None, arrays, 5)
    assert pictures.class_names("cifar10", 10)[3] == "cat"
    assert pictures.class_names("digits", 10)[3] == "3"
