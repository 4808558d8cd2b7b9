"""Regular training: what all others are compared with.

It is part of every group of runs.
"""

from benchmarks.common.palette import DARK_GREY
from benchmarks.study.arm import Arm
from benchmarks.study.choosers import AllSamples

ARMS = (
    Arm(
        name="regular",
        what="all samples in every epoch",
        choose=AllSamples,
        order=0,
        colour=DARK_GREY,
        marker="o",
    ),
)
