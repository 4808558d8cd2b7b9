"""Previews that are kept with a run: what was seen comes back, is bounded, and is trusted in nothing."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from prunedata import Pruner, report
from prunedata.errors import DamagedStore, PrunedataError
from prunedata.reporting.kept import MOST_BYTES, NAME, KeptPreviews, keep_previews
from prunedata.reporting.previews import Preview, Previews

SAMPLES = 700


def trained(place, samples=SAMPLES):
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
    found = kept(tmp_path, [str(n) for n in range(SAMPLES)], np.arange(SAMPLES) + 1000)
    assert SAMPLES - 1 in found
    assert 0 not in found
    assert found.of(SAMPLES - 1) == Preview(text="699", key="row 1699")
    assert (found.row(SAMPLES - 1), found.row(0)) == (1699, 0)
    assert len(json.loads((tmp_path / "run.zarr" / NAME).read_text())["samples"]) == 500


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
