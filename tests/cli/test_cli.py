import json
import os
import shlex
import subprocess
import sys

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
    "pruned_epochs",
    "pruned_epochs_printed",
    "regular_seconds",
    "pruned_seconds",
    "saved_seconds",
    "saved_percent",
    "visits_saved_percent",
}


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
    for command in (f"{PLAN} --prune 1.5", "plan --samples many", "", "inspect no/such/run.zarr"):
        done = program(command)
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


def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "prunedata", *shlex.split(PLAN), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 0


@pytest.mark.parametrize("reading", ["aligned", "printed"])
def test_plan_in_json_is_the_prediction(say, reading):
    status, out, err = say(f"{PLAN} --overhead 0.5 --reading {reading} --json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found.keys() >= KEYS
    schedule = Schedule(200, 60, 20, 5, 4, 2, reading)
    expected = CostModel(50_000, 128, 0.016, 0.5).predict(schedule, 0.2).to_dict()
    assert {name: found[name] for name in expected} == expected
    assert found["pruned_epoch_numbers"] == list(schedule.pruned_epochs)
    assert Schedule.from_dict(found["schedule"]) == schedule
    assert found["pruned_epochs"] == {"aligned": 131, "printed": 142}[reading]


def test_prune_is_a_fraction_or_a_number(say):
    assert say(f"{PLAN} --prune 10000 --json") == say(f"{PLAN} --json")


def test_prune_is_a_percentage_too(say):
    assert say(f"{PLAN} --prune 20%") == say(PLAN)
    assert say(f"{PLAN} --anneal 10%") == say(f"{PLAN} --anneal 0.1")


def test_without_a_batch_time_the_plan_is_in_percent(say):
    status, out, err = say(UNTIMED)
    assert (status, err) == (0, "")
    facts = {line[:23].strip(): line[23:].split() for line in out.splitlines()[6:]}
    timed = {line[:23].strip(): line[23:].split() for line in say(PLAN)[1].splitlines()[6:]}
    assert facts["batches saved"] == ["10,218"]
    assert facts["time saved, percent"][:2] == timed["time saved, percent"] == ["13.07", "%"]
    assert facts["sample visits saved"] == timed["sample visits saved"]
    assert not {name for name in facts if name.startswith("time")} - {"time saved, percent"}
    assert out.splitlines()[:6] == say(PLAN)[1].splitlines()[:6]
    found, with_time = (json.loads(say(f"{plan} --json")[1]) for plan in (UNTIMED, PLAN))
    unknown = ("regular_seconds", "pruned_seconds", "saved_seconds")
    assert [found[name] for name in unknown] == [None] * 3
    assert found["saved_percent"] == pytest.approx(with_time["saved_percent"])
    assert found.keys() == with_time.keys()


def test_a_plan_without_a_batch_time_beside_proposals(say):
    status, out, _ = say(f"{UNTIMED} --target-saving 15")
    assert status == 0
    assert "time saved, percent" in out
    assert "schedules that save at least 15 % of the time" in out


def test_milestones_take_the_place_of_the_window(say):
    _, out, _ = say(f"{PLAN} --milestones 60 120 160 --json")
    found = json.loads(out)
    assert found["schedule"]["window"] == [60, 60, 40, 40]
    assert found["pruned_epochs_printed"] is None
    status, out, _ = say(PLAN.replace("--window 60", "--window 60 60 40 40"))
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["0", "60", "120", "160"]
    assert "no formula for windows of given lengths" in out


def test_proposals_can_be_planned_as_they_are_printed(say):
    _, out, _ = say(f"{RUN} --window 60 --target-saving 15")
    rows = [line for line in out.splitlines() if "--start" in line]
    assert 3 <= len(rows) <= 5
    for row in rows:
        saved, epochs, options = row.split("%")[0], row.split("%")[1].split()[0], row[row.index("--") :]
        assert float(saved) >= 15
        _, planned, _ = say(f"{RUN} {options} --batch-time 1 --json")
        found = json.loads(planned)
        assert f"{found['saved_percent']:.2f}" == saved.strip()
        assert found["pruned_epochs"] == int(epochs)


@pytest.mark.parametrize("shape", ["--window 60 --reading printed", "--milestones 60 120 160"])
def test_proposals_in_json(say, shape):
    _, out, _ = say(f"{RUN} {shape} --target-saving 15 --json")
    proposals = json.loads(out)["proposals"]
    assert 1 <= len(proposals) <= 5
    for proposal in proposals:
        assert proposal["saved_percent"] >= 15
        _, planned, _ = say(f"{RUN} {proposal['options']} --batch-time 0.1 --json")
        found = json.loads(planned)
        assert found["saved_percent"] == pytest.approx(proposal["saved_percent"])
        assert found["schedule"] == {name: proposal[name] for name in found["schedule"]}


def test_proposals_beside_a_plan(say):
    _, out, _ = say(f"{PLAN} --target-saving 15 --json")
    found = json.loads(out)
    assert found.keys() >= KEYS | {"proposals"}
    assert found["pruned_epochs"] == 131
    _, out, _ = say(f"{PLAN} --target-saving 15")
    assert "pruned epochs, exact" in out
    assert "schedules that save at least 15 % of the time:" in out


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("--start 500", "epoch"),
        ("--pruned-per-block 0", "epoch"),
        ("--prune 0", "sample"),
        ("--prune 0.00001", "sample"),
    ],
)
def test_a_plan_that_saves_nothing_says_so(say, change, what):
    status, out, _ = say(f"{PLAN} {change}")
    assert status == 0
    assert out.endswith(f"Nothing is saved: this schedule never prunes any {what}.\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"{PLAN} --prune 50000", "prune = all leaves nothing to train on"),
        (f"{PLAN} --prune some", "argument --prune: invalid number value: 'some'"),
        (f"{PLAN} --attenuation 0.5", "Expected attenuation to be a finite number of at least 1. Got 0.5."),
        (f"{PLAN} --reading literal", "argument --reading: invalid choice: 'literal'"),
        (f"{PLAN} --milestones 60 50", "Expected milestones that rise"),
        (f"{PLAN} --milestones 60 --reading printed", "Expected --window with --reading printed"),
        (f"{PLAN} --target-saving 95", "the largest proposed"),
        (f"{RUN} --window 60", "Missing: --start, --block, --pruned-per-block, --prune."),
        (f"{RUN} --window 60 --target-saving 15 --prune 0.2", "Missing: --start"),
        (f"{RUN} --window 60 --target-saving 15 --overhead 1", "Expected --batch-time beside --overhead"),
        (f"{RUN} --target-saving 15", "Expected --window, --milestones or --steady. Got none of them."),
        (f"{PLAN} --wndow 3", "unrecognized arguments: --wndow 3 (see 'prunedata --help')"),
        (f"{UNTIMED} --overhead 1", "Expected --batch-time beside --overhead"),
    ],
)
def test_errors_say_what_was_expected(say, command, message):
    status, out, err = say(command)
    assert (status, out) == (2, "")
    assert err.startswith("prunedata: error: ")
    assert message in err


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


def test_inspect_says_what_a_store_holds(say, store):
    status, out, err = say(f"inspect {store} --top 4")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert "state       next is epoch 5 of 8, begun and not ended" in lines
    assert "prune       30" in lines
    assert "samples of each count in this window" in lines
    assert len(lines[lines.index("pruned most") + 2 :]) == 4


def test_inspect_in_json_as_a_program(store):
    done = program(f"inspect {shlex.quote(str(store))} --json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["samples"], found["epoch"], found["open"], found["seed"]) == (100, 5, True, 3)
    assert [record["kept"] for record in found["history"]] == [100, 70, 100, 70, 100]
    assert sum(found["counts_histogram"].values()) == 100
    assert Schedule.from_dict(found["schedule"]) == Schedule(8, 4, 1, 2, 1)
    most = found["most_pruned"]
    assert len(most) == 10
    assert all(one["pruned"] + one["visits"] == 5 for one in most)
    assert most == sorted(most, key=lambda one: -one["pruned"])


@pytest.mark.parametrize("top", ["0.07", "7%", "7"])
def test_top_is_a_number_or_a_fraction(say, store, top):
    _, out, _ = say(f"inspect {store} --json --top {top}")
    assert len(json.loads(out)["most_pruned"]) == 7


def test_inspect_refuses_what_is_no_run(say, tmp_path):
    for place in (tmp_path, tmp_path / "nothing"):
        status, out, err = say(f"inspect {place}")
        assert (status, out) == (2, "")
        assert err.startswith("prunedata: error: ")
        assert str(place) in err
    assert not (tmp_path / "nothing").exists()


def test_a_steady_schedule_is_planned_as_it_is_made_in_python(say):
    steady = f"{RUN} --steady --prune 20% --json"
    for options, schedule in (
        ("", Schedule.steady(200)),
        (" --start 50", Schedule.steady(200, 50)),
        (" --anneal 0.1", Schedule.steady(200, anneal=0.1)),
    ):
        status, out, err = say(steady + options)
        assert (status, err) == (0, "")
        assert json.loads(out)["schedule"] == schedule.to_dict()
        assert json.loads(out)["pruned_epoch_numbers"] == list(schedule.pruned_epochs)
    for options, told in (
        ("--window 60 --block 5", r"Got --window, --block."),
        ("--reading printed", "Got --reading printed."),
        ("--target-saving 15", "Got --target-saving."),
    ):
        status, out, err = say(f"{steady} {options}")
        assert (status, out) == (2, "")
        assert f"Expected --steady with --start and --anneal at most. {told}" in err
    assert "Expected --prune beside --steady" in say(f"{RUN} --steady")[2]


def test_a_number_that_looks_like_a_percentage_is_warned_of_as_the_pruner_does():
    with pytest.warns(prunedata.errors.NeverPrunesWarning) as seen:
        Pruner(50000, Schedule.steady(200), prune=25)
    plan = UNTIMED.replace("--prune 0.2", "--prune 25")
    for command in (plan, f"{plan} --json", f"{RUN} --steady --prune 25"):
        done = program(command)
        assert (done.returncode, done.stderr) == (0, f"prunedata: warning: {seen[0].message}\n")
    assert program(UNTIMED.replace("--prune 0.2", "--prune 25%")).stderr == ""
