"""The table of wrong labels found, from arrays of runs as benchmarks.study.train writes them."""

import json

import numpy as np
import pytest

from benchmarks.pages.wrong_labels import main, rankings

SAMPLES = 200


def arrays(seed, sharp):
    """A run in which counts tell a wrong label with certainty, or not at all."""
    random = np.random.default_rng(seed)
    wrong = random.random(SAMPLES) < 0.2
    visits = np.full(SAMPLES, 20, np.int16)
    hits = np.where(wrong & sharp, 20, random.integers(0, 10, SAMPLES)).astype(np.int16)
    scores = random.normal(size=(SAMPLES, 3)).astype(np.float16)
    return {
        "wrong": wrong, "hits": hits, "high": hits // 2, "visits": visits, "scores": scores,
        "labels": random.integers(0, 3, SAMPLES),
    }  # fmt: skip


def write(folder, name, **found):
    np.savez(folder / f"{name}.npz", **found)


@pytest.fixture
def folder(tmp_path):
    for seed in range(2):
        write(tmp_path, f"lenet-200x20-random20-regular-seed{seed}", **arrays(seed, sharp=True))
    write(tmp_path, "lenet-200x20-random40-regular-seed0", **arrays(5, sharp=False))
    write(tmp_path, "lenet-200x20-clean-regular-seed0", **arrays(6, sharp=True))
    old = arrays(7, sharp=True)
    del old["high"]  # a run that was not traced
    write(tmp_path, "lenet-200x20-random10-regular-seed0", **old)
    return tmp_path


def told(capsys, *more):
    assert main([*more, "--json"]) == 0
    return {(row["labels"], row["ranked_by"]): row for row in json.loads(capsys.readouterr().out)}


def test_a_row_for_each_kind_of_labels_and_ranking_over_all_seeds(folder, capsys):
    found = told(capsys, "--arrays", str(folder))
    assert {labels for labels, _ in found} == {"random20", "random40"}
    sharp = found["random20", "hits over visits"]
    assert (sharp["seeds"], sharp["auc"], sharp["precision_at_wrong"]) == (2, 1.0, 1.0)
    assert sharp["runs"] == "lenet-200x20"
    blunt = found["random40", "hits over visits"]
    assert blunt["seeds"] == 1
    assert blunt["auc"] < 0.7
    assert blunt["auc_least"] == blunt["auc"]


def test_the_final_networks_loss_is_that_of_the_given_label():
    run = arrays(0, sharp=True)
    scores = run["scores"].astype(float)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    wanted = -np.log(chances[np.arange(SAMPLES), run["labels"]])
    assert rankings(run)["loss of the final network"] == pytest.approx(wanted)


def test_people_get_a_table(folder, capsys):
    assert main(["--arrays", str(folder)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["runs", "labels", "ranked", "by"]
    assert len(lines) == 8


def test_a_folder_without_such_runs_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--arrays", str(tmp_path)])
    assert "Expected runs of regular with wrong labels" in capsys.readouterr().err
