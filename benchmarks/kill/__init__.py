"""A training that is killed again and again: nothing of it may be torn or lost.

python -m benchmarks.kill     prints how many runs were torn, lost or different

The exit status is 1 if any was. ``--way`` says from what a run is resumed: its store, or a checkpoint.
"""
