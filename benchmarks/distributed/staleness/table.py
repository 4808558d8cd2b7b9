"""The recorded runs as tables: how well wrong labels are found, and accuracy, by staleness."""

from collections.abc import Iterator, Sequence
from statistics import mean

from benchmarks.common.markdown import gain, markdown
from benchmarks.common.records import Facts
from benchmarks.distributed.staleness.runs import ARMS, SUBJECTS

__all__ = ["markdown_staleness"]

PRUNED = tuple(arm for arm in ARMS if arm != "regular")
Group = dict[str, dict[int, Facts]]
"""The runs of one share of wrong labels and one staleness: by arm and seed."""


def markdown_staleness(results: Sequence[Facts]) -> str:
    """Two tables for each of the data that have runs, in Markdown."""
    parts = []
    for data, subject in SUBJECTS.items():
        runs = [run for run in results if run["kind"] == data]
        if runs:
            about = f"{len(runs)} runs on {_one(runs, 'hardware')}, with torch {runs[0]['versions']['torch']}."
            parts += [f"### {subject.title}", about, _found(runs), _accuracy(runs)]
    return "\n\n".join(parts)


def _found(runs: Sequence[Facts]) -> str:
    rows = []
    for noise, staleness, group in _groups(runs):
        regular = list(group.get("regular", {}).values())
        if not noise or not regular:
            continue
        cells = [[run["found"][when][what] for run in regular] for when in ("watched", "end") for what in SCORES]
        cells += [[run["found"]["end"][what] for run in group.get(arm, {}).values()] for what, arm in SCORES.items()]
        age = mean(run["mean_staleness"] for run in regular)
        rows.append([f"{noise:.0%} wrong", str(staleness), f"{age:.1f}", str(len(regular)), *map(_auc, cells)])
    columns = (
        "AUC", "staleness", "its mean", "seeds", "hits, when pruning begins", "running loss, then",
        "hits, at the end", "running loss, at the end", "hits, pruned by them", "running loss, pruned by it",
    )  # fmt: skip
    return markdown(columns, rows)


SCORES = {"counts": "dropping-count", "running-loss": "running-loss"}
"""What finds wrong labels, and the arm that prunes by it."""


def _accuracy(runs: Sequence[Facts]) -> str:
    rows = []
    for noise, staleness, group in _groups(runs):
        regular = group.get("regular", {})
        if regular:
            right = f"{mean(run['accuracy'] for run in regular.values()):.1f}"
            cells = [_gain(regular, group.get(arm, {})) for arm in PRUNED]
            labels = f"{noise:.0%} wrong" if noise else "clean"
            rows.append([labels, str(staleness), str(len(regular)), right, *cells])
    return markdown(("accuracy, %", "staleness", "seeds", "regular", *(NAMES[arm] for arm in PRUNED)), rows)


NAMES = {
    "dropping-count": "`DroppingCount`", "running-loss": "`RunningLoss`", "random": "at random",
    "fewer-epochs": "fewer epochs", "dropping-count-late": "`DroppingCount`, late",
    "running-loss-late": "`RunningLoss`, late",
}  # fmt: skip


def _groups(runs: Sequence[Facts]) -> Iterator[tuple[float, int, Group]]:
    for noise in sorted({run["noise"] for run in runs}, reverse=True):
        for staleness in sorted({run["staleness"] for run in runs if run["noise"] == noise}):
            group: Group = {}
            for run in runs:
                if (run["noise"], run["staleness"]) == (noise, staleness):
                    group.setdefault(run["arm"], {})[run["seed"]] = run
            yield noise, staleness, group


def _auc(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" if values else ""


def _gain(regular: dict[int, Facts], arm: dict[int, Facts]) -> str:
    """Points over regular training with the same seed: mean, and from the lowest to the highest."""
    return gain([run["accuracy"] - regular[seed]["accuracy"] for seed, run in arm.items() if seed in regular])


def _one(runs: Sequence[Facts], name: str) -> str:
    return ", ".join(sorted({run[name] for run in runs}))
