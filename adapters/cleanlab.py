"""cleanlab: the issue type ``training_dynamics`` of ``Datalab``, from the losses that a run has observed.

Importing this module registers it::

    import prunedata.adapters.cleanlab

    lab = cleanlab.Datalab(data, label_name="label")
    lab.find_issues(issue_types={"training_dynamics": {"run": "run.zarr"}})
"""

from typing import Any, ClassVar

import numpy as np
import pandas as pd

from prunedata.errors import PrunedataError
from prunedata.findings.searched import Stateful, state_of
from prunedata.findings.table import issue_table
from prunedata.keys import hash_keys, places_of
from prunedata.store.run_store import StoreLike
from prunedata.store.state import RunState
from prunedata.types import Ids

try:
    from cleanlab.datalab.internal.issue_manager import IssueManager
    from cleanlab.datalab.internal.issue_manager_factory import REGISTRY, register
except ImportError as error:
    raise ImportError(
        "prunedata.adapters.cleanlab needs cleanlab with its Datalab: pip install 'cleanlab[datalab]'"
    ) from error

__all__ = ["TrainingDynamics"]


class TrainingDynamics(IssueManager):  # type: ignore[misc]
    """Samples whose losses stayed high while a network was trained.

    The score of a sample is ``1 / (1 + exp(x))``, where x is how far its losses were above the means of their batches,
    on average over its visits up to the memorization onset. It is an issue if the score is 0.1 or less. A sample has
    the score NaN, and is no issue, if it has too few visits, was held out, or was left out for good.
    """

    description = "Samples whose losses stayed above those of their batches while a network was trained on them."
    issue_name = "training_dynamics"
    verbosity_levels: ClassVar = {0: [], 1: ["epochs"], 2: ["visits"]}

    def find_issues(self, run: Stateful | StoreLike | None = None, keys: Any = None, **_: Any) -> None:
        """Score every sample.

        Parameters
        ----------
        run : Pruner, or path, URL or zarr store
            The run, over the samples of the Datalab in their order; or with ``keys`` over any rows, in any order.
        keys : sequence or array of str, bytes or int, optional
            The key of each sample of the Datalab, as those that the run was given. A row that the run does not have has
            the score NaN.

        Raises
        ------
        PrunedataError
            If there is no run, or nothing was observed; if no keys are given and the run has another number of samples;
            or if keys are given and the run has none of them.
        """
        state = _observed(run)
        visits, scored, samples = state.visits, issue_table(state), len(self.datalab.data)
        if keys is not None:
            at = _places_in(state, keys, samples)
            visits = np.where(at >= 0, visits[at], 0)
            scored = {
                name: np.where(at >= 0, array[at], array.dtype.type(np.nan if array.dtype.kind == "f" else 0))
                for name, array in scored.items()
            }
        elif visits.size != samples:
            raise PrunedataError(
                f"Expected a run of {samples} samples, as the Datalab has. Got one of {visits.size}: of a run with "
                'keys, pass those of the Datalab\'s samples, {"run": "run.zarr", "keys": names}.'
            )
        self.issues = pd.DataFrame(scored)
        self.summary = self.make_summary(score=float(self.issues[self.issue_score_key].mean()))
        self.info = {"epochs": len(state.history), "visits": visits}


def _observed(run: Any) -> RunState:
    """Return the state of a run that has observed samples."""
    if run is None:
        raise PrunedataError(
            'Expected a run. Got none: call find_issues(issue_types={"training_dynamics": {"run": "run.zarr"}}).'
        )
    state = state_of(run)
    if not state.visits.any():
        raise PrunedataError(f"Expected a run with observed samples. Got none in {len(state.history)} epochs.")
    return state


def _places_in(state: RunState, keys: Any, samples: int) -> Ids:
    """Return the id of each of the Datalab's samples in a run; -1 for rows that it does not have."""
    named = hash_keys(keys)
    if named.size != samples:
        raise PrunedataError(f"Expected a key for each of the Datalab's {samples} samples. Got {named.size} keys.")
    if state.keys is None:
        raise PrunedataError("Expected a run with keys, as keys are given. Got one without: train with keys=...")
    found = places_of(named, state.keys)
    if (found < 0).all():
        raise PrunedataError("Expected samples that are in the run, by their keys. Got none: are they other names?")
    return found


if not any(
    TrainingDynamics.issue_name in names for names in REGISTRY.values()
):  # not again, if this module is reloaded
    for task in REGISTRY:
        register(TrainingDynamics, task=str(task))
