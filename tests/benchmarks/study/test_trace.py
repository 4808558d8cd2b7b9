"""What single samples go through in a run, as the trace records it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from benchmarks.study.data import study_data
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.trace import Trace, traced_ids
from benchmarks.study.train import Options, train

SMALL = Recipe(samples=300, epochs=6, batch_size=32, noise=LabelNoise("random", 0.2))


class Stopped(Exception):
    """What stands for a kill between two epochs."""


def stop(point):
    if point["epoch"] == 2:
        raise Stopped


def read(path):
    with np.load(path) as arrays:
        return dict(arrays)


@given(wrong=st.lists(st.booleans(), min_size=1, max_size=60), count=st.integers(1, 70))
def test_half_of_the_traced_are_wrong_where_as_many_are(wrong, count):
    wrong = np.array(wrong)
    ids = traced_ids(wrong, count)
    assert len(ids) == len(set(ids)) == min(count, len(wrong))
    bad = int(wrong[ids].sum())
    assert bad == min(wrong.sum(), max(count // 2, min(count, len(wrong)) - (~wrong).sum()))
    assert np.array_equal(ids, traced_ids(wrong, count))


@pytest.mark.parametrize("arm", ["regular", "random", "dropping-count-run"])
def test_a_trace_has_a_loss_for_each_visit_and_nothing_for_what_was_pruned(arm, tmp_path):
    recipe = replace(SMALL, arm=arm, saving=0.0 if arm == "regular" else 0.25)
    facts = train(recipe, Options(arrays=tmp_path / "run.npz", trace=300))
    arrays = read(tmp_path / "run.npz")
    losses, visits = arrays["trace_losses"].astype(float), arrays["visits"]
    assert np.array_equal(arrays["trace_ids"], np.arange(300))
    assert losses.shape == (6, 300)
    assert np.array_equal((~np.isnan(losses)).sum(0), visits)
    assert [point["visits"] for point in facts["curves"]] == (~np.isnan(losses)).sum(1).tolist()
    assert np.nanmean(losses[0]) == pytest.approx(facts["curves"][0]["loss"], rel=1e-3)
    near = 0.002  # as float16, what was just above a blind guess's loss may lie just below
    assert ((losses > np.log(10) + near).sum(0) <= arrays["high"]).all()
    assert (arrays["high"] <= (losses > np.log(10) - near).sum(0)).all()
    assert (arrays["hits"] <= visits).all()


def test_a_pruner_and_the_trace_count_alike(tmp_path):
    """With a tolerance of 0 a hit is a loss above its batch's mean, to whomever counts."""
    recipe = replace(SMALL, arm="random", saving=0.25)
    data = study_data(recipe, None)
    seen = {}

    class Kept(Trace):
        def arrays(self):
            seen.update(super().arrays())
            return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.study.train.Trace", Kept)
        train(recipe, Options(arrays=tmp_path / "run.npz", trace=1))
    arrays = read(tmp_path / "run.npz")
    assert np.array_equal(arrays["visits"], seen["visits"])
    assert arrays["hits"].sum() > 300
    assert np.abs(arrays["hits"].astype(int) - seen["hits"]).sum() <= 2  # a loss at the mean may round either way
    assert len(arrays["wrong"]) == len(data.train)


def test_tracing_changes_nothing_of_the_run(tmp_path):
    plain, traced = train(SMALL, Options()), train(SMALL, Options(trace=10))
    assert [point["loss"] for point in plain["curves"]] == [point["loss"] for point in traced["curves"]]
    assert plain["accuracy_final"] == traced["accuracy_final"]


def test_a_trace_goes_on_where_it_was_stopped(tmp_path):
    recipe = replace(SMALL, arm="dropping-count-run", saving=0.25)
    train(recipe, Options(arrays=tmp_path / "whole.npz", trace=20))
    options = Options(arrays=tmp_path / "parts.npz", checkpoint=tmp_path / "run.pt", trace=20)
    with pytest.raises(Stopped):
        train(recipe, options, stop)
    with pytest.raises(ValueError, match="as many samples"):
        train(recipe, replace(options, trace=10))
    train(recipe, options)
    whole, parts = read(tmp_path / "whole.npz"), read(tmp_path / "parts.npz")
    assert set(whole) == set(parts) >= {"trace_ids", "trace_losses"}
    assert all(np.array_equal(whole[name], parts[name], equal_nan=whole[name].dtype.kind == "f") for name in whole)


def test_a_trace_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Trace(study_data(SMALL, None), 6, 0, torch.device("cpu"))
