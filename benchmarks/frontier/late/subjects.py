"""The subjects of the study: small networks on tables, digits, clothes and features, even classes and thinned ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from benchmarks.frontier.data.images import digits, fashion
from benchmarks.frontier.data.material import HeadTask, Made, Part
from benchmarks.frontier.data.tables import table_of, thinned, with_errors, with_uniform_errors
from benchmarks.frontier.training.train import Settings

__all__ = ["ERRORS", "KINDS", "SUBJECTS", "LateSubject", "task_of"]

ERRORS = {"clean": (0.0, 0.0), "random20": (0.2, 0.0), "near20": (0.2, 0.5), "random40": (0.4, 0.0)}
"""Share of the labels that is wrong, and share of these that say the nearest class."""
UNIFORM = {"uniform20": 0.2, "uniform40": 0.4}
"""The same, where every class is named by mistake as often as any other: thinned ones are flooded."""
KINDS = (*ERRORS, *(f"{kind}-thinned" for kind in ("clean", "random20", "random40", *UNIFORM)))
HELD_OUT = 0.1
"""Share of the samples whose labels, as noisy as the others, say when regular training and today's ``auto`` turn."""


@dataclass(frozen=True)
class LateSubject:
    """A network and its data.

    Parameters
    ----------
    title : str
    folder : {"tables", "fashion", ""}
        Which folder its files are in; "" needs none.
    make : callable
        Called with that folder; returns the arrays.
    settings : Settings
    epochs : int
    chosen : bool
        Whether the rule was chosen on it. The others confirm it.
    rates : str
        How the learning rate falls, by a name of :data:`benchmarks.frontier.training.train.RATES`.
    """

    title: str
    folder: str
    make: Callable[[Path], Made]
    settings: Settings
    epochs: int = 30
    chosen: bool = False
    rates: str = "cosine"


def _table(name: str, samples: int) -> Callable[[Path], Made]:
    return lambda data: table_of(name, samples, data)


ADAM = Settings(hidden=(256, 256), batch_size=256, rate=3e-3, weight_decay=0.0, optimizer="adamw")
WIDE = {"phoneme": 3_782, "ring": 5_000, "banana": 3_710, "contraceptive": 1_031, "pima": 537, "vowel": 693}
WIDE |= {"twonorm": 5_000, "marketing": 4_813}
"""Tables on whose seed 0 it was chosen when a group is wide, and how many rows to train on; the others test."""
TABLES = WIDE | {"vehicle": 592, "mammographic": 581, "optdigits": 3_934, "segment": 1_617}
SUBJECTS = {
    "letter": LateSubject("26 letters, a table", "tables", _table("letter", 7_000), ADAM, chosen=True),
    "fashion-slow": LateSubject(
        "clothes, an MLP that hardly memorizes", "fashion", lambda data: fashion(4_500, data),
        Settings(hidden=(128,), rate=0.01), chosen=True,
    ),
    "satimage": LateSubject("soil from space, a table", "tables", _table("satimage", 4_400), ADAM, chosen=True),
    "magic": LateSubject("gamma rays, a table of 2 classes", "tables", _table("magic", 4_500), ADAM, chosen=True),
    "penbased": LateSubject("digits by a pen, a table", "tables", _table("penbased", 4_500), ADAM),
    "texture": LateSubject("textures, a table", "tables", _table("texture", 3_500), ADAM),
    "spambase": LateSubject("spam, a table of 2 classes", "tables", _table("spambase", 3_000), ADAM),
    "digits": LateSubject(
        "digits, a convolutional network", "", lambda data: digits(1_100, data),
        Settings("convolutions", (16, 32, 64), batch_size=32, rate=0.05),
    ),
    "fashion-fast": LateSubject(
        "clothes, an MLP that memorizes", "fashion", lambda data: fashion(4_500, data),
        Settings(hidden=(256, 128), rate=0.04),
    ),
    "letter-constant": LateSubject(
        "26 letters at a constant rate", "tables", _table("letter", 7_000), ADAM, rates="constant"
    ),
    **{
        name: LateSubject("a table", "tables", _table(name, samples), ADAM, chosen=name in WIDE)
        for name, samples in TABLES.items()
    },
}  # fmt: skip


@lru_cache(1)
def _made(name: str, folder: Path) -> Made:
    return SUBJECTS[name].make(folder)


def task_of(name: str, kind: str, seed: int, folders: dict[str, Path]) -> HeadTask:
    """Return the task of a subject with labels of a kind; ``seed`` draws the errors, and which samples stay."""
    made = _made(name, folders.get(SUBJECTS[name].folder, Path()))
    features, truth = made["features"].astype(np.float32), made["truth"].astype(np.int64)
    base = kind.removesuffix("-thinned")
    if base != kind:
        stay = thinned(truth, seed)
        features, truth = features[stay], truth[stay]
    if base in UNIFORM:
        labels = with_uniform_errors(truth, UNIFORM[base], seed)
    else:
        labels = with_errors(truth, features, *ERRORS[base], seed)
    cut = round((1 - HELD_OUT) * len(truth))
    tensors, given = torch.from_numpy(features), torch.from_numpy(labels)
    test = Part(torch.from_numpy(made["test_features"].astype(np.float32)), torch.from_numpy(made["test_labels"]))
    return HeadTask(
        kind, Part(tensors[:cut], given[:cut]), Part(tensors[cut:], given[cut:]), test,
        (labels != truth)[:cut], truth[:cut], int(truth.max()) + 1,
    )  # fmt: skip
