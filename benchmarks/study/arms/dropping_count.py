"""The paper's rule, and its hits counted over the whole run."""

from benchmarks.common.palette import BLUE, SKY
from benchmarks.study.arm import Arm, after_a_sixth
from benchmarks.study.choosers import prune_by
from prunedata import DroppingCount

ARMS = (
    Arm(
        name="dropping-count",
        what="the paper's rule and schedule",
        choose=prune_by(DroppingCount()),
        groups=("paper", "beside late", "digits"),
        order=30,
        column="paper's rule",
        column_order=10,
        colour=BLUE,
        marker="v",
    ),
    Arm(
        name="dropping-count-run",
        what="hits over visits of the whole run, tolerance 1, every epoch after the first sixth",
        choose=prune_by(DroppingCount(tolerance=1, by="run")),
        schedule=after_a_sixth,
        groups=("late", "others", "digits"),
        order=40,
        column="hits of the run",
        column_order=20,
        colour=SKY,
        marker="^",
    ),
)
