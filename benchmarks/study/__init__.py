"""The study: how accurate each way to choose samples is.

    python -m benchmarks.study.train      one run, added to benchmarks/study/results.jsonl.bz2
    python -m benchmarks.study.matrix     all runs behind the tables, likewise

Runs differ by network, data, kind of labels, arm and seed. An arm is a way to choose samples: one file in
benchmarks/study/arms, found by itself. benchmarks.pages makes tables and pictures of them.
"""
