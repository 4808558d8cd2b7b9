"""Times side by side, and how a row of them is shown."""

import os
import platform

import numpy as np
import pytest

from benchmarks.common.markdown import gain
from benchmarks.common.timing import Row, alternate, cpu, machine, made_on, table


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


def test_the_machine_is_named():
    about = machine(InfoBatch="abc")
    assert about["InfoBatch"] == "abc"
    assert all(isinstance(value, str) and value for value in about.values())


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
