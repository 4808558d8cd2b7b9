"""Attack runs, and count what is lost or silently wrong.

    python -m benchmarks.faults                              each attack a little, with a seed of its own
    python -m benchmarks.faults kills pairs --cases 500      some attacks, so many attempts of each
    python -m benchmarks.faults --all --record               many of each, added to the recorded searches
    python -m benchmarks.faults table --page                 the table of recorded searches, in docs/reliability.md

The exit status is 1 if anything was lost or wrong.
"""

import argparse
import json
import random
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tqdm import tqdm

from benchmarks.common.commands import add_results, positive
from benchmarks.faults import results
from benchmarks.faults.attack import Attack, Outcome, search
from benchmarks.faults.attacks.checkpoints import Checkpoints
from benchmarks.faults.attacks.damage import DamagedIndexes, DamagedStores
from benchmarks.faults.attacks.failing_calls import FailingCalls
from benchmarks.faults.attacks.interrupts import HandlersAtLines, InterruptsAtLines
from benchmarks.faults.attacks.kills import KillsAtCalls, KillsAtInstants, KillsInTorch
from benchmarks.faults.attacks.loaders import Loaders, Ranks
from benchmarks.faults.attacks.pairs import Pairs
from benchmarks.faults.attacks.power_cuts import PowerCuts, PowerCutsAfterKills
from benchmarks.faults.attacks.sequences import Sequences
from benchmarks.faults.attacks.weights import Weights, WeightsInFrameworks, WeightsOnRanks
from benchmarks.faults.calls import can_watch

__all__ = ["ATTACKS", "BY_NAME", "PORTION", "main"]

ATTACKS: tuple[type[Attack], ...] = (
    KillsAtInstants,
    KillsAtCalls,
    KillsInTorch,
    Pairs,
    InterruptsAtLines,
    HandlersAtLines,
    PowerCuts,
    PowerCutsAfterKills,
    FailingCalls,
    Sequences,
    Loaders,
    Ranks,
    Weights,
    WeightsInFrameworks,
    WeightsOnRanks,
    Checkpoints,
    DamagedStores,
    DamagedIndexes,
)
BY_NAME = {attack.name: attack for attack in ATTACKS}
PORTION = 500
"""Attempts that are recorded together, so that a long search may be stopped at any time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line `arguments`; return the exit status, 1 if anything was lost or wrong."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, unlike the Ctrl-C of a run
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description="Attack runs, and count what is lost or silently wrong."
    )
    add = parser.add_argument
    add("attacks", nargs="*", metavar="ATTACK", help=f"default: all of {', '.join(BY_NAME)}")
    add("--seed", type=int, help="decides all that is left to chance; default: another one each time")
    add("--cases", type=positive, metavar="N", help="attempts of each attack")
    add("--seconds", type=float, metavar="S", help="at most so long for each attack")
    add("--case", type=int, metavar="K", help="only this case of one attack, as a failure names it")
    add("--all", action="store_true", help="as many attempts as docs/reliability.md has")
    add("--record", action="store_true", help="add what is found to the recorded searches")
    add_results(parser, results.RESULTS)
    add("--page", action="store_true", help="with table: put it into docs/reliability.md")
    add("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    if given.attacks == ["table"]:
        return _table(given)
    if unknown := set(given.attacks) - set(BY_NAME):
        parser.error(f"Expected attacks from {', '.join(BY_NAME)}, or table alone. Got {', '.join(sorted(unknown))}.")
    attacks = [BY_NAME[name] for name in given.attacks] or list(ATTACKS)
    if given.case is not None and len(given.attacks) != 1:
        parser.error("Expected one attack beside --case.")
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    found = [outcome for attack in attacks for outcome in _searched(attack, seed, given)]
    for failure in (one for outcome in found for one in outcome.failures):
        print(failure, file=sys.stderr)
    _tell(found, attacks, given)
    return 0 if all(outcome.good for outcome in found) else 1


def _searched(attack: type[Attack], seed: int, given: argparse.Namespace) -> list[Outcome]:
    if attack.needs_calls and not can_watch():
        print(f"{attack.name} left out: it needs Linux 5.5 or newer, and to be allowed seccomp", file=sys.stderr)
        return []
    tries = given.cases or (attack.many if given.all else attack.few)
    with tqdm(total=tries or None, desc=attack.name, unit=" tries", disable=None) as bar:
        if given.record:
            return _recorded(attack, seed, tries, given, bar.update)
        options = {"seconds": given.seconds, "case": given.case, "tick": bar.update}
        return [search(attack, seed, tries=tries, **options)]


def _recorded(
    attack: type[Attack], seed: int, tries: int, given: argparse.Namespace, tick: Callable[[], object]
) -> list[Outcome]:
    """Search in portions that are recorded one by one, and go on with what was recorded before."""
    before = [facts for facts in given.results.read() if facts["attack"] == attack.name]
    found: list[Outcome] = []
    while True:
        known = [*before, *(outcome.to_dict() for outcome in found)]
        if attack.many:  # there is no end of them: so another seed each time
            done = sum(facts["tried"] for facts in known)
            own, first, most = seed + len(known), 0, tries - done
        else:
            own, (first, most) = seed, _gap([facts for facts in known if facts["seed"] == seed])
            done = sum(outcome.tried for outcome in found)
            most = min(most, tries - done) if tries else most
        if most <= 0:
            return found
        outcome = search(
            attack, own, tries=min(most, PORTION, attack.portion), seconds=given.seconds, first=first, tick=tick
        )
        if not outcome.tried:
            return found
        results.add(given.results, outcome)
        found.append(outcome)


def _gap(searches: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """The first cases, in the order of a seed, that its searches have passed over, and how many these are.

    Of another version of the library there may be another number of cases, and so another order.
    """
    if not searches:
        return 0, PORTION
    total, at = searches[-1]["of"], 0
    for facts in sorted((one for one in searches if one["of"] == total), key=lambda one: one["first"]):
        if facts["first"] > at:
            return at, facts["first"] - at
        at = max(at, facts["first"] + facts["tried"])
    return at, total - at


def _table(given: argparse.Namespace) -> int:
    searches = given.results.read()
    if given.page:
        page = results.PAGE
        page.write_text(results.fill(page.read_text(encoding="utf-8"), searches, ATTACKS), encoding="utf-8")
    elif given.json:
        print(json.dumps(results.added_up(searches), indent=2))
    else:
        print(results.table(searches, ATTACKS))
    return 0


def _tell(found: Sequence[Outcome], attacks: Sequence[type[Attack]], given: argparse.Namespace) -> None:
    searches = [outcome.to_dict() for outcome in found]
    if given.json:
        print(json.dumps(searches, indent=2))
    else:
        print("\n\n".join(filter(None, (results.table(searches, attacks), results.refusals(searches)))))


if __name__ == "__main__":
    sys.exit(main())
