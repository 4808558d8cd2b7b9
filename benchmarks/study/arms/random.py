"""Samples drawn at random: the control that every rule has to beat."""

from benchmarks.common.palette import ORANGE, VERMILION
from benchmarks.study.arm import Arm, after_a_sixth
from benchmarks.study.choosers import prune_by
from prunedata import Random

ARMS = (
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
)
