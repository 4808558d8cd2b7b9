"""prunedata suspects --to: the files that tools read which clean data."""

import csv
import json

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.findings.table import suspect_table
from prunedata.policies import RunningLoss
from prunedata.store.run_store import RunStore

SAMPLES = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A run of ten epochs, six of them pruned, in which every fourth sample never gets better."""
    place = tmp_path_factory.mktemp("run") / "run.zarr"
    pruner = Pruner(SAMPLES, Schedule(10, 10, 4, 1, 1), prune=5, store=place, policy=RunningLoss(), classes=10)
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


@pytest.mark.parametrize(("form", "read"), [("csv", read_csv), ("jsonl", read_jsonl), ("parquet", read_parquet)])
@pytest.mark.parametrize("named", [True, False], ids=["named", "by the ending"])
def test_every_form_holds_what_the_run_knows_of_each_sample(say, store, tmp_path, form, read, named):
    path = tmp_path / (f"some.{form}" if not named else "file")
    status, out, err = say(f"suspects {store} --top 10 -o {path}" + (f" --to {form}" if named else ""))
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"10 samples -> {path}"
    table, rows = suspect_table(store, top=10), read(path)
    assert list(table) == ["id", "hits", "high", "visits", "score", "pruned", "excess"]
    assert {name: [type(value)(row[name]) for row, value in zip(rows, column.tolist(), strict=True)]
            for name, column in table.items()} == {name: column.tolist() for name, column in table.items()}  # fmt: skip
    assert sorted(table["id"].tolist()) == list(range(0, SAMPLES, 4))
    assert (table["pruned"] + table["visits"] == 10).all()
    assert table["pruned"].sum() == 6 * 5


def test_a_number_that_is_none_is_left_empty(say, store, tmp_path):
    from prunedata.findings.table import WRITERS

    WRITERS["csv"]({"id": np.array([3]), "loss": np.array([np.nan])}, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "id,loss\n3,\n"
    WRITERS["jsonl"]({"id": np.array([3]), "loss": np.array([np.nan])}, tmp_path / "a.jsonl")
    assert read_jsonl(tmp_path / "a.jsonl") == [{"id": 3, "loss": None}]


def test_for_cleanlab_every_sample_has_a_score(say, store, tmp_path):
    status, out, _ = say(f"suspects {store} --top 3 --to cleanlab -o {tmp_path / 'issues.csv'}")
    assert (status, out.splitlines()[-1]) == (0, f"40 samples -> {tmp_path / 'issues.csv'}")
    rows = read_csv(tmp_path / "issues.csv")
    assert [int(row["id"]) for row in rows] == list(range(SAMPLES))
    assert [row["is_training_dynamics_issue"] for row in rows] == [str(i % 4 == 0) for i in range(SAMPLES)]
    excess = RunStore(store, mode="r").read()[1]["mean_excess"]
    assert [float(row["training_dynamics_score"]) for row in rows] == pytest.approx(1 / (1 + np.exp(excess)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--to csv", "Expected --out FILE beside --to csv. Got none."),
        ("--to xlsx --out {}/a", "Expected --to ids, csv, jsonl, verdicts, cleanlab or parquet. Got xlsx."),
        ("--to iterable --out {}/a", "Got iterable."),
        ("--to ../a --out {}/a", "Got ../a."),
    ],
)
def test_a_form_that_there_is_not_is_refused_before_anything_is_read(say, store, tmp_path, words, told):
    status, out, err = say(f"suspects {store} {words.format(tmp_path)}")
    assert (status, out) == (2, "")
    assert told in err
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_the_extra_is_named(say, store, tmp_path, monkeypatch):
    import sys

    monkeypatch.delitem(sys.modules, "prunedata.adapters.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = say(f"suspects {store} --to parquet -o {tmp_path / 'a'}")
    assert status == 2
    assert "pip install pyarrow" in err


def test_inspect_says_how_many_were_left_out_for_good(say, store, tmp_path):
    _, out, _ = say(f"inspect {store}")
    assert "left out for good" not in out
    pruner = Pruner(9, Schedule(2, 2, 1, 1, 1), prune=2, store=tmp_path / "run.zarr", without=[3, 5])
    for epoch in pruner.epochs():
        pruner.observe(np.ones(epoch.kept), np.flatnonzero(epoch.keep))
    _, out, _ = say(f"inspect {tmp_path / 'run.zarr'}")
    assert "left out for good  2\n" in out
    assert "saved              2 of 14 sample visits (14.29 %)" in out
