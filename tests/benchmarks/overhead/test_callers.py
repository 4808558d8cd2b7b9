"""Many callers of one dealer: no sample is lost or seen twice, also where a process of them is killed."""

import pytest

from benchmarks.common.processes.on_ray import on_ray
from benchmarks.common.records import Runs
from benchmarks.overhead.callers import RESULTS, _checked, in_ray, in_threads, main, table
from prunedata import Pruner, Schedule
from tests.common.programs import ROOT


def test_threads_that_ask_for_several_batches_share_a_run():
    found = in_threads(callers=16, most=3, batches=40)
    assert found.batches == 40 + 32
    assert found.seconds > 0


@pytest.mark.slow
def test_256_callers_lose_nothing_when_a_process_of_them_is_killed():
    pytest.importorskip("ray")
    with on_ray():
        found = in_ray(callers=256, most=2, batches=400, kill=True)
    assert (found.batches, found.processes, found.killed) == (400 + 320, 8, True)


def test_a_run_that_lost_a_sample_is_an_error():
    pruner = Pruner(10, Schedule.steady(2), prune=0.2)
    with pytest.raises(RuntimeError, match="Expected each kept sample to be observed"):
        _checked(pruner)


@pytest.mark.slow
def test_what_was_found_is_a_row_and_a_record(tmp_path, capsys):
    pytest.importorskip("ray")
    results = Runs(tmp_path / "runs.jsonl.gz")
    given = ["--callers", "2", "--most", "2", "--batches", "20", "--results", str(results.file)]
    assert main(given) == 0
    assert "| threads     | 2       | 1 " in capsys.readouterr().out
    facts = results.read()
    assert {(one["where"], one["batches"]) for one in facts} == {("threads", 36), ("Ray", 36)}
    assert table(facts).count("\n") == 3
    assert main(["--recorded", "--results", str(results.file)]) == 0
    assert capsys.readouterr().out == f"{table(facts)}\n"


@pytest.mark.docs
def test_the_page_shows_what_was_recorded():
    page = ROOT / "docs" / "frameworks" / "scale.md"
    assert table(RESULTS.read()) in page.read_text(encoding="utf-8")
