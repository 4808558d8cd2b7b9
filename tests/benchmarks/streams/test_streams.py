"""The benchmark of streams: it compares passes over the same images, and counts what it says. No time is judged."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from benchmarks.common.data import digits
from benchmarks.common.shards import record_features, write_records, write_shards
from benchmarks.streams.passes import TURNS, Entrant, one_core, race
from tests.common.programs import run_module

pytest.importorskip("webdataset")

from benchmarks.streams import __main__ as streams
from benchmarks.streams import many_samples

SAMPLES = 1100
# WebDataset leaves it to the garbage collector to close its shards, and the race collects.
pytestmark = pytest.mark.filterwarnings(r"ignore:unclosed file <_io\.\w+ name=.*\.tar:ResourceWarning")


def run(*arguments, cwd):
    return run_module("benchmarks.streams", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), digits(), 32, SAMPLES, "png")


def passes_of(adapter, shards):
    pytest.importorskip(streams.PACKAGES[adapter])
    return streams.ADAPTERS[adapter](shards)


# -- shards


@pytest.mark.parametrize("encoding", ["jpg", "png"])
@pytest.mark.parametrize("pixels", [32, 48])
def test_all_forms_hold_the_same_images(tmp_path, encoding, pixels):
    data = digits()
    found = write_shards(tmp_path, data, pixels, 1003, encoding)
    assert (found.samples, len(found.tars), len(found.tables)) == (1003, 2, 2)
    rows = [row for table in found.tables for row in pq.read_table(table).to_pylist()]
    assert [row["uid"] for row in rows] == list(range(1003))
    assert [row["label"] for row in rows] == data.train.labels[:1003].tolist()
    members = []
    for path in found.tars:
        with tarfile.open(path) as archive:
            members += [(member.name, archive.extractfile(member).read()) for member in archive]
    assert [name for name, _ in members[:2]] == [f"0000.{encoding}", "0000.cls"]
    assert [content for _, content in members[::2]] == [row["image"] for row in rows]
    assert [int(content) for _, content in members[1::2]] == [row["label"] for row in rows]
    picture = Image.open(io.BytesIO(rows[1002]["image"]))
    assert (picture.size, picture.format) == ((pixels, pixels), "JPEG" if encoding == "jpg" else "PNG")
    if encoding == "png" and pixels == 32:
        assert (np.asarray(picture) == data.train.images[1002, 0].numpy()).all()


def test_records_hold_the_same_images_too(shards):
    tf = pytest.importorskip("tensorflow")

    rows = [row for table in shards.tables for row in pq.read_table(table).to_pylist()]
    features = record_features()
    found = [tf.io.parse_single_example(each, features) for each in tf.data.TFRecordDataset(write_records(shards))]
    assert [each["image"].numpy() for each in found] == [row["image"] for row in rows]
    assert [int(each["label"]) for each in found] == [row["label"] for row in rows]


# -- passes


def images_of(batches):
    """The images of a pass as bytes, sorted, whatever stands beside them and however they lie."""
    found = []
    for batch in batches:
        parts = [np.asarray(part) for pair in batch for part in (pair if isinstance(pair, (list, tuple)) else [pair])]
        (images,) = (part for part in parts if part.ndim == 4)
        grey = images[:, 0] if images.shape[1] < 32 else images[..., 0]
        found += [image.tobytes() for image in (255 * grey).round().astype(np.uint8)]
    return sorted(found)


@pytest.mark.parametrize("share", streams.PRUNED)
def test_every_way_gives_its_images_once_each(shards, share):
    """They are the data set's own, as PNG loses nothing."""
    whole = digits().train.images[:SAMPLES, 0].numpy()
    pruner = streams._open_epoch(SAMPLES, share)
    keep = pruner.current.keep
    assert keep.sum() == round((1 - share) * SAMPLES)
    passes = passes_of("iterable", shards)
    assert images_of(passes.plain()) == sorted(image.tobytes() for image in whole)
    kept = sorted(image.tobytes() for image in whole[keep])
    assert images_of(passes.pruned(pruner)()) == kept
    assert images_of(passes.after_decode(keep)()) == kept


@pytest.mark.parametrize("adapter", ["webdataset", "tensorflow", "tensorflow-one-thread"])
@pytest.mark.parametrize("share", streams.PRUNED)
def test_jpeg_passes_give_their_images_once_each(tmp_path, adapter, share):
    jpeg = write_shards(tmp_path, digits(), 32, 300)
    passes = passes_of(adapter, jpeg)
    pruner = streams._open_epoch(300, share)
    plain, pruned = images_of(passes.plain()), images_of(passes.pruned(pruner)())
    assert len(plain) == 300
    assert len(pruned) == pruner.current.kept == round((1 - share) * 300)
    assert images_of(passes.after_decode(pruner.current.keep)()) == pruned
    assert set(pruned) <= set(plain)


@pytest.mark.parametrize("adapter", streams.ADAPTERS)
def test_an_epoch_can_be_passed_as_often_as_is_asked_for(tmp_path, adapter):
    pruner = streams._open_epoch(40, 0.5)
    make = passes_of(adapter, write_shards(tmp_path, digits(), 32, 40)).pruned(pruner)
    assert [len(images_of(make())) for _ in range(20)] == [20] * 20


# -- the race


@pytest.mark.slow
def test_passes_take_turns():
    made = []

    def batches(name, count):
        return Entrant(lambda: (made.append(name) for _ in range(count)), count)

    seconds = race({"long": batches("long", 4 * TURNS), "short": batches("short", 2 * TURNS)}, 2, lambda: None)
    assert {name: len(took) for name, took in seconds.items()} == {"long": 2, "short": 2}
    once = made[: 6 * TURNS]
    for turn in range(1, TURNS + 1):
        assert once[: 6 * turn].count("long") == 4 * turn
    assert (once[0], once[6]) == ("long", "short")
    assert made[6 * TURNS] == "short", "who begins does not change with the repeats"


def test_a_race_on_one_core_leaves_the_cores_as_they_were():
    cores = getattr(os, "sched_getaffinity", lambda _: {0})  # only Linux lets a program choose
    before = cores(0)
    with one_core():
        assert cores(0) == {max(before)}
    assert cores(0) == before


@pytest.mark.parametrize(("gives", "said"), [(9, "fewer"), (11, "more")])
def test_a_pass_of_another_length_is_noticed(gives, said):
    with pytest.raises(RuntimeError, match=f"Expected 10 batches of the pass a. Got {said}"):
        race({"a": Entrant(lambda: range(gives), 10)}, 1, lambda: None)


# -- the command


def rows_of(capsys, monkeypatch, folder, *arguments):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    sizes = ["--samples", "200", "--repeats", "1", "--json", "--disk", str(folder)]
    assert streams.main([*sizes, *arguments]) == 0
    assert list(folder.iterdir()) == [], "shards were left"
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_rows_say_what_was_compared(tmp_path, monkeypatch, capsys):
    adapters = ["webdataset", "iterable"]
    rows = rows_of(capsys, monkeypatch, tmp_path, "--pixels", "32", "80", "--adapters", *adapters)
    expected = [(adapter, pixels, share) for pixels in (32, 80) for adapter in adapters for share in (0.0, 0.2, 0.5)]
    assert [(row["adapter"], row["pixels"], row["pruned"]) for row in rows] == expected
    for row in rows:
        assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
        assert row["ratio"] == pytest.approx(row["plain_us_a_sample"] / row["pruned_us_a_sample"])
        assert row["ratio_after_decode"] == pytest.approx(row["plain_us_a_sample"] / row["after_decode_us_a_sample"])
        assert row["ratio_numbered"] is None
        assert (row["n"], row["samples"], row["data"]) == (1, 200 if row["pixels"] == 32 else 100, "digits")
        assert {"CPU", "cores", "threads", "webdataset", "pyarrow"} <= set(row["hardware"])


@pytest.mark.slow
def test_scale_is_told_as_a_table(tmp_path):
    told = run("--scale", "1001", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    header, _, *rows = (line for line in told.stdout.splitlines() if line.startswith("|"))
    assert "index_seconds" in header
    assert "memory_mib_pass" in header
    assert [[cell.strip() for cell in row.split("|")[1:3]] for row in rows] == [["1,001", "2"]]
    assert list(tmp_path.iterdir()) == []


# -- many samples


def test_made_shards_are_tar_files(tmp_path):
    urls = many_samples.write_tars(tmp_path, 2003)
    assert len(urls) == 3
    number = 0
    for url in urls:
        with tarfile.open(url) as archive:  # it checks the sums of headers
            for member in archive:
                assert (member.name, member.size) == (f"{number:010d}.u8", 1)
                assert archive.extractfile(member).read() == bytes([number % 256])
                number += 1
    assert number == 2003


def test_a_pass_that_gives_others_is_noticed(tmp_path):
    urls = many_samples.write_tars(tmp_path, 1500)
    row = many_samples._measure(urls, 1500, tmp_path / "index.json")
    assert (row["samples"], row["shards"]) == (1500, 2)
    path = Path(urls[1])
    content, before = path.read_bytes(), path.stat()
    path.write_bytes(b"".join(content[at : at + 512] + b"\xff" * 512 for at in range(0, len(content) - 1024, 1024)))
    os.truncate(path, before.st_size)
    with pytest.raises(RuntimeError, match="Expected each kept sample once"):
        many_samples._measure(urls, 1500, tmp_path / "index.json")
