"""The suspects of a watched run as lines for a terminal."""

import os
import shlex
from pathlib import Path

from prunedata.checks import printable
from prunedata.cli.text import table
from prunedata.findings.inspection import advise_now, outcome
from prunedata.findings.table import rows_of
from prunedata.reporting.kept import KeptPreviews
from prunedata.reporting.previews import Preview
from prunedata.store.run_store import read_run
from prunedata.store.state import RunState

WIDEST = 60  # characters of a sample


def lines_of(place: Path, top: int) -> list[str]:
    """Return the place of a run's store, its most suspect samples with their rows, and the command for its report."""
    run, kept = read_run(place).state, KeptPreviews(place)
    shown = os.path.relpath(place)
    shown = str(place) if shown.startswith("..") else shown
    visited = int((run.visits > 0).sum())
    epochs = len(run.history)
    head = f"prunedata: {visited:,} of {run.samples:,} samples in {epochs} epoch{'s' * (epochs != 1)} -> {shown}"
    if not visited:
        return [head]
    rows = suspects_in(run, kept, top)
    return [
        head,
        outcome(run, advise_now(run)),
        f"the {len(rows) - 1} most suspect rows; excess: how far its losses lay above the mean of its batches",
        *rows,
        f"to look at them one by one: prunedata report {shlex.quote(shown)} --review",
    ]


def suspects_in(run: RunState, kept: KeptPreviews, top: int) -> list[str]:
    """Return the most suspect samples of a run as a table: a head, and a line for each, the worst first."""
    found = rows_of(kept.labeled(run, top))
    guesses = any(one.get("guess", "") not in (-1, "") for one in found)
    rows = [["row", "excess", "label", *["looks like"] * guesses, ""]]
    for one in found:
        looks = "" if one.get("guess") == -1 else str(one.get("guess"))
        row = str(kept.rows.get(one["id"], one["id"]))
        shown = _seen(kept.of(one["id"]), row) if one["id"] in kept else ""
        cells = [one.get("label", ""), *[looks] * guesses]
        rows.append([row, f"{one['score']:.2f}", *[_short(str(cell)) for cell in cells], shown])
    return table(rows, left=range(2, len(rows[0])))


def _seen(seen: Preview, row: str) -> str:
    if seen.row and len(seen.row) > 1:
        return _short("  ".join(f"{name}: {value}" for name, value in seen.row), 2 * WIDEST)
    name = None if seen.key == f"row {row}" else seen.key  # the first column has the row
    return _short(seen.text or name or ("an image" if seen.image else ""), 2 * WIDEST)


def _short(text: str, width: int = WIDEST) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= width else f"{text[: width - 3]}..."
