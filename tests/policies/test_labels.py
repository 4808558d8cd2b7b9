"""policy="auto" with labels: samples are compared with those of their own label, on all ranks and in resumed runs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule, advise
from prunedata.cli.main import main
from prunedata.findings.inspection import advise_now
from prunedata.findings.searched import state_of
from prunedata.run.waiting import SharedBatches
from tests.common.programs import FEWER
from tests.run.test_rejoined import in_ranks

SAMPLES, EPOCHS = 400, 12
LABELS = np.where(np.arange(SAMPLES) % 10 == 0, 2, np.arange(SAMPLES) % 2)
"""Two common labels, and one of a tenth of the samples."""
WRONG = np.arange(SAMPLES) % 5 == 1
RARE = LABELS == 2


def losses(ids, epoch):
    """Wrong labels keep high losses; those of the rare label are learnt late."""
    low = np.where(RARE[ids], 2.0, 0.2) / (1 + epoch / 8) + 0.1 * np.sin(ids * 1.7) ** 2
    return np.where(WRONG[ids], 4.0 + low, low)


def make(labels=LABELS, **options):
    return Pruner(SAMPLES, Schedule.steady(EPOCHS), policy="auto", **{"labels": labels, **options})


def train(run, batches=None, epochs=EPOCHS):
    """What is left of so many epochs; of the last but some batches, if so many are given."""
    while run.next_epoch < epochs + (batches is not None) and not run._engine.is_finished:
        epoch = run.begin_epoch()
        epoch.apply_weights()
        for number, ids in enumerate(epoch.batches(50)):
            if batches is not None and epoch.number == epochs and number == batches:
                return run
            run.observe(losses(ids, epoch.number), ids)
        run.end_epoch()
    return run


def test_a_rare_label_is_not_left_out_because_it_is_hard():
    without, run = train(make(None)), train(make())
    assert run.advice.prune == WRONG.sum()
    assert ((run.visits < EPOCHS) == WRONG).all()
    assert "of the same label" in run.advice.evidence[0]
    assert without.advice.evidence[0].startswith("80 of")


@FEWER
@given(st.integers(0, EPOCHS - 1), st.integers(0, 4), st.sampled_from(["delivery", "weight"]), st.booleans())
def test_resumed_anywhere_it_is_the_run_that_was_not_stopped(epochs, batches, leave_out, named):
    labels = np.array(["ape", "bear", "cat"])[LABELS] if named else LABELS
    options = {"leave_out": leave_out, "holdout": 0.1 if leave_out == "weight" else None}
    whole = train(make(labels, **options))
    begun = train(make(labels, **options), batches=batches, epochs=epochs)
    other = make(labels, **options)
    other.load_state_dict(begun.state_dict())
    train(other)
    assert other.advice == whole.advice
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(other, name), getattr(whole, name))
    for name, array in whole.arrays.items():
        assert np.array_equal(other.arrays[name], array)


@FEWER
@given(st.integers(1, 4), st.booleans(), st.integers(0, EPOCHS - 1))
def test_all_ranks_decide_as_one_process_does(processes, shared, stop):
    def work(group):
        run = make()
        run.join(group)
        for number in range(EPOCHS):
            epoch = run.begin_epoch()
            if shared and processes > 1:
                run.share_batches(SharedBatches(50, shuffle=True))
            for ids in epoch.batches(50):
                own = ids[group.rank :: group.processes]
                run.observe(losses(own, epoch.number), own)
            run.end_epoch()
            if number == stop:
                state = run.state_dict()
                run = make()
                run.join(group)
                run.load_state_dict(state)
        return run.advice, run.visits.tolist()

    alone = train(make())
    for advice, visits in in_ranks(processes, work):
        assert (advice.prune, advice.schedule) == (alone.advice.prune, alone.advice.schedule)
        assert visits == alone.visits.tolist()


def test_the_store_has_the_labels_and_advises_by_them(tmp_path, capsys):
    run = train(make(leave_out="nothing", store=tmp_path / "run.zarr"))
    state = state_of(tmp_path / "run.zarr")
    assert state.labels.tolist() == LABELS.tolist()
    assert advise_now(state) == run.advice == advise_now(state_of(run))
    assert main(["inspect", str(tmp_path / "run.zarr"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["labels"]["classes"] == [0, 1, 2]
    assert "labels" in [array["name"] for array in found["arrays"]]


def test_advice_takes_labels_of_any_kind():
    run = train(make(None, leave_out="nothing"))
    arrays, history, schedule = run.arrays, run.history, Schedule.steady(EPOCHS)
    names = np.array(["ape", "bear", "cat"])[LABELS]
    by_number, by_name = (advise(history, schedule, arrays["recent"], labels=one) for one in (LABELS, names))
    assert by_number == by_name
    with pytest.raises(Exception, match="and labels of"):
        advise(history, schedule, arrays["recent"], labels=LABELS[1:])
