"""The last sections: what is advised and why, the numbers behind the pictures, and how to cite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunedata.findings.advice import Advice
from prunedata.reporting.citation import PAPER, bibtex, reference
from prunedata.reporting.drawing.markup import Markup, data, join, tag
from prunedata.reporting.drawing.parts import Section, panels, paragraph, split, table
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.training import figures, losses
from prunedata.reporting.wording import few, percent, plural

__all__ = ["advised", "citing", "epochs", "verdict"]

ENDS = 60
"""Epochs shown at each end of a run that has more than twice as many."""


def verdict(runs: Sequence[RunFacts]) -> Section:
    """What to do and why, beside the validation figure, or the losses where none was given."""
    by_loss, by_figure = losses(runs), figures(runs)
    return Section("verdict", "What to do", panels(runs, lambda run: _beside(run, by_figure(run) or by_loss(run))))


def _beside(run: RunFacts, curve: Markup | None) -> Markup:
    return _why(run) if curve is None else split(_why(run), curve)


def _why(run: RunFacts) -> Markup:
    found, _ = run.advice
    sentences = () if found is None else [tag("li", data(sentence, 600)) for sentence in found.evidence]
    why = tag("details", tag("summary", "Why"), tag("ul", *sentences)) if sentences else None
    return join(advised(run), why)


def advised(run: RunFacts) -> Markup:
    """What to do, in a box."""
    found, why_not = run.advice
    if found is None:
        return paragraph(join("Nothing can be advised. ", data(why_not, 400)))
    given = "What this run was advised, and does:" if run.state.advice is not None else "By what the run has seen:"
    if run.state.advice is None and run.done >= run.total:
        given = "For the next run on these data, as this one is finished:"
    boxed = tag("div", tag("p", tag("strong", _verdict(found, run)), _amount(found, run)), class_="advice")
    return join(paragraph(given), boxed)


def _verdict(found: Advice, run: RunFacts) -> str:
    if found.verdict == "prune":
        return "Prune."
    return "Watch on." if run.done < run.total else "Watch the next run."


def _amount(found: Advice, run: RunFacts) -> Markup:
    if found.schedule is None:
        return join("")
    saving = f", which saves {percent(found.saving_percent / 100)} of the sample visits"
    amount = f" {plural(found.prune, 'sample')} of {run.trainable:,}, in every epoch from {found.schedule.start} on"
    return join(amount, saving, ", by ", tag("code", data(repr(found.policy))), ".")


def epochs(runs: Sequence[RunFacts]) -> Section | None:
    """The numbers behind the pictures, epoch by epoch."""
    if not any(run.done for run in runs):
        return None
    return Section("epochs", "Every epoch in numbers", panels(runs, _epochs_panel), long=True)


def _epochs_panel(run: RunFacts) -> Markup:
    if not run.done:
        return paragraph("No epoch is done.")
    numbers = list(range(run.done))
    cut = len(numbers) > 2 * ENDS
    numbers = [*numbers[:ENDS], *numbers[-ENDS:]] if cut else numbers
    caption = f"{plural(run.done, 'epoch')} that {'is' if run.done == 1 else 'are'} done"
    caption += f"; the first and the last {ENDS}" if cut else ""
    head = ("epoch", "pruned", "kept", "mean loss", "seconds", "overhead s", "agreement")
    rows = [
        (
            f"{one:,}",
            "yes" if run.pruned[one] else "no",
            _number(run.kept[one], ",.0f"),
            "-" if np.isnan(run.losses[one]) else few(run.losses[one]),
            _number(run.seconds[one], ",.2f"),
            _number(run.overhead[one], ".4f"),
            _number(run.agreement[one], ".2f"),
        )
        for one in numbers
    ]
    return tag("details", tag("summary", "Show the table"), table(caption, head, rows, text=()))


def _number(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def citing(version: str) -> Section:
    """How to cite the software and the paper."""
    address = f"https://doi.org/{PAPER['doi']}"
    body = join(
        paragraph("If prunedata helps your work, please cite it, and the paper whose method it implements."),
        tag("p", reference(), " ", tag("a", address, href=address, rel="noreferrer")),
        tag("details", tag("summary", "BibTeX"), tag("pre", bibtex(version))),
    )
    return Section("cite", "How to cite", body)
