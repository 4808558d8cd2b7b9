"""The demo as a user runs it, and what it stands on: data sets, network, figures."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks.common.data import digits, folder, with_wrong_labels
from benchmarks.common.networks import build
from benchmarks.common.parquet import DataFolderError, read_folder
from benchmarks.demo.__main__ import main
from prunedata import Schedule
from prunedata.plan.cost import number_kept
from tests.programs import run_module

RUNS = ("regular", "dropping-count", "random")
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
EPOCHS = 6
# What the demo makes of --epochs 6: three windows of 2, pruning from their second epoch.
SCHEDULE = Schedule(EPOCHS, window=2, start=1, block=5, pruned_per_block=4, attenuation=2.0)


def demo(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run the demo as its own process in `cwd`, where it must leave nothing but what was asked for."""
    return run_module("benchmarks.demo", *arguments, cwd=cwd)


def encoded(pixels: np.ndarray[Any, Any], kind: str) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=kind)
    return {"bytes": buffer.getvalue(), "path": None}


def pictures(count: int, channels: int = 3, size: int = 32, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Plain grounds of random colour: JPEG keeps them within a few levels."""
    colours = np.random.default_rng(seed).integers(0, 256, (count, channels), dtype=np.uint8)
    shape = (size, size) if channels == 1 else (size, size, channels)
    return [np.broadcast_to(colour if channels > 1 else colour[0], shape).copy() for colour in colours]


def write(path: Path, image: str = "img", label: str = "label", **columns: Any) -> None:
    """Write one file of the `images` and `labels` given, else of four PNG images."""
    images = columns.get("images", [encoded(p, "png") for p in pictures(4)])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({image: images, label: columns.get("labels", [0, 1, 2, 0])}), path)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Run the demo on digits for a few epochs, in an empty folder, with --json."""
    cwd = tmp_path_factory.mktemp("demo")
    done = demo("--epochs", str(EPOCHS), "--noise", "0.4", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert "Expected:" in done.stderr
    assert "training: 100%" in done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return cwd, facts


def test_counts_equal_the_schedule(shown: tuple[Path, dict[str, Any]]) -> None:
    facts = shown[1]
    assert Schedule.from_dict(facts["schedule"]) == SCHEDULE
    samples, runs = facts["samples"], facts["runs"]
    assert tuple(runs) == RUNS
    kept = number_kept(samples, facts["prune"], facts["batch_size"])
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


def test_figures_follow_from_the_epochs(shown: tuple[Path, dict[str, Any]]) -> None:
    facts = shown[1]
    regular = facts["runs"]["regular"]
    full = -(-facts["samples"] // facts["batch_size"])
    fewer = -(-number_kept(facts["samples"], facts["prune"], facts["batch_size"]) // facts["batch_size"])
    predicted = 100 * len(SCHEDULE.pruned_epochs) * (full - fewer) / (EPOCHS * full)
    assert regular["predicted_seconds"] == pytest.approx(EPOCHS * full * facts["batch_seconds"])
    assert "measured_saving_percent" not in regular
    for run in facts["runs"].values():
        assert run["epochs"] == len(run["history"]) == EPOCHS
        assert run["seconds"] == pytest.approx(sum(epoch["seconds"] for epoch in run["history"]))
        last = [epoch["accuracy"] for epoch in run["history"][-3:]]
        assert run["accuracy_percent"] == pytest.approx(100 * sum(last) / 3)
    for name in ("dropping-count", "random"):
        run = facts["runs"][name]
        assert run["predicted_saving_percent"] == pytest.approx(predicted)
        assert run["measured_saving_percent"] == pytest.approx(100 * (1 - run["seconds"] / regular["seconds"]))
        assert run["measured_over_predicted"] == pytest.approx(run["measured_saving_percent"] / predicted)
        assert run["paired_over_predicted"] == pytest.approx(run["paired_saving_percent"] / predicted)
        assert 0 < run["overhead_seconds"] < run["seconds"]
        assert run["overhead_percent"] == pytest.approx(100 * run["overhead_seconds"] / run["seconds"])


def test_the_runs_differ_only_by_pruning(shown: tuple[Path, dict[str, Any]]) -> None:
    """Up to the first pruned epoch both pruned runs are one; from there they part."""
    ours, control = (shown[1]["runs"][name]["history"] for name in ("dropping-count", "random"))
    first = SCHEDULE.pruned_epochs[0]
    assert all(a["train_loss"] == b["train_loss"] for a, b in zip(ours[:first], control[:first], strict=True))
    assert ours[first]["train_loss"] < control[first]["train_loss"]


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
    done = demo("--data", "set", *options, *more, cwd=tmp_path)
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
    assert "docs/results.md" in lines[-1]
    assert "clean labels" in lines[-1]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "Expected files train-*.parquet in nowhere"),
        (["--start", "0"], "Expected an integer of at least 1. Got 0"),
        (["--noise", "1.5"], "Expected a share from 0 to 1. Got 1.5"),
        (["--prune", "1437", "--epochs", "2"], "Expected prune"),
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


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("place", ["", "data"])
@pytest.mark.parametrize("names", [("img", "label"), ("image", "labels"), ("image", "fine_label")])
def test_folder_is_read_in_order(kind: str, place: str, names: tuple[str, str], tmp_path: Path) -> None:
    first, second, test = pictures(3, seed=1), pictures(2, seed=2), pictures(2, seed=3)
    for name, images, labels in (
        ("train-00000-of-00002", first, [2, 0, 1]),
        ("train-00001-of-00002", second, [1, 0]),
        ("test-00000-of-00001", test, [1, 2]),
    ):
        rows = [encoded(p, kind) for p in images]
        write(tmp_path / place / f"{name}.parquet", *names, images=rows, labels=labels)
    (train_images, train_labels), (test_images, test_labels) = read_folder(tmp_path)
    assert train_labels.tolist() == [2, 0, 1, 1, 0]
    assert test_labels.tolist() == [1, 2]
    wanted = np.stack([p.transpose(2, 0, 1) for p in [*first, *second]])
    assert train_images.dtype == np.uint8
    assert train_images.shape == (5, 3, 32, 32)
    assert np.abs(train_images.astype(int) - wanted).max() <= (0 if kind == "png" else 6)
    assert test_images.shape == (2, 3, 32, 32)


def test_grey_images_of_another_size_are_scaled(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images = [encoded(p, "png") for p in pictures(4, channels=1, size=28)]
        write(tmp_path / f"{split}-0.parquet", images=images)
    read = folder(tmp_path)
    assert read.name == tmp_path.name
    assert (read.channels, read.classes) == (1, 3)
    assert read.train.images.shape == (4, 1, 32, 32)
    assert [int(image[0, 0, 0]) for image in read.train.images] == [int(p[0, 0]) for p in pictures(4, 1, 28)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": "picture"}, "column named img or image .* Got picture, label"),
        ({"label": "class"}, "column named label or labels or fine_label"),
        ({"labels": [0.5, 1.0, 2.0, 0.0]}, "to hold integers. Got double"),
        ({"labels": [0, 1, -1, 2]}, "to be 0 or more. Got -1"),
        ({"labels": [0, 1, None, 2]}, "to be 0 or more. Got None"),
        ({"images": [b"1", b"2", b"3", b"4"]}, "struct of bytes and path. Got binary"),
        (
            {"images": [{"bytes": None, "path": "a.png"}] * 4},
            "stored as bytes. Got one without",
        ),
        ({"images": [{"bytes": b"no image", "path": ""}] * 4}, "images that Pillow can decode"),
        ({"images": pa.array([], IMAGE), "labels": pa.array([], pa.int64())}, "at least one image"),
    ],
)
def test_what_a_folder_lacks_is_said(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet", **columns)
    write(tmp_path / "test-0.parquet")
    with pytest.raises(DataFolderError, match=message):
        read_folder(tmp_path)


def test_missing_and_broken_files_are_said(tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet")
    with pytest.raises(DataFolderError, match=r"Expected files test-\*.parquet"):
        read_folder(tmp_path)
    (tmp_path / "test-0.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataFolderError, match="Expected a parquet file"):
        read_folder(tmp_path)
    write(tmp_path / "test-0.parquet", labels=[0, 1, 2, 9])
    with pytest.raises(DataFolderError, match=r"labels from 0 to 2, as in training\. Got 9"):
        read_folder(tmp_path)


@given(st.integers(2, 12), st.integers(1, 300), st.floats(0, 1))
def test_exactly_the_share_asked_for_is_wrong(classes: int, samples: int, share: float) -> None:
    labels = np.random.default_rng(samples).integers(0, classes, samples)
    before = labels.copy()
    noisy = with_wrong_labels(labels, classes, share)
    assert (labels == before).all()
    assert (noisy != labels).sum() == round(share * samples)
    assert ((noisy >= 0) & (noisy < classes)).all()
    assert (noisy == with_wrong_labels(labels, classes, share)).all()


def test_digits_are_split_once_and_normalised() -> None:
    data = digits()
    assert (len(data.train), len(data.test), data.channels, data.classes) == (1437, 360, 1, 10)
    images, labels = data.train.batch(torch.arange(len(data.train)))
    assert images.shape == (1437, 1, 32, 32)
    assert images.dtype == torch.float32
    assert abs(float(images.mean())) < 0.01
    assert abs(float(images.std()) - 1) < 0.01
    assert torch.equal(labels, digits(noise=0.0).train.labels)
    assert torch.equal(data.test.labels, digits(noise=0.4).test.labels)
    several = data.train.__getitems__([5, 0])
    assert torch.equal(several[0][0], data.train[5][0])
    assert several[1][1] == int(labels[0])


def test_lenet_has_the_parameters_of_its_cifar_form() -> None:
    network = build("lenet", 3, 10)
    assert sum(weights.numel() for weights in network.parameters()) == 62_006
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert build("lenet", 1, 7)(torch.zeros(1, 1, 32, 32)).shape == (1, 7)
    with pytest.raises(ValueError, match="Got 'alexnet'"):
        build("alexnet", 3, 10)
