"""For those who write an adapter or a policy: what each has to keep, as checks; and values for property tests.

``check_adapter`` and ``check_policy`` need numpy alone. The hypothesis strategies are in
:mod:`prunedata.testing.strategies`, which needs hypothesis.
"""

from prunedata.testing.case import BrokenContract, Case, SkippedClause, losses_of
from prunedata.testing.clauses import CLAUSES, check_adapter
from prunedata.testing.policy import BrokenPolicy, check_policy

__all__ = [
    "CLAUSES", "BrokenContract", "BrokenPolicy", "Case", "SkippedClause", "check_adapter", "check_policy", "losses_of",
]  # fmt: skip
