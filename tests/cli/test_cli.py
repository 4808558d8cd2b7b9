import os
import shlex
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prunedata
from prunedata.cli.text import strip
from prunedata.plan.cost import CostModel
from prunedata.plan.schedule import Schedule
from prunedata.run.pruner import Pruner

RUN = "plan --samples 50000 --epochs 200 --batch-size 128"
PLAN = f"{RUN} --window 60 --start 20 --block 5 --pruned-per-block 4 --attenuation 2 --prune 0.2 --batch-time 0.016"
UNTIMED = PLAN.removesuffix(" --batch-time 0.016")
KEYS = {
    "pruned_epochs", "pruned_epochs_printed", "regular_seconds", "pruned_seconds", "saved_seconds", "saved_percent",
    "visits_saved_percent",
}  # fmt: skip


def program(command, **environment):
    """Run the real program: the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "prunedata", *shlex.split(command)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        check=False,
    )


def test_plan_as_a_program():
    done = program(PLAN)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1] == "  0  " + "░" * 20 + "████░" * 8
    assert lines[2] == " 60  " + "░" * 10 + "████░" * 10
    assert lines[3] == "120  " + "░" * 5 + "████░" * 11
    assert lines[4] == "180  " + "░░" + "████░" * 3 + "███"
    facts = {line[:23].strip(): line[23:].split() for line in lines[6:]}
    assert facts["pruned epochs, exact"][0] == "131"
    assert facts["pruned epochs, printed"][0] == "96"
    assert facts["batches, regular"][0] == "78,200"
    assert facts["batches, pruned"][0] == "67,982"
    assert facts["time, regular"] == ["1,251.20", "s", "20", "min", "51", "s"]
    assert facts["time saved, percent"] == ["13.07", "%"]
    assert facts["sample visits saved"] == ["13.10", "%"]


def test_plan_falls_back_to_ascii_where_blocks_cannot_be_written():
    done = program(PLAN, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == "  0  " + "." * 20 + "####." * 8


def test_a_program_that_fails_says_so_in_a_line_without_a_traceback():
    done = program("inspect no/such/run.zarr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("prunedata: error: ")
    assert done.stderr.count("\n") == 1


def test_version_and_exit_status_are_told():
    done = program("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"prunedata {prunedata.__version__}\n", "")
    done = program("--help", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Exit status: 0 on success" in done.stdout
    assert "2 on an error" in done.stdout


@pytest.mark.parametrize("reading", ["aligned", "printed"])
def test_plan_in_json_is_the_prediction(prints_json, reading):
    found = prints_json(f"{PLAN} --overhead 0.5 --reading {reading}")
    assert found.keys() >= KEYS
    schedule = Schedule(200, 60, 20, 5, 4, 2, reading)
    expected = asdict(CostModel(50_000, 128, 0.016, 0.5).predict(schedule, 0.2))
    assert {name: found[name] for name in expected} == expected
    assert found["pruned_epoch_numbers"] == list(schedule.pruned_epochs)
    assert Schedule.from_dict(found["schedule"]) == schedule
    assert found["pruned_epochs"] == {"aligned": 131, "printed": 142}[reading]


def test_prune_is_a_fraction_a_number_or_a_percentage(prints):
    assert prints(f"{PLAN} --prune 20%") == prints(f"{PLAN} --prune 10000") == prints(PLAN)
    assert prints(f"{PLAN} --anneal 10%") == prints(f"{PLAN} --anneal 0.1")


def test_without_a_batch_time_the_plan_is_in_percent(prints, prints_json):
    out = prints(UNTIMED)
    facts = {line[:23].strip(): line[23:].split() for line in out.splitlines()[6:]}
    timed = {line[:23].strip(): line[23:].split() for line in prints(PLAN).splitlines()[6:]}
    assert facts["batches saved"] == ["10,218"]
    assert facts["time saved, percent"][:2] == timed["time saved, percent"] == ["13.07", "%"]
    assert facts["sample visits saved"] == timed["sample visits saved"]
    assert not {name for name in facts if name.startswith("time")} - {"time saved, percent"}
    assert out.splitlines()[:6] == prints(PLAN).splitlines()[:6]
    found, with_time = prints_json(UNTIMED), prints_json(PLAN)
    unknown = ("regular_seconds", "pruned_seconds", "saved_seconds")
    assert [found[name] for name in unknown] == [None] * 3
    assert found["saved_percent"] == pytest.approx(with_time["saved_percent"])
    assert found.keys() == with_time.keys()


def test_milestones_take_the_place_of_the_window(prints, prints_json):
    found = prints_json(f"{PLAN} --milestones 60 120 160")
    assert found["schedule"]["window"] == [60, 60, 40, 40]
    assert found["pruned_epochs_printed"] is None
    out = prints(PLAN.replace("--window 60", "--window 60 60 40 40"))
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["0", "60", "120", "160"]
    assert "no formula for windows of given lengths" in out


def test_proposals_can_be_planned_as_they_are_printed(prints, prints_json):
    out = prints(f"{RUN} --window 60 --target-saving 15")
    rows = [line for line in out.splitlines() if "--start" in line]
    assert 3 <= len(rows) <= 5
    for row in rows:
        saved, epochs, options = row.split("%")[0], row.split("%")[1].split()[0], row[row.index("--") :]
        assert float(saved) >= 15
        found = prints_json(f"{RUN} {options} --batch-time 1")
        assert f"{found['saved_percent']:.2f}" == saved.strip()
        assert found["pruned_epochs"] == int(epochs)


@pytest.mark.parametrize("shape", ["--window 60 --reading printed", "--milestones 60 120 160"])
def test_proposals_in_json(prints_json, shape):
    proposals = prints_json(f"{RUN} {shape} --target-saving 15")["proposals"]
    assert 1 <= len(proposals) <= 5
    for proposal in proposals:
        assert proposal["saved_percent"] >= 15
        found = prints_json(f"{RUN} {proposal['options']} --batch-time 0.1")
        assert found["saved_percent"] == pytest.approx(proposal["saved_percent"])
        assert found["schedule"] == {name: proposal[name] for name in found["schedule"]}


def test_proposals_beside_a_plan(prints, prints_json):
    found = prints_json(f"{PLAN} --target-saving 15")
    assert found.keys() >= KEYS | {"proposals"}
    assert found["pruned_epochs"] == 131
    for plan in (PLAN, UNTIMED):
        assert prints(f"{plan} --target-saving 15").startswith(f"{prints(plan)}\nschedules that save at least 15 % of")


@pytest.mark.parametrize(("change", "what"), [("--start 500", "epoch"), ("--prune 0.00001", "sample")])
def test_a_plan_that_saves_nothing_says_so(prints, change, what):
    out = prints(f"{PLAN} {change}")
    assert out.endswith(f"Nothing is saved: this schedule never prunes any {what}.\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        (f"{PLAN} --prune 50000", "prune = all leaves nothing to train on"),
        (f"{PLAN} --prune some", "argument --prune: invalid number value: 'some'"),
        (f"{PLAN} --epochs 1000000000", "Expected --epochs to be from 1 to 1000000. Got 1000000000."),
        (f"{PLAN} --attenuation 0.5", "Expected attenuation to be a finite number of at least 1. Got 0.5."),
        (f"{PLAN} --reading literal", "argument --reading: invalid choice: 'literal'"),
        (f"{PLAN} --milestones 60 50", "Expected milestones that rise"),
        (f"{PLAN} --milestones 60 --reading printed", "Expected --window with --reading printed"),
        (f"{PLAN} --target-saving 95", "the largest proposed"),
        (f"{RUN} --window 60", "Missing: --start, --block, --pruned-per-block, --prune."),
        (f"{RUN} --window 60 --target-saving 15 --prune 0.2", "Missing: --start"),
        (f"{RUN} --window 60 --target-saving 15 --overhead 1", "Expected --batch-time with --overhead"),
        (f"{RUN} --target-saving 15", "Expected --window, --milestones or --steady. Got none of them."),
        (f"{PLAN} --wndow 3", "unrecognized arguments: --wndow 3 (see 'prunedata --help')"),
        (f"{UNTIMED} --overhead 1", "Expected --batch-time with --overhead"),
    ],
)
def test_errors_say_what_was_expected(refuses, command, message):
    assert message in refuses(command)


@given(st.integers(1, 300), st.integers(1, 150), st.integers(1, 20))
def test_a_strip_shows_each_epoch_once(epochs, window, start):
    schedule = Schedule(epochs, max(window, epochs // 20), start, 5, 4)
    cells = "".join(line.split()[1] for line in strip(schedule, ".#"))
    assert cells == "".join("#" if schedule.prunes(e) else "." for e in range(epochs))


@pytest.fixture
def store(tmp_path):
    """The store of a run of 5 epochs, 3 of them pruned, that has begun its sixth."""
    pruner = Pruner(100, Schedule(8, 4, 1, 2, 1), prune=0.3, store=tmp_path / "run.zarr", seed=3)
    for _ in range(5):
        kept = np.flatnonzero(pruner.begin_epoch().keep)
        pruner.observe(np.arange(100.0)[kept], kept)
        pruner.end_epoch()
    pruner.begin_epoch()
    pruner.commit()
    return tmp_path / "run.zarr"


def test_inspect_says_what_a_store_holds(prints, store):
    out = prints(f"inspect {store} --top 4")
    lines = out.splitlines()
    assert "state       next is epoch 5 of 8, begun and not ended" in lines
    assert "prune       30" in lines
    assert "samples of each count in this window" in lines
    assert len(lines[lines.index("pruned most") + 2 :]) == 4


def test_inspect_in_json(prints_json, store):
    found = prints_json(f"inspect {store}")
    assert (found["samples"], found["epoch"], found["open"], found["seed"]) == (100, 5, True, 3)
    assert [record["kept"] for record in found["history"]] == [100, 70, 100, 70, 100]
    assert sum(found["counts_histogram"].values()) == 100
    assert Schedule.from_dict(found["schedule"]) == Schedule(8, 4, 1, 2, 1)
    most = found["most_pruned"]
    assert len(most) == 10
    assert all(one["pruned"] + one["visits"] == 5 for one in most)
    assert most == sorted(most, key=lambda one: -one["pruned"])


def test_top_may_be_a_percentage(prints_json, store):
    assert len(prints_json(f"inspect {store} --top 7%")["most_pruned"]) == 7


def test_inspect_refuses_what_is_no_run(refuses, tmp_path):
    for place in (tmp_path, tmp_path / "nothing"):
        assert str(place) in refuses(f"inspect {place}")
    assert not (tmp_path / "nothing").exists()


def test_a_steady_schedule_is_planned_as_it_is_made_in_python(prints_json, refuses):
    steady = f"{RUN} --steady --prune 20%"
    for options, schedule in (
        ("", Schedule.steady(200)),
        (" --start 50", Schedule.steady(200, 50)),
        (" --anneal 0.1", Schedule.steady(200, anneal=0.1)),
    ):
        found = prints_json(steady + options)
        assert found["schedule"] == schedule.to_dict()
        assert found["pruned_epoch_numbers"] == list(schedule.pruned_epochs)
    for options, told in (
        ("--window 60 --block 5", r"Got --window, --block."),
        ("--reading printed", "Got --reading printed."),
        ("--target-saving 15", "Got --target-saving."),
    ):
        assert f"Expected --steady with --start and --anneal at most. {told}" in refuses(f"{steady} {options}")
    assert "Expected --prune with --steady" in refuses(f"{RUN} --steady")


def test_a_number_that_looks_like_a_percentage_is_warned_of_as_the_pruner_does(say, prints):
    with pytest.warns(prunedata.errors.NeverPrunesWarning) as seen:
        Pruner(50000, Schedule.steady(200), prune=25)
    plan = UNTIMED.replace("--prune 0.2", "--prune 25")
    for command in (plan, f"{plan} --json", f"{RUN} --steady --prune 25"):
        status, _, err = say(command)
        assert (status, err) == (0, f"prunedata: warning: {seen[0].message}\n")
    prints(f"{plan}%")
