"""Where the onset would have started in runs that left nothing out."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import ARMS
from prunedata.plan.onset import MEAN_OF, Figures, find_onset

__all__ = ["BEGIN", "replay"]

BEGIN = "<!-- python -m benchmarks.frontier replay -->"
FALLS, STEADY = 2.0, 0.5
"""In points of test accuracy: so much is lost where it should start, and less where it should not."""


def replay(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return, for each subject, how many runs fall, how many don't, and in how many of each it starts, as Markdown."""
    rows, sums = [], np.zeros(7, int)
    for subject, facts in results.items():
        runs = [run for run in facts if not ARMS[run["arm"]].policy and run["epochs"] >= MEAN_OF]
        fell = np.array([_figures(run["curves"]["accuracy"]).lost for run in runs])
        starts = np.array([_figures(run["curves"]["validation"]).onset is not None for run in runs], bool)
        clean = np.array([run["kind"] == "clean" for run in runs], bool)
        parts = (fell >= FALLS, (fell < STEADY) & ~clean, (fell < STEADY) & clean)
        counts = [len(runs), *(int(one.sum()) for part in parts for one in (part, part & starts))]
        rows.append([f"`{subject}`", *(f"{count:,}" for count in counts)])
        sums += counts
    heads = ["subject", "runs on all samples", f"fall by {FALLS:g} points", "start", f"fall by less than {STEADY:g}"]
    heads += ["start", "such on clean labels", "start"]
    return f"{markdown(heads, [*rows, ['together', *(f'{count:,}' for count in sums)]])}\n"


def _figures(curve: Sequence[float]) -> Figures:
    return find_onset([{"number": at, "validation": one, "lower_is_better": False} for at, one in enumerate(curve)])
