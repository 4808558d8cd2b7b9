"""Settings that every test shares."""

import os
import shlex
import signal
import sys
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from prunedata.cli.main import main

# A shell lets what it starts in the background ignore Ctrl-C, which tests send to themselves and to programs.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No deadlines: a shared machine is slow at times, and a test never judges wall time.
# No test asks the Hugging Face Hub; read when its packages are imported.
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
settings.register_profile("dev", deadline=None, max_examples=10)
# The same examples on every run, so that a red build means that the change is to blame.
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
mine = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
if "PRUNEDATA_EXAMPLES" in os.environ:  # make test-rest looks further
    settings.register_profile(mine, settings.get_profile(mine), max_examples=int(os.environ["PRUNEDATA_EXAMPLES"]))
settings.load_profile(mine)


SLOW, LONG = (
    frozenset(Path(__file__).parent.joinpath(name).read_text(encoding="utf-8").split("\n"))
    for name in ("slow.txt", "project/long.txt")
)
"""Files and test functions that take long, as ``python -m tests --list-slow`` found; and tests that take longest,
listed by hand: where several show alike things, one of them stays for CI."""
MANY = 3
"""Of a function with so many slow cases, or more, CI runs a third and one more. Pages are no such cases: each has its
own code."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what takes long, before ``-m`` chooses; and let runs on drawn losses warn neither of chance nor of size.

    Such losses need not have a hit, and may be of any size.
    """
    cases = defaultdict(list)
    for item in items:
        file, function = item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]
        if file in SLOW or function in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.nodeid in LONG or function in LONG:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.long)
        elif item.get_closest_marker("slow") and not file.startswith("tests/docs/"):
            cases[function].append(item)
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning"))
            large = "ignore:Expected losses of about the size of:prunedata.errors.NeverPrunesWarning"
            item.add_marker(pytest.mark.filterwarnings(large))
    for those in cases.values():
        if len(those) >= MANY:  # in an order that has nothing to do with their parameters, and is the same in every run
            for item in sorted(those, key=lambda item: crc32(item.nodeid.encode()))[1 + len(those) // 3 :]:
                item.add_marker(pytest.mark.long)


def pytest_runtest_setup(item):
    """Skip what needs a GPU where there is none; and have PyTorch stop a worker that does not end after half a second.

    A loader that is left in a cycle of references is collected with its queues closed. So its workers are not told to
    end, and each of them would hold up some later test.
    """
    if item.get_closest_marker("cuda") and not sys.modules["torch"].cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    if loading := sys.modules.get("torch.utils.data._utils"):
        loading.MP_STATUS_CHECK_INTERVAL = 0.5


@pytest.fixture
def say(capsys):
    """Run the program in this process: (exit status, standard output, standard error)."""

    def call(command):
        status = main(shlex.split(command))
        return status, *capsys.readouterr()

    return call
