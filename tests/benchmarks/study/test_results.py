"""What the names of recorded runs say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.study.arms import ARMS
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.results import RESULTS, kind_of_labels, parse, recipe_of

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


def test_kinds_of_labels_are_said_in_words():
    assert kind_of_labels("random20") == "20% of the labels wrong at random"
    assert kind_of_labels("confusable14") == "14% of the labels wrong, confusable"
    assert kind_of_labels("worse") == "people's labels, the worst of three answers"
    assert kind_of_labels("aggre") == "people's labels, the majority of three answers"
    assert kind_of_labels("clean") == "clean labels"
