"""Run the tests: ``python -m tests [--jobs N] [pytest's own options]``, a process of pytest for each room.

``python -m tests --list-slow --jobs 3`` runs those that are not marked slow by hand, and writes into tests/slow.txt
which of them take long: these are marked slow, too, so that ``make test`` takes five minutes with setting up.

A process that has imported every framework takes 1.3 GB, and each worker of a loader is a copy of its page tables: the
same tests took twice as long in it. So those of one framework have a process that imports no other, and each file is
collected once, not once for each job.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
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
LIST = Path(__file__).with_name("slow.txt")
MOST, MOST_OF_A_FILE = 0.7, 8.0
"""Seconds that a quick test may take, and what a file needs for any of its tests, beside two other rooms on 2 cores."""
TOOK = re.compile(r"^([\d.]+)s (call|setup|teardown) +([^\s\[]+)", re.M)
"""A line of pytest's durations: a test function's name ends where its parameters begin."""
NOTHING_CHOSEN = 5
"""pytest's status where its options choose no test."""
ROOMS = {
    "watch": ["watch"],
    "huggingface": ["adapters/huggingface"],
    "torch": ["adapters/torch"],
    # What has TensorFlow beside PyTorch, which others then needn't load.
    "keras": [
        "adapters/test_twice.py",
        "adapters/keras",
        "adapters/tensorflow",
        "benchmarks/demo/test_stream.py",
        "benchmarks/streams",
    ],
    "vision": ["watch/test_fastai.py", "watch/test_ultralytics.py"],
    "rest": [""],
    "benchmarks": ["benchmarks"],
    "distributed": ["benchmarks/distributed", "benchmarks/overhead", "benchmarks/scale"],
    "contract": ["adapters/test_conformance.py"],
    "faults": ["benchmarks/faults"],
    "store": ["store"],
    "adapters": ["adapters"],
    "lightning": ["adapters/lightning"],
    "streams": ["adapters/test_iterable.py", "adapters/webdataset", "streams"],
}
"""Folders and files of tests; a room has not what lies within another one's. Those that take long begin first."""


def paths_of(room):
    """The arguments by which pytest takes a room's tests, and none that another room names."""
    others = [path for name, paths in ROOMS.items() if name != room for path in paths]
    taken = [path for path in others if any(Path(path).is_relative_to(mine) for mine in ROOMS[room])]
    return [f"tests/{path}" for path in ROOMS[room]] + [f"--ignore=tests/{path}" for path in taken]


def slow_of(printed):
    """Return the slow files and test functions by the durations that pytest printed of all tests.

    A file's fixtures are set up by the first test that needs them: if that takes long, all of the file is slow. Where
    every test of a file takes long, its quickest stays, so that most features have a test that runs soon.
    """
    longest, files = defaultdict(float), set()
    for seconds, what, name in TOOK.findall(printed):
        if what == "call":
            longest[name] = max(longest[name], float(seconds))
        elif float(seconds) > MOST_OF_A_FILE:
            files.add(name.partition("::")[0])
    for file in {name.partition("::")[0] for name in longest} - files:
        mine = [name for name in longest if name.startswith(f"{file}::")]
        if MOST < min(longest[name] for name in mine) <= MOST_OF_A_FILE:
            longest[min(mine, key=longest.__getitem__)] = 0
    functions = {name for name, took in longest.items() if took > MOST and name.partition("::")[0] not in files}
    return sorted(files | functions)


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
    return status, printed


def main():
    """Run all rooms, a few at a time; return 1 if a test failed, or if none was chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--jobs", type=int, default=1, help="rooms at a time")
    parser.add_argument("--list-slow", action="store_true", help="write anew which tests take long")
    ours, options = parser.parse_known_args()
    if ours.list_slow:
        LIST.write_text("", encoding="utf-8")
        options += ["-m", "not slow and not docs", "--durations=0", "--durations-min=0", "-vv"]
    with ThreadPoolExecutor(ours.jobs) as pool:
        done = list(pool.map(lambda room: run(room, options), ROOMS))
    found = [status for status, _ in done]
    if ours.list_slow:
        LIST.write_text("".join(f"{name}\n" for name in slow_of("\n".join(text for _, text in done))), encoding="utf-8")
    failed = [room for room, status in zip(ROOMS, found, strict=True) if status not in (0, NOTHING_CHOSEN)]
    chosen = any(status != NOTHING_CHOSEN for status in found)
    print(f"Failed: {', '.join(failed)}." if failed else "All passed." if chosen else "No test was chosen.")
    return int(bool(failed) or not chosen)


if __name__ == "__main__":
    sys.exit(main())
