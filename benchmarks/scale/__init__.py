"""What a run of up to a billion samples takes: memory, time, bytes in the store, bytes between ranks.

python -m benchmarks.scale run         measures runs of some sizes, each in a process of its own; records them
python -m benchmarks.scale exchange    measures what two ranks exchange at the end of an epoch; records it
python -m benchmarks.scale table       prints the tables in docs/frameworks/scale.md
"""
