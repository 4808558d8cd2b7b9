"""Keras over other backends than TensorFlow, and none at all."""

import os
import subprocess
import sys

import keras
import pytest

from prunedata.adapters.keras import PruneCallback
from prunedata.errors import PrunedataError
from tests.adapters.helpers.keras import SAMPLES
from tests.adapters.helpers.tensorflow import make_pruner
from tests.common.programs import ROOT

BY_HAND, OWN = "a_fit_is_the_run_that_a_loop_by_hand_is", "steps_and_losses_of_ones_own"
KINDS = ["plain", "own weights", "weights of a policy", "by weight", "by weights of a policy"]
BOTH = [
    *(f"{BY_HAND}[{kind}]" for kind in KINDS),
    "what_samples_look_like_is_kept_by_itself[False]",
    "the_labels_of_a_sparse_cross_entropy_are_known[columns0]",
    "a_run_goes_on_in_the_middle_of_an_epoch[left out]",
    "a_step_of_ones_own_is_warned_unless_it_asks_for_factors",
    f"{OWN}[Own]",
    f"{OWN}[Halved]",
]
FIT = {"torch": BOTH, "jax": [*BOTH, "a_remainder_that_the_user_drops_is_skipped[4]"]}
POISON = {
    "torch": [
        *(f"of_what_does_not_count[{run}]" for run in ("held out", "left out for good", "weighed and held out")),
        *(f"in_any_mode[{mode}]" for mode in ("batches of one", "resumed", "sample weights by their sum", "eager")),
        *(f"by_any_head[{head}]" for head in ("steps with a mask", "two outputs")),
    ],
    "jax": ["of_what_does_not_count[held out]", "by_any_head[steps with a mask]"],
}
FIGURES = ["epoch ends", "last batch"]
UNTOUCHED = {
    "torch": ["shuffled", "plain", "accumulated", "bfloat16", "float16", "without_a_remainder"],
    "jax": ["shuffled", "plain", "accumulated", "bfloat16", "float16", "without_a_remainder", "in_fours"],
}


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")
    with pytest.raises(PrunedataError, match="Got 'openvino'"):
        PruneCallback(make_pruner(SAMPLES))


@pytest.mark.parametrize(
    ("package", "backend", "told"),
    [
        ("keras", "torch", "pip install keras tensorflow"),
        ("tensorflow", "tensorflow", "pip install keras tensorflow"),
        pytest.param("tensorflow", "torch", "PruneMixin of prunedata.adapters.keras needs", marks=pytest.mark.slow),
    ],
)
def test_what_is_missing_is_named(package, backend, told, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    code = f"import sys; sys.modules['{package}'] = None\nfrom prunedata.adapters.keras import PruneMixin"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told in done.stderr


@pytest.mark.parametrize("backend", FIT)
@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.slow)], ids=["one", "all"])
def test_keras_over_another_backend(backend, most):
    """Run tests of ``fit`` in a process of their own, as the backend is chosen once, and imports take the longest."""
    fit = [f"test_fit.py::test_{name}" for name in FIT[backend][:most]]
    fit += [f"test_poison.py::test_nothing_is_learnt_{name}" for name in POISON[backend][:most]]
    fit += [f"test_figures.py::test_a_run_that_was_stopped_is_as_one_that_was_not[6-{name}]" for name in FIGURES[:most]]
    fit += [f"test_untouched.py::test_a_fit[{name}]" for name in UNTOUCHED[backend][:most]]
    named = [f"{ROOT}/tests/adapters/keras/{test}" for test in fit]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named]
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # it compiles for longer than it runs
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert f"{len(named)} passed" in done.stdout
