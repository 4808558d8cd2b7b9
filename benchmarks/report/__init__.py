"""How long the report of a run takes, beside reading its store.

python -m benchmarks.report     prints the table in docs/report.md, "Speed"
"""
