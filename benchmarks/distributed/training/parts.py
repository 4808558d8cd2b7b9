"""Where the time goes: seconds of each part of a step, added up."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["PARTS", "Parts"]

PARTS = {
    "wait": "waits for a batch",
    "forward": "forward",
    "backward": "backward",
    "device": "sleeps for what an emulated device still takes",
    "average": "averages gradients with its replicas",
    "exchange": "exchanges with servers",
    "update": "updates weights",
    "pruning": "reports losses, ends epochs",
    "data": "makes batches, beside",
    "dealing": "asks for batches, beside",
}
"""What the parts are. The last two run in a thread of their own, while the step before is computed."""


class Parts:
    """Seconds by part. Each part is timed by one thread only."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add what is done within to a part."""
        since = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += perf_counter() - since
