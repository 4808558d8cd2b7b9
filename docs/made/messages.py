"""The list of messages in docs/errors.md, made from the sources: ``python docs/made/messages.py --write``."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"
MARK = "<!-- messages of {}: python docs/made/messages.py --write -->\n"
END = "<!-- end of the messages -->\n"
SOURCES = ("prunedata", "adapters")
CLASSES = {
    "SkippedSamples": "Observe every batch, or call skip() for the ones left out.",
    "LossError": "Correct the ids or losses of this batch.",
    "NotInEpoch": "Move the call into the loop over the epochs.",
    "ScheduleError": "Change the argument to the expected value.",
    "RunExists": "Pass resume=True to continue the run, or name another store.",
    "ForeignStore": "Name the run's own store, and pass the arguments with which it began.",
    "DamagedStore": "Resume from a copy, or from a checkpoint.",
    "StoreError": "Name another store, or make this one writable.",
    "DealerDied": "Start the dealer again from the run's store.",
    "PrunedataError": "Pass the expected value.",
}
"""The classes of errors, and what to do if a message doesn't say more."""
FEW = {"TypeError", "ValueError", "ImportError", "OSError"}
"""Other classes whose messages say what was expected: they stand with PrunedataError."""


def files() -> Iterator[Path]:
    """The sources, each once: in a source tree prunedata/adapters leads to adapters/."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.relative_to(ROOT).parts[:2] != ("prunedata", "adapters"):
                yield path


def text(node: ast.expr) -> str:
    """A message as a reader meets it, with … for what differs from case to case."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left) + text(node.right)
    return "…"


def messages() -> dict[str, set[str]]:
    """Every message that begins with "Expected", by the class of its error, wherever the sources build it."""
    found: dict[str, set[str]] = {name: set() for name in CLASSES}
    for path in files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name):
                name = "PrunedataError" if node.func.id in FEW else node.func.id
                message = " ".join(text(node.args[0]).split())
                if name in found and message.startswith("Expected") and message.count(" ") > 2:
                    found[name].add(message)
    return found


def cells(message: str) -> tuple[str, str]:
    """A message, and what it says to do: what follows the last colon of what came."""
    expected, got, rest = message.partition(" Got ")
    said, colon, advice = rest.rpartition(": ")
    if not got or not colon or not advice.strip("…. "):
        return message, ""
    return f"{expected} Got {said}", advice[:1].upper() + advice[1:]


def table(name: str) -> str:
    """The messages of a class as Markdown."""
    rows = [cells(message) for message in sorted(messages()[name])]
    lines = [f"| {_cell(message)} | {_cell(advice or CLASSES[name])} |" for message, advice in rows]
    return "\n".join(["| message | what to do |", "|---|---|", *lines, ""])


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def page() -> str:
    """The page with the messages as they are now."""
    written = PAGE.read_text(encoding="utf-8")
    for name in CLASSES:
        before, mark, rest = written.partition(MARK.format(name))
        if not mark:
            raise ValueError(f"Expected the line {MARK.format(name).strip()} in {PAGE}.")
        written = before + mark + table(name) + END + rest.partition(END)[2]
    return written


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print("\n".join(table(name) for name in CLASSES))
