"""Whatever is damaged in a run's store: one clear error, and not a byte of it changed."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prunedata.errors import DamagedStore, PrunedataError
from prunedata.store import schema, slots
from prunedata.store.pointer import REMEDY
from prunedata.store.run_store import read_run
from tests.common.programs import FEWER
from tests.store.stored_runs import (
    ARRAYS,
    REMOVED,
    SAMPLES,
    assert_refused,
    build,
    changed,
    contents,
    observe,
    pointer,
    sign,
    slot,
    standing,
    start,
)

QUICK = ("counts", "open-mean_excess", "keys")
"""One of what is written when an epoch ends, one of what is written within it, and the keys. Others go the same way."""


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    place = tmp_path_factory.mktemp("pattern") / "run.zarr"
    build(place)
    return place, standing(start(place, resume=True))


@pytest.fixture
def place(pattern, tmp_path):
    return Path(shutil.copytree(pattern[0], tmp_path / "run.zarr"))


def test_the_pattern_is_whole(pattern, place, monkeypatch):
    """Without damage nothing is refused, and both slots of every array are there to be confused."""
    before, checked = contents(place), []

    def check_agrees(*given, _check=schema._check_agrees):
        checked.append(given)
        _check(*given)

    with monkeypatch.context() as patch:
        patch.setattr(schema, "_check_agrees", check_agrees)
        again = start(place, resume=True)
        assert len(checked) == 1
        read_run(place)
        assert len(checked) == 2
    assert standing(again) == pattern[1]
    assert contents(place) == before
    assert {path.name for path in place.iterdir()} == {"zarr.json", *(f"{n}-{s}" for n in ARRAYS for s in (0, 1))}
    assert pointer(place)["arrays"].keys() == set(ARRAYS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in ARRAYS]
)
class TestFiles:
    """Each file that the pointer refers to."""

    def test_missing(self, place, name):
        array = place / f"{name}-{slot(place)}"
        for number, path in enumerate((array / "c" / "0", array / "c", array / "zarr.json", array)):
            copy = Path(shutil.copytree(place, place.with_name(f"copy-{number}")))
            gone = copy / path.relative_to(place)
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
            assert str(assert_refused(copy, DamagedStore)).endswith(REMEDY)

    @pytest.mark.parametrize("length", [0, 1, 299, -1])
    def test_cut_short(self, place, name, length):
        chunk = place / f"{name}-{slot(place)}" / "c" / "0"
        chunk.write_bytes(chunk.read_bytes()[:length])
        assert_refused(place, DamagedStore)

    def test_too_long(self, place, name):
        chunk = place / f"{name}-{slot(place)}" / "c" / "0"
        chunk.write_bytes(chunk.read_bytes() + b"\0")
        assert_refused(place, DamagedStore)

    def test_swapped_between_slots(self, place, name):
        now, before = (place / f"{name}-{s}" / "c" / "0" for s in (slot(place), 1 - slot(place)))
        if now.read_bytes() == before.read_bytes():  # only the tally changes within an epoch
            before.write_bytes(bytes(len(before.read_bytes())))
        swap(now, before)
        assert_refused(place, DamagedStore)

    def test_swapped_with_other_arrays(self, place, name):
        for other in set(ARRAYS) - {name}:
            for path in ("c/0", "zarr.json", ""):
                paths = [place / f"{n}-{slot(place)}" / path for n in (name, other)]
                same = path == "zarr.json" and len({p.read_bytes() for p in paths}) == 1
                swap(*paths)
                if not same:
                    assert_refused(place, DamagedStore)
                swap(*paths)

    @given(instant=st.randoms(use_true_random=False))
    @settings(FEWER, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_every_bit_of_a_byte_of_the_data(self, place, name, instant):
        path = place / f"{name}-{slot(place)}" / "c" / "0"
        for _ in flips(path, instant):
            assert str(assert_refused(place, DamagedStore)).endswith(REMEDY)


class TestMetadata:
    """Of one array: those of all arrays are read alike."""

    @pytest.fixture
    def path(self, place):
        return place / f"hits-{slot(place)}" / "zarr.json"

    @pytest.mark.parametrize(
        "change",
        [
            {"shape": [SAMPLES - 1]},
            {"shape": [SAMPLES + 1]},
            {"shape": [SAMPLES, 1]},
            {"shape": []},
            {"shape": [10**15]},
            {"data_type": "int8"},
            {"data_type": "int16"},
            {"data_type": "float16"},
            {"data_type": "none"},
            {"zarr_format": 2},
            {"zarr_format": 4},
            {"node_type": "group"},
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [SAMPLES - 1]}}},
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [SAMPLES * 9]}}},
            {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}},
            {"codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]},
            {"codecs": [{"name": "bytes"}, {"name": "crc32c"}]},
            {"codecs": []},
            {"codecs": REMOVED},
        ],
        ids=str,
    )
    def test_that_say_something_else(self, place, path, change):
        found = json.loads(path.read_text()) | change
        path.write_text(json.dumps({name: value for name, value in found.items() if value is not REMOVED}))
        assert_refused(place, DamagedStore)

    def test_that_are_no_json_or_too_long(self, place, path):
        whole = path.read_bytes()
        path.write_bytes(whole.ljust(1 << 16))
        assert start(place, resume=True).next_epoch == 6
        cut = (b"", whole[:1], whole[:40], whole[:-2])
        for other in (*cut, whole.ljust((1 << 16) + 1), b"[" * 60_000, b"[]", b"3", b"null", b"{}", b"\xff"):
            path.write_bytes(other)
            assert_refused(place, DamagedStore)

    @given(instant=st.randoms(use_true_random=False))
    @settings(FEWER, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_every_bit_of_a_byte(self, pattern, place, path, instant):
        for _ in flips(path, instant):
            refused_or_the_same(place, pattern[1])


def flips(path, instant):
    """Flip each bit of one byte of a file, one at a time, and put it back."""
    whole = path.read_bytes()
    at = instant.randrange(len(whole))
    for bit in range(8):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        yield at
    path.write_bytes(whole)


def refused_or_the_same(place, expected):
    """A flip may leave the meaning as it is, as in white space; then the run must stand where it stood."""
    before = contents(place)
    try:
        run = start(place, resume=True)
    except PrunedataError:
        assert_refused(place)
    else:
        assert standing(run) == expected
    assert contents(place) == before


def swap(a, b):
    c = a.with_name("swapped")
    a.rename(c)
    b.rename(a)
    c.rename(b)


class TestPointer:
    @pytest.mark.parametrize("name", sorted({*ARRAYS} - {"keys"}))  # a run may have none
    def test_without_an_array(self, place, name):
        sign(place, changed(pointer(place), ("arrays", name), REMOVED))
        assert_refused(place, DamagedStore)

    def test_of_an_older_commit(self, place):
        """A backup of the pointer alone: its slot has been written since."""
        older = (place / "zarr.json").read_bytes()
        run = start(place, resume=True)
        for _ in range(2):
            observe(run, 1)
            run.commit()
        (place / "zarr.json").write_bytes(older)
        assert_refused(place, DamagedStore)

    def test_missing(self, place):
        (place / "zarr.json").unlink()
        assert_refused(place, DamagedStore)
        arrays = [path for path in place.iterdir() if path.is_dir()]
        random.Random(0).shuffle(arrays)
        for path in arrays[:-1]:  # to the last of them, something of a run is there
            shutil.rmtree(path)
            assert_refused(place, DamagedStore)

    def test_a_folder_in_its_place(self, place):
        (place / "zarr.json").unlink()
        (place / "zarr.json").mkdir()
        assert_refused(place)


class TestSeveralChunks:
    """Arrays of more than 16 million samples have them; here, of more than 64."""

    @pytest.fixture
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(slots, "CHUNK", 64)
        build(tmp_path / "run.zarr")
        return tmp_path / "run.zarr"

    def test_swapped(self, place):
        chunks = place / f"visits-{slot(place)}" / "c"
        for a, b in ((0, 1), (2, 3), (0, 4)):
            swap(chunks / str(a), chunks / str(b))
            assert_refused(place, DamagedStore)
            swap(chunks / str(a), chunks / str(b))
        assert start(place, resume=True).next_epoch == 6

    def test_cut_short_too_long_or_missing(self, place):
        for chunk in range(5):
            path = place / f"counts-{slot(place)}" / "c" / str(chunk)
            whole = path.read_bytes()
            for other in (whole[:-1], whole + b"\0", None):
                if other is None:
                    path.unlink()
                else:
                    path.write_bytes(other)
                assert_refused(place, DamagedStore)
            path.write_bytes(whole)
