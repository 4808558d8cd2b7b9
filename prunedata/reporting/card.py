"""A run in a notebook: its figures, its strip and its losses, in the colours of the page around."""

from __future__ import annotations

import numpy as np

from prunedata.findings.searched import Stateful
from prunedata.reporting.drawing.markup import Markup, join, tag
from prunedata.reporting.drawing.style import CARD
from prunedata.reporting.facts import RunFacts, facts_of
from prunedata.reporting.overview import progress
from prunedata.reporting.training import loss_panel, schedule_panel
from prunedata.reporting.wording import percent

__all__ = ["card"]


def card(run: Stateful) -> str:
    """Return a run as a piece of HTML, to be shown among others."""
    facts = facts_of(run)
    known = facts.losses[np.isfinite(facts.losses)]
    inside = [
        Markup(f"<style>{CARD}</style>"),
        tag("h2", "Run of prunedata"),
        tag("p", _told(facts)),
        schedule_panel(facts),
    ]
    if known.size:
        inside.append(loss_panel(facts, known, facts.done))
    inside.append(tag("p", "All of it: ", tag("code", "prunedata.report(pruner)"), class_="legend"))
    return tag("div", join(*inside), class_="prunedata")


def _told(run: RunFacts) -> str:
    saved = percent(run.saved["visits_saved_percent"] / 100)
    if run.watches_only:
        return f"{progress(run)} Pruning would have saved {percent(run.would_save)} of the sample visits."
    return f"{progress(run)} {saved} of the sample visits saved." if run.done else progress(run)
