"""Mutation testing of the core: whether the tests notice small changes of the code.

    python -m benchmarks.mutants                   all rooms, recorded in benchmarks/mutants; the table of them
    python -m benchmarks.mutants schedule cost     some of them
    python -m benchmarks.mutants --table           the table of what is recorded

A mutant that was killed is not tried again while its file stays as it is, nor one that survived while its tests do: the
run can be stopped and goes on, and after a new test only survivors are tried. It remembers in build/mutants.
"""

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.common.commands import program
from benchmarks.common.commands import share as share_of
from benchmarks.common.timing import cpu
from benchmarks.mutants.changes import ROOT, Mutant, mutants
from benchmarks.mutants.rooms import RESULTS, ROOMS, Tested, read_equivalent, summary, table
from benchmarks.mutants.trial import Trials, warm_up

__all__ = ["main"]

KNOWN = ROOT / "build" / "mutants"
EXAMPLES = 15, 60
"""Of each property test: for all mutants, and for those that survive that."""
LONGEST = 0.2, math.inf
"""Tests that take more CPU seconds are left out, likewise."""


class Known:
    """What came of mutants before, by their keys; of those that survived, with the tests that they survived."""

    def __init__(self, file: str) -> None:
        self._path = KNOWN / f"{file.replace('/', '.')}.json"
        self.verdicts: dict[str, str] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def add(self, mutant: Mutant, verdict: str) -> None:
        self.verdicts[mutant.key] = verdict
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self.verdicts))
        partial.replace(self._path)


def try_file(file: str, tested: Tested, share: float, quick: bool) -> dict[str, tuple[Mutant, str]]:
    """Try that share of the mutants of a file: the verdict of each, by its key; empty where it was never tried."""
    known, path = Known(file), ROOT / file
    found = {mutant.key: (mutant, known.verdicts.get(mutant.key, "")) for mutant in mutants(path)}
    stages = list(zip(EXAMPLES, LONGEST, (tested.tests, (*tested.tests, *tested.more)), strict=True))
    words = [f"survived {_digest(tests)}" for _, _, tests in stages]
    for stage, (examples, longest, tests) in enumerate(stages[:1] if quick else stages):
        done = {"killed", "timeout", *words[stage:]}
        left = [
            mutant
            for key, (mutant, verdict) in found.items()
            if verdict not in done and int(key, 16) < share * 16 ** len(key)
        ]
        with tempfile.TemporaryDirectory(prefix="prunedata-mutants-", ignore_cleanup_errors=True) as folder:
            trials = Trials(path, tests, examples, longest, Path(folder), KNOWN)
            for mutant, verdict in tqdm(trials.verdicts(left), desc=f"{file} {stage + 1}", total=len(left)):
                told = words[stage] if verdict == "survived" else verdict
                found[mutant.key] = mutant, told
                known.add(mutant, told)
    return {key: (mutant, verdict.partition(" ")[0]) for key, (mutant, verdict) in found.items()}


def _digest(tests: Sequence[str]) -> str:
    """Tells whether tests have changed."""
    files = sorted({path for test in tests for path in (ROOT / test, *(ROOT / test).rglob("*.py")) if path.is_file()})
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def try_room(room: str, share: float, quick: bool) -> dict[str, Any]:
    """Try all mutants of a room; what came of them, as it is recorded."""
    listed = read_equivalent()
    tried = {file: try_file(file, tested, share, quick) for tested in ROOMS[room] for file in tested.files}
    files = {file: summary(file, verdicts, listed) for file, verdicts in tried.items()}
    return {"room": room, "files": files, "made": _circumstances()}


def _circumstances() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "hardware": f"{cpu()}, 1 thread",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("mutmut", "pytest", "hypothesis", "numpy", "zarr")},
    }


def recorded() -> list[dict[str, Any]]:
    """What is recorded, room by room."""
    found = {facts["room"]: facts for facts in RESULTS.read()}
    return [found[room] for room in ROOMS if room in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status, 1 if anything survived without an explanation."""
    parser = program("benchmarks.mutants", __doc__)
    parser.add_argument("rooms", nargs="*", metavar="room", help=f"some of {', '.join(ROOMS)} (all)")
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    parser.add_argument("--share", type=share_of, default=1.0, help="of the mutants, by chance; 0 tries none (1)")
    parser.add_argument("--quick", action="store_true", help="leave it at the tests that specify a file")
    options = parser.parse_args(arguments)
    unknown = set(options.rooms) - set(ROOMS)
    if unknown:
        parser.error(f"Expected rooms among {', '.join(ROOMS)}. Got {', '.join(sorted(unknown))}.")
    if not options.table:
        os.nice(max(0, 10 - os.nice(0)))
        warm_up()
        KNOWN.mkdir(parents=True, exist_ok=True)
        for room in options.rooms or ROOMS:
            RESULTS.add(room, try_room(room, options.share, options.quick))
    results = recorded()
    print(table(results))
    return int(any(facts["survived"] for found in results for facts in found["files"].values()))


if __name__ == "__main__":
    sys.exit(main())
