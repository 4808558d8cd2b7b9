"""Keys: the same everywhere, one a sample, and exact in what they say of data that has changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, keys
from prunedata.errors import ForeignStore, LossError, OtherData, PrunedataError
from prunedata.keys import SampleIds, hash_keys, key_from, key_text, own_keys, places_of

NAMES = [f"train/cat/{number}.jpg" for number in range(30)]
TEXTS = st.text(st.characters(codec=None), max_size=5)
"""With halves of surrogate pairs, as names of files may hold."""


@given(st.lists(TEXTS, unique=True))
def test_a_key_is_its_text_whatever_holds_it(texts):
    found = hash_keys(texts)
    assert found.dtype == np.uint64
    assert found.shape == (len(texts),)
    assert np.array_equal(hash_keys([text.encode("utf-8", "surrogatepass") for text in texts]), found)
    assert np.array_equal(hash_keys(np.array(texts, dtype=object)), found)
    assert np.array_equal(hash_keys(tuple(texts)), found)


@given(st.lists(st.integers(-(2**63), 2**64 - 1), unique=True))
def test_numbers_are_their_digits(numbers):
    found = hash_keys(numbers)
    assert np.array_equal(hash_keys([str(number) for number in numbers]), found)
    assert np.array_equal(hash_keys([*numbers, "x"])[:-1], found)
    if all(number < 2**63 for number in numbers):
        assert np.array_equal(hash_keys(np.array(numbers, dtype=np.int64)), found)


def test_it_is_what_b2sum_prints_in_every_process():
    assert [key_text(key) for key in hash_keys(["a", b"b", 3]).tolist()] == [
        "40f89e395b66422f", "8472c2e34d854f75", "9e251905a6d98e01",
    ]  # fmt: skip


@pytest.mark.parametrize("bad", ["abc", b"abc", 3, [1.5], [True], [None], np.ones((2, 2)), np.array(3), [["a"]]])
def test_what_is_no_key_is_refused(bad):
    with pytest.raises(PrunedataError, match=r"Expected (keys to be a sequence|each key to be text)"):
        hash_keys(bad)


@given(st.lists(st.integers(0, 6), min_size=8, max_size=12))
def test_a_key_that_comes_twice_is_refused_and_named(numbers):
    again = len(numbers) - len(set(numbers))
    with pytest.raises(PrunedataError, match=rf"Got {again} that come twice \('\d' for samples \d+ and \d+"):
        hash_keys(numbers)


def test_two_keys_of_one_hash_are_refused_and_said_to_differ(monkeypatch):
    class Short:
        def __init__(self, text, digest_size):
            self.text = text

        def digest(self):
            return self.text[:1] * 8

    monkeypatch.setattr(keys, "blake2b", Short)
    with pytest.raises(
        PrunedataError, match=r"Got 1 that differ and have the same hash of 64 bits \('ab' for samples 0"
    ):
        hash_keys(["aa", "b", "ab"])


@given(st.lists(st.integers(0, 50), unique=True), st.lists(st.integers(0, 50), unique=True))
def test_places(some, among):
    one, other = (np.array(each, dtype=np.uint64) for each in (some, among))
    assert places_of(one, other).tolist() == [among.index(key) if key in among else -1 for key in some]


@given(st.lists(TEXTS, unique=True, min_size=1), TEXTS)
def test_the_place_of_one(texts, other):
    ids = SampleIds(len(texts), hash_keys(texts))
    assert [ids.of(text) for text in texts] == list(range(len(texts)))
    assert [ids.of(text.encode("utf-8", "surrogatepass")) for text in texts] == list(range(len(texts)))
    if other in texts:
        assert ids.of(other) == texts.index(other)
    else:
        with pytest.raises(LossError, match=f"Expected one of the run's {len(texts)} keys"):
            ids.of(other)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1), st.integers(0, 20))
def test_with_keys_a_number_is_a_key_whatever_its_size_and_without_it_is_a_position(numbers, other):
    ids = SampleIds(len(numbers), hash_keys(numbers))
    assert [ids.of(number) for number in numbers] == list(range(len(numbers)))
    assert [ids.of(number) for number in np.array(numbers)] == list(range(len(numbers)))
    if other not in numbers:
        with pytest.raises(LossError, match="In a run with keys the ids of a stream are its keys, not positions"):
            ids.of(other)
    if other < len(numbers):
        assert SampleIds(len(numbers)).of(np.int64(other)) == other
    else:
        with pytest.raises(LossError, match=r"pass those of all samples as keys, as in Pruner\(keys=numbers"):
            SampleIds(len(numbers)).of(other)


@given(st.integers(0, 2**64 - 1))
def test_a_hash_in_a_file_is_read_again(key):
    assert key_from(key_text(key)) == key
    assert len(key_text(key)) == 16


@pytest.mark.parametrize("text", ["", "12", "g" * 16, "A" * 16, "1" * 17, " 23456789012345 "])
def test_other_text_is_no_hash(text):
    assert key_from(text) is None


def test_names_of_a_source_that_are_not_one_each_are_none():
    assert own_keys(None, 3) is None
    assert own_keys(["a", "a", "b"], 3) is None
    assert own_keys(["a", "b"], 3) is None
    assert own_keys([1.5, 2, 3], 3) is None
    assert own_keys(["a", "b", "c"], 3).size == 3


# -- a run with keys


def train(names, epochs=1, **options):
    run = options.pop("pruner", None) or Pruner(epochs=4, keys=names, **options)
    while epochs:
        epochs -= 1
        epoch = run.begin_epoch()
        for ids in epoch.batches(10):
            run.observe(np.cos(ids * 1.0), ids)
        run.end_epoch()
    return run


def test_keys_say_how_many_samples_there_are():
    assert Pruner(epochs=4, keys=NAMES).samples == 30
    with pytest.raises(PrunedataError, match=r"Expected a key for each of 31 samples\. Got 30 keys"):
        Pruner(31, epochs=4, keys=NAMES)


def test_the_store_keeps_8_bytes_of_each(tmp_path):
    run = train(NAMES, store=tmp_path / "run.zarr")
    kept = run._engine.store.read()[1]["keys"]
    assert (kept.dtype, kept.nbytes) == (np.uint64, 8 * 30)
    assert np.array_equal(kept, hash_keys(NAMES))


def test_the_same_keys_go_on_and_so_does_a_run_without(tmp_path):
    train(NAMES, store=tmp_path)
    assert train(NAMES, store=tmp_path, resume=True).next_epoch == 2
    run = Pruner(30, epochs=4, store=tmp_path, resume=True)  # nobody says what they are: they are kept
    train(None, pruner=run)
    del run
    with pytest.raises(OtherData):
        train(NAMES[::-1], store=tmp_path, resume=True)


def test_a_run_that_began_without_keys_is_given_them(tmp_path):
    run = train(None, pruner=Pruner(30, epochs=4, store=tmp_path))
    del run
    with pytest.raises(PrunedataError, match="Expected a stored run with keys, by which follow=True"):
        Pruner(epochs=4, keys=NAMES, store=tmp_path, resume=True, follow=True)
    train(NAMES, store=tmp_path, resume=True)
    with pytest.raises(OtherData):
        Pruner(epochs=4, keys=NAMES[::-1], store=tmp_path, resume=True)


@given(st.permutations(range(30)), st.sets(st.integers(0, 29), max_size=29), st.integers(0, 3))
def test_data_that_changed_is_noticed_exactly(order, dropped, fresh):
    state = train(NAMES).state_dict()
    now = [NAMES[at] for at in order if at not in dropped] + [f"new {number}" for number in range(fresh)]
    run = Pruner(epochs=4, keys=now)
    if now == NAMES:
        run.load_state_dict(state)
        return
    other = sum(at >= len(NAMES) or name != NAMES[at] for at, name in enumerate(now))
    places = f"other rows at {other} of {len(now)} places" if other else f"{len(now)} rows"
    with pytest.raises(
        OtherData, match=f"Got {places}: {fresh} are new, and {len(dropped)} of the 30 are gone"
    ) as told:
        run.load_state_dict(state)
    assert "same data in the same order; or pass follow=True" in str(told.value)
    assert "begin a new store" in str(told.value)
    assert run.next_epoch == 0  # nothing of it was taken


def test_other_names_of_the_same_rows_are_taken_if_that_is_asked_for(tmp_path):
    train(NAMES, store=tmp_path)
    moved = [f"/data/{name}" for name in NAMES]
    assert train(moved, store=tmp_path, resume="other data").next_epoch == 2
    assert train(moved, store=tmp_path, resume=True).next_epoch == 3


def test_a_run_without_keys_of_other_length_is_told_of_them(tmp_path):
    train(None, pruner=Pruner(30, epochs=4, store=tmp_path))
    with pytest.raises(ForeignStore, match=r"pass keys=\.\.\. and follow=True; or, if the wrapped object has names"):
        Pruner(31, epochs=4, store=tmp_path, resume=True)


def test_ranks_are_held_to_the_same_keys():
    told = [Pruner(epochs=4, keys=names).standing() for names in (NAMES, NAMES, NAMES[::-1])]
    assert told[0] == told[1]
    assert {name for name in told[0] if told[0][name] != told[2][name]} == {"checksum of keys"}


@pytest.mark.parametrize("samples", [2**40, 2**53])
def test_more_samples_than_fit_into_memory_are_refused_before_anything_is_made(samples):
    with pytest.raises(PrunedataError, match=rf"Got {samples:,}, which take [\d,]+ GB at 16 bytes each"):
        Pruner(samples, epochs=3)
