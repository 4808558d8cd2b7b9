"""Recorded runs: a file of JSON lines for each kind, replaced as a whole, so that none is ever half there."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["Facts", "add", "read"]

Facts = dict[str, Any]
"""What is recorded of one run: at least its ``kind`` and its ``name``."""


def read(folder: Path, kinds: Iterable[str] | None = None) -> list[Facts]:
    """Return the facts of every recorded run of some kinds, or of all, ordered by kind and name."""
    files = sorted(folder.glob("*.jsonl")) if kinds is None else [folder / f"{kind}.jsonl" for kind in kinds]
    return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


def add(folder: Path, facts: Facts) -> None:
    """Record a run beside the others of its kind, in place of one with its name. One process at a time may do so."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = {run["name"]: run for run in [*read(folder, [facts["kind"]]), facts]}
    file = folder / f"{facts['kind']}.jsonl"
    part = file.with_suffix(".part")
    with part.open("w") as out:
        out.writelines(json.dumps(runs[name], separators=(",", ":")) + "\n" for name in sorted(runs))
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
