"""The command ``prunedata top``: a run while it trains, refreshed in the terminal, or in the browser."""

import argparse
import shutil
import sys
import time
import webbrowser

from prunedata.cli.live import LivePage
from prunedata.cli.text import can_erase
from prunedata.cli.watching.lines import suspects_in
from prunedata.errors import PrunedataError
from prunedata.reporting.facts import facts_of
from prunedata.reporting.kept import KeptPreviews
from prunedata.reporting.report import report

CLEAR = "\x1b[H\x1b[2J"  # begins at the top of an empty terminal


def show(args: argparse.Namespace) -> None:
    """Show the run until it is finished."""
    if not (args.every > 0 and args.top > 0):
        raise PrunedataError(f"Expected --every and --top above 0. Got {args.every:g} and {args.top}.")
    if args.live:
        _serve(args)
        return
    shows = can_erase(sys.stdout)
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
