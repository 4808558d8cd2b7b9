"""Fingerprints of samples: the same for equal ones, others for others, and none where nothing can be told."""

import random
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.errors import OtherData
from prunedata.run.identity import PROBED, TWICE, Identity, fingerprint, prints_by, probed

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
ITEMS = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(ITEMS, ITEMS)
def test_equal_samples_alone_are_alike(one, other):
    same = repr(one) == repr(other)
    assert (fingerprint(one) == fingerprint(other)) == same
    assert len(fingerprint(one)) == 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", "1"), (1, 1.0), (1, True), ([], {}), ([[1], [2]], [[1, 2]]), (["ab", "c"], ["a", "bc"]),
        ({"a": 1}, {"b": 1}),
        (np.zeros(4, np.float32), np.zeros(4)), (np.zeros((2, 2)), np.zeros(4)), (np.zeros(4), np.arange(4)),
        ({"a": [1, None]}, {"a": [None, 1]}),
    ],
)  # fmt: skip
def test_other_samples_are_told_apart(one, other):
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, OrderedDict(b=2, a=1)), ((1, 2), [1, 2]), (np.arange(8)[::2], np.arange(0, 8, 2)),
        (np.arange(6).reshape(2, 3).T.copy(), np.arange(6).reshape(2, 3).T),
        (bytearray(b"x"), b"x"),
    ],
)  # fmt: skip
def test_the_same_in_another_form_is_the_same(one, other):
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize("item", [object(), [1, object()], {"a": {1, 2}}, np.array([object()]), lambda: 1])
def test_of_what_has_no_bytes_nothing_is_known(item):
    assert fingerprint(item) is None


def test_what_holds_itself_is_unknown():
    item = []
    item.append(item)
    assert fingerprint(item) is None


def test_they_are_the_same_in_every_process():
    assert fingerprint({"b": ["a", 1.5], "a": b"x"}) == "66e4da7314135d05"


@given(st.integers(1, 200), st.integers(-(2**63), 2**64 - 1))
def test_some_samples_are_looked_at(samples, seed):
    found = probed(samples, seed)
    assert found.size == min(samples, PROBED)
    assert np.unique(found).size == found.size
    assert 0 <= found.min() <= found.max() < samples
    assert np.array_equal(found, probed(samples, seed))


def saved(read, samples=100, **options):
    one = Identity(samples, 3)
    one.trains_on(prints_by(read), **options)
    return one.saved()


def resumed(stored, read, samples=100, **options):
    one = Identity(samples, 3, options.pop("keys", None))
    one.stored = stored
    one.trains_on(prints_by(read), **options)
    return one


def test_each_is_read_once_and_two_of_them_twice():
    reads = []
    saved(lambda number: reads.append(number) or number)
    assert len(reads) == PROBED + TWICE == 32


def test_other_data_is_an_error_and_the_same_is_none():
    stored = saved(lambda number: f"text {number}")
    resumed(stored, lambda number: f"text {number}")
    with pytest.raises(OtherData, match=r"Got other samples at 30 of the 30 places"):
        resumed(stored, lambda number: f"text {number + 1}")


@given(st.permutations(range(40)))
def test_a_data_set_in_another_order_is_noticed(order):
    stored = saved(lambda number: number, 40)
    moved = [number for number in probed(40, 3).tolist() if order[number] != number]
    if moved:
        with pytest.raises(OtherData, match=f"samples at {len(moved)} of the 30 places"):
            resumed(stored, lambda number: order[number], 40)
    else:
        resumed(stored, lambda number: order[number], 40)


def test_random_samples_are_alike_if_their_numbers_are_drawn_as_usual():
    def flipped(number):
        return [number, random.random(), np.random.rand()]  # noqa: NPY002 (as transforms do)

    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    stored = saved(flipped)
    assert None not in stored[:-1]
    resumed(stored, flipped)
    with pytest.raises(OtherData):
        resumed(stored, lambda number: flipped(number + 1))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


class Refusing:
    """What has no such attribute that it does not say so in a way of its own, as some proxies do."""

    __slots__ = ("numbers",)

    def __init__(self, numbers):
        self.numbers = numbers

    def __getattr__(self, name):
        raise KeyError(name)


class Augmented:
    """Samples with random generators of their own, in all the places where transforms have them."""

    def __init__(self):
        own = random.Random(1)
        self.transforms = [partial(lambda of, value: value + of.normal(), np.random.default_rng(1))]
        self.options = {"scale": lambda value: value * own.random(), "proxy": Refusing(1), "me": self}
        self.add = np.random.RandomState(1).normal

    def __getitem__(self, sample):
        value = self.add() + float(sample)
        for each in (*self.transforms, self.options["scale"]):
            value = each(value)
        return value


def test_generators_of_their_own_stay_as_they_were():
    one, other = Augmented(), Augmented()
    prints_by(one.__getitem__)(range(9))
    assert [one[place] for place in range(5)] == [other[place] for place in range(5)]


def test_of_samples_with_a_generator_of_their_own_it_says_that_nothing_is_known_and_reads_no_more():
    own, reads = np.random.default_rng(0), []

    def read(number):
        reads.append(number)
        return [number, own.random()]

    with pytest.warns(UserWarning, match="cannot notice if it goes on with other data"):
        stored = saved(read)
    assert set(stored) == {None}
    reads.clear()
    with pytest.warns(UserWarning, match="pass keys="):
        resumed(stored, read)
    resumed(stored, read, keys=np.arange(100, dtype=np.uint64))  # by these it notices
    assert not reads
    resumed(saved(lambda number: number), read)


def test_what_shows_that_all_is_the_same_is_believed_and_what_does_not_is_not():
    def never(number):
        raise AssertionError(number)

    stored = saved(lambda number: number, whole=lambda: "0123456789abcdef")
    resumed(stored, never, whole=lambda: "0123456789abcdef")
    for whole in (lambda: "fedcba9876543210", lambda: None):
        resumed(stored, lambda number: number, whole=whole)
        with pytest.raises(OtherData):
            resumed(stored, lambda number: number + 1, whole=whole)
    with pytest.raises(OtherData):
        resumed(saved(lambda number: number), lambda number: number + 1, whole=lambda: "0123456789abcdef")


def test_nothing_is_read_before_it_is_needed():
    def never(number):
        raise AssertionError(number)

    Identity(10, 0).trains_on(prints_by(never))
    assert Identity(10, 0).saved() is None
