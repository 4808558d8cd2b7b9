"""What the policies are compared with: all samples, fewer epochs, samples at random, and the wrong ones as if known."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.drawing import DARK_GREY, GREY, LIGHT_GREY, ORANGE, VERMILION
from benchmarks.study.arm import Arm, Task, after_a_sixth
from benchmarks.study.choosers import AllSamples, Pruned, prune_by
from prunedata.policies import Known, Random


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
        name="regular",
        what="all samples in every epoch",
        choose=AllSamples,
        saves=False,
        order=0,
        colour=DARK_GREY,
        marker="o",
    ),
    Arm(
        name="fewer-epochs",
        what="all samples, in as many fewer epochs as the saving asks for",
        choose=AllSamples,
        groups=("paper", "late", "digits"),
        order=10,
        column="fewer epochs",
        column_order=70,
        colour=GREY,
        marker="s",
        shortens=True,
    ),
    Arm(
        name="random",
        what="the paper's schedule, samples drawn at random",
        choose=prune_by(Random()),
        groups=("paper",),
        order=20,
        column="at random",
        column_order=60,
        colour=VERMILION,
        marker="D",
    ),
    Arm(
        name="random-run",
        what="samples drawn at random, every epoch after the first sixth",
        choose=prune_by(Random()),
        schedule=after_a_sixth,
        groups=("late", "digits"),
        order=70,
        column="at random",
        column_order=60,
        colour=ORANGE,
        marker="P",
    ),
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
