"""Where the frontier's runs are recorded: a file of JSON lines for each kind of labels."""

from pathlib import Path

from benchmarks.common.records import Facts, add, read

__all__ = ["RESULTS", "Facts", "add", "read"]

RESULTS = Path(__file__).parent / "results"
"""Where they are recorded, if nobody says otherwise."""
