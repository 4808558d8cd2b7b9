"""The contract of an adapter: its clauses by name, and the check of all of them."""

from collections.abc import Callable, Mapping
from typing import Any

from prunedata.run.pruner import Pruner
from prunedata.testing import samples, training
from prunedata.testing.case import Case, Loader, SkippedClause

CLAUSES: Mapping[str, Callable[[Case], None]] = {
    "ids": samples.check_ids,
    "masks": samples.check_masks,
    "once": samples.check_once,
    "frozen": samples.check_frozen,
    "resume": samples.check_resume,
    "truncation": samples.check_truncation,
    "reports": samples.check_reports,
    "left out": samples.check_left_out,
    "endless": samples.check_endless,
    "structure": training.check_structure,
    "weights": training.check_weights,
    "records": training.check_records,
    "parity": training.check_parity,
    "attached once": training.check_attached_once,
    "empty": samples.check_empty_worker,
}
"""Each clause by its name, for ``pytest.mark.parametrize``: a function of a :class:`Case`.

It raises :class:`BrokenContract`, or :class:`SkippedClause` if the case lacks what it needs.
"""


def check_adapter(make_loader: Callable[[Pruner, int], Loader], **options: Any) -> dict[str, str]:
    """Hold an adapter to every clause of its contract.

    Parameters
    ----------
    make_loader : callable
        ``make_loader(pruner, workers)`` returns what a user iterates in each epoch: see :class:`Case`.
    **options
        The other attributes of :class:`Case`, such as ``samples``, ``workers`` and ``read``.

    Returns
    -------
    dict of str to str
        The clauses that could not be checked, each with what it lacks.

    Raises
    ------
    BrokenContract
        An AssertionError that names the first clause that is broken, what was expected, and what came.
    """
    case, skipped = Case(make_loader, **options), {}
    for clause, check in CLAUSES.items():
        try:
            check(case)
        except SkippedClause as lacking:
            skipped[clause] = lacking.why
    return skipped
