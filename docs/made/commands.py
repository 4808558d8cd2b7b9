"""What each command says of itself, in docs/tools/command-line.md: ``python docs/made/commands.py --write``."""

import argparse
import os
import sys
from pathlib import Path

from prunedata.cli.parser import parser

PAGE = Path(__file__).resolve().parents[1] / "tools" / "command-line.md"
MARK, END = "<!-- help: python docs/made/commands.py --write -->\n", "<!-- end of help -->\n"


def page() -> str:
    """The page with the help of every command as it is now."""
    os.environ["COLUMNS"] = "80"
    written = PAGE.read_text(encoding="utf-8")
    before, mark, rest = written.partition(MARK)
    if not mark:
        raise ValueError(f"Expected the line {MARK.strip()} in {PAGE}.")
    program = parser()
    commands = next(one for one in program._actions if isinstance(one, argparse._SubParsersAction))
    parts = [_help("prunedata", program)]
    parts += [f"### {name}\n\n{_help(f'prunedata {name}', one)}" for name, one in commands.choices.items()]
    return before + mark + "\n".join(parts) + END + rest.partition(END)[2]


def _help(command: str, parser: argparse.ArgumentParser) -> str:
    return f"```console\n$ {command} --help\n{parser.format_help()}```\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
