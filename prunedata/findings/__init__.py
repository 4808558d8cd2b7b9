"""Findings about the data of a run: suspects, advice, comparisons, verdicts."""
