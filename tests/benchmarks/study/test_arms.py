"""The study's arms and their names, and what single samples go through in a run."""

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.study import arms, matrix
from benchmarks.study.arm import Arm, Group
from benchmarks.study.arms import ARMS
from benchmarks.study.data import study_data
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.results import RESULTS, parse, recipe_of
from benchmarks.study.trace import Trace, traced_ids
from benchmarks.study.train import Options, train
from tests.benchmarks.study.test_train import Stopped, stop_after
from tests.common.programs import ROOT, run_python

# A network that has learned nothing has no loss above twice the mean.
pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")


SCRATCH = '''
"""Twice as random."""

from benchmarks.study.arm import Arm
from benchmarks.study.choosers import prune_by
from prunedata.policies import Random

ARMS = (Arm(name="scratch", what="as random", choose=prune_by(Random()), groups=("paper",), column="scratch"),)
'''
ASKED = """
from benchmarks.pages.page_tables import COLUMNS
from benchmarks.study.arms import ARMS
from benchmarks.study.matrix import recipes
from benchmarks.study.recipe import Recipe
from benchmarks.study.train import Options, train

told = train(Recipe(arm="scratch", saving=0.1, samples=100, epochs=6), Options())
print(list(ARMS)[-1], list(COLUMNS)[-1], sum(recipe.arm == "scratch" for recipe in recipes(Recipe())), told["policy"])
"""


def test_every_file_of_the_folder_is_found():
    files = {path.stem for path in Path(arms.__file__).parent.glob("*.py")} - {"__init__"}
    assert {"controls", "policies"} < files
    assert set(ARMS) == {arm.name for file in files for arm in import_module(f"{arms.__name__}.{file}").ARMS}
    assert next(iter(ARMS)) == "regular"


@pytest.mark.slow
def test_an_arm_is_one_file(tmp_path):
    """It is in the list, in the tables and in the matrix, and it trains."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=ignored)
    (tmp_path / "benchmarks" / "study" / "arms" / "scratch.py").write_text(SCRATCH)
    done = run_python(ASKED, cwd=tmp_path)
    # 12 parts of the matrix run the group "paper", at three seeds.
    assert done.stdout.split() == ["scratch", "scratch", "36", "scratch"], done.stderr


def test_every_group_has_arms_and_a_place_in_the_matrix():
    placed = {group for _, _, groups in (*matrix.PARTS, *matrix.DIGITS) for group in groups}
    assert placed == {group for arm in ARMS.values() for group in arm.groups} == set(get_args(Group))


def test_a_saving_that_no_schedule_reaches_is_told():
    with pytest.raises(ValueError, match="Expected a saving below"):
        _ = Recipe(arm="random", saving=0.9).prune
    assert isinstance(ARMS["random"], Arm)


# What the names of recorded runs say.


NOISE = LabelNoise("random", 0.2)


@given(
    arm=st.sampled_from([*ARMS]), network=st.sampled_from(["lenet", "wrn10", "resnet50"]), seed=st.integers(0, 99),
    noise=st.sampled_from([LabelNoise(), NOISE, LabelNoise("confusable", 0.14), LabelNoise("worse")]),
    augment=st.booleans(), rates=st.sampled_from(["steps", "cosine"]),
    samples=st.sampled_from([None, 500]), saving=st.sampled_from([0.14, 0.125, 0.4]),
)  # fmt: skip
def test_the_name_of_a_run_is_read_as_it_was_made(arm, network, seed, noise, augment, rates, samples, saving):
    saving = saving if ARMS[arm].saves else 0.0
    recipe = Recipe(network, arm, saving, seed, noise, samples, augment=augment, rates=rates)
    found = parse(recipe.name)
    assert (found.arm, found.seed, found.noise) == (arm, seed, str(noise))
    assert float(found.saving or 0) == pytest.approx(100 * saving)
    assert found.network.startswith(network)
    assert ("-plain" in found.size) != augment
    assert ("-cosine0.02" in found.size) == (rates == "cosine")


def test_every_recorded_run_has_a_name_that_can_be_read():
    names = RESULTS.names()
    assert names == {recipe_of(facts).name for facts in RESULTS.read()}
    assert len(names) > 100
    assert {parse(name).network for name in names} <= {"lenet", "wrn10x1"}


# What single samples go through in a run, as the trace records it.


SMALL = Recipe(samples=300, epochs=6, batch_size=32, noise=LabelNoise("random", 0.2))


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
        train(recipe, options, stop_after(2))
    with pytest.raises(ValueError, match="as many samples"):
        train(recipe, replace(options, trace=10))
    train(recipe, options)
    whole, parts = read(tmp_path / "whole.npz"), read(tmp_path / "parts.npz")
    assert set(whole) == set(parts) >= {"trace_ids", "trace_losses"}
    assert all(np.array_equal(whole[name], parts[name], equal_nan=whole[name].dtype.kind == "f") for name in whole)
