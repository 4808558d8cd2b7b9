"""Fewer epochs: the control that saves without choosing samples."""

from benchmarks.common.palette import GREY
from benchmarks.study.arm import Arm
from benchmarks.study.choosers import AllSamples

ARMS = (
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
)
