"""What ``prunedata suspects`` writes into a file, and in which form."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.errors import PrunedataError

if TYPE_CHECKING:
    from prunedata.store.state import RunState
    from prunedata.types import Arrays

__all__ = ["add_export", "check_export", "export", "export_joined"]

ADAPTERS = "prunedata.adapters"
"""Where a form is looked for that the core can't write: the module of that name, with write_table(table, path)."""


def add_export(parser: argparse.ArgumentParser) -> None:
    """Let a command take ``--out`` and ``--to``."""
    parser.add_argument("-o", "--out", metavar="FILE", help="write the samples into a file")
    parser.add_argument(
        "--to",
        metavar="FORM",
        help="of the file: ids, csv, jsonl, parquet, verdicts for Pruner(without=FILE), or cleanlab for every sample's "
        "score; as FILE ends, else ids",
    )


def check_export(args: argparse.Namespace) -> None:
    """Raise if a form is named without a file, or is none; and name the form of the file."""
    if args.out is None:
        if args.to is not None:
            raise PrunedataError(f"Expected --out FILE beside --to {args.to}. Got none.")
        return
    if args.to is None:
        from prunedata.findings.table import WRITERS

        ending = Path(args.out).suffix.lstrip(".")
        args.to = ending if ending in WRITERS or ending == "parquet" else "ids"
    if args.to != "cleanlab":
        _writer(args.to)


def export(run: RunState, table: Arrays, out: str, to: str) -> int:
    """Write a table into a file, and return how many samples it has."""
    if to == "cleanlab":
        from prunedata.findings.table import issue_table, key_column

        ids = np.arange(run.samples)
        table = {"id": ids} | issue_table(run) | key_column(run, ids)
        to = "csv"
    _writer(to)(table, Path(out))
    return int(table["id"].size)


def export_joined(table: Arrays, out: str, to: str) -> None:
    """Write what several runs suspect into a file: rows by their keys, as they have other ids in other runs."""
    keyed = "key" in table
    if to == "cleanlab":
        raise PrunedataError("Expected one run for --to cleanlab. Got several stores.")
    if to == "ids" and table["run"].any():
        raise PrunedataError(
            "Expected --to verdicts, csv, jsonl or parquet, as some rows are not in the first run. Got --to ids."
        )
    if to == "verdicts" and keyed:
        table = {"id": np.full(table["id"].size, ""), "key": table["key"]}
    _writer(to)(table, Path(out))


def _writer(to: str) -> Any:
    from prunedata.findings.table import WRITERS

    if to in WRITERS:
        return WRITERS[to]
    found: Any = None
    if to.isidentifier():
        try:
            found = importlib.import_module(f"{ADAPTERS}.{to}")
        except ModuleNotFoundError as error:
            if error.name not in (ADAPTERS, f"{ADAPTERS}.{to}"):
                raise PrunedataError(str(error)) from error
        except ImportError as error:  # it says which extra is missing
            raise PrunedataError(str(error)) from error
    if not hasattr(found, "write_table"):
        raise PrunedataError(f"Expected --to {', '.join(WRITERS)}, cleanlab or parquet. Got {to}.")
    return found.write_table
