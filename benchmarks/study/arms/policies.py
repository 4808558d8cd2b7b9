"""The library's policies: the paper's rule, averaged excess, InfoBatch's rule, and the easiest left out."""

from benchmarks.common.drawing import BLUE, GREEN, OLIVE, SKY, WINE
from benchmarks.study.arm import Arm, after_a_sixth
from benchmarks.study.choosers import prune_by
from prunedata.policies import DroppingCount, EasyPruning, LossRanked, RunningLoss

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
    Arm(
        name="loss-ranked",
        what="InfoBatch's rule as our own policy, on the paper's schedule",
        choose=prune_by(LossRanked()),
        groups=("others", "others late", "digits"),
        order=80,
        column="`LossRanked`",
        column_order=40,
        colour=WINE,
        marker="<",
    ),
    Arm(
        name="easy",
        what="the lowest last losses, on the paper's schedule",
        choose=prune_by(EasyPruning()),
        groups=("others", "others late", "digits"),
        order=90,
        column="`EasyPruning`",
        column_order=50,
        colour=OLIVE,
        marker=">",
    ),
)
