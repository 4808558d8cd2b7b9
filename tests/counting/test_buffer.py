"""Losses wait in a buffer: all good batches come out of it, and every bad one is named, wherever it stands."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prunedata.counting.batches
import prunedata.counting.buffer
from prunedata.counting.buffer import LossBuffer
from prunedata.errors import LossError
from tests.common.strategies import FORMS, in_form, plain_mean

SAMPLES = 20
BAD = {
    "nan": (None, [np.nan]),
    "infinite": (None, [np.inf]),
    "minus infinite": (None, [-np.inf]),
    "infinities that cancel": (None, [np.inf, -np.inf]),
    "a sum that overflows": (None, [1.7e308, 1.7e308]),
    "high id": ([SAMPLES], None),
    "higher id": ([SAMPLES + 1], None),
    "huge id": ([2**31 - 1], None),
    "negative id": ([-1], None),
    "both": ([-5], [np.nan]),
}


class Log:
    """A buffer that is fed as a run feeds it, and what came out of it, batch by batch."""

    def __init__(self):
        self.batches, self.buffer = [], LossBuffer(SAMPLES)

    def add(self, ids, losses):
        if self.buffer.add(ids, losses):
            return
        self.record_all(self.buffer.put(ids, losses))

    def record_all(self, parts):
        for taken in parts:
            try:
                self.record(taken)
            finally:
                self.record_all(parts)

    def flush(self):
        self.record(self.buffer.take())

    def record(self, taken):
        if taken is None:
            return
        if taken.good is not None:
            self.work(*taken.good)
        if taken.complaint:
            raise LossError(taken.complaint)

    def work(self, ids, losses, sizes, means, guesses):
        assert guesses is None
        assert (ids.dtype, means.dtype) == (np.int64, np.float64)
        assert losses.dtype in (np.float32, np.float64)
        cuts = np.cumsum(sizes)[:-1]
        for i, x, mean in zip(np.split(ids, cuts), np.split(losses, cuts), means.tolist(), strict=True):
            assert mean == pytest.approx(plain_mean(x.tolist()), rel=1e-12)
            self.batches.append((i.tolist(), x.tolist()))


@st.composite
def streams(draw):
    """(ids, losses, form, what is bad) batch after batch; `samples` of at least two, for what needs two."""
    stream = []
    for bad in draw(st.lists(st.sampled_from([None] * 12 + list(BAD)), max_size=25)):
        size = draw(st.integers(2, 9) | st.just(30))
        ids = draw(st.lists(st.integers(0, SAMPLES - 1), min_size=size, max_size=size))
        losses = [loss / 3 for loss in draw(st.lists(st.integers(-3, 9), min_size=size, max_size=size))]
        at = draw(st.integers(0, size - 2))
        bad_ids, bad_losses = BAD.get(bad, (None, None))
        if bad_ids:
            ids[at : at + 1] = bad_ids
        if bad_losses:
            losses[at : at + len(bad_losses)] = bad_losses
        form = draw(st.sampled_from(FORMS if bad != "a sum that overflows" else ("float64", "list")))
        stream.append((ids, losses, form, bad))
    return stream


def named(error):
    """The batches that a message names."""
    numbers = re.findall(r"batch (\d+) of|batches \[([\d, .]+)", str(error))
    return {int(n) for one, many in numbers for n in re.findall(r"\d+", (one or many).split("...")[0])}


@given(streams(), st.sampled_from([9, 16, 64, 65536]), st.integers(1, 30))
def test_every_good_batch_is_worked_on_once_and_every_bad_one_is_named(stream, capacity, flush_every):
    told = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prunedata.counting.buffer, "CAPACITY", capacity)
        patch.setattr(prunedata.counting.batches, "_few", lambda values: str(values.tolist()))  # names all of them
        log = Log()

        def may_fail(act, *given):
            try:
                act(*given)
            except LossError as error:
                while error is not None:  # an error of an earlier block may stand behind that of a batch
                    told.update(named(error))
                    error = error.__context__
                return True
            return False

        for number, (ids, losses, form, bad) in enumerate(stream):
            given_ids, given_losses, _ = in_form(ids, losses, form)
            failed = may_fail(log.add, given_ids, given_losses)
            if bad and (form == "list" or number == 0):
                assert failed, "the first batch, and whatever is converted, is checked at once"
            if number % flush_every == 0:
                may_fail(log.flush)
        may_fail(log.flush)
    good = [(ids, in_form(ids, losses, form)[2]) for ids, losses, form, bad in stream if not bad]
    assert sorted(log.batches) == sorted(good)
    assert told == {number for number, (*_, bad) in enumerate(stream) if bad}
    if not any(form == "list" or len(ids) > capacity for ids, _, form, _ in stream):
        assert log.batches == good  # in order


LOSSES = st.lists(st.floats(width=32, min_value=-100, max_value=100) | st.sampled_from([np.nan, np.inf, -np.inf]),
                  min_size=1, max_size=9)  # fmt: skip


@given(st.lists(LOSSES, min_size=1, max_size=5), st.booleans(), st.sampled_from([np.float32, np.float64]))
def test_a_loss_that_is_no_number_counts_as_the_mean_of_the_others_where_it_is_no_error(batches, together, kind):
    log = Log()
    log.buffer.passes_nan = list
    ids, batches = [np.arange(len(batch)) for batch in batches], [np.array(batch, kind) for batch in batches]
    if together:
        log.record_all(log.buffer.put(np.concatenate(ids), np.concatenate(batches), [len(one) for one in ids]))
    else:
        for each in zip(ids, batches, strict=True):
            log.add(*each)
        log.flush()
    for (_, found), losses in zip(log.batches, batches, strict=True):
        fine = np.isfinite(losses)
        assert np.array(found)[fine].tolist() == losses[fine].tolist()
        expected = losses[fine].astype(np.float64).mean() if fine.any() else 0
        np.testing.assert_allclose(np.array(found)[~fine], expected, rtol=1e-5, atol=1e-5)


def test_what_waits_is_a_copy():
    log = Log()
    ids, losses = np.arange(4), np.arange(4.0)
    for first in range(3):
        ids[:], losses[:] = np.arange(first, first + 4), first
        log.add(ids, losses)
    log.flush()
    assert log.batches == [(list(range(n, n + 4)), [float(n)] * 4) for n in range(3)]


@pytest.mark.parametrize("given", [([], []), (np.array([], dtype=np.int64), np.array([])), (np.array([]), [])])
def test_an_empty_batch_is_nothing(given):
    log = Log()
    log.add(*given)
    log.add(np.arange(2), np.ones(2))
    log.add(*given)
    log.flush()
    assert log.batches == [([0, 1], [1.0, 1.0])]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.longlong, np.uint64, ">i4"])
@pytest.mark.parametrize("of", [np.float16, np.float32, np.float64, np.longdouble, ">f4", np.int32, "bfloat16"])
def test_all_dtypes_of_numbers_are_taken(kind, of):
    log = Log()
    of = pytest.importorskip("ml_dtypes").bfloat16 if of == "bfloat16" else of  # as TensorFlow has it
    for _ in range(2):
        log.add(np.arange(5).astype(kind), np.arange(5).astype(of))
    log.flush()
    assert log.batches == [(list(range(5)), [0.0, 1.0, 2.0, 3.0, 4.0])] * 2


def test_views_with_strides_are_taken():
    log = Log()
    for _ in range(2):
        log.add(np.arange(10)[::2], np.arange(20.0).reshape(5, 4)[:, 1])
    log.flush()
    assert log.batches == [([0, 2, 4, 6, 8], [1.0, 5.0, 9.0, 13.0, 17.0])] * 2


@given(st.lists(st.lists(st.integers(0, SAMPLES - 1), min_size=1, max_size=9), min_size=1, max_size=9), st.booleans())
def test_several_batches_at_once_are_those_batches_in_their_order(batches, waiting):
    log, losses = Log(), [[float(3 * n + len(batch)) for n in batch] for batch in batches]
    before = [([1, 2], [0.5, 2.5])] * 3 if waiting else []
    for pair in before:
        log.add(*map(np.array, pair))
    log.record_all(log.buffer.put(np.concatenate(batches), np.concatenate(losses), [len(one) for one in batches]))
    assert log.batches == before + list(zip(batches, losses, strict=True))


@pytest.mark.parametrize("sizes", [[2, 2], [2, 4], [5, 0], [6, -1], [2.5, 2.5], []])
def test_sizes_that_do_not_add_up_are_refused(sizes):
    log = Log()
    with pytest.raises(LossError, match=r"Expected (sizes of batches|ids of shape)"):
        log.record_all(log.buffer.put(np.arange(5), np.ones(5), sizes))
    assert log.batches == []
