"""Mutants tried: the tests run in a forked process, in which a mutant stands in the place of what it was made of.

Where only the body of a function differs, the fork is of a process that has collected the tests, and the function gets
the code of the mutant. Otherwise it is of a process that has not imported the library yet, and imports the mutant.
"""

import contextlib
import gc
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from benchmarks.mutants.changes import ROOT, Mutant, can_swap, import_instead, module_of, swap

__all__ = ["FAILED", "Trials", "bound", "fork", "wait", "warm_up"]

MEMORY = 8 << 30
"""Bytes of address space: a mutant may ask for any amount."""
FAILED = (1, 2, 3, 4)
"""What pytest returns if tests fail, can't be imported, break pytest itself, or tests/conftest.py can't be imported."""


def fork(run: Callable[[], int]) -> int:
    """Run a function in a child, which ends with what it returns."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        os.setpgid(0, 0)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def bound(seconds: float) -> None:
    """Let this process have so many seconds of the processor, and not all of the memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))


def wait(child: int, seconds: float) -> str:
    """What came of a forked test run: ``"killed"``, ``"survived"``, or ``"timeout"`` after so many seconds."""
    end = time.monotonic() + seconds
    found, status = os.waitpid(child, os.WNOHANG)
    while not found and time.monotonic() < end:
        time.sleep(0.005)
        found, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with what its tests have started
    if not found:
        os.waitpid(child, 0)
        return "timeout"
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGXCPU else "killed"
    if os.WEXITSTATUS(status) == 0:
        return "survived"
    if os.WEXITSTATUS(status) not in FAILED:
        raise RuntimeError(f"Expected an exit status of pytest. Got {os.WEXITSTATUS(status)}.")
    return "killed"


WARM = ("numpy", "zarr", "zarr.storage", "fsspec", "hypothesis.extra.numpy", "hypothesis.stateful", "numpy.ma")
QUICK = 1e-3
"""Seconds that a test takes at least."""
Verdict = tuple[Mutant, str]


def warm_up() -> None:
    """Import what all trials need, once, but nothing that can be mutated."""
    for name in WARM:
        importlib.import_module(name)
    sys.pycache_prefix = str(Path(tempfile.gettempdir()) / "prunedata-mutants-pycache")


@dataclass(frozen=True)
class Trials:
    """Tests to try the mutants of a file with.

    Attributes
    ----------
    path : Path
        The file.
    tests : sequence of str
        Files or folders, from the root of the repository.
    examples : int
        Of each property test.
    longest : float
        Tests that take more CPU seconds are left out.
    folder : Path
        What the tests write goes here.
    durations : Path
        A folder that keeps how long tests take, so that they run only once on the code as it is.
    """

    path: Path
    tests: Sequence[str]
    examples: int
    longest: float
    folder: Path
    durations: Path

    def verdicts(self, mutants: Sequence[Mutant]) -> Iterator[Verdict]:
        """Try some mutants; yield each, with ``"killed"``, ``"survived"`` or ``"timeout"``, as soon as it is known.

        Raises
        ------
        RuntimeError
            If tests fail on the file as it is.
        """
        inner = [mutant for mutant in mutants if can_swap(self.path, mutant)]
        outer = [mutant for mutant in mutants if mutant not in inner]
        if inner:
            yield from self._inner(inner)
        for mutant in outer:
            yield mutant, wait(fork(partial(self._import_and_run, mutant)), 60.0)

    def place_of_durations(self, path: Path) -> Path:
        """Where it is kept how long the tests of a file take: another file for other tests, and other examples."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return self.durations / f"seconds-{path.stem}-{digest}-{self.examples}.json"

    def known_durations(self, items: Sequence[Any]) -> dict[str, float]:
        """How long tests take, in CPU seconds, by their ids; those that were never timed are taken for quick."""
        places = {self.place_of_durations(path) for path in {item.path for item in items}}
        found: dict[str, float] = {}
        for place in filter(Path.exists, places):
            found |= json.loads(place.read_text(encoding="utf-8"))
        return {item.nodeid: found.get(item.nodeid, QUICK) for item in items}

    # -- changes of a function's body

    def _inner(self, mutants: Sequence[Mutant]) -> Iterator[Verdict]:
        """The mutants in turn, from a process that has collected the tests; it says a word for each."""
        read, write = os.pipe()
        child = fork(lambda: self._pytest([_Loop(self, mutants, write)]))
        os.close(write)
        with open(read, encoding="utf-8") as words:
            yield from zip(mutants, map(str.strip, words), strict=False)
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError(f"Expected {', '.join(self.tests)} to pass. Got {(self.folder / 'said').read_text()}")

    # -- other changes

    def _import_and_run(self, mutant: Mutant) -> int:
        bound(60)
        import_instead(self.path, mutant)
        return self._pytest([_Quickest(self)])

    def _pytest(self, plugins: Sequence[object]) -> int:
        said = os.open(self.folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(self.folder)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("prunedata", "tests")]:
            del sys.modules[name]
        # Whether a test fails, not by which smallest example, and with the same examples for every mutant.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", deadline=None, max_examples=self.examples, derandomize=True, database=None, phases=phases
        )
        os.environ |= {"HYPOTHESIS_PROFILE": "mutants", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        options = ["-x", "-q", "--no-header", "--tb=native", "-m", "not slow", "-p", "no:cacheprovider"]
        options += ["-p", "_hypothesis_pytestplugin", "-p", "pytest_timeout", "-o", "tmp_path_retention_policy=none"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported before pytest knows it
        options += [f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), f"--basetemp={self.folder / 'tmp'}"]
        return int(pytest.main([*options, *(str(ROOT / test) for test in self.tests)], list(plugins)))


class _Loop:
    """Runs the collected tests as often as there are mutants, in a fork for each.

    First those that have killed most for their time, then the quickest.
    """

    def __init__(self, trials: Trials, mutants: Sequence[Mutant], write: int) -> None:
        self.trials, self.mutants, self.write = trials, mutants, write

    def pytest_runtestloop(self, session: Any) -> bool:
        module = sys.modules[module_of(self.trials.path)]
        seconds = _not_too_long(session.items, self._durations(session), self.trials.longest)
        kills = dict.fromkeys(seconds, 0)
        limit = 3 + 3 * sum(seconds.values())
        gc.collect()
        gc.freeze()  # forks share what is here as long as nobody counts it
        gc.disable()
        for mutant in self.mutants:
            session.items.sort(key=lambda item: (-kills[item.nodeid] / seconds[item.nodeid], seconds[item.nodeid]))
            verdict = wait(fork(partial(self._run_swapped, session, module, mutant, limit)), 8 * limit)
            if verdict == "killed" and self._killer.exists():
                kills[self._killer.read_text(encoding="utf-8")] += 1
            os.write(self.write, f"{verdict}\n".encode())
        return True

    def _durations(self, session: Any) -> dict[str, float]:
        for path, items in groupby(session.items, lambda item: item.path):
            place = self.trials.place_of_durations(path)
            if not place.exists():
                place.write_text(json.dumps(_durations(session, list(items))), encoding="utf-8")
        return self.trials.known_durations(session.items)

    @property
    def _killer(self) -> Path:
        return self.trials.folder / "killer"

    def _run_swapped(self, session: Any, module: ModuleType, mutant: Mutant, limit: float) -> int:
        bound(limit)
        swap(module, mutant)
        for name in _run_items(session, session.items):
            self._killer.write_text(name, encoding="utf-8")
        return int(session.testsfailed > 0)


class _Quickest:
    """Leaves out tests that take too long, and runs the quickest of the others first."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        seconds = _not_too_long(items, self.trials.known_durations(items), self.trials.longest)
        items.sort(key=lambda item: seconds[item.nodeid])


def _not_too_long(items: list[Any], seconds: dict[str, float], longest: float) -> dict[str, float]:
    """Take tests that take longer out of a list; return how long the others take."""
    items[:] = [item for item in items if seconds[item.nodeid] <= longest]
    return {item.nodeid: seconds[item.nodeid] for item in items}


def _run_items(session: Any, items: Sequence[Any]) -> Iterator[str]:
    """Run tests up to the first that fails; yield the name of each when it begins."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        yield item.nodeid
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return


def _spent() -> float:
    """Seconds of the processor that this process has taken, and all that it has started."""
    return sum(os.times()[:4])


def _durations(session: Any, items: Sequence[Any]) -> dict[str, float]:
    """How long each of some tests takes on the code as it is: CPU seconds by the test's id, above 0."""
    read, write = os.pipe()

    def time_items() -> int:
        begun = [(_spent(), name) for name in _run_items(session, items)]
        ended = [*(seconds for seconds, _ in begun[1:]), _spent()]
        for (start, name), end in zip(begun, ended, strict=True):
            os.write(write, f"{max(end - start, QUICK)} {name}\n".encode())
        return int(session.testsfailed > 0)

    child = fork(time_items)
    os.close(write)
    with open(read, encoding="utf-8") as lines:
        found = {name: float(took) for took, name in (line.rstrip("\n").split(" ", 1) for line in lines)}
    verdict = wait(child, 600)
    if verdict != "survived":
        raise RuntimeError(f"Expected the tests to pass on the code as it is. Got {verdict}.")
    return found
