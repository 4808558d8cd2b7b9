"""The report of a run, from its store or from the run itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import integer
from prunedata.errors import PrunedataError
from prunedata.findings.searched import Stateful
from prunedata.reporting.drawing.markup import escape
from prunedata.reporting.facts import facts_of
from prunedata.reporting.page import Progress, page
from prunedata.reporting.previews import Previews
from prunedata.reporting.review.page import review_page
from prunedata.store.run_store import StoreLike
from prunedata.types import Array

__all__ = ["Report", "report"]

LISTED, REVIEWED = 12, 500
"""Samples on a page if nobody says how many."""


class Report:
    """A report: one page of HTML, which loads nothing. In a notebook it shows itself.

    Attributes
    ----------
    html : str
        The page.
    """

    def __init__(self, html: str, *, scripted: bool = False) -> None:
        self.html, self._scripted = html, scripted

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
    """Return the report of a run: its schedule, losses, times and counts, what was left out, and what is advised.

    Parameters
    ----------
    run : path, URL, zarr store or Pruner
        The store of a run, which may be running, or the run itself.
    output : path, optional
        Where to write the page; without it use :meth:`Report.save`.
    compare : path, URL, zarr store or Pruner, optional
        Another run, to be put beside it.
    dataset : sequence, optional
        The data set that was trained on: ``dataset[id]`` is an image, a text, a tuple of datum and label, or a mapping.
        The most suspect samples are then shown, with class names where the data set has ``classes`` or ``features``.
    labels : array of int or str, shape (samples,), optional
        The labels, to see in which classes suspects gather. Otherwise those that the data set lists.
    top : int, optional
        How many samples to list, at least 1: 12, or with `review` 500.
    review : bool
        Return another page instead: one that shows the most suspect samples one by one, takes by keys whether each
        label is wrong, and saves that as a file for ``prunedata apply`` and ``Pruner(without=)``. It needs `dataset`,
        and runs a script of its own in the browser.
    progress : callable, optional
        Called as ``progress(share, what)``: the share that is done, from 0 to 1, and what comes next.

    Raises
    ------
    PrunedataError
        If no run is there, or it is damaged, or the data set is another one.
    """
    number = integer("top", (REVIEWED if review else LISTED) if top is None else top, 1)
    if review and (dataset is None or compare is not None):
        raise PrunedataError(
            "Expected one run and its data set to be reviewed. Got "
            + ("no data set: there is nothing to look at." if dataset is None else "two runs: leave out compare.")
        )
    _tell(progress, 0.0, "reading")
    runs = [facts_of(run)]
    if compare is not None:
        runs.append(facts_of(compare))
        if runs[0].name == runs[1].name:
            for one, place in zip(runs, ("first", "second"), strict=True):
                one.name = f"{one.name} ({place})"
    samples = runs[0].samples
    shown = None
    if dataset is not None:
        if len({one.samples for one in runs}) > 1:
            raise PrunedataError(
                f"Expected two runs on the data set that is to be shown. Got runs of {samples:,} and "
                f"{runs[1].samples:,} samples."
            )
        shown = Previews(dataset, samples, large=review)
    known = shown.labels() if labels is None and shown is not None else _checked(labels, samples)
    later = None if progress is None else lambda share, what: progress(0.2 + 0.8 * share, what)
    if review and shown is not None:
        found = Report(review_page(runs[0], number, shown, _checked(labels, samples), later), scripted=True)
    else:
        found = Report(page(runs, version=_version(), top=number, shown=shown, labels=known, progress=later))
    if output is not None:
        found.save(output)
    return found


def _checked(labels: npt.ArrayLike | None, samples: int) -> Array | None:
    if labels is None:
        return None
    found = np.asarray(labels)
    if found.shape != (samples,) or found.dtype.kind not in "iuU":
        raise PrunedataError(
            f"Expected labels of shape ({samples},), integers or text. Got shape {found.shape}, {found.dtype}."
        )
    return found


def _tell(progress: Progress | None, share: float, what: str) -> None:
    if progress is not None:
        progress(share, what)


def _version() -> str:
    try:
        return version("prunedata")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0+unknown"
