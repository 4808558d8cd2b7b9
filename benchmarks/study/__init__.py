"""The study: how accurate each way to choose samples is, over networks, data, kinds of labels and seeds.

    python -m benchmarks.study.train      one run: a JSON file in benchmarks/results
    python -m benchmarks.study.matrix     all runs behind the tables: a JSON file each

A way to choose samples is an arm: one file in benchmarks/study/arms, found by itself. benchmarks.pages makes tables and
pictures of the JSON files.
"""
