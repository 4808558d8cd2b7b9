"""What the commands write for others to read, of runs of every kind."""

import csv
import json
import re
import shutil
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import prunedata
from prunedata import Pruner, Schedule
from prunedata.findings.inspection import inspect
from prunedata.findings.table import WRITERS, suspect_table
from prunedata.policies import Random, RunningLoss
from prunedata.policies.selection import draw_holdout
from prunedata.reporting.facts import facts_of
from prunedata.reporting.kept import keep_previews
from prunedata.store.run_store import RunStore
from tests.reporting.reading import KINDS, SAMPLES, UNSEEN, WRONG
from tests.run.test_holdout import losses, start

# prunedata suspects --to: the files that tools read which clean data.


ROWS = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A run of ten epochs, six of them pruned, in which every fourth sample never gets better."""
    place = tmp_path_factory.mktemp("run") / "run.zarr"
    pruner = Pruner(ROWS, Schedule(10, 10, 4, 1, 1), prune=5, store=place, policy=RunningLoss(), classes=10)
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(np.where(ids % 4 == 0, 4.0 + 0.01 * ids, 0.5), ids)
    return place


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_parquet(path):
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


@pytest.mark.parametrize(
    ("name", "option", "read"),
    [
        ("a.csv", "", read_csv),
        ("a.jsonl", "", read_jsonl),
        ("a.parquet", "", read_parquet),
        ("file", "--to csv", read_csv),
    ],
)
def test_every_form_holds_what_the_run_knows_of_each_sample(prints, store, tmp_path, name, option, read):
    path = tmp_path / name
    out = prints(f"suspects {store} --top 10 -o {path} {option}")
    assert out.splitlines()[-1] == f"10 samples -> {path}"
    table, rows = suspect_table(store, top=10), read(path)
    assert list(table) == ["id", "hits", "high", "visits", "score", "pruned", "excess"]
    assert {name: [type(value)(row[name]) for row, value in zip(rows, column.tolist(), strict=True)]
            for name, column in table.items()} == {name: column.tolist() for name, column in table.items()}  # fmt: skip
    assert sorted(table["id"].tolist()) == list(range(0, ROWS, 4))
    assert (table["pruned"] + table["visits"] == 10).all()
    assert table["pruned"].sum() == 6 * 5


def test_a_number_that_is_none_is_left_empty(tmp_path):
    WRITERS["csv"]({"id": np.array([3]), "loss": np.array([np.nan])}, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "id,loss\n3,\n"
    WRITERS["jsonl"]({"id": np.array([3]), "loss": np.array([np.nan])}, tmp_path / "a.jsonl")
    assert read_jsonl(tmp_path / "a.jsonl") == [{"id": 3, "loss": None}]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_millions_of_samples_are_written_part_by_part(tmp_path, form):
    table = {"id": np.arange(40_000), "score": np.linspace(0, 1, 40_000)}
    tracemalloc.start()
    WRITERS[form](table, tmp_path / "file")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 << 20
    lines = (tmp_path / "file").read_text().splitlines()
    assert len(lines) == 40_000 + (form == "csv")
    assert "39999" in lines[-1]


def test_for_cleanlab_every_sample_has_a_score(prints, store, tmp_path):
    out = prints(f"suspects {store} --top 3 --to cleanlab -o {tmp_path / 'issues.csv'}")
    assert out.splitlines()[-1] == f"40 samples -> {tmp_path / 'issues.csv'}"
    rows = read_csv(tmp_path / "issues.csv")
    assert [int(row["id"]) for row in rows] == list(range(ROWS))
    assert [row["is_training_dynamics_issue"] for row in rows] == [str(i % 4 == 0) for i in range(ROWS)]
    excess = RunStore(store, mode="r").read()[1]["mean_excess"]
    assert [float(row["training_dynamics_score"]) for row in rows] == pytest.approx(1 / (1 + np.exp(excess)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--to csv", "Expected --out FILE with --to csv. Got none."),
        ("--to xlsx --out {}/a", "Expected --to ids, csv, jsonl, verdicts, cleanlab or parquet. Got xlsx."),
        ("--to iterable --out {}/a", "Got iterable."),
        ("--to ../a --out {}/a", "Got ../a."),
    ],
)
def test_a_form_that_there_is_not_is_refused_before_anything_is_read(refuses, store, tmp_path, words, told):
    assert told in refuses(f"suspects {store} {words.format(tmp_path)}")
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_the_extra_is_named(refuses, store, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "prunedata.adapters.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refuses(f"suspects {store} --to parquet -o {tmp_path / 'a'}")


def test_rows_of_the_data_that_was_selected_from_stand_beside_the_ids(prints, prints_json, store, tmp_path):
    place, rows = tmp_path / "run.zarr", np.arange(ROWS) + 100
    shutil.copytree(store, place)
    keep_previews(place, Pruner(ROWS, Schedule(10, 10, 4, 1, 1), prune=5, store=place, policy=RunningLoss(), classes=10,
                                resume=True), np.zeros((ROWS, 8, 8)), rows, most=20)  # fmt: skip
    found = prints_json(f"inspect {place}")["most_pruned"]
    assert [one["row"] for one in found] == [one["id"] + 100 if one["id"] % 4 == 0 else None for one in found]
    head, first = prints(f"inspect {place} --top 1").splitlines()[-2:]
    assert head.split() == ["sample", "row", "pruned", "hits", "visits", "count"]
    assert first.split()[:2] == [str(found[0]["id"]), str(found[0]["id"] + 100)]
    assert prints(f"top {place} --top 1").splitlines()[-1].split()[-2:] == ["an", "image"]


def test_inspect_says_how_many_were_left_out_for_good(prints, store, tmp_path):
    out = prints(f"inspect {store}")
    assert "left out for good" not in out
    pruner = Pruner(9, Schedule(2, 2, 1, 1, 1), prune=2, store=tmp_path / "run.zarr", without=[3, 5])
    for epoch in pruner.epochs():
        pruner.observe(np.arange(epoch.kept, dtype=float), np.flatnonzero(epoch.keep))
    out = prints(f"inspect {tmp_path / 'run.zarr'}")
    assert "left out for good  2\n" in out
    assert "saved              2 of 14 sample visits (14.29 %)" in out


# Every command on every kind of run: none fails, and their numbers agree with each other.


pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")

DATA = f"""
class Texts(list):
    targets = [i % 3 for i in range({SAMPLES})]

data = Texts((f"text {{i}}", i % 3) for i in range({SAMPLES}))
"""
ASIDE = {one for one in KINDS if one.startswith("held_out")}
CLEANED = {one for one in KINDS if "left_out_for_good" in one}


@pytest.mark.parametrize("kind", KINDS)
def test_no_command_fails_and_what_they_say_agrees(say, prints, prints_json, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.py").write_text(DATA, encoding="utf-8")
    np.save(tmp_path / "labels.npy", np.arange(SAMPLES) % 3)
    KINDS[kind](tmp_path / "run.zarr")
    about, counted = inspect("run.zarr"), kind not in UNSEEN
    held_out, without = np.zeros(SAMPLES, bool), np.zeros(SAMPLES, bool)
    without[WRONG[:5]] = kind in CLEANED
    if kind in ASIDE:
        held_out = draw_holdout(SAMPLES, 0.2, 0) & ~without
    searched, held_out = ~(held_out | without), int(held_out.sum())
    assert (about["held_out"], about["without"]) == (held_out, 5 * (kind in CLEANED))
    assert SAMPLES - about["held_out"] - about["without"] == searched.sum()
    assert sum(about["counts_histogram"].values()) == searched.sum()
    assert searched[[one["id"] for one in about["most_pruned"]]].all()
    assert about["saved"]["visits"] == sum(record["kept"] for record in about["history"])

    facts = facts_of("run.zarr")
    trained = [one["kept"] - one.get("by_weight", 0) - one.get("held_out", 0) for one in about["history"]]
    assert facts.pruned.tolist() == [one < searched.sum() for one in trained]
    assert facts.saved["pruned_epochs"] == facts.pruned.sum()
    assert kind not in ASIDE or "validated" not in " ".join(facts.advice.evidence)

    told = re.findall(r"^ +\d+ +(?:yes|no) +([\d,]+) ", prints("inspect run.zarr"), re.MULTILINE)
    assert [int(one.replace(",", "")) for one in told] == trained[-10:]
    for command in ("inspect", "doctor", "advise", "report"):
        out = prints(f"{command} run.zarr")
        if held_out and command in ("inspect", "doctor"):
            assert re.search(rf"{held_out} held out|held out +{held_out}, never trained on and not searched", out)
        assert "never observed" not in out or kind == "random_without_losses"
    for command in ("suspects run.zarr --json", "compare run.zarr run.zarr", "suspects run.zarr --labels labels.npy"):
        assert say(command)[0] == (0 if counted else 2), command
    review = f"report run.zarr --review --dataset texts.py:data --top {SAMPLES}"
    assert say(review)[0] == (0 if counted else 2)
    prints("report run.zarr --compare run.zarr --dataset texts.py:data")
    if not counted:
        return

    found = prints_json(f"suspects run.zarr --top {SAMPLES}")
    suspects = [row["id"] for row in found["suspects"]]
    said = prints_json(f"report run.zarr --top {SAMPLES}")["runs"][0]
    assert [row["id"] for row in said["suspects"]] == suspects
    assert said["advice"] == json.loads(say("advise run.zarr --json")[1])
    assert about["advice"] in (None, said["advice"])
    assert prints("advise run.zarr").startswith(said["outcome"])
    assert (found["held_out"], found["without"]) == (about["held_out"], about["without"])
    assert searched[suspects].all()
    page = Path("review.html").read_text(encoding="utf-8")
    written = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [one["id"] for one in written["items"]] == suspects
    prints("suspects run.zarr -o scores.csv --to cleanlab")
    rows = read_csv(Path("scores.csv"))
    assert [row["training_dynamics_score"] != "" for row in rows] == np.isin(np.arange(SAMPLES), suspects).tolist()
    assert not any(row["is_training_dynamics_issue"] == "True" for row in rows if int(row["id"]) not in suspects)


def test_doubted_labels_are_those_of_samples_that_are_trained_on(tmp_path):
    """Held-out samples have no visits, and so would look like the mean of all."""
    run = start(leave_out="nothing", policy=Random(), without=np.arange(50), prune=0.2, store=tmp_path / "run.zarr")
    for epoch in run.epochs():
        epoch.apply_weights()
        for ids in epoch.batches(32):
            run.observe(losses(ids, epoch.number, 6), ids)
    live, stored = run.advice, facts_of(tmp_path / "run.zarr").advice
    trained_on = int((~draw_holdout(200, 0.2, 0) & (np.arange(200) >= 50)).sum())
    assert live.verdict == stored.verdict == "prune"
    assert f"of {trained_on} labels" in " ".join(stored.evidence)
    assert (stored.prune, stored.saving_percent, stored.doubted) == (live.prune, live.saving_percent, live.doubted)
    assert prunedata.report(run).runs[0]["outcome"].startswith(f"{live.doubted} of {trained_on} labels look wrong.")
