"""The wrong labels, as if they were known: what no policy can beat."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.palette import LIGHT_GREY
from benchmarks.study.arm import Arm, Task, after_a_sixth
from benchmarks.study.choosers import Pruned
from prunedata import Known


def choose(task: Task) -> Pruned:
    """Return a chooser that prunes the samples whose labels were made wrong."""

    # Within, because a policy's fields are stored with the run, and an array is no parameter.
    @dataclass(frozen=True)
    class KnownWrong:
        tolerance: float = 0.0
        needs_losses = False

        def scores(self, known: Known) -> NDArray[np.uint8]:
            return task.wrong.view(np.uint8)

    return Pruned(task, KnownWrong())


ARMS = (
    Arm(
        name="known-wrong",
        what="the wrong labels, as if they were known: what no policy can beat, from the same epochs on",
        choose=choose,
        schedule=after_a_sixth,
        groups=("beside late", "digits wrong"),
        order=60,
        column="known-wrong",
        column_order=90,
        colour=LIGHT_GREY,
        marker="*",
        unbeatable=True,
    ),
)
