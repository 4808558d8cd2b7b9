"""Thumbnails are true pictures of their arrays, and small."""

import base64
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from prunedata.reporting.drawing.png import SIDE, as_pixels, data_uri, shrunk

SHAPES = st.tuples(st.integers(1, 130), st.integers(1, 130), st.sampled_from([1, 3]))


def decoded(address):
    head, _, body = address.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        image.load()
        return np.asarray(image)


@given(SHAPES.flatmap(lambda shape: arrays.arrays(np.uint8, shape)))
def test_a_picture_is_decoded_as_it_was(pixels):
    assert np.array_equal(decoded(data_uri(pixels)), pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


@given(SHAPES, st.integers(0, 255))
def test_shrinking_keeps_the_mean(shape, grey):
    small = shrunk(np.full(shape, grey, np.uint8))
    assert max(small.shape[:2]) <= SIDE
    assert (small == grey).all()


def test_a_checkerboard_becomes_grey():
    board = np.zeros((400, 400, 1), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 200
    assert set(shrunk(board[:380, :380])[:, :, 0].ravel().tolist()) == {100}


def test_a_line_of_a_million_pixels_is_no_trouble():
    assert shrunk(np.zeros((2, 1_000_000, 3), np.uint8)).shape[1] <= SIDE


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


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4), (1, 5, 7), (3, 5, 7), (4, 5, 7)])
def test_shapes_of_images(shape):
    found = as_pixels(np.zeros(shape, np.uint8))
    assert found.shape == (5, 7, 1 if shape in ((5, 7), (5, 7, 1), (1, 5, 7)) else 3)


@pytest.mark.parametrize(
    "array", [np.zeros(4), np.zeros((2, 2, 2)), np.zeros((0, 3)), np.array([["a"]]), np.zeros((1, 3, 4, 4))]
)
def test_what_is_no_image(array):
    assert as_pixels(array) is None
