"""The first minute: training on labels of which many are wrong, where pruning pays, beside what costs nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from benchmarks.common.commands import aligned
from benchmarks.common.data import Data
from benchmarks.demo.training import Setting, TrainingRun, interleave, pruned_run, regular_run
from prunedata import Advice, Schedule
from prunedata.policies import Random

__all__ = ["facts", "sentences", "table", "train"]

DROPS = (0.3, 0.6, 0.8)
"""Where the learning rate drops, as shares of a run."""
HEADINGS = (
    "run", "epochs", "sample visits", "visits saved", "seconds", "test accuracy", "worst class", "best on the way",
)  # fmt: skip
ENDS = 3
"""Epochs whose accuracy is averaged."""


def train(
    setting: Setting, clean: Data, tick: Callable[[object], object], expect: Callable[[int], object]
) -> tuple[dict[str, TrainingRun], Advice]:
    """Train on wrong labels regularly and by ``policy="auto"``, then as many visits at random and in fewer epochs.

    Parameters
    ----------
    setting : Setting
        Its schedule gives the epochs, its ``prune`` the most that may be left out.
    clean : Data
        The same with the labels as they are.
    tick : callable
        Called after each epoch.
    expect : callable
        Called with the number of epochs in all: the most that there can be, and then how many there are.

    Returns
    -------
    tuple
        The runs by name, without the last two if nothing was pruned; and the advice on clean labels.
    """
    epochs, samples = setting.schedule.epochs, len(setting.data.train)
    setting = _steady(setting, epochs)
    expect(5 * epochs)
    runs = {"regular": regular_run(setting), "auto": pruned_run(setting, "auto")}
    interleave(runs, epochs, setting.data.test, tick)
    pruner = runs["auto"].pruner
    assert pruner is not None
    visits = sum(epoch.visits for epoch in runs["auto"].epochs)
    fewer = _steady(setting, round(visits / samples))
    expect(3 * epochs + (visits < epochs * samples) * (epochs + fewer.schedule.epochs))
    if visits < epochs * samples:
        pruned = [record["number"] for record in pruner.history if record["pruned"]]
        # As many visits in the same epochs: the run may have been advised twice, to leave out other numbers.
        same = replace(
            setting,
            schedule=Schedule.steady(epochs, pruned[0]),
            prune=round((epochs * samples - visits) / len(pruned)),
        )
        runs |= {"at random": pruned_run(same, Random()), "fewer epochs": regular_run(fewer)}
        interleave({"at random": runs["at random"]}, epochs, setting.data.test, tick)
        interleave({"fewer epochs": runs["fewer epochs"]}, fewer.schedule.epochs, setting.data.test, tick)
    return runs, _advice(replace(setting, data=clean), tick)


def _steady(setting: Setting, epochs: int) -> Setting:
    drops = tuple(sorted({max(1, round(share * epochs)) for share in DROPS}))
    return replace(setting, schedule=Schedule.steady(epochs), drops=drops)


def _advice(setting: Setting, tick: Callable[[object], object]) -> Advice:
    """What "auto" says of a whole run on these data."""
    run = pruned_run(setting, "auto")
    assert run.pruner is not None
    for epoch in run.steps:
        tick(epoch)
    return run.pruner.advice


def facts(setting: Setting, runs: Mapping[str, TrainingRun], clean: Advice) -> dict[str, Any]:
    """All that is known of finished runs, as JSON can hold it."""
    regular = sum(epoch.visits for epoch in runs["regular"].epochs)
    pruner = runs["auto"].pruner
    advice = None if pruner is None else pruner.advice
    return {
        "data": setting.data.name, "network": setting.network, "samples": len(setting.data.train),
        "test_samples": len(setting.data.test), "epochs": setting.schedule.epochs, "batch_size": setting.batch_size,
        "learning_rate": setting.learning_rate, "seed": setting.seed, "most_pruned": setting.prune,
        "advice": None if advice is None else advice.to_dict(), "advice_on_clean_labels": clean.to_dict(),
        "runs": {name: _run(run, regular) for name, run in runs.items()},
    }  # fmt: skip


def _run(run: TrainingRun, regular: int) -> dict[str, Any]:
    accuracy = [100 * epoch.accuracy for epoch in run.epochs]
    visits = sum(epoch.visits for epoch in run.epochs)
    return {
        "epochs": len(run.epochs), "visits": visits, "visits_saved_percent": 100 * (1 - visits / regular),
        "seconds": run.seconds, "accuracy_percent": fmean(accuracy[-ENDS:]), "best_percent": max(accuracy),
        "worst_class_percent": 100 * fmean(epoch.worst_class for epoch in run.epochs[-ENDS:]),
        "history": {"visits": [epoch.visits for epoch in run.epochs], "accuracy_percent": accuracy},
    }  # fmt: skip


def table(result: Mapping[str, Any]) -> str:
    """The facts as a table with a row for each run, and what they say."""
    rows = [HEADINGS, *(_cells(name, run) for name, run in result["runs"].items())]
    return "\n".join(["", *aligned(rows), "", *sentences(result)])


def _cells(name: str, run: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name, str(run["epochs"]), f"{run['visits']:,}", f"{run['visits_saved_percent']:.0f}%", f"{run['seconds']:.1f}",
        f"{run['accuracy_percent']:.1f}%", f"{run['worst_class_percent']:.1f}%", f"{run['best_percent']:.1f}%",
    )  # fmt: skip


def sentences(result: Mapping[str, Any]) -> list[str]:
    """What must be said beside the table."""
    advice, clean = result["advice"], result["advice_on_clean_labels"]
    told = [f"{100 * result['noise']:.0f}% of the training labels are wrong, at random; the test labels are right."]
    if advice is not None:
        told.append(f"auto: {_verdict(advice, result)}")
    return [
        *told,
        f"The same on clean labels: {_verdict(clean, result)}",
        "Worst class: the accuracy of the class that does worst.",
        "Best on the way: what one would have reached by stopping there, chosen by the test set.",
        f"Accuracy over visits: {result['picture']}. One seed; every measured case is in docs/evidence/results.md.",
    ]


def _verdict(advice: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if advice["verdict"] == "prune":
        left_out = f"left {advice['prune']:,} of {result['samples']:,} samples out"
        if advice["onset"] is None:
            first = advice["schedule"]["start"]
            return f"it watched until its losses cast doubt on labels, after epoch {first - 1}, and then {left_out}."
        return f"it watched until the samples held out got worse, after epoch {advice['onset']}, and then {left_out}."
    return "it watched to the end, and left nothing out."
