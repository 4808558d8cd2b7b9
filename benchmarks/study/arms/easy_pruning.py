"""The easiest samples left out: the mirror of the paper's rule."""

from benchmarks.common.palette import OLIVE
from benchmarks.study.arm import Arm
from benchmarks.study.choosers import prune_by
from prunedata import EasyPruning

ARMS = (
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
