"""Sections on the training: its schedule, its losses, its time, and what this library cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from prunedata.reporting.drawing.markup import Markup, join
from prunedata.reporting.drawing.parts import Section, figure, legend, note, paragraph, section, split
from prunedata.reporting.drawing.strip import strip
from prunedata.reporting.drawing.svg import Chart, binned, columns, line, rows, runs
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.wording import duration, few, percent, plural, ticks
from prunedata.types import Floats

__all__ = ["figures", "loss_panel", "losses", "schedule", "schedule_panel", "times"]


def schedule(shown: Sequence[RunFacts]) -> Section | None:
    """Which epochs are pruned; of a run that only watches there is nothing to show."""
    return section("schedule", "Schedule", shown, lambda run: None if run.observe_only else schedule_panel(run))


def schedule_panel(run: RunFacts) -> Markup:
    """The strip of a run."""
    pruned = sum(run.planned)
    if run.observe_only:
        told = "This run only watches: no epoch is pruned."
    elif run.auto and run.verdict is None:
        told = "This run watches first. It prunes in its last third, or once its validation figure has turned."
    elif not pruned:
        told = f"No epoch of {run.total:,} is pruned."
    else:
        told = f"{plural(pruned, 'epoch')} of {run.total:,} {'is' if pruned == 1 else 'are'} pruned."
    marks = [("low", "on all samples"), *([("bar", "pruned")] if pruned else [])]
    ahead = note(f"Pale: still ahead. {run.done:,} of {run.total:,} are done.") if run.done < run.total else None
    return join(paragraph(told), legend(*marks), figure(strip(run)), ahead)


def losses(shown: Sequence[RunFacts]) -> Callable[[RunFacts], Markup | None]:
    """What draws the mean loss of each epoch of a run; of two runs by one scale."""
    known = np.concatenate([run.losses[np.isfinite(run.losses)] for run in shown])
    epochs = max(run.done for run in shown)
    return lambda run: loss_panel(run, known, epochs) if known.size else None


def loss_panel(run: RunFacts, known: Floats, epochs: int) -> Markup:
    """The mean loss of a run, on the scale of all losses that are known, over so many epochs."""
    own = np.flatnonzero(np.isfinite(run.losses))
    if not own.size:
        return paragraph("No losses were observed.")
    least, most = float(known.min()), float(known.max())
    up = ticks(0.0 if 0 <= least < 0.7 * most else least, most)
    first, last = run.losses[own[0]], run.losses[own[-1]]
    told = f"From {few(first)} in epoch {own[0]:,} to {few(last)} in epoch {own[-1]:,}."
    chart = Chart("Mean loss of each epoch", told, (0, max(1, epochs)), up, centred=0.5)
    across, values = binned(run.losses)
    drawn = chart.draw(columns(chart, runs(run.pruned), "shade"), line(chart, across, values, "curve"))
    marks = legend(("curve", "mean loss of the epoch"), *([("shade", "pruned epoch")] if run.pruned.any() else []))
    lower = note("A pruned epoch's mean is over the samples that it kept.") if run.pruned.any() else None
    return join(paragraph(told), marks, figure(drawn), lower)


def figures(shown: Sequence[RunFacts]) -> Callable[[RunFacts], Markup | None]:
    """What draws the validation figure of each epoch of a run, with the turn marked; of two runs by one scale."""
    known = np.concatenate([run.validation[np.isfinite(run.validation)] for run in shown])
    epochs = max(run.done for run in shown)
    return lambda run: _figure_panel(run, known, epochs) if np.isfinite(run.validation).any() else None


def _figure_panel(run: RunFacts, known: Floats, epochs: int) -> Markup:
    least, most = float(known.min()), float(known.max())
    turned, own = run.figures.turned, run.validation
    best = "" if run.figures.best is None else f" The mean of three was highest in epoch {run.figures.best:,}."
    told = "It has not turned." if turned is None else f"It turned in epoch {turned:,}: from there on it fell."
    up = ticks(least, most)
    chart = Chart("Validation figure of each epoch", told + best, (0, max(1, epochs)), up, centred=0.5)
    across, values = binned(own)
    inside = [columns(chart, runs(run.pruned), "shade"), line(chart, across, values, "curve", joined=True)]
    marks = [("curve", "validation figure"), *([("shade", "pruned epoch")] if run.pruned.any() else [])]
    if turned is not None:
        ends = np.array([float(up[0]), float(up[-1])])
        inside.append(line(chart, np.full(2, turned + 0.5), ends, "hint"))
        marks.append(("hint", "the turn"))
    return join(paragraph(told + best), legend(*marks), figure(chart.draw(*inside)))


def times(shown: Sequence[RunFacts]) -> Section | None:
    """Predicted against measured time, and the overhead."""
    return section("time", "Time", shown, _time_panel)


def _time_panel(run: RunFacts) -> Markup | None:
    measured = float(np.nansum(run.seconds))
    if measured <= 0:  # no epoch is done
        return None
    if run.predicted is None:
        told = f"{duration(measured)} of training. No epoch on all samples, after the first, is there to compare with."
        return join(paragraph(told), _overhead(run, measured))
    if not run.shortened.any():
        why = "every epoch delivered all samples" if run.pruned.any() else "all of it on all samples"
        told = f"{duration(measured)} of training, {why}."
        return join(paragraph(told), _each_epoch(run, run.predicted), _overhead(run, measured))
    if measured + float(run.saved["seconds_saved"]) <= 0:  # by clocks that were set back
        return join(paragraph(f"{duration(measured)} of training."), _overhead(run, measured))
    told, totals = _totals(run, measured, run.predicted)
    return join(paragraph(told), split(join(totals, _overhead(run, measured)), _each_epoch(run, run.predicted)))


def _totals(run: RunFacts, measured: float, predicted: Floats) -> tuple[str, Markup]:
    """What pruning was predicted to save, and what it saved, in a sentence and as bars.

    Only pruned epochs are predicted. The others took what they took: the first warms up.
    """
    expected = measured + float(np.nansum((predicted - run.seconds)[run.shortened]))
    regular = measured + float(run.saved["seconds_saved"])
    by = "batches" if run.batch_size else "samples"
    told = f"By the {by} left out, pruning should save {percent(1 - expected / regular)} of the time so far. "
    share = 1 - measured / regular
    told += f"It saved {percent(share)}." if share >= 0 else f"The run took {percent(-share)} longer instead."
    lengths = [
        ("all samples in every epoch, estimated", duration(regular), regular, "dark"),
        ("with pruning, predicted", duration(expected), expected, "bar"),
        ("with pruning, measured", duration(measured), measured, "bar"),
    ]
    most = max(length for *_, length, _ in lengths)
    return told, figure(rows("Time of training so far", told, lengths, most), wide=True)


def _each_epoch(run: RunFacts, predicted: Floats) -> Markup:
    """Seconds of each epoch, predicted and measured."""
    across, measured = binned(run.seconds)
    _, expected = binned(predicted)
    most = float(np.nanmax(np.concatenate([measured, expected])))
    told = f"Median of the epochs on all samples: {duration(float(np.nanmedian(run.seconds[~run.shortened])))}."
    ends, up = (0, max(1, run.done)), ticks(0, most, 4)
    chart = Chart("Seconds of each epoch", told, ends, up, centred=0.5, height=120)
    drawn = chart.draw(line(chart, across, measured, "curve"), line(chart, across, expected, "hint"))
    return join(legend(("curve", "seconds of each epoch"), ("hint", "predicted")), figure(drawn))


def _overhead(run: RunFacts, training: float) -> Markup:
    spent, middle = float(np.nansum(run.overhead)), float(np.nanmedian(run.overhead))
    return paragraph(
        f"Overhead: {duration(spent)} were spent in this library, as much as {percent(spent / training)} of the time "
        f"of training; {duration(middle)} in the median epoch."
    )
