"""What an epoch costs: training seconds, seconds spent in this library, and the losses' sum."""

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

__all__ = ["Meter"]


@dataclass
class Meter:
    """Running sums of one epoch. Seconds go on counting between :meth:`start` and :meth:`stop`."""

    seconds: float = 0.0
    overhead: float = 0.0
    loss_sum: float = 0.0
    _since: float | None = field(default=None, repr=False)

    def start(self) -> None:
        """Training goes on."""
        self._since = perf_counter()

    def stop(self) -> None:
        """Training pauses, or is done."""
        self.seconds, self._since = self.elapsed, None

    @property
    def elapsed(self) -> float:
        """Training seconds so far."""
        return self.seconds + (0.0 if self._since is None else perf_counter() - self._since)

    def to_dict(self) -> dict[str, Any]:
        """The sums so far, from which another meter can go on."""
        return {"seconds": self.elapsed, "overhead": self.overhead, "loss_sum": self.loss_sum}
