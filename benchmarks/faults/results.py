"""Recorded searches of each attack, added up for the table of a page."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import cpu
from benchmarks.faults.attack import Attack, Outcome

__all__ = ["BEGIN", "END", "PAGE", "RESULTS", "add", "added_up", "fill", "refusals", "table"]

ROOT = Path(__file__).parents[2]
RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""Where they are recorded, if nobody says otherwise."""
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table: faults -->", "<!-- end of table -->"
KINDS = ("tried", "exact", "refused", "lost", "wrong", "unclear")


def add(recorded: Runs, outcome: Outcome) -> None:
    """Record a search: its outcome, and what it ran on."""
    facts = outcome.to_dict() | {
        "hardware": f"{cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _packages()}},
        "commit": _commit(),
    }
    (recorded / outcome.attack).append(facts)


def _packages() -> list[str]:
    return ["numpy", "zarr", *(["torch"] if "torch" in sys.modules else [])]


def _commit() -> str:
    """Of the repository, with a plus if what ran is not quite that."""
    git = ("git", "-C", str(ROOT))
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "prunedata", "adapters"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.strip() + ("+" if changed else "")


def added_up(searches: Iterable[Facts]) -> dict[str, Facts]:
    """For each attack, how many attempts of all its searches ended how, and of how many that there are.

    Where the cases can be counted, only searches of as many as the last one had: others were of another version.
    """
    searches = list(searches)
    last = {facts["attack"]: facts["of"] for facts in searches}
    found: dict[str, Facts] = {}
    for facts in searches:
        sums = found.setdefault(facts["attack"], dict.fromkeys(KINDS, 0) | {"of": facts["of"], "refusals": {}})
        if facts["of"] == last[facts["attack"]]:
            sums["of"] = facts["of"]
            for kind in KINDS:
                sums[kind] += facts[kind]
            for told, times in facts.get("refusals", {}).items():
                sums["refusals"][told] = sums["refusals"].get(told, 0) + times
    return found


def table(searches: Iterable[Facts], attacks: Sequence[type[Attack]]) -> str:
    """A Markdown table of searches, a row for each attack; of how many cases there are, if they can be counted."""
    found = added_up(searches)
    columns = (
        "attack",
        "what is done",
        "tried",
        "survived",
        "of these refused",
        "lost",
        "silently wrong",
        "unclear error",
    )
    rows = [
        [
            f"`{attack.name}`",
            attack.about,
            f"{sums['tried']:,} of {sums['of']:,}" if sums["of"] else f"{sums['tried']:,}",
            f"{sums['exact'] + sums['refused']:,}",
            f"{sums['refused']:,}",
            *(f"{sums[kind]:,}" for kind in ("lost", "wrong", "unclear")),
        ]
        for attack in attacks
        if (sums := found.get(attack.name))
    ]
    return markdown(columns, rows)


def refusals(searches: Iterable[Facts]) -> str:
    """A Markdown table of what runs were refused with, and how often; nothing where no attack tells it."""
    rows = [
        [f"`{name}`", told, f"{times:,}"]
        for name, sums in added_up(searches).items()
        for told, times in sorted(sums["refusals"].items(), key=lambda one: -one[1])
    ]
    return markdown(("attack", "refused with", "times"), rows) if rows else ""


def fill(page: str, searches: Sequence[Facts], attacks: Sequence[type[Attack]]) -> str:
    """Return a page with its table, and what it was made on, as the recorded searches have them."""
    shown = "\n\n".join(filter(None, (table(searches, attacks), refusals(searches))))
    hardware = sorted({facts["hardware"] for facts in searches})
    versions = sorted({", ".join(f"{k} {v}" for k, v in facts["versions"].items()) for facts in searches})
    commits = sorted({facts["commit"] for facts in searches} - {""})
    made = (
        f"{len(searches)} searches, each with a seed of its own, on {'; '.join(hardware)}, with {'; '.join(versions)}, "
        f"at commit {', '.join(commits)}."
    )
    begin, end = re.escape(BEGIN), re.escape(END)
    return re.sub(f"{begin}.*?{end}", lambda _: f"{BEGIN}\n\n{shown}\n\n{made}\n\n{END}", page, flags=re.DOTALL)
