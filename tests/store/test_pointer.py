"""The pointer and the state alone, in memory: what is written is read, and nothing else passes for it."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from prunedata import Schedule
from prunedata.checks import LARGEST
from prunedata.errors import DamagedStore, ForeignStore, PrunedataError, StoreError
from prunedata.store import pointer as pointers
from prunedata.store.pointer import Records, decode_pointer, encode_pointer
from prunedata.store.run_store import RunStore
from prunedata.store.state import RunState
from tests.store.stored_runs import REMOVED, signed

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def encoded(generation=3, arrays=None, state=None):
    return encode_pointer(generation, "me", arrays or {}, state or {}, Records())[1]


def decoded(raw):
    return decode_pointer(raw, "here")


def parts(raw):
    return json.loads(raw)["attributes"]["prunedata"]


ABOUT = {"shape": [3], "dtype": "<u2", "crc32": 7}


class TestPointer:
    @given(st.integers(0, 2**40), st.text(), st.dictionaries(st.text(), PLAIN))
    def test_what_is_written_is_read(self, generation, writer, state):
        state = {name: value for name, value in state.items() if name != "history"} | {"history": [{"kept": 3}]}
        _, raw = encode_pointer(generation, writer, {"hits": ABOUT}, state, Records())
        found = decode_pointer(raw, "here")
        assert (found["generation"], found["writer"], found["arrays"]) == (generation, writer, {"hits": ABOUT})
        assert found["state"] == state

    def test_its_digest_is_that_of_all_its_parts(self):
        raw = encoded(state={"epoch": 3, "history": [{"number": 0}, {"number": 1}]})
        assert json.loads(raw) == json.loads(signed(parts(raw)))

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            (lambda node: node["attributes"]["prunedata"].update(generation=4), DamagedStore),
            (lambda node: node["attributes"]["prunedata"].update(more=None), DamagedStore),
            (lambda node: node["attributes"]["prunedata"].pop("writer"), DamagedStore),
            (lambda node: node["attributes"]["prunedata"].pop("digest"), DamagedStore),
            (lambda node: node.update(node_type="array"), DamagedStore),
            (lambda node: node.update(zarr_format=2), DamagedStore),
            (lambda node: node.pop("node_type"), DamagedStore),
            *(
                (lambda node, f=f: node["attributes"]["prunedata"].update(format=f), ForeignStore)
                for f in (1, 2, 3, 4, 6, "5")
            ),
            (lambda node: node["attributes"].update(prunedata=7), ForeignStore),
            (lambda node: node["attributes"].update(prunedata=3), ForeignStore),
            (lambda node: node["attributes"].pop("prunedata"), ForeignStore),
            (lambda node: node.update(attributes=["prunedata"]), ForeignStore),
            (lambda node: node.pop("attributes"), ForeignStore),
        ],
    )
    def test_anything_else_is_refused(self, change, error):
        node = json.loads(encoded())
        change(node)
        with pytest.raises(error):
            decoded(json.dumps(node).encode())

    @pytest.mark.parametrize("generation", [0, 1, LARGEST])
    def test_a_generation_is_a_number_that_json_keeps(self, generation):
        assert decoded(encoded(generation))["generation"] == generation

    @pytest.mark.parametrize(
        "change",
        [{"generation": wrong} for wrong in (-1, LARGEST + 1, 1.0, True, "1", None)]
        + [{"writer": 3}, {"arrays": []}, {"state": 3}, {"state": {}}, {"state": {"history": {}}}, {"more": 1}]
        + [{name: REMOVED} for name in ("generation", "writer", "arrays", "state")],
        ids=str,
    )
    def test_a_pointer_under_its_digest_has_all_its_parts_and_no_more(self, change):
        found = parts(encoded(state={"history": [{}]})) | change
        with pytest.raises(DamagedStore):
            decoded(signed({key: value for key, value in found.items() if value is not REMOVED}))

    @pytest.mark.parametrize("name", ["loss", "open-loss", "_", "é", "a1", "more-0", "a" * 128])
    @pytest.mark.parametrize("change", [{}, {"shape": [0]}, {"crc32": 0}, {"dtype": "|u1"}])
    def test_what_arrays_can_be(self, name, change):
        arrays = {"hits": ABOUT, name: ABOUT | change}
        assert decoded(encoded(arrays=arrays))["arrays"] == arrays

    @pytest.mark.parametrize(
        "arrays",
        [{name: ABOUT} for name in ("", "-loss", "1a", "a b", "a/b", "..", "a.b", "a\n", "a" * 129)]
        + [
            {"loss": ABOUT | {"shape": wrong}}
            for wrong in ([], [3, 1], [-1], [True], [3.0], ["3"], "3", 3, None, {"0": 3})
        ]
        + [{"loss": ABOUT | {"dtype": wrong}} for wrong in ("<u1", ">u2", "|O", "<U1", "u2", "", None, 2, [])]
        + [{"loss": ABOUT | {"crc32": wrong}} for wrong in (-1, True, 7.0, "7", None)]
        + [{"loss": wrong} for wrong in (ABOUT | {"more": 1}, {}, [], 3, None)],
        ids=str,
    )
    def test_what_they_cannot_be(self, arrays):
        with pytest.raises(DamagedStore):
            decoded(encoded(arrays=arrays))

    @pytest.mark.parametrize("digest", [-1, 0, None])
    def test_one_that_is_too_deep_for_a_digest_matches_none(self, monkeypatch, digest):
        """How deep a value json reads and writes differs from Python to Python."""
        node = json.loads(encoded())
        node["attributes"]["prunedata"]["digest"] = digest
        raw = json.dumps(node).encode()

        def too_deep(value):
            raise RecursionError

        monkeypatch.setattr(json, "dumps", too_deep)
        with pytest.raises(DamagedStore):
            decoded(raw)

    def test_no_flipped_bit_goes_unseen(self):
        """Also of what stands before our own attributes, which no digest covers."""
        raw = encoded(arrays={"hits": ABOUT}, state={"epoch": 1, "history": [{"number": 0}]})
        whole = decoded(raw)
        for at, bit in itertools.product(range(len(raw)), range(8)):
            try:
                found = decoded(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
            except StoreError:
                continue
            assert found == whole  # as of a letter of a name that nobody reads

    def test_one_that_is_too_long_to_be_read_is_not_written(self, monkeypatch):
        assert pointers.MOST == 64 * 2**20  # as docs/reliability.md says
        longest = encoded(state={"x": "x" * 1000})
        monkeypatch.setattr(pointers, "MOST", len(longest))
        assert len(encoded(state={"x": "x" * 850})) < len(longest)
        with pytest.raises(StoreError):
            encoded(state={"x": "x" * 1000})

    @pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe{}"])
    def test_what_is_no_json_is_damaged(self, raw):
        with pytest.raises(DamagedStore):
            decoded(raw)

    @pytest.mark.parametrize("raw", [b"[]", b"3", b'"prunedata"'])
    def test_json_of_another_kind_is_foreign(self, raw):
        with pytest.raises(ForeignStore):
            decoded(raw)


# A long history: each record is encoded once, and no commit holds another than the run's.


def record(number, **more):
    return {"number": number, "mean_loss": 0.5, **more}


def epochs(history):
    return {"epoch": len(history), "history": history}


TURNS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans())


@given(st.lists(TURNS, min_size=1, max_size=8), st.integers(0, 99))
@example([(0, 3, False), (1, 4, False)], 0)  # goes back, and then further than before
def test_a_commit_has_the_history_that_the_run_has(turns, length):
    """Also if the run goes back, to copies as from a checkpoint, or to the records themselves.

    The last record may still change, as its seconds are complete only after its commit.
    """
    place, history = MemoryStore(), []
    run = RunStore(place)
    run.create(epochs([]))
    for turn, (back, count, copied) in enumerate(turns):
        history = [dict(one) if copied else one for one in history[:back]]
        more = {"turn": turn, "text": "é" * length}
        history += [record(number, **more) for number in range(len(history), count)]
        for overhead in (0.0, 1.5):
            if history:
                history[-1]["overhead"] = overhead
            run.write(epochs(history), {})
            assert RunStore(place, mode="r").read()[0] == epochs(history)


SCHEDULE = Schedule(3, window=3, start=1, block=1, pruned_per_block=1).to_dict()
RUN = {"samples": 4, "schedule": SCHEDULE, "prune": 1, "policy": {"name": "DroppingCount", "tolerance": 0.5}, "seed": 3}
RUN["batch_size"] = None
RECORD = {"pruned": False, "kept": 4, "observed": 4, "seconds": 1.5, "mean_loss": 0.5, "overhead": 0.0}
PLAIN_STATE = {
    "run": RUN, "schedule": SCHEDULE, "epoch": 2, "open": True, "complete": False, "skipped": 1, "observed": 3,
    "meter": {"seconds": 1.5, "overhead": 0.0, "loss_sum": 0.0, "visits": 0},
    "history": [{"number": n} | RECORD for n in (0, 1)],
    "advice": None, "rank": 0, "processes": 1, "left_out": 0, "unseen": None, "shared": None,
}  # fmt: skip
COUNTS = {name: np.arange(4, dtype=np.uint8) + n for n, name in enumerate(("counts", "hits", "visits"))}
COUNTS |= {
    "tally": np.arange(4, dtype=np.uint32),
    "open-waiting": np.zeros(4),
    "open-waiting-step": np.zeros(4, np.int32),
}
COUNTS["mean_excess"] = COUNTS["open-mean_excess"] = np.full(4, 0.5, np.float32)


def state(**changes):
    return RunState(**(PLAIN_STATE | {"arrays": COUNTS} | changes))


def described(arrays):
    return {name: (array.dtype, array.tolist()) for name, array in arrays.items()}


class TestState:
    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"rank": 1, "processes": 2, "left_out": 1},
            {"shared": {"size": 8, "shuffle": True, "rest": False}},
            {"shared": {"steps": True}},
        ],
    )
    def test_it_goes_through_json_and_a_checkpoint(self, more):
        plain = state(**more).to_json()
        assert plain == PLAIN_STATE | {"sketch": None, "data": None} | more
        packed = state(**more).to_checkpoint()
        assert packed["format"] == 4
        for again in (RunState.from_json(json.loads(json.dumps(plain)), COUNTS), RunState.from_checkpoint(packed)):
            assert again.to_json() == plain
            assert described(again.arrays) == described(COUNTS)

    @pytest.mark.parametrize("shared", [[], {"steps": False}, {"size": 8}, {"size": 8, "shuffle": 1}], ids=str)
    def test_what_is_shared_is_global_batches_or_steps(self, shared):
        with pytest.raises(PrunedataError):
            RunState.from_json(PLAIN_STATE | {"shared": shared}, COUNTS)

    @pytest.mark.parametrize(
        "change",
        [
            {"observed": True}, {"history": [{}, 3]}, {"advice": {"do": "this"}}, {"processes": 0}, {"processes": 1.0},
            {"rank": 1}, {"left_out": 2}, {"epoch": 3}, {"more": 1}, {"history": PLAIN_STATE["history"][:1]},
        ],
    )  # fmt: skip
    def test_so_has_what_is_in_them(self, change):
        with pytest.raises(PrunedataError):
            RunState.from_json(PLAIN_STATE | change, COUNTS)

    def test_arrays_of_numbers_go_through_a_checkpoint(self):
        kinds = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
        arrays = {order + kind: np.arange(4, dtype=order + kind) for order in "<>" for kind in kinds}
        packed = state(arrays=COUNTS | arrays, open=False).to_checkpoint()
        assert described(RunState.from_checkpoint(packed).arrays) == described(COUNTS | arrays)

    @pytest.mark.parametrize(
        "kind", ["|O", "|b1", "<U1", "|S1", "|V1", "<c8", "<M8[s]", "<f1", "<f16", "x", None, [], 3]
    )
    def test_no_others_do(self, kind):
        packed = state().to_checkpoint()
        packed["arrays"]["mine"] = {"dtype": kind, "data": bytes(64)}
        with pytest.raises(PrunedataError, match=r"^Expected the result of state_dict\(\)\."):
            RunState.from_checkpoint(packed)

    @pytest.mark.parametrize(
        ("samples", "arrays", "refused"),
        [(10**8, {}, False), (10**8 + 1, {}, True), (10**8 + 1, COUNTS, False), (4, {}, False)],
    )
    def test_arrays_that_are_not_there_are_not_made_of_any_size(self, samples, arrays, refused):
        one = state(run=RUN | {"samples": samples}, arrays=arrays)
        if not refused:
            one.check_size()
            return
        with pytest.raises(PrunedataError, match="one of 100,000,001 samples with none"):
            one.check_size()
