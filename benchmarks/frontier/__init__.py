"""Accuracy against visits: regular training of every length beside pruned training of every length.

python -m benchmarks.frontier run         adds runs to benchmarks/frontier/results.jsonl.bz2, and goes on where it stood
python -m benchmarks.frontier summary     prints a line for each subject, with --page into docs/evidence/frontier.md
python -m benchmarks.frontier limits      prints what other ways to go after the onset bring
python -m benchmarks.frontier.questions.mixed         prints how mixup is best recorded
python -m benchmarks.frontier.questions.worst_tokens  prints whether a text is better judged by its worst tokens
python -m benchmarks.frontier table       prints every point, with --page into docs/evidence/frontier-tables.md
python -m benchmarks.frontier picture     draws docs/pictures/frontier-head.png
"""
