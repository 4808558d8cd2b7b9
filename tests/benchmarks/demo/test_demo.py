"""The demo as a user runs it, by itself and by make."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.demo.__main__ import main
from benchmarks.demo.report import _remarks
from prunedata import Schedule
from prunedata.plan.cost import count_kept
from tests.benchmarks.images import encoded, pictures, write
from tests.common.programs import ROOT, run_module

RUNS = ("regular", "dropping-count", "random")
EPOCHS = 6
# What the demo makes of --epochs 6: three windows of 2, pruning from their second epoch.
SCHEDULE = Schedule(EPOCHS, window=2, start=1, block=5, pruned_per_block=4, attenuation=2.0)


def demo(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run the demo as its own process in `cwd`, where it must leave nothing but what was asked for."""
    return run_module("benchmarks.demo", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Run the demo on digits for a few epochs, in an empty folder, with --json."""
    cwd = tmp_path_factory.mktemp("demo")
    done = demo("--saving", "--epochs", str(EPOCHS), "--noise", "0.4", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert "Expected:" in done.stderr
    assert "training: 100%" in done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return cwd, facts


@pytest.mark.slow
def test_counts_equal_the_schedule(shown: tuple[Path, dict[str, Any]]) -> None:
    facts = shown[1]
    assert Schedule.from_dict(facts["schedule"]) == SCHEDULE
    samples, runs = facts["samples"], facts["runs"]
    assert tuple(runs) == RUNS
    kept = count_kept(samples, facts["prune"], facts["batch_size"])
    assert kept < samples
    expected = [kept if SCHEDULE.prunes(epoch) else samples for epoch in range(EPOCHS)]
    assert runs["regular"]["visits"] == EPOCHS * samples
    assert runs["regular"]["pruned_epochs"] == 0
    for name in ("dropping-count", "random"):
        history = runs[name]["history"]
        assert [epoch["visits"] for epoch in history] == expected
        assert [epoch["number"] for epoch in history if epoch["pruned"]] == list(SCHEDULE.pruned_epochs)
        assert runs[name]["pruned_epochs"] == len(SCHEDULE.pruned_epochs)
        assert runs[name]["visits"] == sum(expected)


@pytest.mark.slow
def test_the_runs_differ_only_by_pruning(shown: tuple[Path, dict[str, Any]]) -> None:
    """Up to the first pruned epoch both pruned runs are one; from there they part."""
    ours, control = (shown[1]["runs"][name]["history"] for name in ("dropping-count", "random"))
    first = SCHEDULE.pruned_epochs[0]
    assert all(a["train_loss"] == b["train_loss"] for a, b in zip(ours[:first], control[:first], strict=True))
    assert ours[first]["train_loss"] < control[first]["train_loss"]


@pytest.mark.slow
def test_picture_is_a_png(shown: tuple[Path, dict[str, Any]]) -> None:
    cwd, facts = shown
    assert facts["picture"] == "prunedata-demo.png"
    with Image.open(cwd / facts["picture"]) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 500


def test_table_and_options_on_a_parquet_folder(tmp_path: Path) -> None:
    for split, count in (("train", 96), ("test", 10)):
        images = [encoded(p, "jpeg") for p in pictures(count)]
        write(
            tmp_path / "set" / "data" / f"{split}-0.parquet",
            images=images,
            labels=[k % 3 for k in range(count)],
        )
    options = ["--epochs", "4", "--window", "4", "--start", "2", "--block", "1", "--pruned-per-block", "1"]
    more = ["--prune", "32", "--batch-size", "16", "--picture", "curves.png", "--attenuation", "1"]
    done = demo("--saving", "--data", "set", *options, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    heading = next(line for line in lines if line.startswith("run "))
    for column in (
        "epochs",
        "pruned epochs",
        "sample visits",
        "predicted saving",
        "measured saving",
        "overhead",
    ):
        assert column in heading
    assert heading.endswith("test accuracy")
    rows = {cells[0]: cells[1:] for cells in map(str.split, lines) if cells and cells[0] in RUNS}
    assert rows["regular"][:3] == ["4", "0", "384"]
    for name in ("dropping-count", "random"):
        # Two epochs of four leave 32 of 96 samples out: 2 of 6 batches.
        assert rows[name][:4] == ["4", "2", "320", "16.67%"]
    assert "docs/evidence/results.md" in lines[-1]
    assert "clean labels" in lines[-1]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_first_minute_shows_where_it_pays(tmp_path: Path) -> None:
    done = demo("--epochs", "40", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = {line[:14].strip(): line[14:].split() for line in lines}
    assert rows["regular"][:3] == ["40", f"{40 * 1437:,}", "0%"]
    visits = int(rows["auto"][1].replace(",", ""))
    assert visits < 40 * 1437
    assert abs(int(rows["at random"][1].replace(",", "")) - visits) < 1437
    assert abs(int(rows["fewer epochs"][1].replace(",", "")) - visits) <= 1437
    accuracy, worst, best = (float(cell.rstrip("%")) for cell in rows["auto"][-3:])
    assert 0 < worst < accuracy <= best <= 100
    assert "training: 100%" in done.stderr
    assert "40% of the training labels are wrong" in done.stdout
    assert re.search(r"auto: it watched until .* after epoch \d+, and then left \d+ of 1,437 samples out", done.stdout)
    assert "on clean labels: it watched to the end, and left nothing out" in done.stdout
    with Image.open(tmp_path / "prunedata-demo.png") as picture:
        assert min(picture.size) > 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "Expected files train-*.parquet in nowhere"),
        (["--start", "0"], "Expected an integer of at least 1. Got 0"),
        (["--noise", "1.5"], "Expected a share from 0 to 1. Got 1.5"),
        (["--prune", "1437", "--epochs", "2", "--saving"], "Expected prune"),
        (["--block", "2", "--pruned-per-block", "3"], "Expected pruned_per_block"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    said = capsys.readouterr()
    assert stopped.value.code == 2
    assert message in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


# ``make demo`` passes on what its user asks for.


RESULT = {"runs": {"regular": {"seconds": 1.0}}, "batch_seconds": 0.001, "picture": "p.png"}


def last_of(*words):
    """The last line that ``make`` would run, its words one space apart."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-n", *words]  # as from a shell, also where make runs this test
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return " ".join(done.stdout.splitlines()[-1].split())


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
class TestMake:
    def test_the_command_of_the_hint_makes_labels_wrong(self):
        hint = re.search(r"`make (demo)`", "\n".join(_remarks(RESULT)))
        assert hint is not None
        assert last_of(hint[1]).endswith("-m benchmarks.demo")
        assert last_of("demo", "SAVING=1").endswith("-m benchmarks.demo --saving")

    def test_all_that_can_be_given_is_passed_on(self):
        last = last_of("demo", "FRAMEWORK=iterable", "DATA=a folder", "EPOCHS=3", "NOISE=0.2")
        assert last.endswith('-m benchmarks.demo --framework iterable --data "a folder" --epochs 3 --noise 0.2')
