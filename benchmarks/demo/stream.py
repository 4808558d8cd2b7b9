"""The demo on a stream: the same pruned training map-style and on a stream.

Both see the same images, at several seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from benchmarks.common.commands import aligned
from benchmarks.common.shards import Shards, write_shards
from benchmarks.demo.training import Setting, interleave, pruned_run
from prunedata import Pruner
from prunedata.plan.cost import count_pruned
from prunedata.policies import DroppingCount

__all__ = ["FRAMEWORKS", "agreement", "compare", "stream_table"]

FRAMEWORKS = ("webdataset", "tensorflow", "iterable")
HEADINGS = ("run", "seeds", "pruned epochs", "sample visits", "test accuracy", "lowest", "highest")


def compare(setting: Setting, framework: str, seeds: int) -> dict[str, Any]:
    """Train at `seeds` seeds from the setting's on, each map-style and on a stream; return what came of it."""
    settings = [replace(setting, seed=setting.seed + number) for number in range(seeds)]
    runs: dict[str, list[dict[str, Any]]] = {"map-style": [], framework: []}
    total = 2 * seeds * setting.schedule.epochs
    with TemporaryDirectory() as folder:
        shards = write_shards(Path(folder), setting.data, 32, len(setting.data.train), "png")
        with tqdm(total=total, desc="training", unit=" epochs", smoothing=0.05) as bar:
            for one in settings:
                runs["map-style"].append(_torch(one, None, bar.update))
                runs[framework].append(_on_stream(one, framework, shards, bar.update))
    return {
        "data": setting.data.name,
        "framework": framework,
        "network": setting.network,
        "samples": len(setting.data.train),
        "test_samples": len(setting.data.test),
        "schedule": setting.schedule.to_dict(),
        "prune": setting.prune,
        "pruned_samples": count_pruned(len(setting.data.train), setting.prune),
        "batch_size": setting.batch_size,
        "learning_rate": setting.learning_rate,
        "seeds": [one.seed for one in settings],
        "runs": runs,
        **agreement(*([run["accuracy_percent"] for run in each] for each in runs.values())),
    }


def agreement(reference: list[float], other: list[float]) -> dict[str, Any]:
    """Hold the means of two sets of accuracies, in percent, against the spread of seeds.

    The spread is the highest less the lowest of the reference's. The two agree if their means lie no further apart.
    """
    difference, spread = fmean(other) - fmean(reference), max(reference) - min(reference)
    return {"difference_points": difference, "spread_points": spread, "agree": abs(difference) <= spread}


def _on_stream(setting: Setting, framework: str, shards: Shards, tick: Callable[[], object]) -> dict[str, Any]:
    # Each imports its framework, of which only one need be installed.
    if framework == "tensorflow":
        from benchmarks.demo.stream_keras import train  # noqa: PLC0415

        accuracies, pruner = train(setting, shards, tick)
        return _facts(setting, accuracies, pruner)
    from benchmarks.demo.stream_loaders import LOADERS  # noqa: PLC0415

    return _torch(setting, LOADERS[framework](setting, shards), tick)


def _torch(setting: Setting, load: Callable[[Pruner], Any] | None, tick: Callable[[], object]) -> dict[str, Any]:
    run = pruned_run(setting, DroppingCount(), load)
    interleave({"": run}, setting.schedule.epochs, setting.data.test, lambda _: tick())
    assert run.pruner is not None
    return _facts(setting, [epoch.accuracy for epoch in run.epochs], run.pruner)


def _facts(setting: Setting, accuracies: list[float], pruner: Pruner) -> dict[str, Any]:
    return {
        "seed": setting.seed,
        "accuracy_percent": 100 * fmean(accuracies[-3:]),
        "accuracies": accuracies,
        "visits": [record["observed"] for record in pruner.history],
        "pruned_epochs": [record["number"] for record in pruner.history if record["pruned"]],
    }


def stream_table(result: Mapping[str, Any]) -> str:
    """Return what :func:`compare` found as a table with one row for each way, and what must be said beside it."""
    rows = [HEADINGS, *(_cells(name, runs) for name, runs in result["runs"].items())]
    said = "They agree" if result["agree"] else "They do not agree"
    return "\n".join(
        [
            "",
            *aligned(rows, left=()),
            "",
            f"{said}: the means differ by {result['difference_points']:+.2f} points, and map-style alone spreads by "
            f"{result['spread_points']:.2f} from seed to seed.",
            "Test accuracy is the mean of the last three epochs, then of the seeds. All runs prune by DroppingCount.",
        ]
    )


def _cells(name: str, runs: list[dict[str, Any]]) -> tuple[str, ...]:
    found = [run["accuracy_percent"] for run in runs]
    visits = sum(sum(run["visits"]) for run in runs)
    accuracies = (f"{value:.2f}%" for value in (fmean(found), min(found), max(found)))
    return (name, str(len(runs)), str(sum(len(run["pruned_epochs"]) for run in runs)), f"{visits:,}", *accuracies)
