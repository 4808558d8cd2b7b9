"""The command ``prunedata inspect``: print the contents of a run's store."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from prunedata.checks import duration
from prunedata.cli.text import bar, listing, marks, table
from prunedata.findings.inspection import inspect
from prunedata.reporting.kept import KeptPreviews

EPOCHS_SHOWN, COUNTS_SHOWN = 10, 300
ARRAYS = {"name": ("name", ""), "dtype": ("dtype", ""), "shape": ("shape", "")}
PRUNED = {"id": ("sample", ","), **{name: (name, ",") for name in ("row", "pruned", "hits", "visits", "count")}}
EPOCHS = {
    "number": ("epoch", ""), "pruned": ("pruned", ""), "kept": ("kept", ","), "seconds": ("seconds", ".2f"),
    "overhead": ("overhead s", ".4f"), "mean_loss": ("mean loss", ".4f"),
}  # fmt: skip
"""Columns of tables: head and format by name."""


def show(args: argparse.Namespace) -> None:
    """Print the contents of the store."""
    found, rows = inspect(args.store, top=args.top), KeptPreviews(args.store).rows
    if rows:
        found["most_pruned"] = [{**one, "row": rows.get(one["id"])} for one in found["most_pruned"]]
    print(json.dumps(found) if args.json else "\n".join(summary(found, marks(sys.stdout.encoding))))


def summary(found: Mapping[str, Any], two: str) -> list[str]:
    """Return the dict of ``prunedata.findings.inspection.inspect`` as lines; `two` are the characters of a bar."""
    epochs = found["schedule"]["epochs"]
    state = "finished" if found["epoch"] >= epochs else f"next is epoch {found['epoch']} of {epochs}"
    if found["open"]:
        state += ", begun and not ended"
    settings = ", ".join(f"{name}={value}" for name, value in found["schedule"].items())
    without, held_out, most = found["without"], found["held_out"], found["most_pruned"]
    rows: list[tuple[str, str | None]] = [
        ("samples", f"{found['samples']:,}"),
        ("prune", str(found["prune"])),
        ("policy", _plain(found["policy"])),
        ("schedule", settings),
        ("seed", str(found["seed"])),
        ("batch size", "-" if found["batch_size"] is None else str(found["batch_size"])),
        ("state", state),
        ("commits", f"{found['generation']:,}"),
        ("left out for good", f"{without:,}" if without else None),
        ("held out", f"{held_out:,}, never trained on and not searched" if held_out else None),
        ("no longer in the data", f"{found['lost']:,}, kept for when they come back" if found["lost"] else None),
        ("saved", _saved(found["saved"])),
        ("only watches", _would_save(found["would_save_percent"])),
        ("advice", _advice(found.get("advice"), found["samples"] - without - held_out)),
    ]
    return [
        *table([(name, told) for name, told in rows if told is not None], left=(0, 1)),
        *_section("arrays", [_array(one) for one in found["arrays"]], ARRAYS, left=(0, 1, 2)),
        *_history(found["history"]),
        *_histogram(found["counts_histogram"], two),
        *_section("pruned most", most, {name: column for name, column in PRUNED.items() if most and name in most[0]}),
    ]


def _saved(saved: Mapping[str, Any]) -> str | None:
    if not saved["epochs"]:
        return None
    if not saved["visits_saved"]:
        of_no_weight = f"; {saved['visits_by_weight']:,} visits had no weight" if saved["visits_by_weight"] else ""
        return f"nothing in {saved['epochs']:,} epochs{of_no_weight}"
    visits = saved["visits"] + saved["visits_saved"]
    told = [f"{saved['visits_saved']:,} of {visits:,} sample visits ({saved['visits_saved_percent']:.2f} %)"]
    if saved["batches_saved"] is not None:
        told.append(f"{saved['batches_saved']:,} batches")
    if saved["seconds_saved"] is not None:
        told.append(f"{duration(saved['seconds_saved'])} beside {duration(saved['seconds'])} of training")
    return ", ".join(told)


def _would_save(percent: float | None) -> str | None:
    return None if percent is None else f"leaving samples out would have saved {percent:.2f} % of visits"


def _advice(advice: Mapping[str, Any] | None, samples: int) -> str | None:
    if advice is None:
        return None
    if advice["verdict"] != "prune":
        return "leave nothing out"
    first, onset = advice["schedule"]["start"], advice.get("onset")
    why = "" if onset is None else f": memorization was seen in epoch {onset}"
    return f"leave out {advice['prune']:,} of {samples:,} samples from epoch {first} on{why}"


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return str(value)


def _section(
    title: str, rows: list[dict[str, Any]], columns: Mapping[str, tuple[str, str]], left: tuple[int, ...] = ()
) -> list[str]:
    return ["", title, *("  " + line for line in listing(rows, columns, left))] if rows else []


def _array(array: Mapping[str, Any]) -> dict[str, Any]:
    return {**array, "shape": " x ".join(f"{n:,}" for n in array["shape"])}


def _history(records: list[Mapping[str, Any]]) -> list[str]:
    rows = [
        {
            **record,
            "pruned": "yes" if record["pruned"] else "no",
            "kept": record["kept"] - record.get("by_weight", 0) - record.get("held_out", 0),
        }
        for record in records[-EPOCHS_SHOWN:]
    ]
    title = "epochs" if len(rows) == len(records) else f"epochs (the last {len(rows)} of {len(records)})"
    return _section(title, rows, EPOCHS)


def _histogram(samples_of: Mapping[int | str, int], two: str) -> list[str]:
    counts = sorted((int(count), samples) for count, samples in samples_of.items())
    most = max((samples for _, samples in counts), default=0)
    rows = [{"count": n, "samples": k, "bar": bar(k / most, two)} for n, k in counts[:COUNTS_SHOWN]]
    more = "" if len(rows) == len(counts) else f" (the lowest {len(rows)} of {len(counts):,})"
    columns = {"count": ("count", ""), "samples": ("samples", ","), "bar": ("", "")}
    return _section(f"samples of each count in this window{more}", rows, columns, left=(2,))
