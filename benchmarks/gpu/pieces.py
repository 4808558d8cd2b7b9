"""What the command does, piece by piece: each has a name, an estimate and a function, and is recorded by its name."""

import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on

__all__ = ["Piece", "Place", "go_through", "named"]


@dataclass(frozen=True)
class Place:
    """Where the pieces run, and how large they are.

    Attributes
    ----------
    device : torch.device
    data, labels : Path or None
        Folder of CIFAR-10 in the hub's parquet layout, and CIFAR-10N's labels. Without data: digits, on a CPU only.
    compiled : bool
        Whether the arms of deep networks run through torch.compile.
    """

    device: torch.device
    data: Path | None = None
    labels: Path | None = None
    compiled: bool = False

    @property
    def full(self) -> bool:
        """Whether this is a GPU. A CPU runs every piece at a tiny size, so that no line is first run on a GPU."""
        return self.device.type == "cuda"

    def of(self, full: int, tiny: int) -> int:
        """One of two sizes."""
        return full if self.full else tiny


@dataclass(frozen=True)
class Piece:
    """One thing to do.

    Attributes
    ----------
    name : str
        Its part and its own name, with a slash between.
    seconds : float
        What it takes on a GPU, about. It does not begin with less time left.
    run : callable
        Returns its facts. ``right``, if there, says whether it came out as it must.
    """

    name: str
    seconds: float
    run: Callable[[], Facts]


def go_through(pieces: Iterable[Piece], recorded: Runs, until: float, again: bool = False) -> bool:
    """Run the pieces that are not recorded as right, as long as there is time, and record each as it ends.

    ``until`` is in seconds of ``time.monotonic()``. Returns whether all that ran came out right.
    """
    done = set() if again else {facts["name"] for facts in recorded.read() if facts.get("right", True)}
    well = True
    for piece in pieces:
        left = until - time.monotonic()
        if piece.name in done:
            continue
        if left < piece.seconds:
            print(f"{piece.name:<44} not begun: it takes {piece.seconds:.0f} s, {left:.0f} s are left", flush=True)
            continue
        began = time.monotonic()
        try:
            facts = piece.run()
        except Exception as error:  # the pieces that follow are worth their time
            traceback.print_exc()
            facts = {"right": False, "error": f"{type(error).__name__}: {error}"}
        took = time.monotonic() - began
        recorded.add(piece.name, {"name": piece.name, **facts, "took": round(took, 1)})
        well &= bool(facts.get("right", True))
        print(f"{piece.name:<44} {took:6.1f} s  {_shown(facts)}", flush=True)
    sys.stdout.flush()
    return well


def named(place: Place) -> str:
    """The hardware, as recorded runs have it."""
    return torch.cuda.get_device_name(place.device) if place.full else str(made_on(threads=1)["hardware"])


def _shown(facts: Facts) -> str:
    plain = {name: value for name, value in facts.items() if isinstance(value, str | int | float) and name != "name"}
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in plain.items() if name not in ("hardware", "torch"))[:150]  # fmt: skip
