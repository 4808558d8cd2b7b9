"""The study's pictures: what is drawn from which runs, and what is left out; and whether runs suspect the same."""

import json
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
from benchmarks.pages import overlap, pictures
from benchmarks.pages.figures import choose, draw_saving, savings, spans
from benchmarks.study.choosers import rates
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.train import Options, train
from prunedata.findings.compare import compare

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


# Overlap of bad data between runs: which are compared, and what stands in the table.


SAMPLES = 400


@pytest.fixture
def folder(tmp_path):
    """Two networks, two arms, two seeds: counts of samples that have a difficulty of their own, and noise."""
    difficulty = np.random.default_rng(0).random(SAMPLES)
    for at, (network, arm, seed) in enumerate(
        [("lenet", "regular", 0), ("lenet", "regular", 1), ("lenet", "random-25", 0), ("resnet18", "regular", 0)]
    ):
        hits = np.random.default_rng(at + 1).binomial(20, difficulty).astype(np.int16)
        write(tmp_path / f"{network}-400x20-random20-{arm}-seed{seed}.npz", hits=hits)
    return tmp_path


def write(path, hits, shift=0, high=True):
    wrong = np.arange(SAMPLES) % 5 == 0
    more = {"high": hits // 2} if high else {}
    labels = (np.arange(SAMPLES) + shift) % 10
    np.savez(path, labels=labels, wrong=wrong, hits=hits, visits=np.full(SAMPLES, 20, np.int16), **more)


def found(folder, top=0.1):
    return overlap.pairs(overlap.read_runs(folder), top)


def test_each_pair_is_compared_once_and_called_what_it_differs_in(folder):
    rows = found(folder)
    assert len(rows) == 6
    assert sorted(row["between"] for row in rows) == ["arms", "more", "more", "more", "networks", "seeds"]
    assert {row["ranked_by"] for row in rows} == {"hits, high"}
    assert {row["top"] for row in rows} == {40}


def test_the_numbers_are_those_of_compare(folder):
    (row,) = (row for row in found(folder) if row["between"] == "seeds")
    counts = []
    for seed in (0, 1):
        with np.load(folder / f"lenet-400x20-random20-regular-seed{seed}.npz") as run:
            counts.append((rates(run["hits"], run["visits"], run["high"]), run["visits"]))
    wanted = compare(*counts, 0.1)
    assert row["jaccard"] == wanted.jaccard
    assert row["rank_correlation"] == wanted.rank_correlation
    assert row["jaccard"] > 3 * row["jaccard_by_chance"]


def test_other_labels_are_not_compared(folder):
    hits = np.random.default_rng(9).integers(0, 20, SAMPLES).astype(np.int16)
    write(folder / "lenet-400x20-random20-regular-seed2.npz", hits, shift=1)
    write(folder / "lenet-400x20-clean-regular-seed0.npz", hits)
    assert len(found(folder)) == 6


def test_a_run_that_did_not_count_is_left_out_and_one_without_high_is_compared_by_hits(folder):
    np.savez(folder / "lenet-400x20-random20-regular-seed3.npz", labels=np.zeros(3), wrong=np.zeros(3, bool))
    assert len(found(folder)) == 6
    hits = np.random.default_rng(9).integers(0, 20, SAMPLES).astype(np.int16)
    write(folder / "lenet-400x20-random20-regular-seed2.npz", hits, high=False)
    assert [row["ranked_by"] for row in found(folder)].count("hits") == 4


def test_the_summary_is_the_mean_over_pairs(folder):
    hits = np.random.default_rng(9).integers(0, 20, SAMPLES).astype(np.int16)
    write(folder / "lenet-400x20-random20-regular-seed2.npz", hits)
    rows = [row for row in found(folder) if row["between"] == "seeds"]
    (row,) = (row for row in overlap.summary(found(folder)) if row["between"] == "seeds")
    values = [each["jaccard"] for each in rows]
    assert row["pairs"] == len(values) == 3
    assert row["jaccard"] == pytest.approx(np.mean(values))
    assert (row["jaccard_lowest"], row["jaccard_highest"]) == (min(values), max(values))
    assert row["jaccard_lowest"] < row["jaccard_highest"]


def test_the_command_prints_a_table_or_json_and_draws(folder, tmp_path, capsys):
    assert overlap.main(["--arrays", str(folder), "--out", str(tmp_path / "pictures")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "400x20, 20% of the labels wrong at random"
    assert [line.split()[0] for line in lines[1:]] == ["between", "seeds", "arms", "networks"]
    (picture,) = (tmp_path / "pictures").iterdir()
    assert imread(picture).std() > 0.05
    assert overlap.main(["--arrays", str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["pairs"]) == 6
    assert len(printed["summary"]) == 3
    assert overlap.main(["--arrays", str(folder), "--json", "--arm", "regular"]) == 0
    assert {row["between"] for row in json.loads(capsys.readouterr().out)["summary"]} == {"seeds", "networks"}


def test_pairs_that_were_recorded_are_drawn_and_told_as_the_runs_are(folder, tmp_path, capsys):
    given = ["--results", str(tmp_path / "runs.jsonl.bz2")]
    overlap.main(["--arrays", str(folder), "--record", *given])
    table = capsys.readouterr().out
    assert overlap.main(["--recorded", *given, "--out", str(tmp_path / "pictures")]) == 0
    assert capsys.readouterr().out == table
    assert len(list((tmp_path / "pictures").iterdir())) == 1
