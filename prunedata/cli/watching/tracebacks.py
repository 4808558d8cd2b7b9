"""Remove our frames from the tracebacks of a watched program."""

import sys
from pathlib import Path
from types import TracebackType

PACKAGES = tuple(
    f"{folder}/" for folder in {Path(__file__).parents[2], (Path(__file__).parents[2] / "adapters").resolve()}
)


def leave_out_own_frames() -> None:
    """Remove our frames from an error that ends the program, before the present excepthook prints it."""
    shows = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        seen: set[int] = set()
        causes: list[BaseException | None] = [error]
        while causes:
            one = causes.pop()
            if one is not None and id(one) not in seen:
                seen.add(id(one))
                one.__traceback__ = without_own_frames(one.__traceback__)
                causes += [one.__cause__, one.__context__]
        shows(kind, error, error.__traceback__)

    sys.excepthook = excepthook


def without_own_frames(at: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package; as it is if it has no others."""
    frames = []
    while at is not None:
        frames.append(at)
        at = at.tb_next
    kept = [one for one in frames if not one.tb_frame.f_code.co_filename.startswith(PACKAGES)] or frames
    found = None
    for one in reversed(kept):
        found = TracebackType(found, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return found
