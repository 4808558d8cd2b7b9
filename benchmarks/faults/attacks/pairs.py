"""Two processes write to one store at one instant, as a restarted job beside the one that was given up."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from time import sleep

from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.child import Child, Say
from benchmarks.faults.story import LAST, go_on, new_run, position, position_at, pruner_state
from prunedata.errors import StoreError

__all__ = ["Pairs"]


class Pairs(Attack):
    name = "pairs"
    about = "two processes create, resume and commit to one store at one instant; now and then one is killed"
    many, few = 1000, 16

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        place = self.place(case) / "run"
        begun = chance.choice([0, 0, chance.randint(1, LAST - 1)])
        if begun:
            Child(lambda _: go_on(new_run(place), _nothing, _nothing, commits=begun)).follow()
        ready, go = os.pipe()
        delays = chance.choice([(0.0, 0.0), (0.0, chance.uniform(0, 0.1))])
        commits = [chance.randint(0, LAST) for _ in delays]
        kinds = [bool(begun) or chance.random() < 0.7 for _ in delays]  # whether it resumes; else it creates

        def work(say: Say, at: int) -> None:
            os.close(go)
            os.read(ready, 1)  # until the parent lets both go
            sleep(delays[at])
            _write(place, say, resume=kinds[at], commits=commits[at])

        children = [Child(lambda say, at=at: work(say, at)) for at in range(2)]  # type: ignore[misc]
        os.close(ready)
        os.close(go)
        dies = chance.random() < 0.3
        for at, child in enumerate(children):
            child.follow(seconds=chance.uniform(0, 0.3) if dies and at == 0 else None)
        yield _judged(place, children, begun)


def _write(place: Path, say: Say, *, resume: bool, commits: int) -> None:
    try:
        run = new_run(place, resume=resume)
        say(f"opened {position(pruner_state(run))}")
        go_on(run, lambda number: say(f"saving {number}"), lambda number: say(f"saved {number}"), commits)
    except StoreError as error:
        say(f"refused {error}")


def _nothing(_: int) -> None:
    pass


def _judged(place: Path, children: list[Child], begun: int) -> Attempt:
    told = "; ".join(f"{child.lines[:1]} to {child.lines[-1:]}" for child in children)
    failed = " ".join(child.failed for child in children)
    if failed.strip():
        return Attempt(Verdict.UNCLEAR, failed)
    saved = [{int(word) for word in child.said("saved")} for child in children]
    # Both may write, one after the other: then the second goes on where the first ended.
    if saved[0] & saved[1]:
        return Attempt(Verdict.LOST, f"both were told that {sorted(saved[0] & saved[1])} were saved")
    least = max([begun, *saved[0], *saved[1]])
    most = max([least, *(int(word) for child in children for word in child.said("saving"))])
    try:
        found = position_at(place)
    except StoreError as error:
        if not any(child.said("opened") for child in children) and any(child.killed for child in children):
            return Attempt(Verdict.EXACT)  # the one that was to create it was killed
        return Attempt(Verdict.LOST, f"{told}; then {error}")
    verdict = Verdict.REFUSED if any(child.said("refused") for child in children) else Verdict.EXACT
    if found is None or any("None" in child.said("opened") for child in children):
        verdict = Verdict.WRONG
    elif not least <= found <= most:
        verdict = Verdict.LOST
    return Attempt(verdict, f"{told}; {least} was saved, and {found} found")
