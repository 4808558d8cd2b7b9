"""A loop over tf.data learns nothing of what doesn't count, is warned if it would, and loses no figure."""

import pytest
import tensorflow as tf

from prunedata.adapters.tensorflow import wrap
from tests.adapters.helpers.loops import (
    MODES,
    RUNS,
    SAMPLES,
    assert_figures_are_not_lost,
    assert_learns_no_more,
    assert_warned_unless_it_weighs,
    train,
)


def of_tensorflow(pruner, size, drop):
    return wrap(tf.data.Dataset.range(SAMPLES), pruner).batch(size, drop_remainder=drop).prefetch(1)


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_learnt_of_what_does_not_count(run):
    assert_learns_no_more(train, of_tensorflow, RUNS[run])


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_learnt_in_any_mode(mode):
    assert_learns_no_more(train, of_tensorflow, RUNS["held out and left out by weight"], **MODES[mode])


@pytest.mark.parametrize("run", ["held out", "left out by weight", "weighed"])
def test_a_loop_that_never_asks_what_losses_weigh_is_warned(run):
    assert_warned_unless_it_weighs(train, of_tensorflow, RUNS[run])


@pytest.mark.parametrize("stopped", [0, 6, 9])
def test_no_figure_is_lost_between_a_last_batch_and_it(stopped):
    assert_figures_are_not_lost(of_tensorflow, stopped)
