"""What an attack is, how its attempts are judged, and the search, which begins anew with every seed."""

import random
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from itertools import count, islice
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Generic, TypeVar

__all__ = ["Attack", "Attempt", "Outcome", "RandomTrainings", "Verdict", "search", "shown"]

Setup = TypeVar("Setup")
SIMPLIFIED, TRIES = 5, 60
"""How many failures are made simpler, and how many simpler setups are tried for each of them, at most."""


class Verdict(Enum):
    """How an attempt ended."""

    EXACT = "exact"
    """All is as if nothing had been."""
    REFUSED = "refused"
    """A clear error, and the last commit stands."""
    LOST = "lost"
    """What a returned commit had made safe is gone, or cannot be opened."""
    WRONG = "wrong"
    """It is open, without an error, and is not what it should be."""
    UNCLEAR = "unclear"
    """Nothing is lost, but the error was neither the library's nor the one injected; or nothing came at all."""


@dataclass(frozen=True)
class Attempt:
    """One attempt: how it ended, and, unless well, what was seen."""

    verdict: Verdict
    seen: str = ""


@dataclass
class Outcome:
    """What a search found: how many attempts ended how, and the first of those that did not end well.

    ``of`` is how many different attempts there are, 0 if they cannot be counted; ``first`` how many of them, in the
    order of the seed, were passed over.
    """

    attack: str
    seed: int
    first: int = 0
    tried: int = 0
    exact: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    unclear: int = 0
    of: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    """How often it was refused with which words, if the attack tells them."""

    @property
    def good(self) -> bool:
        return not (self.lost or self.wrong or self.unclear)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Attack(ABC):
    """One way to disturb a run.

    Parameters
    ----------
    folder : Path
        Where it may work. Removed afterwards.
    seed : int
        Decides everything that is left to chance.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    """What is done, in a few words for the table."""
    many: ClassVar[int]
    """How many attempts are many; 0: each that there is, once."""
    few: ClassVar[int]
    """How many are enough for each change."""
    portion: ClassVar[int] = 500
    """How many attempts are recorded together, at most, so that a long search may be stopped at any time."""
    needs_calls: ClassVar[bool] = False
    """Whether it looks at system calls."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed

    @property
    def total(self) -> int:
        """How many different cases there are, numbered from 0; 0 if there is no end of them."""
        return 0

    @abstractmethod
    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        """Make the attempts of one case. The same case and seed give the same attempts, as far as clocks allow."""

    def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """End what it has started."""

    def place(self, case: int) -> Path:
        """A folder for a case, empty."""
        place = self.folder / f"case-{case}"
        place.mkdir(parents=True)
        return place


class RandomTrainings(Attack, Generic[Setup]):
    """A case is one training, with what it needs drawn at random. One that fails is made simpler before it is told."""

    refusals: ClassVar[tuple[str, ...]]
    """What a run may be refused with, by what is drawn: patterns, with N in the place of numbers."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._failed = 0

    @abstractmethod
    def draw(self, chance: random.Random) -> Setup:
        """Draw what a training needs."""

    @abstractmethod
    def judge(self, setup: Setup) -> Attempt:
        """Train as a setup says, and look at what came."""

    @abstractmethod
    def simpler(self, setup: Setup) -> Iterator[Setup]:
        """Yield setups that are simpler in one thing."""

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        setup = self.draw(chance)
        found = self.judge(setup)
        if found.verdict is Verdict.REFUSED:
            told = _first_sentence(found.seen)
            known = any(re.search(pattern, told) for pattern in self.refusals)
            found = Attempt(Verdict.REFUSED, told) if known else Attempt(Verdict.UNCLEAR, f"refused: {found.seen}")
        if found.verdict not in (Verdict.EXACT, Verdict.REFUSED):
            self._failed += 1
            if self._failed <= SIMPLIFIED:
                setup, found = self._simplest(setup, found)
            found = Attempt(found.verdict, f"{found.seen} [{shown(setup)}]")
        yield found

    def _simplest(self, setup: Setup, found: Attempt) -> tuple[Setup, Attempt]:
        """The simplest setup that still fails alike, as far as leaving out one thing after the other leads."""
        left, again = TRIES, True
        while again:
            again = False
            for one in self.simpler(setup):
                left -= 1
                if left < 0:
                    return setup, found
                told = self.judge(one)
                if told.verdict is found.verdict and _kind(told.seen) == _kind(found.seen):
                    setup, found, again = one, told, True
                    break
        return setup, found


def shown(value: Any) -> str:
    """A setup as Python code, without what stands at its default."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    plain = type(value)()
    told = [(one.name, getattr(value, one.name)) for one in fields(value)]
    said = ", ".join(f"{name}={shown(own)}" for name, own in told if own != getattr(plain, name))
    return f"{type(value).__name__}({said})"


def _first_sentence(told: str) -> str:
    """What is expected, with N in the place of numbers: how refusals are counted."""
    return re.sub(r"\d+", "N", told.partition(". Got")[0])


def _kind(told: str) -> str:
    """A message without what is another each time."""
    return re.sub(r"\W*\d[\d., \]]*", " ", told.splitlines()[-1])[:60] if told else ""


def search(
    attack: type[Attack],
    seed: int,
    *,
    tries: int | None,
    seconds: float | None = None,
    case: int | None = None,
    first: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> Outcome:
    """Attack until there were as many tries, or for as many seconds.

    Parameters
    ----------
    attack : type of Attack
    seed : int
    tries : int or None
        None: all that there are, or as many as the attack calls many.
    seconds : float, optional
    case : int, optional
        Only this one.
    first : int
        How many cases to pass over, as they were tried before with this seed.
    tick : callable
        Called at each try.
    """
    with tempfile.TemporaryDirectory(prefix="prunedata-faults-") as temporary:
        running = attack(Path(temporary), seed)
        outcome = Outcome(attack.name, seed, first, of=0 if attack.many else running.total)
        began = monotonic()
        most = tries or attack.many or running.total
        for number in islice(_cases(running, case), first, None):
            if outcome.tried >= most or (seconds is not None and monotonic() - began > seconds):
                break
            for one in running.attempt(number, random.Random(f"{attack.name} {seed} {number}")):
                _count(outcome, one, number)
                tick()
            shutil.rmtree(running.folder / f"case-{number}", ignore_errors=True)
        running.close()
        outcome.seconds = round(monotonic() - began, 1)
    return outcome


def _cases(attack: Attack, case: int | None) -> Iterator[int]:
    if case is not None:
        yield case
    elif attack.total:
        order = list(range(attack.total))
        random.Random(attack.seed).shuffle(order)
        yield from order
    else:
        yield from count()


def _count(outcome: Outcome, one: Attempt, case: int) -> None:
    outcome.tried += 1
    name = one.verdict.value
    setattr(outcome, name, getattr(outcome, name) + 1)
    if one.verdict is Verdict.REFUSED and one.seen:
        outcome.refusals[one.seen] = outcome.refusals.get(one.seen, 0) + 1
    if one.verdict not in (Verdict.EXACT, Verdict.REFUSED) and len(outcome.failures) < 20:
        again = f"python -m benchmarks.faults {outcome.attack} --seed {outcome.seed} --case {case}"
        outcome.failures.append(f"{name}: {one.seen}. To repeat: {again}")
