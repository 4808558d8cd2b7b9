"""Overlap of bad data between runs: which are compared, and what stands in the table."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from matplotlib.image import imread

from benchmarks.pages import overlap
from benchmarks.study.choosers import rates
from prunedata.findings.compare import compare

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
