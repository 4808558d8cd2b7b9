"""What decides by itself how many samples to leave out, and from when on; and what only watches."""

from benchmarks.common.drawing import BLACK, INDIGO
from benchmarks.study.arm import Arm
from benchmarks.study.choosers import Pruned

ARMS = (
    Arm(
        name="auto",
        what='`policy="auto"`: leaves out the labels that it doubts, late in the run',
        choose=lambda task: Pruned(task, "auto"),
        saves=False,
        order=25,
        colour=INDIGO,
        marker="d",
    ),
    Arm(
        name="auto-labels",
        what='`policy="auto"` with the labels: compares samples with those of the same label',
        choose=lambda task: Pruned(task, "auto", labels=task.labels),
        saves=False,
        order=26,
    ),
    Arm(
        name="watched",
        what="all samples in every epoch; the library records their losses and leaves nothing out",
        choose=lambda task: Pruned(task, "auto", "nothing"),
        saves=False,
        order=5,
        colour=BLACK,
        marker=".",
    ),
)
