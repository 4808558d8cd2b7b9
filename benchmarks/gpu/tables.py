"""What was recorded on a GPU, as the tables of docs/evidence/deep.md."""

from collections.abc import Iterable, Mapping
from statistics import mean, median

from benchmarks.common.commands import markdown
from benchmarks.common.networks import NETWORKS
from benchmarks.common.records import Facts
from benchmarks.study.arm import Arm
from benchmarks.study.arms import ARMS
from benchmarks.study.recipe import RARE, WARM_UP

__all__ = ["BEGIN", "parts"]

BEGIN = "<!-- python -m benchmarks.gpu table {} -->"
KINDS = {
    "worse": "people's, 40 % wrong", "aggre": "people's, 9 % wrong", "random40": "random, 40 % wrong", "clean": "clean",
}  # fmt: skip
ORDER = ("watched", "regular", "auto", "auto-labels", "known-wrong", "random-run")
"""Of the arms of a kind of labels; of equal ones the shortest first."""
TITLES = {
    "watched": "regular",
    "regular": "regular",
    "auto-labels": "`auto`, labels known",
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
        "watched": _watched(found),
        "exact": _exact(found),
    }


def _arms(runs: list[Facts]) -> str:
    columns = (
        "labels", "rate", "arm", "epochs", "seeds", "accuracy", "its best", "worst class", "rare classes", "left out",
        "of these wrong", "labels doubted", "AUC of suspects", "seconds",
    )  # fmt: skip
    alike: dict[tuple[object, ...], list[Facts]] = {}
    for one in sorted(runs, key=_place):
        alike.setdefault(_place(one), []).append(one)
    rows = [_arm(seeds) for seeds in alike.values()]
    said = [at for at, name in enumerate(columns) if name != "rare classes" or any(row[at] for row in rows)]
    return markdown([columns[at] for at in said], [[row[at] for at in said] for row in rows])


def _place(one: Facts) -> tuple[object, ...]:
    """Where a run's row is; runs that differ by their seeds share one."""
    recipe = one["recipe"]
    fewer = recipe["epochs"] < 30
    return one["recipe"].get("thinned", 1), list(KINDS).index(one["noise"]), recipe.get("warm_up", WARM_UP) == 0, \
        recipe["learning_rate"] != 0.1, recipe["learning_rate"], recipe["network"], fewer, \
        recipe.get("balanced", False), ORDER.index(one["policy"]), recipe["epochs"]  # fmt: skip


def _arm(seeds: list[Facts]) -> list[str]:
    one, watches = seeds[0], seeds[0]["policy"] in ("watched", "auto", "auto-labels")
    recipe = one["recipe"]
    thinned, cold = recipe.get("thinned", 1) > 1, recipe.get("warm_up", WARM_UP) == 0
    known = [found["left_out"] for found in map(_last_left_out, seeds) if found is not None]
    out, wrong = mean(out for out, _ in known) if known else 0, mean(wrong for _, wrong in known) if known else 0
    aucs = [run["suspects_auc"] for run in seeds if run.get("suspects_auc")]
    doubted, rare = mean(run.get("doubted") or 0 for run in seeds), slice(None, None, RARE)
    name = TITLES.get(one["policy"], f"`{one['policy']}`") + (", class weights" if recipe.get("balanced") else "")
    return [
        KINDS[one["noise"]] + (", rare classes" if thinned else ""),
        f"{recipe['learning_rate']:g}" + (", no warm-up" if cold else ""),
        name if recipe["network"] == "resnet18" else f"{name}, {recipe['network']}",
        str(one["epochs"]), str(len(seeds)),
        _spread([run["accuracy_final"] for run in seeds]), f"{mean(map(_best, seeds)):.1f}",
        f"{mean(min(run['classes']) for run in seeds):.1f}",
        f"{mean(mean(run['classes'][rare]) for run in seeds):.1f}" if thinned else "",
        f"{out:,.0f}" if out else "", f"{100 * wrong / out:.0f} %" if out else "",
        f"{doubted:,.0f} ({one['wrong']:,} wrong)" if watches else "", f"{mean(aucs):.3f}" if aucs and watches else "",
        f"{mean(run['seconds'] for run in seeds):.1f}",
    ]  # fmt: skip


def _spread(values: list[float]) -> str:
    middle = f"{mean(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _best(one: Facts) -> float:
    return 100.0 * max(float(point["accuracy"]) for point in one["curves"] if "accuracy" in point)


def _last_left_out(one: Facts) -> Facts | None:
    return next((point for point in reversed(one["curves"]) if "left_out" in point), None)


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


def _watched(found: Mapping[str, Facts]) -> str:
    rows = [one for name, one in found.items() if name.startswith("watch/")]
    if not rows:
        return ""
    return markdown(
        ("trainer", "a step", "watched", "longer", "waits for the device", "waits, watched", "n"),
        [[one["trainer"], f"{one['step_ms']:.3f} ms", f"{one['watched_ms']:.3f} ms", f"{one['added_us']:.0f} us",
          str(one["waits"]), str(one["waits_watched"]), f"{one['n']} times {one['steps']} steps"] for one in rows],
    )  # fmt: skip


def _exact(found: Mapping[str, Facts]) -> str:
    rows = [(name.removeprefix("exact/"), one) for name, one in found.items() if name.startswith("exact/")]
    return markdown(
        ("losses", "visits compared", "differences"),
        [[name.replace("-", " "), f"{one['visits']:,}", str(len(one["differ"]))] for name, one in rows],
    )
