"""What came of the mutants: as it is recorded, and as the page shows it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts, Runs
from benchmarks.mutants.changes import Mutant

__all__ = ["EQUIVALENT", "RESULTS", "identity", "read_equivalent", "summary", "table"]

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
