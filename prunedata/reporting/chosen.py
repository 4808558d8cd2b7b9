"""Sections on single samples: how they were counted, what was left out, and which look wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from prunedata.findings.inspection import most_pruned
from prunedata.findings.searched import told_unsearched
from prunedata.findings.suspects import concentration
from prunedata.findings.top import count_top
from prunedata.reporting.drawing.markup import Markup, data, join, tag
from prunedata.reporting.drawing.parts import Section, figure, legend, note, panels, paragraph, section, split, table
from prunedata.reporting.drawing.svg import Chart, bars, binned, line
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.previews import Preview, Previews
from prunedata.reporting.wording import few, percent, plural, ticks
from prunedata.types import Array

__all__ = ["agreement", "counts", "left_out", "suspects"]

MOST_BARS = 32
SUSPECT_SHARE = 0.1
"""Of the samples, where suspects are counted by class."""
MOST_CLASSES = 20


def counts(runs: Sequence[RunFacts]) -> Section | None:
    """The histogram of the counts."""
    return section("counts", "Counts of the window", runs, _counts_panel)


def _counts_panel(run: RunFacts) -> Markup | None:
    if not run.observed:
        return None
    most, window = max(run.counts), "last" if run.done >= run.total else "running"
    told = (
        f"How many samples had a loss above their batch's mean how often, in the {window} window. "
        f"{percent(run.counts.get(0, 0) / run.trainable)} never had; the highest count is {most:,}."
    )
    drawn = _histogram(run.counts, "Samples of each count", told, "hits in this window")
    return join(paragraph(told), figure(drawn))


def _histogram(numbers: Mapping[int, int], title: str, told: str, label: str) -> Markup:
    """A bar for each value, or for as many values that there are at most 32 bars."""
    least, most = min(numbers), max(numbers)
    step = -(-(most - least + 1) // MOST_BARS)
    found: dict[int, int] = {}
    for value, number in numbers.items():
        first = least + (value - least) // step * step
        found[first] = found.get(first, 0) + number
    high = max(found.values())
    end = least + -(-(most - least + 1) // step) * step
    marks = sorted(found) if len(found) <= 6 else None
    chart = Chart(title, told, (least, end), ticks(0, high, 4), label, centred=step / 2, across_ticks=marks)
    return chart.draw(bars(chart, [(first, first + step, number) for first, number in found.items()], "bar"))


def agreement(runs: Sequence[RunFacts]) -> Section | None:
    """How far successive pruned epochs leave out the same samples."""
    return section("agreement", "Do pruned epochs leave out the same samples?", runs, _agreement_panel)


def _agreement_panel(run: RunFacts) -> Markup | None:
    known = run.agreement[np.isfinite(run.agreement)]
    if not known.size:  # of fewer than two pruned epochs, or of a version that did not record it
        return None
    chance = float(np.nanmean(run.agreement_by_chance)) if np.isfinite(run.agreement_by_chance).any() else None
    told = (
        f"Of the samples that a pruned epoch left out, {percent(float(known.mean()))} had been left out by the pruned "
        "epoch before, too, in the mean of all epochs."
    )
    told += "" if chance is None else f" By chance it would be {percent(chance)}."
    chart = Chart(
        "Agreement of successive pruned epochs",
        told,
        (0, max(1, run.done)),
        ticks(0, 1),
        form="{:.0%}".format,
        centred=0.5,
    )
    across, values = binned(run.agreement)
    inside = [line(chart, across, values, "curve", joined=True)]
    marks = [("curve", "agreement with the pruned epoch before")]
    if chance is not None:
        ends = np.array([0.0, float(run.done)])
        inside.insert(0, line(chart, ends, np.array([chance, chance]), "hint"))
        marks.append(("hint", "by chance"))
    drawn = tag("figure", chart.draw(*inside), class_="plot")
    sampled = note("Told by 4,096 samples, always the same ones.") if run.samples > 4096 else None
    return join(paragraph(told), legend(*marks), drawn, sampled)


def left_out(runs: Sequence[RunFacts], top: int) -> Section | None:
    """What was left out most."""
    return section("left-out", "Left out most often", runs, lambda run: _left_out_panel(run, top))


def _left_out_panel(run: RunFacts, top: int) -> Markup | None:
    if not run.pruned.any():
        return None
    if not run.observed:
        return paragraph("No losses were observed, so which samples were left out is not recorded.")
    never = run.times_left_out.get(0, 0)
    epochs = int(run.pruned.sum())
    told = (
        f"{percent(never / run.trainable)} of the samples were in every epoch. "
        f"The others were left out up to {max(run.times_left_out):,} times in {plural(epochs, 'pruned epoch')}."
    )
    drawn = _histogram(run.times_left_out, "Samples by the times they were left out", told, "times left out")
    found = most_pruned(run.state, top)
    shown = [tuple(f"{one[name]:,}" for name in ("id", "pruned", "hits", "visits")) for one in found]
    rows = table(f"The {len(found):,} left out most", ("sample", "left out", "hits", "visits"), shown, text=())
    return join(paragraph(told), split(figure(drawn), rows))


def suspects(runs: Sequence[RunFacts], top: int, shown: Previews | None, labels: Array | None) -> Section | None:
    """Which samples look wrong, and in which classes they gather."""
    if not any(run.observed for run in runs):
        return None
    told = paragraph("Samples whose losses stay high over the whole run are hard, or their labels are wrong.")
    body = join(told, panels(runs, lambda run: _suspects_panel(run, top, shown, labels)), _cleaning())
    return Section("suspects", "Most suspect samples", body, long=True)


def _cleaning() -> Markup:
    return note(
        join(
            "To look at them one by one and correct them: ",
            tag("code", "prunedata report RUN --review --dataset MODULE:NAME"),
            ". That gives clean data. Expect less accuracy than you hope for: training that stops in time, or prunes, "
            "ignores most of these labels already.",
        )
    )


def _suspects_panel(run: RunFacts, top: int, shown: Previews | None, labels: Array | None) -> Markup:
    if not run.observed:
        return paragraph("No losses were observed, so nothing is known of single samples.")
    ids = run.suspects(top).tolist()
    high = run.state.high
    rows = [
        (
            f"{one:,}",
            f"{int(run.state.hits[one]):,}",
            *(() if high is None else (f"{int(high[one]):,}",)),
            f"{int(run.state.visits[one]):,}",
            f"{run.scores[one]:.3f}",
        )
        for one in ids
    ]
    head = ("sample", "hits", *(() if high is None else ("high",)), "visits", "score")
    listed = table(f"The {len(ids):,} most suspect", head, rows, text=())
    meaning = "Hits are visits with a loss above the batch's mean"
    meaning += "." if high is None else "; high, visits with a loss above that of a blind guess."
    meaning += " The score is how far a sample's losses lay above those of its batches, in the mean of its visits."
    classes = None if labels is None else _classes(run, labels)
    rest = told_unsearched(run.state)
    meaning += "" if rest is None else f" Of all samples {rest}."
    if shown is None:
        return join(listed, note(meaning), classes)
    cards = [_card(run, one, shown.of(one)) for one in ids]
    texts = all("<img" not in card for card in cards)
    return join(
        tag("ul", *cards, class_="cards texts" if texts else "cards"),
        tag("details", tag("summary", "As a table"), listed, note(meaning)),
        classes,
    )


def _card(run: RunFacts, sample: int, seen: Preview) -> Markup:
    named = data(seen.key, 80) if seen.key is not None else None
    label = join("label ", tag("strong", data(seen.label, 60))) if seen.label is not None else None
    alt = f"Sample {sample:,}" if seen.label is None else f"Sample {sample:,}, labelled {seen.label[:60]}"
    return tag(
        "li",
        Markup(tag("img", src=seen.image, alt=alt, width=96, height=96).removesuffix("</img>")) if seen.image else None,
        tag("q", data(seen.text, 280)) if seen.text is not None else None,
        join(tag("div", label) if label else None, tag("div", named) if named else None),
        tag("div", f"sample {sample:,}, score {run.scores[sample]:.2f}", class_="note"),
    )


def _classes(run: RunFacts, labels: Array) -> Markup:
    top = count_top(SUSPECT_SHARE, run.trainable)
    shares = concentration(labels, run.suspects(top), run.searched)
    rows = [
        (
            data(one.label, 60),
            f"{one.suspects:,}",
            f"{one.samples:,}",
            percent(one.share),
            percent(one.expected),
            "-" if one.lift is None else few(one.lift),
        )
        for one in shares[:MOST_CLASSES]
    ]
    head = ("class", "suspects", "samples", "of suspects", "of samples", "lift")
    caption = f"Where the {top:,} most suspect gather"
    caption += f": {MOST_CLASSES} of {len(shares):,} classes" if len(shares) > MOST_CLASSES else ""
    return join(tag("h3", "Where they gather"), table(caption, head, rows))
