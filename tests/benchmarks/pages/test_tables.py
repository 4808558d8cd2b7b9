"""The study's tables: pairing, spread, and what the page shows."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.pages import __main__ as pages
from benchmarks.pages.accuracy import table_of_accuracy, table_of_gains
from benchmarks.pages.study_page import study
from benchmarks.pages.time_saved import table_of_savings, table_of_time
from benchmarks.study.results import RESULTS as RECORDED


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


def test_a_policys_overhead_is_the_median_of_its_runs():
    few = run("random", 3, 61.0, 100.0, 25.0, curves=[{"visits": 100, "seconds": 1.0}])
    random, regular = table_of_savings([*RESULTS[:5], few])
    assert (regular["policy"], regular["measured_over_predicted"]) == ("regular", None)
    assert (random["runs"], random["runs_in_turns"], random["measured_over_predicted"]) == (4, 3, 0.9)
    assert random["overhead_percent"] == pytest.approx(100 * 0.5 / 80, abs=1e-3)


def test_gains_stand_side_by_side():
    more = run("fewer-epochs", 0, 59.5, 75.0, 25.0)
    (row,) = table_of_gains(table_of_accuracy([*RESULTS, more]))
    assert (row["regular"], row["labels"], row["saving"]) == (61.0, "clean", 0.25)
    assert {policy: (each["gain"], each["seeds"]) for policy, each in row["gains"].items()} == {
        "random": (2.0, 2),
        "fewer-epochs": (-0.5, 1),
    }


def test_the_tables_of_the_study_align():
    lines = [line for line in study(RESULTS).splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines[:3]}) == 1
    assert any("+1.00 +3.00" in line for line in lines)
    assert any("+2.00 (2 seeds, +1.00 to +3.00)" in line for line in lines)


@pytest.mark.docs
def test_the_page_of_the_study_shows_what_is_recorded():
    page = Path(__file__).parents[3] / "docs" / "evidence" / "study.md"
    assert page.read_text() == study(RECORDED.read()), "python -m benchmarks.pages"


@pytest.mark.docs
@pytest.mark.parametrize("name", pages.PAGES)
def test_the_tables_of_a_page_show_what_is_recorded(name):
    page = (Path(__file__).parents[3] / name).read_text(encoding="utf-8")
    assert page.count("<!-- table: ") > 0
    assert pages.fill(page, RECORDED.read()) == page, "python -m benchmarks.pages"


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


def test_a_table_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="Got 'gain'"):
        pages.fill("<!-- table: gain lenet -->\n\n", RESULTS)


def test_no_results_are_explained(tmp_path, capsys):
    with pytest.raises(SystemExit):
        pages.main(["--results", str(tmp_path / "none")])
    assert "Expected results" in capsys.readouterr().err
