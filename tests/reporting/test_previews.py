"""What samples look like, of the data sets that people have, and as previews that are kept with a run."""

import base64
import io
import json
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from prunedata import Pruner, report
from prunedata.errors import DamagedStore, PrunedataError
from prunedata.reporting.kept import MOST_BYTES, NAME, KeptPreviews, keep_previews
from prunedata.reporting.previews import Preview, Previews, as_pixels, picture
from prunedata.store.run_store import read_run

# What samples look like, of the data sets that people have.


class Rows(list):
    """A list that can have more than a list has."""


def shown(*items, **more):
    rows = Rows(items)
    for name, value in more.items():
        setattr(rows, name, value)
    return Previews(rows, len(items)).of(0)


GREY = np.full((4, 4), 0.5)


@pytest.mark.parametrize("image", [GREY, Image.new("L", (4, 4)), Image.new("P", (4, 4)), Image.new("RGBA", (4, 4))])
@pytest.mark.parametrize("form", [lambda x: x, lambda x: (x, 3), lambda x: [x, 3], lambda x: {"img": x, "label": 3}])
def test_images(image, form):
    assert shown(form(image)).image.startswith("data:image/png;base64,")


def test_tensors():
    torch = pytest.importorskip("torch")
    found = shown((torch.zeros(3, 5, 5, requires_grad=True), torch.tensor(1)), classes=["cat", "dog"])
    assert found.image is not None
    assert found.label == "dog"


CHAT = [{"role": "user", "content": "wo?"}, {"role": "assistant", "content": "dört"}]


def test_chats_lists_and_sounds_are_written_out():
    assert shown({"messages": CHAT}).text == "user: wo? / assistant: dört"
    assert shown({"conversations": [{"from": "human", "value": "wo?"}]}).text == "human: wo?"
    row = shown({"source": "a", "messages": CHAT, "input_ids": [1, 2]}).row
    assert row == (("source", "a"), ("messages", "user: wo? / assistant: dört"))
    assert shown({"input_ids": [1, 2], "attention_mask": [1, 1], "label": 1}).text == "[1, 2]"
    assert "'path': 'x.wav'" in shown({"audio": {"array": np.zeros(9), "path": "x.wav"}}).text


def test_a_chat_about_a_picture_is_shown_as_its_texts_and_the_picture():
    asked = [{"type": "image"}, {"type": "text", "text": "what is it?"}]
    answer = [{"role": "assistant", "content": "a cat"}]
    picture = Image.new("RGB", (4, 4), "red")
    found = shown({"images": [picture], "prompt": [{"role": "user", "content": asked}], "completion": answer})
    assert found.image is not None
    assert found.row == (("prompt", "user: what is it?"), ("completion", "assistant: a cat"))


@pytest.mark.parametrize("deep", [False, True])
def test_a_part_of_a_folder_has_its_names(deep):
    """As ``random_split`` makes one of torchvision's ``ImageFolder``; and a part of a part."""
    data = pytest.importorskip("torch.utils.data")
    whole = Rows([(GREY, at % 2) for at in range(6)])
    whole.classes, whole.targets, whole.root = ["cat", "dog"], [at % 2 for at in range(6)], "/data/photos"
    whole.samples = [(f"/data/photos/{'cat' if at % 2 == 0 else 'dog'}/{at}.jpg", at % 2) for at in range(6)]
    part = data.Subset(data.Subset(whole, [1, 4, 5, 3]), [2, 1]) if deep else data.Subset(whole, [5, 4])
    seen = Previews(part, 2)
    assert [(seen.of(at).key, seen.of(at).label) for at in (0, 1)] == [("dog/5.jpg", "dog"), ("cat/4.jpg", "cat")]
    labels, classes = seen.values()
    assert (labels.tolist(), classes) == ([1, 0], ("cat", "dog"))


def test_a_folder_that_a_reader_has_listed_has_its_names():
    """As timm's ``ImageDataset``."""
    reader = SimpleNamespace(root="/data/photos", samples=[("/data/photos/cat/0.jpg", 0)])
    assert shown((GREY, 0), reader=reader).key == "cat/0.jpg"


@pytest.mark.parametrize("files", [["a.jpg"], [("a.jpg", 0)], {"a": 1}, [(1, 0), (2, 0)], [(), ()], "ab"])
def test_samples_that_are_no_list_of_files_name_none(files):
    assert shown((GREY, 0), (GREY, 1), samples=files).key is None
    assert shown(("a text", 0), samples=[("a text", 0)]).key is None


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("a text", Preview(text="a text")),
        (("a text", 1), Preview(text="a text", label="dog", value="1")),
        (("a text", np.int64(0)), Preview(text="a text", label="cat", value="0")),
        (("a text", 5), Preview(text="a text", label="5", value="5")),
        (("a text", -1), Preview(text="a text", label="-1", value="-1")),
        (("a text", "bird"), Preview(text="a text", label="bird", value="bird")),
        (("a text", 0.5), Preview(text="a text", label="0.5", value="0.5")),
        (("a text", [0, 1]), Preview(text="a text")),
        (
            {"__key__": "000/17", "txt": "a text", "cls": 1},
            Preview(text="a text", label="dog", key="000/17", value="1"),
        ),
        ({"id": 7, "text": "a text"}, Preview(text="a text", key="7")),
        (np.zeros((2, 2, 2, 2)), Preview(text="ndarray of shape (2, 2, 2, 2)")),
        (([1.5, 2], 1), Preview(label="dog", value="1", row=(("0", "1.5"), ("1", "2")))),
        ((7, 1), Preview(text="7", label="dog", value="1")),
        ((7, np.int64(30), 0.5), Preview(row=(("0", "7"), ("1", "30"), ("2", "0.5")))),
        (
            {"age": 39, "work": "Private", "photo": b"", "label": 0},
            Preview(text="Private", label="cat", value="0", row=(("age", "39"), ("work", "Private"))),
        ),
        (b"bytes", Preview(text="bytes")),
        (({"text": "a text"}, 1), Preview(text="a text", label="dog", value="1")),
        ((UserDict(input_ids=[1, 2], mask=[1, 1]), 0), Preview(text="[1, 2]", label="cat", value="0")),
        ([], Preview(text="[]")),
        ({}, Preview()),
        (None, Preview(text="NoneType")),
    ],
)
def test_what_is_shown_of_an_item(item, expected):
    assert shown(item, classes=["cat", "dog"]) == expected


def test_a_row_has_the_names_of_its_features():
    item = np.arange(3) / 2, 1
    assert shown(item, feature_names=["a", "b", "c"]).row == (("a", "0"), ("b", "0.5"), ("c", "1"))
    assert shown(item, feature_names=["a"]).row == (("0", "0"), ("1", "0.5"), ("2", "1"))
    assert shown(item, columns=["a", "b", "c", "label"]).row == (("a", "0"), ("b", "0.5"), ("c", "1"))
    assert len(shown((np.zeros(5_000), 1)).row) == 64


def decoded(address, kind="png"):
    head, _, body = address.partition(",")
    assert head == f"data:image/{kind};base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        image.load()
        return np.asarray(image)


@given(
    st.tuples(st.integers(2, 96), st.integers(2, 96), st.sampled_from([1, 3])).flatmap(
        lambda shape: arrays.arrays(np.uint8, shape)
    )
)
def test_a_small_picture_is_shown_as_it_is(pixels):
    assert np.array_equal(decoded(picture(pixels)), pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


@pytest.mark.parametrize("shape", [(400, 300, 3), (97, 2), (3, 120, 500), (2, 100_000)])
def test_a_large_one_is_shrunk_and_keeps_its_colour(shape):
    small = decoded(picture(np.full(shape, 40, np.uint8)))
    assert max(small.shape[:2]) == 96
    assert (small == 40).all()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0.0, 0.5], [1.0, 0.25]]), [[0, 128], [255, 64]]),
        (np.array([[-1.0, 0.0], [1.0, -1.0]]), [[0, 128], [255, 0]]),
        (np.array([[True, False], [False, True]]), [[255, 0], [0, 255]]),
        (np.array([[0, 16], [8, 16]]), [[0, 255], [128, 255]]),
        (np.array([[7, 8], [255, 0]], np.uint8), [[7, 8], [255, 0]]),
        (np.full((2, 2), np.nan), [[0, 0], [0, 0]]),
        (np.full((2, 2), np.inf), [[0, 0], [0, 0]]),
    ],
)
def test_numbers_become_grey(array, expected):
    assert as_pixels(array)[:, :, 0].tolist() == expected


def test_shapes_of_images():
    for shape in ((5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4), (1, 5, 7), (3, 5, 7), (4, 5, 7)):
        found = as_pixels(np.zeros(shape, np.uint8))
        assert found.shape == (5, 7, 1 if shape in ((5, 7), (5, 7, 1), (1, 5, 7)) else 3)
    for array in (np.zeros(4), np.zeros((2, 2, 2)), np.zeros((0, 3)), np.array([["a"]]), np.zeros((1, 3, 4, 4))):
        assert picture(array) is None


def test_a_photograph_to_look_at_is_larger():
    image = Image.new("RGB", (1000, 500))
    rows = Rows([(image, 0), (np.zeros((448, 448, 3), np.uint8), 0)])
    large, small = Previews(rows, 2, large=True), Previews(rows, 2)
    assert [decoded(large.of(at).image, "jpeg").shape for at in (0, 1)] == [(112, 224, 3), (224, 224, 3)]
    assert [decoded(small.of(at).image).shape for at in (0, 1)] == [(48, 96, 3), (96, 96, 3)]


def test_an_item_that_cannot_be_read():
    class Broken(Rows):
        def __getitem__(self, index):
            raise OSError("no such file")

    assert Previews(Broken([1]), 1).of(0).text == "could not be read: OSError: no such file"


def test_a_hugging_face_data_set():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "<pos>"])}
    )
    rows = datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]}, features=features)
    previews = Previews(rows, 2)
    assert previews.of(0) == Preview(text="good", label="<pos>", value="1")
    labels, names = previews.values()
    assert (labels.tolist(), names) == ([1, 0], ("neg", "<pos>"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"targets": [0, 1, 1], "classes": ["cat", "dog"]}, ([0, 1, 1], ("cat", "dog"))),
        ({"labels": np.array([0, 1, 2]), "classes": ["cat", "dog"]}, ([0, 1, 2], ())),
        ({"targets": ["x", "y", "x"]}, (["x", "y", "x"], ())),
        ({"targets": [0, 1]}, (None, ())),
        ({"targets": [0.5, 1.5, 2.5]}, (None, ())),
        ({"labels": lambda: [1, 2, 3]}, (None, ())),
        ({}, (None, ())),
    ],
)
def test_all_labels(more, expected):
    rows = Rows("abc")
    for name, value in more.items():
        setattr(rows, name, value)
    labels, names = Previews(rows, 3).values()
    assert (None if labels is None else labels.tolist(), names) == expected


def test_another_data_set():
    with pytest.raises(PrunedataError, match=r"of 5 samples\. Got 3"):
        Previews("abc", 5)
    with pytest.raises(PrunedataError, match="Got the class str"):
        Previews(str, 3)
    with pytest.raises(PrunedataError, match="Got generator"):
        Previews((one for one in "abc"), 3)


# Previews that are kept with a run: what was seen comes back, is bounded, and is trusted in nothing.


MANY = 700


def trained(place, samples=MANY):
    run = Pruner(samples, epochs=1, leave_out="nothing", store=place)
    run.begin_epoch()
    run.observe(np.arange(samples, dtype=np.float32), np.arange(samples))
    run.end_epoch()
    return run


def kept(folder, dataset, rows=None):
    run = trained(folder / "run.zarr", len(dataset))
    keep_previews(folder / "run.zarr", run, dataset, rows)
    return KeptPreviews(folder / "run.zarr")


@pytest.mark.parametrize("sample", [
    ("a text", 1), {"prompt": "why", "answer": "so", "label": "no"}, (Image.new("RGB", (200, 200), "red"), 0),
    {"text": "a", "path": "b.jpg"}, np.arange(4.0),
])  # fmt: skip
def test_what_was_seen_comes_back(sample, tmp_path):
    dataset = [sample] * 3
    assert kept(tmp_path, dataset).of(1) == Previews(dataset, 3, large=True).of(1)


def test_the_most_suspect_are_kept_with_their_rows(tmp_path):
    found = kept(tmp_path, [str(n) for n in range(MANY)], np.arange(MANY) + 1000)
    assert MANY - 1 in found
    assert 0 not in found
    assert found.of(MANY - 1) == Preview(text="699", key="row 1699")
    assert found.rows == {number: number + 1000 for number in range(MANY - 500, MANY)}
    assert len(json.loads((tmp_path / "run.zarr" / NAME).read_text())["samples"]) == 500


def test_all_names_of_a_folder_on_this_machine_are_of_one_run_and_its_rows(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    run = trained("~/run.zarr", 3)
    keep_previews(tmp_path / "run.zarr", run, None, np.arange(3) + 1000)
    for name in ("~/run.zarr", "../run.zarr", *(f"{kind}://{tmp_path}/run.zarr" for kind in ("file", "local"))):
        assert read_run(name).state.epoch == 1
        assert KeptPreviews(name).rows == {0: 1000, 1: 1001, 2: 1002}
    assert not list((tmp_path / "work").iterdir())


def test_their_bytes_are_bounded(tmp_path):
    wide = ["é" * 100_000] * 600
    kept(tmp_path, [tuple(wide[:1]) if n % 2 else {str(at): "x" * 4000 for at in range(64)} for n in range(600)])
    assert (tmp_path / "run.zarr" / NAME).stat().st_size < 1.1 * MOST_BYTES


def test_a_review_needs_no_data(tmp_path):
    kept(tmp_path, [{"text": f"<script>alert({n})</script>", "label": n % 2} for n in range(20)])
    page = report(tmp_path / "run.zarr", review=True).html
    assert "alert(19)" in page
    assert "<script>alert" not in page
    assert "<script>alert" not in report(tmp_path / "run.zarr").html


@given(one=st.sampled_from([
    "[]", "{", '{"samples": [1]}', '{"samples": [{"id": -1, "row": 0}]}', '{"samples": [{"id": 1, "row": "0"}]}',
    '{"samples": [{"id": 1, "row": 0, "text": 5}]}', '{"samples": [{"id": 1, "row": 0, "image": "javascript:go()"}]}',
    '{"samples": [{"id": 1, "row": 0, "image": "data:image/svg+xml;base64,AAAA"}]}', '{"samples": 7}', "[" * 100_000,
    '{"samples": [{"id": 1, "row": 0, "cells": [["a", 1]]}]}', '{"samples": [{"id": true, "row": 0}]}',
]))  # fmt: skip
def test_others_are_refused(one, tmp_path_factory):
    folder = tmp_path_factory.mktemp("forged")
    (folder / NAME).write_text(one)
    with pytest.raises(DamagedStore, match="as prunedata watch keeps them"):
        KeptPreviews(folder)


def test_a_run_without_them_still_needs_the_data(tmp_path):
    trained(tmp_path / "run.zarr")
    assert not KeptPreviews(tmp_path / "run.zarr")
    with pytest.raises(PrunedataError, match="nothing to look at"):
        report(tmp_path / "run.zarr", review=True)
