"""``policy="auto"``: what the run is advised once it has seen the data."""

from benchmarks.common.palette import INDIGO
from benchmarks.study.arm import Arm, after_a_sixth
from benchmarks.study.choosers import prune_by

ARMS = (
    Arm(
        name="auto",
        what="what the run is advised after its first sixth, pruning as much as the saving asks for at most",
        choose=prune_by("auto"),
        schedule=after_a_sixth,
        groups=("auto", "digits"),
        order=100,
        colour=INDIGO,
        marker="d",
        saves_as_asked=False,
    ),
)
