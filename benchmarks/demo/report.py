"""What the demo found: facts for JSON, and a table to read."""

from collections.abc import Mapping
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from benchmarks.common.markdown import aligned
from benchmarks.demo.training import Setting, TrainingRun, paired_percent
from prunedata import CostModel
from prunedata.plan.cost import count_pruned

__all__ = ["facts", "table"]

HEADINGS = (
    "run",
    "epochs",
    "pruned epochs",
    "sample visits",
    "predicted saving",
    "measured saving",
    "overhead",
    "test accuracy",
)


def facts(setting: Setting, runs: Mapping[str, TrainingRun]) -> dict[str, Any]:
    """Return all that is known of finished runs, of which one is named "regular", as JSON can hold it.

    The prediction rests on the median time of a batch in the regular run, and on an overhead of nothing.
    """
    samples = len(setting.data.train)
    model = CostModel(samples, setting.batch_size, median(runs["regular"].batch_times))
    return {
        "data": setting.data.name,
        "network": setting.network,
        "samples": samples,
        "test_samples": len(setting.data.test),
        "schedule": setting.schedule.to_dict(),
        "prune": setting.prune,
        "pruned_samples": count_pruned(samples, setting.prune),
        "batch_size": setting.batch_size,
        "batch_seconds": model.batch_time,
        "learning_rate": setting.learning_rate,
        "seed": setting.seed,
        "runs": {name: _run(setting, model, run, runs["regular"]) for name, run in runs.items()},
    }


def _run(setting: Setting, model: CostModel, run: TrainingRun, regular: TrainingRun) -> dict[str, Any]:
    row: dict[str, Any] = {
        "epochs": len(run.epochs),
        "pruned_epochs": sum(epoch.pruned for epoch in run.epochs),
        "visits": sum(epoch.visits for epoch in run.epochs),
        "seconds": run.seconds,
        "accuracy_percent": 100 * fmean(epoch.accuracy for epoch in run.epochs[-3:]),
        "history": [asdict(epoch) for epoch in run.epochs],
    }
    if run.pruner is None:
        return row | {"predicted_seconds": model.predict(setting.schedule, setting.prune).regular_seconds}
    predicted = model.predict(setting.schedule, setting.prune)
    measured = model.measured(regular.seconds, run.seconds, setting.schedule, setting.prune)
    paired = paired_percent(regular, run)
    overhead = sum(epoch["overhead"] for epoch in run.pruner.history)
    return row | {
        "predicted_seconds": predicted.pruned_seconds,
        "predicted_saving_percent": predicted.saved_percent,
        "measured_saving_percent": measured.measured_percent,
        "measured_over_predicted": measured.ratio,
        "paired_saving_percent": paired,
        "paired_over_predicted": paired / predicted.saved_percent if predicted.saved_percent else None,
        "overhead_seconds": overhead,
        "overhead_percent": 100 * overhead / run.seconds,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the facts as a table with one row a run, and what must be said beside it."""
    rows = [HEADINGS, *(_cells(name, run) for name, run in result["runs"].items())]
    return "\n".join(["", *aligned(rows), "", *_remarks(result)])


def _cells(name: str, run: Mapping[str, Any]) -> tuple[str, ...]:
    start = (name, str(run["epochs"]), str(run["pruned_epochs"]), f"{run['visits']:,}")
    saving: tuple[str, ...] = ("-", "-", "-")
    if "overhead_seconds" in run:
        saving = (
            f"{run['predicted_saving_percent']:.2f}%",
            f"{run['measured_saving_percent']:.2f}%",
            f"{run['overhead_seconds']:.2f} s ({run['overhead_percent']:.2f}%)",
        )
    return (*start, *saving, f"{run['accuracy_percent']:.2f}%")


def _remarks(result: Mapping[str, Any]) -> list[str]:
    ratios = [
        f"{name} {run['measured_over_predicted']:.2f} ({run['paired_over_predicted']:.2f})"
        for name, run in result["runs"].items()
        if run.get("measured_over_predicted") is not None
    ]
    seconds = ", ".join(f"{name} {run['seconds']:.1f} s" for name, run in result["runs"].items())
    remarks = [
        f"Training alone, tests apart, in processor seconds: {seconds}; "
        f"median batch {1e3 * result['batch_seconds']:.1f} ms."
    ]
    if ratios:
        remarks.append(
            "Measured over predicted saving: " + ", ".join(ratios) + "; in brackets by medians of paired epochs."
        )
    return [
        *remarks,
        "Test accuracy is the mean of the last three epochs, of one seed.",
        f"Loss curves: {result['picture']}",
        "On clean labels pruning costs accuracy. It pays where labels are wrong: `make demo`, docs/evidence/results.md",
    ]
