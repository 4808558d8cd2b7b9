"""What a reader wants to know first: how far the run is, what it saved, what it was given, and how two runs differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.findings.compare import compare
from prunedata.reporting.drawing.markup import Markup, data, join, tag
from prunedata.reporting.drawing.parts import Section, facts, note, panels, paragraph, table
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.wording import duration, few, percent, plural

__all__ = ["comparison", "overview", "progress", "tiles"]


def progress(run: RunFacts) -> str:
    """How far the run is, in a sentence."""
    if run.done >= run.total:
        return f"Finished: all {plural(run.total, 'epoch')} are done."
    if run.state.open:
        return f"Epoch {run.state.epoch} of {run.total:,} is open; {run.done:,} are done."
    if not run.done:
        return f"Not begun: none of {plural(run.total, 'epoch')} is done."
    return f"{run.done:,} of {plural(run.total, 'epoch')} are done."


def overview(runs: Sequence[RunFacts]) -> Section:
    """The figures of each run, and its settings."""
    return Section("overview", "At a glance", panels(runs, lambda run: join(tiles(run), _settings(run))))


def tiles(run: RunFacts) -> Markup:
    """The figures that matter most."""
    saved = run.saved
    told: list[tuple[str, object]] = [
        ("epochs done", join(f"{run.done:,}", _small(f"of {run.total:,}, {saved['pruned_epochs']:,} pruned")))
    ]
    if run.watches_only:
        told.append(("visits it would save", join(percent(run.would_save), _small("this run only watches"))))
    elif run.done:
        ahead = "" if run.done >= run.total else f", {percent(run.visits_saved_in_all)} planned in all"
        by = f"{saved['visits_saved']:,} visits{ahead}"
        told.append(("sample visits saved", join(percent(saved["visits_saved_percent"] / 100), _small(by))))
    if saved["seconds_saved"] is not None:
        whole = saved["seconds"] + saved["seconds_saved"]
        share = percent(saved["seconds_saved"] / whole) if whole > 0 else "-"
        told.append(("time saved", join(share, _small(f"{duration(saved['seconds_saved'])} of {duration(whole)}"))))
    known = np.flatnonzero(np.isfinite(run.losses))
    if known.size:
        first, last = run.losses[known[0]], run.losses[known[-1]]
        told.append(("last mean loss", join(few(last), _small(f"{few(first)} in epoch {known[0]}"))))
    if saved["seconds"] > 0:
        share = percent(saved["overhead_seconds"] / saved["seconds"])
        told.append(("overhead", join(share, _small(f"{duration(saved['overhead_seconds'])} in this library"))))
    return facts(told, "tiles")


def _small(text: str) -> Markup:
    return tag("small", text)


def _settings(run: RunFacts) -> Markup:
    given = run.schedule.to_dict()
    schedule = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())
    by = (
        ("pruned epochs", f"leave out {plural(run.left_out, 'sample')} ({percent(run.left_out / run.trainable)})"),
        ("policy", data(run.policy)),
        ("schedule", data(schedule)),
    )
    rows: list[tuple[str, object]] = [
        ("samples", f"{run.samples:,}"),
        *([("held out", f"{run.held_out:,}, never trained on and not searched")] if run.held_out else []),
        *([("left out for good", f"{run.without:,}")] if run.without else []),
        *((name, value) for name, value in by if not run.watches_only),
        ("seed", data(run.state.run.get("seed"))),
        ("batch size", "not said" if run.batch_size is None else f"{run.batch_size:,}"),
    ]
    if run.state.run.get("classes"):
        rows.append(("classes", f"{int(run.state.run['classes']):,}"))
    if run.watches_only:
        rows.append(("mode", "observes only: nothing is pruned"))
    return tag("details", tag("summary", "Settings of the run"), facts(rows))


def comparison(runs: Sequence[RunFacts]) -> Section:
    """Two runs in one table, and whether they suspect the same samples."""
    head = ("", *(data(run.name) for run in runs))
    rows = [
        ("samples", *(f"{run.samples:,}" for run in runs)),
        ("policy", *("none: it only watches" if run.watches_only else data(run.policy) for run in runs)),
        ("epochs done", *(f"{run.done:,} of {run.total:,}" for run in runs)),
        ("pruned epochs", *(f"{run.saved['pruned_epochs']:,}" for run in runs)),
        ("sample visits", *(f"{run.saved['visits']:,}" for run in runs)),
        ("visits saved", *(percent(run.saved["visits_saved_percent"] / 100) for run in runs)),
        ("time of training", *(duration(run.saved["seconds"]) for run in runs)),
        ("last mean loss", *(_last_loss(run) for run in runs)),
    ]
    body = join(table("The two runs", head, rows, text=(0,)), *_suspicions(*runs))
    return Section("comparison", "The two runs beside each other", body)


def _last_loss(run: RunFacts) -> str:
    known = run.losses[np.isfinite(run.losses)]
    return few(known[-1]) if known.size else "-"


def _suspicions(first: RunFacts, second: RunFacts) -> list[Markup]:
    try:
        found = compare((first.scores, first.visits), (second.scores, second.visits))
    except PrunedataError as error:
        return [note(f"Whether they suspect the same samples cannot be said. {error}")]
    correlation = "" if found.rank_correlation is None else f" Their ranks correlate by {found.rank_correlation:.2f}."
    return [
        paragraph(
            f"Of the {found.top:,} most suspect samples of each, {percent(found.jaccard)} of those in either are in "
            f"both; by chance it would be {percent(found.jaccard_by_chance)}.{correlation}"
        )
    ]
