"""cleanlab: the issue type ``training_dynamics`` of ``Datalab``, from the losses that a run has observed.

Importing this module registers it::

    import prunedata.adapters.cleanlab

    lab = cleanlab.Datalab(data, label_name="label")
    lab.find_issues(issue_types={"training_dynamics": {"run": "run.zarr"}})
"""

from typing import Any, ClassVar

import pandas as pd

from prunedata.errors import PrunedataError
from prunedata.findings.searched import Stateful, state_of
from prunedata.findings.table import issue_table
from prunedata.store.run_store import StoreLike
from prunedata.types import Array

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

    def find_issues(self, run: Stateful | StoreLike | None = None, **_: Any) -> None:
        """Score every sample.

        Parameters
        ----------
        run : Pruner, or path, URL or zarr store
            The run, over the samples of the Datalab in their order.

        Raises
        ------
        PrunedataError
            If there is no run, nothing was observed, or it has another number of samples.
        """
        epochs, visits, scored = _scored(run)
        samples = len(self.datalab.data)
        if visits.size != samples:
            raise PrunedataError(f"Expected a run of {samples} samples, as the Datalab has. Got one of {visits.size}.")
        self.issues = pd.DataFrame(scored)
        self.summary = self.make_summary(score=float(self.issues[self.issue_score_key].mean()))
        self.info = {"epochs": epochs, "visits": visits}


def _scored(run: Any) -> tuple[int, Array, dict[str, Array]]:
    """Return the number of epochs of a run, its visits, and the columns of the issue."""
    if run is None:
        raise PrunedataError(
            'Expected a run. Got none: call find_issues(issue_types={"training_dynamics": {"run": "run.zarr"}}).'
        )
    state = state_of(run)
    if not state.visits.any():
        raise PrunedataError(f"Expected a run with observed samples. Got none in {len(state.history)} epochs.")
    return len(state.history), state.visits, issue_table(state)


if not any(
    TrainingDynamics.issue_name in names for names in REGISTRY.values()
):  # not again, if this module is reloaded
    for task in REGISTRY:
        register(TrainingDynamics, task=str(task))
