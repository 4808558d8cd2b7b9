"""Checks for authors: ``check_adapter`` holds an adapter, and ``check_policy`` a policy, to what a run relies on."""

from prunedata.testing.case import BrokenContract, Case, SkippedClause, losses_of
from prunedata.testing.clauses import CLAUSES, check_adapter
from prunedata.testing.policy import BrokenPolicy, check_policy

__all__ = [
    "CLAUSES", "BrokenContract", "BrokenPolicy", "Case", "SkippedClause", "check_adapter", "check_policy", "losses_of",
]  # fmt: skip
