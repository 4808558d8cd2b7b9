"""For those who write an adapter or build on the library: its contract as checks, its values as strategies.

``check_adapter`` and the clauses need numpy alone. The hypothesis strategies are in
:mod:`prunedata.testing.strategies`, which needs hypothesis.
"""

from prunedata.testing.clauses import (
    CLAUSES,
    check_adapter,
    check_empty_worker,
    check_frozen,
    check_ids,
    check_masks,
    check_once,
    check_parity,
    check_resume,
    check_structure,
    check_truncation,
)
from prunedata.testing.passes import BrokenContract, Case, losses_of

__all__ = [
    "CLAUSES",
    "BrokenContract",
    "Case",
    "check_adapter",
    "check_empty_worker",
    "check_frozen",
    "check_ids",
    "check_masks",
    "check_once",
    "check_parity",
    "check_resume",
    "check_structure",
    "check_truncation",
    "losses_of",
]
