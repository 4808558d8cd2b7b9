"""Run the tests: ``python -m tests [--jobs N] [pytest's own options]``, a process of pytest for each room.

A process that has imported every framework takes 1.3 GB, and each worker of a loader is a copy of its page tables: the
same tests took twice as long in it. So those of one framework have a process that imports no other, and each file is
collected once, not once for each job.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = """
import os, sys, pytest
status = pytest.main(sys.argv[1:])
sys.stdout.flush()
os._exit(status)
"""
"""pytest without the exit of Python: PyTorch aborts some processes there, with their work done (its issue 190489)."""
NOTHING_CHOSEN = 5
"""pytest's status where its options choose no test."""
ROOMS = {
    "vision": ["watch/test_fastai.py", "watch/test_ultralytics.py"],
    "watch": ["watch"],
    # What has TensorFlow beside PyTorch, which others then needn't load.
    "keras": [
        "adapters/keras",
        "adapters/tensorflow",
        "adapters/test_twice.py",
        "benchmarks/demo/test_stream.py",
        "benchmarks/streams",
    ],
    "rest": [""],
    "faults": ["benchmarks/faults"],
    "distributed": ["benchmarks/distributed", "benchmarks/overhead", "benchmarks/scale"],
    "torch": ["adapters/torch"],
    "benchmarks": ["benchmarks"],
    "huggingface": ["adapters/huggingface"],
    "store": ["store"],
    "contract": ["adapters/test_conformance.py"],
    "lightning": ["adapters/lightning"],
    "adapters": ["adapters"],
    "streams": ["adapters/test_iterable.py", "adapters/webdataset", "streams"],
}
"""Folders and files of tests; a room has not what lies within another one's. Those that take long begin first."""


def paths_of(room):
    """The arguments by which pytest takes a room's tests, and none that another room names."""
    others = [path for name, paths in ROOMS.items() if name != room for path in paths]
    taken = [path for path in others if any(Path(path).is_relative_to(mine) for mine in ROOMS[room])]
    return [f"tests/{path}" for path in ROOMS[room]] + [f"--ignore=tests/{path}" for path in taken]


def run(room, options):
    """Run a room's tests; return pytest's status, and what it printed."""
    cache = f"cache_dir=.pytest_cache/{room}"
    command = [sys.executable, "-c", PYTEST, "-o", cache, *options, *paths_of(room)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:  # a pipe would stay open in what a test leaves behind
        status = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        output.seek(0)
        printed = output.read().decode(errors="replace")
    if status != NOTHING_CHOSEN:
        print(f"{printed}\n{room}: status {status} after {time.monotonic() - began:.0f} s", flush=True)
    return status


def main():
    """Run all rooms, a few at a time; return 1 if a test failed, or if none was chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--jobs", type=int, default=1, help="rooms at a time")
    ours, options = parser.parse_known_args()
    with ThreadPoolExecutor(ours.jobs) as pool:
        found = list(pool.map(lambda room: run(room, options), ROOMS))
    failed = [room for room, status in zip(ROOMS, found, strict=True) if status not in (0, NOTHING_CHOSEN)]
    chosen = any(status != NOTHING_CHOSEN for status in found)
    print(f"Failed: {', '.join(failed)}." if failed else "All passed." if chosen else "No test was chosen.")
    return int(bool(failed) or not chosen)


if __name__ == "__main__":
    sys.exit(main())
