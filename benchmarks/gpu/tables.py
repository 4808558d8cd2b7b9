"""What was recorded on a GPU, as the tables of docs/evidence/deep.md."""

from collections.abc import Iterable, Mapping
from statistics import median

from benchmarks.common.commands import markdown
from benchmarks.common.networks import NETWORKS
from benchmarks.common.records import Facts
from benchmarks.study.arm import Arm
from benchmarks.study.arms import ARMS

__all__ = ["BEGIN", "parts"]

BEGIN = "<!-- python -m benchmarks.gpu table {} -->"
KINDS = {
    "worse": "people's, 40 % wrong", "aggre": "people's, 9 % wrong", "random40": "random, 40 % wrong", "clean": "clean",
}  # fmt: skip
ORDER = ("watched", "regular", "auto", "known-wrong", "random-run")
"""Of the arms of a kind of labels; of equal ones the shortest first."""
TITLES = {
    "watched": "regular",
    "regular": "regular",
    "known-wrong": "wrong labels known",
    "random-run": "as many, at random",
}


def parts(recorded: Iterable[Facts]) -> dict[str, str]:
    """Return each table as Markdown, by the name of its place on the page."""
    found = {facts["name"]: facts for facts in recorded if facts.get("right", True) or "differ" in facts}
    deep = [facts for name, facts in found.items() if name.startswith("deep/") and "curves" in facts]
    return {
        "arms": _arms([one for one in deep if one["recipe"]["rates"] == "cosine"]),
        "paper": _paper([one for one in deep if one["recipe"]["rates"] == "steps"]),
        "networks": _networks(found),
        "pace": _pace(found),
        "steps": _steps(found),
        "exact": _exact(found),
    }


def _arms(runs: list[Facts]) -> str:
    columns = (
        "labels", "rate", "arm", "epochs", "accuracy", "its best", "worst class", "left out", "of these wrong",
        "labels doubted", "AUC of suspects", "seconds",
    )  # fmt: skip
    return markdown(columns, map(_arm, sorted(runs, key=_place)))


def _place(one: Facts) -> tuple[object, ...]:
    recipe = one["recipe"]
    fewer = recipe["epochs"] < 30
    return list(KINDS).index(one["noise"]), recipe["learning_rate"] != 0.1, recipe["learning_rate"], fewer, \
        ORDER.index(one["policy"]), recipe["epochs"], recipe["seed"]  # fmt: skip


def _arm(one: Facts) -> list[str]:
    tested = [100 * point["accuracy"] for point in one["curves"] if "accuracy" in point]
    left_out = next((point["left_out"] for point in reversed(one["curves"]) if "left_out" in point), None)
    auc, doubted = one.get("suspects_auc"), one.get("doubted")
    watches = one["policy"] in ("watched", "auto")
    return [
        KINDS[one["noise"]], f"{one['recipe']['learning_rate']:g}", TITLES.get(one["policy"], f"`{one['policy']}`"),
        str(one["epochs"]), f"{one['accuracy_final']:.1f}", f"{max(tested):.1f}", f"{min(one['classes']):.1f}",
        f"{left_out[0]:,}" if left_out else "", f"{100 * left_out[1] / left_out[0]:.0f} %" if left_out else "",
        f"{doubted:,} ({one['wrong']:,} wrong)" if watches else "", f"{auc:.3f}" if auc and watches else "",
        f"{one['seconds']:.1f}",
    ]  # fmt: skip


def _paper(runs: list[Facts]) -> str:
    """Regular training, the paper's rule and its controls, and the time they save beside formula 7."""
    columns = (
        "arm", "accuracy", "worst class", "visits saved", "time saved, formula 7", "time saved, measured",
        "library, host time of the run",
    )  # fmt: skip
    return markdown(columns, map(_saved, sorted(runs, key=lambda one: (one["saving"], _arm_of(one).order))))


def _arm_of(one: Facts) -> Arm:
    return ARMS[one["policy"]]


def _saved(one: Facts) -> list[str]:
    recipe, curves = one["recipe"], one["curves"][1:]  # the first epoch captures and chooses algorithms
    size, samples = recipe["batch_size"], one["samples"]
    whole = median(point["seconds"] for point in curves if not point["pruned"])
    predicted = 1 - sum(-(-point["visits"] // size) for point in curves) / (len(curves) * -(-samples // size))
    measured = 1 - sum(point["seconds"] for point in curves) / (len(curves) * whole)
    shorter = _arm_of(one).shortens
    name = f"all samples, {one['trained_epochs']} epochs" if shorter or not one["saving"] else _arm_of(one).what
    return [
        name, f"{one['accuracy_final']:.1f}", f"{min(one['classes']):.1f}", f"{one['visits_saved_percent']:.1f} %",
        f"{100 * predicted:.2f} %" if predicted else "", f"{100 * measured:.2f} %" if predicted else "",
        f"{100 * one['overhead_seconds'] / one['seconds']:.1f} %" if one["overhead_seconds"] else "",
    ]  # fmt: skip


def _networks(found: Mapping[str, Facts]) -> str:
    columns = (
        "network", "samples/s", "epoch on all", "pruned epoch", "it saves", "predicted", "memory",
    )  # fmt: skip
    rows = [found[f"networks/{name}"] for name in NETWORKS if f"networks/{name}" in found]
    return markdown(columns, ([
        f"`{one['network']}`", f"{one['samples_per_second']:,.0f}", *(f"{took:.2f} s" for took in one["seconds"]),
        f"{one['saved_percent']:.1f} %", f"{one['predicted_percent']:.1f} %", f"{one['memory_gib']:.1f} GiB",
    ] for one in rows))  # fmt: skip


def _pace(found: Mapping[str, Facts]) -> str:
    ceiling = found.get("pace/ceilings")
    titles = {"eager": "launched kernel by kernel", "graph": "one CUDA graph a step", "graph-compiled": "and compiled"}
    rows = [(title, found[f"pace/{name}"]) for name, title in titles.items() if f"pace/{name}" in found]
    if ceiling is None:
        return ""
    bandwidth = f"{ceiling['gigabytes_per_second'] / 1000:.1f} TB/s"
    return markdown(
        ("a step", "samples/s", "ms", "TFLOP/s", "of a large product", "memory"),
        [[title, f"{one['samples_per_second']:,.0f}", f"{one['step_ms']:.2f}", f"{one['tflops']:.0f}",
          f"{100 * one['tflops'] / ceiling['tflops']:.0f} %", f"{one['memory_gib']:.1f} GiB"] for title, one in rows]
        + [["a product of 8192 x 8192, bfloat16", "", "", f"{ceiling['tflops']:.0f}", "100 %", ""],
           [f"a large copy: {bandwidth}", "", "", "", "", ""]],
    )  # fmt: skip


def _steps(found: Mapping[str, Facts]) -> str:
    rows = [one for name, one in found.items() if name.startswith("step/")]
    return markdown(
        ("network", "batch", "step", "without", "with `observe`", "added", "host, one `observe`", "n"),
        [[f"`{one['network']}`", str(one["batch_size"]), "a graph" if one["graphs"] else "kernel by kernel",
          f"{one['step_ms']:.3f} ms", f"{one['observed_ms']:.3f} ms", f"{one['added_percent']:.1f} %",
          f"{one['host_us']:.0f} us", f"{one['n']} times {one['steps']} steps"]
         for one in sorted(rows, key=lambda one: one["added_percent"])],
    )  # fmt: skip


def _exact(found: Mapping[str, Facts]) -> str:
    rows = [(name.removeprefix("exact/"), one) for name, one in found.items() if name.startswith("exact/")]
    return markdown(
        ("losses", "visits compared", "differences"),
        [[name.replace("-", " "), f"{one['visits']:,}", str(len(one["differ"]))] for name, one in rows],
    )
