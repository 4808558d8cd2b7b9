"""What is mutated, by which tests a mutant should be killed, and what was found."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts, Runs
from benchmarks.mutants.changes import Mutant

__all__ = ["EQUIVALENT", "RESULTS", "ROOMS", "Tested", "identity", "read_equivalent", "summary", "table"]


@dataclass(frozen=True)
class Tested:
    """Files of one room, and their tests; paths from the root of the repository.

    Attributes
    ----------
    files : sequence of str
        What is mutated.
    tests : sequence of str
        Tested first: what specifies the files.
    more : sequence of str
        Tested with what survives that: what uses the files.
    """

    files: Sequence[str]
    tests: Sequence[str]
    more: Sequence[str] = ()


RUNS = ("tests/run/test_pruner.py", "tests/run/test_run.py")

ROOMS: Mapping[str, Sequence[Tested]] = {
    "schedule": [
        Tested(["prunedata/plan/schedule.py"], ["tests/plan/test_schedule.py"], ["tests/plan", *RUNS]),
    ],
    "cost": [
        Tested(["prunedata/plan/cost.py"], ["tests/plan/test_cost.py"], ["tests/plan", *RUNS]),
        Tested(["prunedata/plan/savings.py"], ["tests/plan/test_cost.py"], ["tests/findings"]),
    ],
    "counts": [
        Tested(
            ["prunedata/counting/counts.py"],
            ["tests/counting/test_counts.py", "tests/counting/test_joining.py"],
            ["tests/run/test_lengthened.py", *RUNS],
        ),
        Tested(
            ["prunedata/counting/sample_arrays.py"],
            ["tests/counting/test_sample_arrays.py"],
            ["tests/policies", *RUNS],
        ),
    ],
    "selection": [
        Tested(
            ["prunedata/policies/selection.py"],
            ["tests/policies/test_selection.py"],
            ["tests/policies", "tests/run/test_holdout.py", *RUNS],
        ),
        Tested(
            ["prunedata/policies/protocol.py"],
            ["tests/policies/test_protocol.py"],
            ["tests/policies", "tests/testing/test_check_policy.py", "tests/counting/test_sample_arrays.py", *RUNS],
        ),
        Tested(
            ["prunedata/policies/rules.py"],
            ["tests/policies/test_rules.py", "tests/policies/test_policy.py"],
            ["tests/policies", "tests/counting/test_sample_arrays.py", "tests/findings", *RUNS],
        ),
    ],
    "order": [
        Tested(
            ["prunedata/run/order.py"],
            ["tests/run/test_order.py"],
            RUNS,
        ),
        Tested(
            ["prunedata/run/epoch.py"],
            ["tests/policies/test_select.py", "tests/run/test_errors.py", *RUNS],
            ["tests/policies", "tests/run/test_by_weight.py"],
        ),
    ],
    "store": [
        Tested(
            ["prunedata/store/pointer.py", "prunedata/store/state.py"],
            ["tests/store/test_pointer.py"],
            [
                "tests/store/test_strangers.py", "tests/store/test_damage.py", "tests/findings",
                "tests/run/test_errors.py", *RUNS,
            ],
        ),
        Tested(
            ["prunedata/store/run_store.py", "prunedata/store/slots.py"],
            ["tests/store/test_run_store.py", "tests/store/test_store.py"],
            [
                "tests/store/test_strangers.py", "tests/store/test_damage.py", "tests/store/test_one_writer.py",
                "tests/store/test_system.py",
            ],
        ),
        Tested(
            ["prunedata/store/durable.py", "prunedata/store/lock.py"],
            ["tests/store/test_places.py"],
            ["tests/store/test_one_writer.py", "tests/store/test_store.py"],
        ),
    ],
}  # fmt: skip


RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
EQUIVALENT = Path(__file__).with_name("equivalent.json")


Identity = tuple[str, str, str, str]


def identity(file: str, mutant: Mutant) -> Identity:
    """What names a mutant to a reader: its file, the place, and the lines before and after."""
    return file, mutant.where, mutant.before, mutant.after


def read_equivalent() -> dict[Identity, str]:
    """The mutants that do what the original does, or only take longer: why, by file, place, and lines changed."""
    listed = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return {
        (file, where, before, after): reason
        for file, places in listed.items()
        for where, changes in places.items()
        for before, after, reason in changes
    }


def summary(file: str, verdicts: Mapping[str, tuple[Mutant, str]], listed: Mapping[Identity, str]) -> Facts:
    """What came of the mutants of a file, with all that survived."""
    lived = [mutant for mutant, verdict in verdicts.values() if verdict == "survived"]
    explained = {mutant.key: listed.get(identity(file, mutant)) for mutant in lived}
    words = [verdict for _, verdict in verdicts.values() if verdict]
    return {
        "made": len(verdicts),
        "mutants": len(words),
        "killed": words.count("killed"),
        "timeouts": words.count("timeout"),
        "equivalent": [_told(mutant) | {"why": why} for mutant in lived if (why := explained[mutant.key])],
        "survived": [_told(mutant) for mutant in lived if not explained[mutant.key]],
    }


def _told(mutant: Mutant) -> Facts:
    return {"where": mutant.where, "before": mutant.before, "after": mutant.after}


def table(results: Iterable[Facts]) -> str:
    """A Markdown table, one line for each room and one for all. A timeout is a kill: the tests would not end."""
    results = list(results)
    rows = [[f"`{found['room']}`", *_numbers(found["files"].values())] for found in results]
    every = [facts for found in results for facts in found["files"].values()]
    counted = ("mutants", "tried", "killed", "of them by timeout", "equivalent", "survived")
    columns = ("room", *counted, "killed, of those tried", "of those not equivalent")
    return markdown(columns, [*rows, ["all", *_numbers(every)]])


def _numbers(files: Iterable[Facts]) -> list[str]:
    files = list(files)
    mutants, timeouts = sum(facts["mutants"] for facts in files), sum(facts["timeouts"] for facts in files)
    killed = timeouts + sum(facts["killed"] for facts in files)
    equivalent, survived = (sum(len(facts[name]) for facts in files) for name in ("equivalent", "survived"))
    counts = (sum(facts["made"] for facts in files), mutants, killed, timeouts, equivalent, survived)
    return [*(f"{n:,}" for n in counts), f"{killed / mutants:.1%}", f"{killed / (mutants - equivalent):.1%}"]
