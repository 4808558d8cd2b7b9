"""Times side by side, and how a row of them is shown."""

from benchmarks.common.timing import Row, alternate, machine, table


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
