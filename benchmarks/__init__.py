"""What measures the library, and what its pages stand on: run from a checkout, never shipped.

    python -m benchmarks                       lists the rooms, and what each command writes
    python -m benchmarks.size                  lines and files of each room, and a clone's size, beside their limits

What measures the library:

    python -m benchmarks.overhead              what the library itself costs
    python -m benchmarks.overhead.dealing      what a batch costs that comes from a dealer
    python -m benchmarks.overhead.watching     what prunedata watch adds to a step, in each trainer
    python -m benchmarks.overhead.exchange     what ranks tell each other at the end of an epoch
    python -m benchmarks.report                how long the report of a run takes
    python -m benchmarks.streams               what pruning saves on a stream
    python -m benchmarks.scale                 what a run of up to a billion samples takes: memory, time, store
    python -m benchmarks.faults                kills, power cuts and other attacks: nothing may be lost or wrong
    python -m benchmarks.faults.training.dealt workers and a dealer that are killed: each sample is visited once
    python -m benchmarks.gpu                   what a GPU is needed for, within a budget of seconds
    python -m benchmarks.mutants               small changes of the core: do the tests notice?

What reproduces papers and evidence:

    python -m benchmarks.demo                  what pruning saves on real images, as `make demo`
    python -m benchmarks.study.train           one run of the study of accuracy
    python -m benchmarks.study.matrix          all runs of the study
    python -m benchmarks.frontier              accuracy against visits: every length of regular and of pruned training
    python -m benchmarks.distributed           the study's cluster: by a model, and training in its three modes
    python -m benchmarks.frontier.questions.early what losses show of wrong labels after one, two and three epochs
    python -m benchmarks.frontier.questions.folds whether rows of folds are judged by networks that trained on them
    python -m benchmarks.pages                 brings the tables of docs/ up to date
    python -m benchmarks.pages.pictures        draws the pictures of docs/
    python -m benchmarks.pages.wrong_labels    prints how well runs find wrong labels
    python -m benchmarks.pages.overlap         prints whether runs suspect the same samples

Beside these, benchmarks.common has what rooms share, and benchmarks.slurm scripts for Slurm. Each command takes
``--help``. Runs that a room has recorded are its ``results.jsonl.bz2``, which benchmarks.common.records reads and
writes. A new benchmark is a new folder with a ``__main__.py`` and a line here, or a new file in a room; a new arm of
the study is a new file in benchmarks/study/arms.
"""
