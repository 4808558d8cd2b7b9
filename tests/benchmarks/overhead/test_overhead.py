"""The library's own cost: that what is measured is what the page shows. No time is judged."""

import json

import pytest

from benchmarks.common.processes.on_ray import on_ray
from benchmarks.common.records import Runs
from benchmarks.overhead import __main__ as program
from benchmarks.overhead.callers import _checked, in_ray, in_threads, table
from benchmarks.overhead.callers import main as callers
from benchmarks.report.__main__ import main as report
from benchmarks.report.__main__ import measure as measure_report
from prunedata import Pruner, Schedule
from tests.benchmarks.images import infobatch_checkout
from tests.common.programs import ROOT, run_module

SIZES, BATCHES = (600, 1200), (8, 16, 64)
REAL_SIZES, REAL_BATCHES = (50_000, 1_280_000), (32, 128, 1024)
SMALL = ("--samples", "600", "1200", "--batch-sizes", "8", "16", "64", "--epochs", "25", "--repeats", "2")


def overhead(*arguments, cwd):
    return run_module("benchmarks.overhead", *arguments, cwd=cwd, options=("-W", "error"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    checkout = infobatch_checkout(tmp_path_factory.mktemp("infobatch"))
    folder = tmp_path_factory.mktemp("overhead")
    told = overhead(*SMALL, "--json", "--infobatch", str(checkout), "--disk", str(folder), cwd=folder)
    assert told.returncode == 0, told.stderr
    assert not list(folder.iterdir()), "what was committed was not cleaned up"
    return json.loads(told.stdout)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@pytest.mark.slow
def test_every_size_and_batch_has_its_rows(measured):
    rows = [(row["part"], row["samples"], row["batch"]) for row in measured["rows"]]
    assert len(set(rows)) == len(rows)
    for samples in SIZES:
        of_size = {part for part, size, _ in rows if size == samples}
        assert {"Pruner.observe, arrays", "keep_mask", "keep_mask, all counts tied", "commit"} <= of_size
        assert {"epoch_order, all kept", "epoch_order, a quarter pruned", "end of an epoch"} <= of_size
        assert {batch for part, size, batch in rows if size == samples and "observe" in part} == set(BATCHES)


@pytest.mark.slow
def test_peers_stand_beside_what_they_do_too(measured):
    for row in measured["rows"]:
        if "observe" in row["part"]:
            assert set(row["peers"]) == {"InfoBatch update"}
        elif row["part"].startswith("keep_mask"):
            assert set(row["peers"]) == {"np.argpartition", "torch.topk"}
        elif row["part"].startswith("epoch_order"):
            assert set(row["peers"]) == {"torch.randperm", "np.random.Generator.permutation"}


@pytest.mark.docs
def test_the_page_of_results_has_the_rows_that_are_measured(measured):
    page = (ROOT / "docs" / "evidence" / "results.md").read_text().partition("## Overhead")[2]
    table = [line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 9]
    shown = [tuple(cells(line)[:3]) for line in table[2:]]
    size, batch = dict(zip(SIZES, REAL_SIZES, strict=True)), dict(zip(BATCHES, REAL_BATCHES, strict=True))
    expected = [
        (row["part"], f"{size[row['samples']]:,}", str(batch.get(row["batch"], ""))) for row in measured["rows"]
    ]
    # A second table has the rows of --large.
    heads = ("samples", "100,000,000")
    assert [row for row in shown if row[1] not in heads and row[1].strip("-")] == expected
    assert "InfoBatch update" in page


def test_the_table_has_the_columns_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "HISTORIES", (10,))
    small = ["--samples", "60", "--batch-sizes", "8", "--epochs", "25", "--repeats", "1", "--disk", str(tmp_path)]
    assert program.main([*small, "--markdown"]) == 0
    printed = capsys.readouterr().out
    header, _, *rows = (line for line in printed.splitlines() if line.startswith("|"))
    assert cells(header) in map(cells, (ROOT / "docs" / "evidence" / "results.md").read_text().splitlines())
    assert rows
    assert all(len(cells(line)) == len(cells(header)) for line in rows)
    assert "InfoBatch" not in printed


@pytest.mark.slow
def test_dealing_stands_beside_queues(tmp_path):
    given = ("--samples", "640", "--batch-size", "64", "--repeats", "1", "--json")
    told = run_module("benchmarks.overhead.dealing", *given, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    rows = json.loads(told.stdout)["rows"]
    assert [set(row["peers"]) for row in rows] == [
        {"no dealer", "multiprocessing.Queue"},
        {"ray.util.queue.Queue", "multiprocessing.Queue"},
    ]
    assert all(row["min"] > 0 for row in rows)


@pytest.mark.slow
def test_the_exchange_stands_beside_a_byte_a_sample(tmp_path):
    told = run_module("benchmarks.overhead.exchange", "--samples", "999", "--repeats", "2", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    exchange, alone, means = json.loads(told.stdout)["rows"]
    assert (exchange["part"], exchange["samples"], exchange["n"]) == ("exchange, 2 ranks", 999, 2)
    assert set(exchange["peers"]) == {"all_reduce of uint8"}
    assert (alone["part"], set(alone["peers"])) == ("bits of the kept alone, 2 ranks", {"bits of all"})
    assert means["part"] == "means of global batches of 256, 2 ranks"
    assert exchange["min"] > 0 < means["min"]


# Many callers of one dealer: no sample is lost or seen twice, also where a process of them is killed.


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
    results = Runs(tmp_path / "runs.jsonl.bz2")
    given = ["--callers", "2", "--most", "2", "--batches", "20", "--results", str(results.file)]
    assert callers(given) == 0
    assert "| threads     | 2       | 1 " in capsys.readouterr().out
    facts = results.read()
    assert {(one["where"], one["batches"]) for one in facts} == {("threads", 36), ("Ray", 36)}
    assert table(facts).count("\n") == 3
    assert callers(["--recorded", "--results", str(results.file)]) == 0
    assert capsys.readouterr().out == f"{table(facts)}\n"


# The benchmark of the report runs, and measures what it says.


def test_it_prints_a_table(capsys):
    assert report(["--samples", "3000", "--repeats", "1"]) == 0
    assert "report of two runs side by side | 3,000" in " ".join(capsys.readouterr().out.split())


def test_both_rows_stand_beside_reading_the_store(tmp_path):
    rows = measure_report(tmp_path, 1000, 2)
    assert [len(row.times) for row in rows] == [2, 2]
    assert all(row.peers["reading the store"] for row in rows)
    assert (tmp_path / "report.html").exists()
