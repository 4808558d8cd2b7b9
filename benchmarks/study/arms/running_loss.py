"""RunningLoss: the samples whose losses stay above those of their batches."""

from benchmarks.common.palette import GREEN
from benchmarks.study.arm import Arm, after_a_sixth
from benchmarks.study.choosers import prune_by
from prunedata import RunningLoss

ARMS = (
    Arm(
        name="running-loss",
        what="the averaged excess of each loss over its batch's mean, every epoch after the first sixth",
        choose=prune_by(RunningLoss()),
        schedule=after_a_sixth,
        groups=("late", "others", "digits"),
        order=50,
        column="`RunningLoss`",
        column_order=30,
        colour=GREEN,
        marker="p",
    ),
)
