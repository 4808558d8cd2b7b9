"""Files that ``prunedata suspects`` writes, by format."""

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
"""Formats that the core can't write are modules here of the same name, with write_table(table, path)."""


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add ``--out`` and ``--to`` to a command."""
    parser.add_argument("-o", "--out", metavar="FILE", help="write the samples into a file")
    parser.add_argument(
        "--to",
        metavar="FORM",
        help="format: ids, csv, jsonl, parquet, verdicts for Pruner(without=FILE), or cleanlab for every sample's "
        "score; as FILE ends, else ids",
    )


def check_export(args: argparse.Namespace) -> None:
    """Raise if the format is unknown or has no file; set the format by the name of the file if none is given."""
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
    """Write the suspects of several runs into a file: rows by key, as ids differ between runs."""
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
        except ImportError as error:  # it names the missing package
            raise PrunedataError(str(error)) from error
    if not hasattr(found, "write_table"):
        raise PrunedataError(f"Expected --to {', '.join(WRITERS)}, cleanlab or parquet. Got {to}.")
    return found.write_table
