"""The settings of a watched program, passed through its environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FOLDER, OPTIONS = "PRUNEDATA_WATCH", "PRUNEDATA_WATCH_OPTIONS"
"""Variables: the folder of the stores, and words such as ``leave-out``, ``live`` and ``top=50``."""
STARTUP = Path(__file__).resolve().parent / "startup"  # the folder to be named in PYTHONPATH


@dataclass(frozen=True)
class Settings:
    """How to watch: the folder of the stores, how many suspects are shown, whether samples are left out.

    With ``live`` suspects are shown at the end of every epoch.
    """

    folder: Path
    top: int = 20
    leave_out: bool = False
    live: bool = False

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings in this process's variables. Unknown words are ignored."""
        words = os.environ.get(OPTIONS, "").split()
        tops = [word.removeprefix("top=") for word in words if word.startswith("top=")]
        top = int(tops[-1]) if tops and tops[-1].isdecimal() else cls.top
        return cls(Path(os.environ.get(FOLDER) or "."), top, "leave-out" in words, "live" in words)

    def to_environment(self) -> dict[str, str]:
        """Return this process's variables, and those with which a program is watched with these settings."""
        words = [*["leave-out"] * self.leave_out, *["live"] * self.live, f"top={self.top}"]
        path = os.pathsep.join(filter(None, [str(STARTUP), os.environ.get("PYTHONPATH")]))
        return dict(os.environ) | {FOLDER: str(self.folder.absolute()), OPTIONS: " ".join(words), "PYTHONPATH": path}
