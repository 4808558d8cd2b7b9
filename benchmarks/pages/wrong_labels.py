"""How well a run finds planted wrong labels, by its counts, the final loss, cleanlab.

    python -m benchmarks.pages.wrong_labels --arrays FOLDER [--arm regular] [--json]

Reads what benchmarks.study.matrix --arrays wrote. A row for each network and data, kind of wrong labels and way to
rank, over all seeds.
"""

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cleanlab.rank import get_label_quality_scores

from benchmarks.common.commands import program
from benchmarks.study.choosers import Found, auc, found, precision_at, rates
from prunedata.cli.text import table
from prunedata.types import Array, Floats

__all__ = ["Found", "auc", "by_cleanlab", "by_counts", "found", "main", "precision_at", "rankings", "rows"]


def by_counts(hits: Array, visits: Array, high: Array | None = None) -> Floats:
    """The rates of a run, which are counts alone, shape (samples,): the higher, the more wrong a sample looks."""
    return rates(hits, visits, high)


def by_cleanlab(labels: Array, probabilities: Array) -> Floats:
    """Cleanlab's label quality turned around, from the network's own probabilities, shape (samples, classes).

    Cleanlab asks for probabilities of networks that have not seen the sample. Those of the network that was trained
    on it, as here, cost nothing more; so do the counts.
    """
    return np.asarray(1 - get_label_quality_scores(labels, probabilities), dtype=np.float64)


NOISE = re.compile(r"^(?P<runs>.+)-(?P<labels>(?:random|confusable)[\d.]+)-")


def rankings(arrays: dict[str, Array]) -> dict[str, Array]:
    """Every way to rank the samples of one recorded run: name to score, shape (samples,)."""
    scores = arrays["scores"].astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    own = probabilities[np.arange(len(scores)), arrays["labels"]]
    return {
        "hits over visits": by_counts(arrays["hits"], arrays["visits"]),
        "hits and high over visits": by_counts(arrays["hits"], arrays["visits"], arrays["high"]),
        "loss of the final network": -np.log(np.maximum(own, np.finfo(np.float64).tiny)),
        "cleanlab": by_cleanlab(arrays["labels"], probabilities),
    }


def rows(folder: Path, arm: str) -> list[dict[str, Any]]:
    """Precision and AUC of each ranking, a mean over the seeds of like runs, with the least."""
    judged: dict[tuple[str, str, str], list[dict[str, float | None]]] = defaultdict(list)
    for file in sorted(folder.glob(f"*-{arm}*.npz")):
        kind = NOISE.search(file.stem)
        with np.load(file) as loaded:
            arrays = dict(loaded)
        if kind is None or not {"hits", "high", "visits", "scores"} <= arrays.keys():
            continue
        for name, scores in rankings(arrays).items():
            judged[kind["runs"], kind["labels"], name].append(found(scores, arrays["wrong"]).to_dict())
    told = []
    for (of, labels, name), runs in judged.items():
        row: dict[str, Any] = {"runs": of, "labels": labels, "ranked_by": name, "seeds": len(runs)}
        for figure in ("precision_at_100", "precision_at_tenth", "precision_at_wrong", "auc"):
            values = [float(run[figure] or 0) for run in runs]
            row |= {figure: round(statistics.mean(values), 4), f"{figure}_least": round(min(values), 4)}
        told.append(row)
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.pages.wrong_labels", "Wrong labels found.")
    parser.add_argument("--arrays", type=Path, required=True, metavar="FOLDER", help="of the recorded runs")
    parser.add_argument("--arm", default="regular", help="of which runs; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    given = parser.parse_args(arguments)
    told = rows(given.arrays, given.arm)
    if not told:
        parser.error(f"Expected runs of {given.arm} with wrong labels in {given.arrays}. Got none.")
    print(json.dumps(told) if given.json else "\n".join(_lines(told)))
    return 0


def _lines(told: list[dict[str, Any]]) -> list[str]:
    head = ["runs", "labels", "ranked by", "seeds", "top 100", "top tenth", "least", "as many as wrong", "AUC", "least"]
    figures = (
        "precision_at_100",
        "precision_at_tenth",
        "precision_at_tenth_least",
        "precision_at_wrong",
        "auc",
        "auc_least",
    )
    body = [
        [row["runs"], row["labels"], row["ranked_by"], str(row["seeds"]), *(f"{row[figure]:.3f}" for figure in figures)]
        for row in told
    ]
    return table([head, *body], left=(0, 1, 2))


if __name__ == "__main__":
    raise SystemExit(main())
