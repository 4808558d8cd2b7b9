"""Command lines, tables and times side by side, also beside a peer."""

import os
import platform
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from benchmarks.common.arguments import add_images, add_results, program
from benchmarks.common.infobatch import InfoBatch
from benchmarks.common.markdown import aligned, gain
from benchmarks.common.records import Runs
from benchmarks.common.timing import Row, alternate, cpu, made_on, table
from tests.benchmarks.images import infobatch_checkout
from tests.common.programs import ROOT

# Times side by side, and how a row of them is shown.


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_rivals_take_turns_after_one_to_warm_up():
    calls = []

    def rival(name):
        return lambda: calls.append(name) or float(len(calls))

    assert alternate({"a": rival("a"), "b": rival("b")}, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert calls == ["a", "b"] * 3


def test_a_ratio_is_the_median_of_those_of_the_turns():
    row = Row("part", 1000, None, "ns", [1.0, 2.0, 10.0], {"peer": [8.0, 4.0, 10.0]}, goal=2.5)
    assert row.ratio("peer") == 2.0  # of 8, 2 and 1; the ratio of the medians is 4
    assert row.to_dict()["peers"]["peer"] == {"median": 8.0, "min": 4.0, "max": 10.0, "ratio": 2.0}
    *_, last = table([row]).splitlines()
    assert cells(last) == ["part", "1,000", "", "**2** ns", "1 - 10", "3", "2.5", "peer 8 (x2)"]


def test_what_a_run_was_made_on_has_hardware_and_versions():
    found = made_on("numpy", threads=1)
    assert found["versions"] == {"python": platform.python_version(), "numpy": np.__version__}
    assert found["hardware"] == f"{cpu()}, 1 of {os.cpu_count()} cores"
    assert f"{os.cpu_count()} cores, {platform.system()}" in made_on()["hardware"]


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([], ""),
        ([-0.04], "+0.0 (1 seed)"),
        ([1.0, -0.5, 2.04], "+0.8 (-0.5 to +2.0)"),
        ([0.0, 0.0], "+0.0 (+0.0 to +0.0)"),
    ],
)
def test_gains_are_told_as_mean_and_range(points, told):
    assert gain(points, alone=" (1 seed)") == told


# What the command lines share: what is read, and what ``--help`` says.


def test_images_are_a_folder_and_results_a_file():
    parser = program("benchmarks.scale", None)
    add_images(parser, ", some of them")
    add_results(parser, Runs(ROOT / "benchmarks" / "scale" / "results.jsonl.bz2"))
    said = " ".join(parser.format_help().split())
    assert "default: digits, some of them" in said
    assert "default: benchmarks/scale/results.jsonl.bz2" in said
    assert parser.parse_args([]).data is None
    assert parser.parse_args(["--results", "there"]).results.file == Path("there")


@pytest.mark.parametrize(("left", "row"), [((0,), "a       10"), ((), "     a  10")])
def test_a_plain_table_has_a_rule_below_its_head(left, row):
    head, rule, first, last = aligned([("run", "n"), ("a", "10"), ("longer", "2")], left)
    assert (rule, first, last) == ("------  --", row, "longer   2")
    assert head.endswith("  n")


# InfoBatch is loaded from its file, and what it does to DataLoader is undone.


def test_infobatch_is_loaded_and_its_patch_undone(tmp_path):
    before = _BaseDataLoaderIter.__next__
    peer = InfoBatch(infobatch_checkout(tmp_path))
    assert _BaseDataLoaderIter.__next__ is before
    assert len(peer.wrap(10).scores) == 10
    assert [batch.tolist() for batch in DataLoader(range(3), batch_size=2)] == [[0, 1], [2]]


def test_the_patch_is_undone_though_the_file_fails(tmp_path):
    infobatch_checkout(tmp_path, "\nraise KeyError('later')\n")
    before = _BaseDataLoaderIter.__next__
    with pytest.raises(KeyError, match="later"):
        InfoBatch(tmp_path)
    assert _BaseDataLoaderIter.__next__ is before
