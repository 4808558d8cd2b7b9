"""How long the report of a run takes, beside reading its store.

python -m benchmarks.report     prints the table in docs/tools/report.md, "Speed"
"""
