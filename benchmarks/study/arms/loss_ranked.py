"""InfoBatch's rule as a policy of the library."""

from benchmarks.common.palette import WINE
from benchmarks.study.arm import Arm
from benchmarks.study.choosers import prune_by
from prunedata import LossRanked

ARMS = (
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
)
