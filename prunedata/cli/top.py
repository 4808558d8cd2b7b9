"""The command ``prunedata top``: a run while it trains, refreshed in the terminal, or in the browser."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import webbrowser
from typing import Any

from prunedata.errors import PrunedataError

CLEAR = "\x1b[H\x1b[2J"  # begins at the top of an empty terminal


def add_top_command(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the program."""
    look = commands.add_parser("top", help="show the progress and suspects of a run in the terminal, refreshed")
    look.set_defaults(run=_top)
    look.add_argument("store", help="path of the run's store, such as run.zarr")
    look.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="time between refreshes (2)")
    look.add_argument("--top", type=int, default=20, metavar="N", help="how many suspects to list (20)")
    look.add_argument("--live", action="store_true", help="show the report in the browser, only on this machine")


def _top(args: argparse.Namespace) -> None:
    if not (args.every > 0 and args.top > 0):
        raise PrunedataError(f"Expected --every and --top above 0. Got {args.every:g} and {args.top}.")
    if args.live:
        _serve(args)
        return
    shows = sys.stdout.isatty()
    while True:
        lines, finished = _lines(args.store, args.top)
        if shows:
            size = shutil.get_terminal_size()
            lines = [line[: size.columns] for line in lines[: size.lines - 1]]
        print((CLEAR if shows else "") + "\n".join(lines), flush=True)
        if finished or not shows:
            return
        time.sleep(args.every)


def _serve(args: argparse.Namespace) -> None:
    """Serve the report until the user stops it."""
    from prunedata.cli.live import LivePage
    from prunedata.reporting.report import report

    def page() -> tuple[str, bool]:
        found = report(args.store, top=args.top)
        return found.html, found.runs[0]["done"] == found.runs[0]["epochs"]

    page()  # what cannot be shown is an error here, and no page
    with LivePage(page, args.every) as server:
        print(f"{server.address}\nWhoever has this address can open the page. Ctrl-C stops the server.", flush=True)
        webbrowser.open(server.address)
        server.serve_forever()


def _lines(store: str, top: int) -> tuple[list[str], bool]:
    """Return the lines of a run, and whether it is finished."""
    from prunedata.cli.watching.lines import suspects_in
    from prunedata.reporting.facts import facts_of
    from prunedata.reporting.kept import KeptPreviews

    facts = facts_of(store)
    lines = [f"{facts.name}: {facts.progress}"]
    if facts.history:
        last = facts.history[-1]
        told = {"mean loss": last["mean_loss"], "validation": last.get("validation"), "seconds": last["seconds"]}
        known = [f"{name} {value:.4g}" for name, value in told.items() if value is not None]
        lines.append(f"epoch {last['number']}: {', '.join(known)}")
    if facts.observed:
        lines += suspects_in(facts.state, KeptPreviews(store), top)
    return lines, facts.finished
