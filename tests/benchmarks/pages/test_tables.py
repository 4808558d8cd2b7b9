"""The study's tables: pairing, spread, times, and wrong labels found."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from benchmarks.pages import __main__ as pages
from benchmarks.pages.accuracy import table_of_accuracy, table_of_time
from benchmarks.pages.ten_networks import RUN, measure, row
from benchmarks.pages.wrong_labels import auc, found, main, precision_at, rankings


def run(policy, seed, final, seconds=100.0, saved=0.0, **other):
    return {
        "network": "lenet", "data": "cifar10", "samples": 100, "epochs": 10, "noise": "clean", "policy": policy,
        "saving": saved / 100, "seed": seed, "visits_saved_percent": saved, "seconds": seconds,
        "overhead_seconds": 0.5, "accuracy_best3": final + 1, "accuracy_final": final, "recipe": {"batch_size": 10},
        "curves": [{"visits": 100, "seconds": 10.0}, {"visits": 100 - saved, "seconds": 8.2}] * 10, **other,
    }  # fmt: skip


RESULTS = [
    run("regular", 0, 60.0),
    run("regular", 1, 62.0),
    run("random", 0, 61.0, 75.0, 25.0),
    run("random", 1, 65.0, 80.0, 25.0),
    run("random", 2, 90.0, 80.0, 25.0),  # its regular run is not there yet
    run("random", 0, 10.0, 80.0, 25.0, noise="random40"),
]


def test_a_gain_is_that_over_the_regular_run_of_the_same_seed():
    regular, random = table_of_accuracy(RESULTS)
    assert (regular["policy"], regular["gains"], regular["spread"]) == ("regular", [0, 0], 0)
    assert (random["seeds"], random["gains"], random["gain"]) == (2, [1.0, 3.0], 2.0)
    assert random["spread"] == pytest.approx(2**0.5, abs=1e-3)
    assert random["accuracy_final"] == 63.0
    assert random["accuracy_best3"] == 64.0


def test_time_is_paired_too():
    (random,) = table_of_time(RESULTS)
    assert random["saved_percent"] == 22.5
    assert random["paper_percent"] == 11.8
    # Of ten batches two are left out: the last of the eight is half as large, and counts as one.
    assert random["measured_over_predicted"] == 0.9


def test_a_page_is_filled_between_a_tables_comment_and_the_next_line_that_is_not_of_it():
    results = [*RESULTS, run("random", 0, 61.0, 75.0, 25.0, samples=50)]
    page = "before\n<!-- table: gains lenet cifar10 100 -->\n\n| old |\n| old |\n\nafter | this\n"
    expected = """before
<!-- table: gains lenet cifar10 100 -->

| labels | visits saved | regular | at random                           |
| ------ | ------------ | ------- | ----------------------------------- |
| clean  | 25 %         | 61.00   | **+2.00** (2 seeds, +1.00 to +3.00) |

after | this
"""
    assert pages.fill(page, results) == expected
    assert pages.fill(expected, results) == expected


# Table 1 for the ten networks: what is timed, and what is made of it.


def facts(regular, pruned, network="wrn22"):
    return {
        "network": network, "samples": 160, "batch_size": 16, "kept": 128,
        "regular": regular, "pruned": pruned, "overhead": [0.001] * len(regular),
    }  # fmt: skip


def test_a_network_is_timed_in_turns():
    torch.set_num_threads(1)
    found = measure("lenet", None, seconds=0.0, long=0.0)
    assert (found["samples"], found["kept"]) == (160, 128)
    assert len(found["regular"]) == len(found["pruned"]) == len(found["overhead"]) == 3
    assert min(found["regular"] + found["pruned"] + found["overhead"]) > 0


def test_what_an_epoch_saves_is_put_to_the_papers_run():
    assert len(RUN.pruned_epochs) == 142
    found = row(facts([10.0, 10.0, 20.0], [8.0, 9.0, 15.0]))
    assert found["predicted_percent"] == pytest.approx(0.2 * 71)
    assert (found["lowest_percent"], found["epoch_percent"], found["highest_percent"]) == pytest.approx((10, 20, 25))
    assert found["measured_percent"] == pytest.approx(0.2 * 71)
    assert (found["regular_seconds"], found["pruned_seconds"]) == (10.0, 9.0)
    assert found["paper_percent"] == 14.29


# The table of wrong labels found, from arrays of runs as benchmarks.study.train writes them.


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


# How well scores find wrong samples: against scikit-learn, and that a good score is called good.


JUDGED = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=50)


def split(judged):
    return np.array([score for score, _ in judged]), np.array([bad for _, bad in judged])


@given(JUDGED)
def test_auc_is_that_of_scikit_learn(judged):
    scores, wrong = split(judged)
    if wrong.all() or not wrong.any():
        assert auc(scores, wrong) is None
    else:
        assert auc(scores, wrong) == pytest.approx(roc_auc_score(wrong, scores))
        assert auc(-scores, wrong) == pytest.approx(1 - auc(scores, wrong))


@given(JUDGED, st.randoms(), st.data())
def test_the_order_of_the_samples_does_not_matter(judged, random, data):
    top, shuffled = data.draw(st.integers(1, len(judged))), list(judged)
    random.shuffle(shuffled)
    assert precision_at(*split(shuffled), top) == pytest.approx(precision_at(*split(judged), top))
    assert auc(*split(shuffled)) == pytest.approx(auc(*split(judged)))


@given(JUDGED, st.data())
def test_precision_lies_between_the_best_and_the_worst_way_to_break_ties(judged, data):
    scores, wrong = split(judged)
    top = data.draw(st.integers(1, len(judged)))
    ways = [wrong[np.lexsort((tie, -scores))[:top]].mean() for tie in (wrong, ~wrong)]
    assert ways[0] - 1e-9 <= precision_at(scores, wrong, top) <= ways[1] + 1e-9


@given(st.lists(st.booleans(), min_size=10, max_size=40))
def test_the_perfect_score_is_perfect_and_knowing_nothing_is_the_base_rate(wrong):
    wrong = np.array(wrong)
    if wrong.any() and not wrong.all():
        best = found(wrong.astype(float), wrong)
        assert (best.auc, best.precision_at_wrong) == (1, 1)
    blind = found(np.zeros(wrong.size), wrong)
    assert blind.auc in (None, 0.5)
    assert blind.precision_at_tenth == pytest.approx(wrong.mean())
    assert blind.to_dict().keys() == {"auc", "precision_at_100", "precision_at_tenth", "precision_at_wrong"}
