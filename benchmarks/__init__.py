"""The demo, the benchmarks, and the study of accuracy: run from a checkout, never shipped.

    python -m benchmarks                       lists the rooms, and what each command writes
    python -m benchmarks.demo                  what pruning saves on real images, as `make demo`
    python -m benchmarks.overhead              what the library itself costs
    python -m benchmarks.overhead.dealing      what a batch costs that comes from a dealer
    python -m benchmarks.overhead.exchange     what ranks tell each other at the end of an epoch
    python -m benchmarks.streams               what pruning saves on a stream
    python -m benchmarks.report                how long the report of a run takes
    python -m benchmarks.faults                kills, power cuts and other attacks: nothing may be lost or wrong
    python -m benchmarks.faults.training.dealt workers and a dealer that are killed: each sample is visited once
    python -m benchmarks.mutants               small changes of the core: do the tests notice?
    python -m benchmarks.study.train           one run of the study
    python -m benchmarks.study.matrix          all runs of the study
    python -m benchmarks.frontier              accuracy against visits: every length of regular and of pruned training
    python -m benchmarks.distributed           the study's cluster: by a model, and training in its three modes
    python -m benchmarks.scale                 what a run of up to a billion samples takes: memory, time, store
    python -m benchmarks.pages                 brings the tables of docs/ up to date
    python -m benchmarks.pages.pictures        draws the pictures of docs/
    python -m benchmarks.pages.wrong_labels    prints how well runs find wrong labels
    python -m benchmarks.pages.overlap         prints whether runs suspect the same samples

Each takes ``--help``. Results of the study are in benchmarks/results. A new benchmark is a new folder with a
``__main__.py``, or a new file in a room; a new arm of the study is a new file in benchmarks/study/arms.
"""
