"""Each system call that a store makes on its files fails once: the commit is made, or refused and made again."""

import errno
import io
import os
import random
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.calls import CallOnFile
from benchmarks.faults.child import Child, Say
from benchmarks.faults.story import go_on, new_run, position_at, steps
from prunedata import Pruner
from prunedata.errors import ForeignStore, PrunedataError

__all__ = ["FailingCalls"]

ERRNOS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EINTR, errno.EMFILE, errno.EDQUOT)
SCENES = {
    "create": 0,
    "resume": 5,
    "first commit": 0,
    "second commit": 1,
    "commit": 5,
    "end of an epoch": 7,
    "commit after a resume": 5,
}
"""What is done while a call fails, and how many commits were made before it."""


class FailingCalls(Attack):
    """A case is a call of a scene, counted as they are made; chance says by which error it fails."""

    name = "failing-calls"
    about = "a system call on the store's files fails once, by one of six errors, as a store is opened or committed to"
    many, few, needs_calls = 0, 40, True

    @cached_property
    def _cases(self) -> list[tuple[str, int]]:
        found = []
        for scene in SCENES:
            calls = _Scene(scene, self.folder / "counted" / scene).play(0, 0).calls
            found += [(scene, call) for call in range(1, calls + 1)]
        return found

    @property
    def total(self) -> int:
        return len(self._cases)

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        name, call = self._cases[case]
        yield _Scene(name, self.place(case) / "run").play(call, chance.choice(ERRNOS)).judged()


class _Scene:
    """A run that has made some commits, and makes one more, or is opened, while a call fails."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.place = name, place
        self.before = SCENES[name]
        self.after = self.before + (name not in ("create", "resume"))
        """Where it stands when it is done."""
        self.calls, self.failed = 0, "nothing failed"

    def play(self, call: int, number: int) -> "_Scene":
        """Let a call fail, by its number from 1; 0 lets none fail."""
        if self.name in ("resume", "commit after a resume"):
            Child(self._prepared).follow()

        def decide(found: CallOnFile) -> int:
            if self.child.lines[-1:] != ["begin"] or not found.is_within(self.place):
                return 0
            self.calls += 1
            if self.calls != call:
                return 0
            what = ", ".join(os.path.relpath(path, self.place) for path in found.paths)
            self.failed = f"{found.name} {what} failed with {errno.errorcode[number]}"
            return number

        self.child = Child(lambda say: self._act(say, number), watched=True)
        self.child.follow(decide)
        return self

    def _prepared(self, _: Say | None = None) -> Pruner:
        run = new_run(self.place)
        go_on(run, _nothing, _nothing, commits=self.before)
        return run

    def _act(self, say: Say, number: int) -> None:
        held, act, again = self._acts()
        say("begin")
        try:
            held = act() or held
            say("end")
        except Exception as error:
            say("end")
            say(f"{'refused' if _is_clear(error, number) else 'unclear'} {error!r}")
            say(f"stands {_standing(self.place)}")
            held = again() or held
        assert held is not None
        say(f"then {_standing(self.place)}")
        go_on(held, _nothing, _nothing, commits=1)
        say("went on")

    def _acts(self) -> tuple[Pruner | None, Callable[[], Pruner | None], Callable[[], Pruner | None]]:
        """The run, if there is one; what is done while a call fails; and what is done after an error."""
        if self.name == "create":
            return None, lambda: new_run(self.place), lambda: new_run(self.place, resume=True)
        if self.name == "resume":
            return None, lambda: new_run(self.place, resume=True), lambda: new_run(self.place, resume=True)
        run = new_run(self.place, resume=True) if self.name == "commit after a resume" else self._prepared()
        step = steps(run)[0]
        if step == run.end_epoch:
            return run, step, run.commit
        step()
        return run, run.commit, run.commit

    def judged(self) -> Attempt:
        """What came of it."""
        where, child = f"{self.name}: {self.failed}", self.child
        if child.failed:
            return Attempt(Verdict.LOST if child.said("end") else Verdict.UNCLEAR, f"{where}; {child.failed}")
        stands, then, found = child.said("stands"), child.said("then"), position_at(self.place)
        if "wrong" in (*stands, *then) or found is None:
            return Attempt(Verdict.WRONG, f"{where}; {child.lines}")
        fine = {str(self.before), str(self.after), *(["nothing"] if self.name == "create" else [])}
        if not fine.issuperset(stands) or then != [str(self.after)] or found != self.after + 1:
            return Attempt(Verdict.LOST, f"{where}; {child.lines}; at last {found}")
        if child.said("unclear"):
            return Attempt(Verdict.UNCLEAR, f"{where}; {child.lines}")
        return Attempt(Verdict.REFUSED if child.said("refused") else Verdict.EXACT)


def _is_clear(error: Exception, number: int) -> bool:
    """Whether it is the library's own, or the system's; Python says of a seek that fails that none can be done."""
    ours = isinstance(error, PrunedataError | io.UnsupportedOperation)
    return ours or (isinstance(error, OSError) and error.errno == number)


def _standing(place: Path) -> str:
    """Where the run in a store stands, in a word."""
    try:
        found = position_at(place)
    except ForeignStore:
        return "nothing"
    except PrunedataError:
        return "damaged"
    return "wrong" if found is None else str(found)


def _nothing(_: int) -> None:
    pass
