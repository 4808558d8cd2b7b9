"""The report of a run, from its store or from the run itself."""

from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import count_top, integer, percent
from prunedata.errors import PrunedataError
from prunedata.findings.compare import compare_runs
from prunedata.findings.searched import Stateful, searched
from prunedata.findings.suspects import ClassShare, checked_labels, concentration, most_suspect, scores_of
from prunedata.reporting.curves import curve
from prunedata.reporting.facts import RunFacts, facts_of
from prunedata.reporting.kept import KeptPreviews
from prunedata.reporting.page import render, suspects_to_judge
from prunedata.reporting.previews import Previews
from prunedata.store.run_store import StoreLike
from prunedata.types import Array

LISTED, REVIEWED = 12, 500
"""Samples on a page if the caller names no number."""
SUSPECT_SHARE = 0.1
"""Of the samples, where suspects are counted by class."""

Progress = Callable[[float, str], None]
"""Called with the share that is done, from 0 to 1, and the next step."""


class Report:
    """A report: one page of HTML, which loads nothing. In a notebook it shows itself.

    Attributes
    ----------
    html : str
        The page.
    runs : tuple of dict
        The facts of each run, as plain values that JSON can hold.
    """

    def __init__(self, html: str, runs: tuple[dict[str, Any], ...], *, scripted: bool = False) -> None:
        self.html, self.runs, self._scripted = html, runs, scripted

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, and return its path."""
        target = Path(path)
        target.write_text(self.html, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"Report of {len(self.html.encode('utf-8')):,} bytes: report.save('report.html') writes it"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that neither changes the look of the other."""
        allowed = "allow-scripts allow-downloads" if self._scripted else ""
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="{allowed}" title="Report of a run" '
            'style="width:100%;height:640px;border:1px solid #8888"></iframe>'
        )


def report(
    run: StoreLike | Stateful,
    output: str | PathLike[str] | None = None,
    *,
    compare: StoreLike | Stateful | None = None,
    dataset: Any = None,
    labels: npt.ArrayLike | None = None,
    top: int | None = None,
    review: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Return the report of a run: its advice, its validation curve, its suspects, and the time saved.

    Parameters
    ----------
    run : path, URL, zarr store or Pruner
        The store of a run, which may be running, or the run itself.
    output : path, optional
        Where to write the page; without it use :meth:`Report.save`.
    compare : path, URL, zarr store or Pruner, optional
        Another run, to be put beside it.
    dataset : sequence, optional
        The data set, to show the suspects: ``dataset[id]`` is a sample. Images, texts, tuples of these with a label,
        and mappings are understood, as are the class names of torchvision and Hugging Face. Not needed for a run of
        ``prunedata watch``, which has kept what its 500 most suspect samples look like.
    labels : array of int or str, shape (samples,), optional
        The labels by id, to see in which classes suspects gather. Otherwise they are taken from the data set.
    top : int, optional
        How many samples to list: 12, in a review 500.
    review : bool
        Return the page on which suspects are judged one by one with the keyboard, and saved as a file of verdicts. It
        needs the data set, or a run that has kept previews. The judged labels are `labels`, or those of the data set.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1, and the next step.

    Raises
    ------
    ImportError
        If Jinja or matplotlib is not installed.
    PrunedataError
        If no run is there, it is damaged, or an argument makes no sense.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ImportError(f"A report needs {' and '.join(missing)}. To install both: pip install jinja2 matplotlib")
    number = integer("top", (REVIEWED if review else LISTED) if top is None else top, 1)
    kept = KeptPreviews(run) if dataset is None and compare is None else None
    if review and (compare is not None or not (dataset is not None or kept)):
        raise PrunedataError(
            "Expected the data set of one run to be reviewed (--dataset, or dataset=), or previews that a run of "
            "prunedata watch has kept. Got "
            + ("two runs: leave out compare." if compare is not None else "neither: there is nothing to look at.")
        )
    told = progress or (lambda share, what: None)
    told(0.0, "reading")
    runs = [facts_of(run), *([] if compare is None else [facts_of(compare)])]
    if len({one.name for one in runs}) < len(runs):
        for one, place in zip(runs, ("first", "second"), strict=True):
            one.name = f"{one.name} ({place})"
    if dataset is not None and len({one.samples for one in runs}) > 1:
        raise PrunedataError(
            f"Expected two runs on the data set that is to be shown. Got runs of {runs[0].samples:,} and "
            f"{runs[1].samples:,} samples."
        )
    shown = (kept or None) if dataset is None else Previews(dataset, runs[0].samples, large=review)
    given = None if labels is None else checked_labels(labels, runs[0].samples)
    if review and shown is not None:
        judged = suspects_to_judge(runs[0], number, shown, given, told)
        found = Report(render([runs[0].name], review=judged), (runs[0].plain(),), scripted=True)
    else:
        found = _page(runs, number, shown, given, told)
    if output is not None:
        found.save(output)
    return found


def _page(
    runs: Sequence[RunFacts], top: int, shown: Previews | KeptPreviews | None, labels: Array | None, told: Progress
) -> Report:
    told(0.2, "suspects")
    values, names = (None, ()) if shown is None else shown.values()
    of_all = values if labels is None else labels
    found = tuple(run.plain() | {"suspects": run.suspects(top, of_all, names)} for run in runs)
    if labels is None and values is not None:
        labels = np.array(names, dtype=np.str_)[values] if names else values
    elif labels is None and shown is None:
        labels = runs[0].state.labels
    kept = isinstance(shown, KeptPreviews)
    views = [
        {
            "run": run,
            "plain": plain,
            "seen": {row["id"]: shown.of(row["id"]) for row in plain["suspects"]} if shown is not None else {},
            "classes": [] if labels is None or not run.observed else _classes(run, labels),
            "curve": curve(run, runs),
            "review": f"prunedata report {run.place} --review" + ("" if kept else " --dataset MODULE:NAME"),
        }
        for run, plain in zip(runs, found, strict=True)
    ]
    told(0.9, "page")
    return Report(render([run.name for run in runs], views=views, overlap=_overlap(*runs)), found)


def _classes(run: RunFacts, labels: Array) -> list[ClassShare]:
    """In which classes the most suspect tenth of the samples gathers."""
    ids = most_suspect(scores_of(run.state), run.visits, count_top(SUSPECT_SHARE, run.trainable))
    return concentration(labels, ids, searched(run.state))


def _overlap(first: RunFacts, second: RunFacts | None = None) -> str | None:
    """Return in words how far two runs suspect the same samples; None for one run."""
    if second is None:
        return None
    try:
        found = compare_runs(first.state, second.state)
    except PrunedataError as error:
        return f"Whether they suspect the same samples is not known. {error}"
    return (
        f"Of the {found.top:,} most suspect samples of each, {percent(found.jaccard)} of those in either are in both; "
        f"by chance it would be {percent(found.jaccard_by_chance)}."
    )
