"""The contents of a run's store as lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prunedata.checks import duration
from prunedata.cli.text import bar, table

EPOCHS_SHOWN, COUNTS_SHOWN = 10, 300


def summary(found: Mapping[str, Any], two: str) -> list[str]:
    """Return the dict of ``prunedata.findings.inspection.inspect`` as lines; `two` are the characters of a bar."""
    epochs = found["schedule"]["epochs"]
    state = "finished" if found["epoch"] >= epochs else f"next is epoch {found['epoch']} of {epochs}"
    if found["open"]:
        state += ", begun and not ended"
    settings = ", ".join(f"{name}={value}" for name, value in found["schedule"].items())
    rows = [
        ("samples", f"{found['samples']:,}"),
        ("prune", str(found["prune"])),
        ("policy", _plain(found["policy"])),
        ("schedule", settings),
        ("seed", str(found["seed"])),
        ("batch size", "-" if found["batch_size"] is None else str(found["batch_size"])),
        ("state", state),
        ("commits", f"{found['generation']:,}"),
        *([("left out for good", f"{found['without']:,}")] if found["without"] else []),
        *([("held out", f"{found['held_out']:,}, never trained on and not searched")] if found["held_out"] else []),
        *([("no longer in the data", f"{found['lost']:,}, kept for when they come back")] if found["lost"] else []),
        *_saved(found["saved"]),
        *_observed_only(found),
        *_advice(found.get("advice"), found["samples"] - found["without"] - found["held_out"]),
    ]
    return [
        *table(rows, left=(0, 1)),
        *_section("arrays", ("name", "dtype", "shape"), [_array(a) for a in found["arrays"]], (0, 1, 2)),
        *_history(found["history"]),
        *_histogram(found["counts_histogram"], two),
        *_section(
            "pruned most",
            ("sample", "pruned", "hits", "visits", "count"),
            [[f"{m[k]:,}" for k in ("id", "pruned", "hits", "visits", "count")] for m in found["most_pruned"]],
            (),
        ),
    ]


def _saved(saved: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not saved["epochs"]:
        return []
    if not saved["visits_saved"]:
        of_no_weight = f"; {saved['visits_by_weight']:,} visits had no weight" if saved["visits_by_weight"] else ""
        return [("saved", f"nothing in {saved['epochs']:,} epochs{of_no_weight}")]
    visits = saved["visits"] + saved["visits_saved"]
    told = [f"{saved['visits_saved']:,} of {visits:,} sample visits ({saved['visits_saved_percent']:.2f} %)"]
    if saved["batches_saved"] is not None:
        told.append(f"{saved['batches_saved']:,} batches")
    if saved["seconds_saved"] is not None:
        told.append(f"{duration(saved['seconds_saved'])} beside {duration(saved['seconds'])} of training")
    return [("saved", ", ".join(told))]


def _observed_only(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    if found.get("leave_out") != "nothing":
        return []
    return [("only watches", f"leaving samples out would have saved {found['would_save_percent']:.2f} % of visits")]


def _advice(advice: Mapping[str, Any] | None, samples: int) -> list[tuple[str, str]]:
    if advice is None:
        return []
    if advice["verdict"] != "prune":
        return [("advice", "leave nothing out")]
    first, onset = advice["schedule"]["start"], advice.get("onset")
    why = "" if onset is None else f": memorization was seen in epoch {onset}"
    return [("advice", f"leave out {advice['prune']:,} of {samples:,} samples from epoch {first} on{why}")]


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return str(value)


def _section(title: str, head: tuple[str, ...], rows: list[list[str]], left: tuple[int, ...]) -> list[str]:
    return ["", title, *("  " + line for line in table([head, *rows], left))] if rows else []


def _array(array: Mapping[str, Any]) -> list[str]:
    return [str(array["name"]), str(array["dtype"]), " x ".join(f"{n:,}" for n in array["shape"])]


def _history(records: list[Mapping[str, Any]]) -> list[str]:
    shown = records[-EPOCHS_SHOWN:]
    rows = [
        [
            str(record["number"]),
            "yes" if record["pruned"] else "no",
            f"{record['kept'] - record.get('by_weight', 0) - record.get('held_out', 0):,}",
            _figure(record["seconds"], ".2f"),
            _figure(record["overhead"], ".4f"),
            _figure(record["mean_loss"], ".4f"),
        ]
        for record in shown
    ]
    title = "epochs" if len(shown) == len(records) else f"epochs (the last {len(shown)} of {len(records)})"
    return _section(title, ("epoch", "pruned", "kept", "seconds", "overhead s", "mean loss"), rows, ())


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _histogram(samples_of: Mapping[int | str, int], two: str) -> list[str]:
    counts = sorted((int(count), samples) for count, samples in samples_of.items())
    most = max((samples for _, samples in counts), default=0)
    rows = [[str(count), f"{samples:,}", bar(samples / most, two)] for count, samples in counts[:COUNTS_SHOWN]]
    more = "" if len(rows) == len(counts) else f" (the lowest {len(rows)} of {len(counts):,})"
    return _section(f"samples of each count in this window{more}", ("count", "samples", ""), rows, (2,))
