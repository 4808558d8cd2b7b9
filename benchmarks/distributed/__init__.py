"""Training on a cluster, after the study of 2017 (Campos et al., Distributed training strategies).

python -m benchmarks.distributed model     prints the tables in docs/frameworks/scale.md: the study's, by a model
python -m benchmarks.distributed train     trains in one of the study's modes, sync, async or mixed; prints JSON
python -m benchmarks.distributed tables    what was recorded of them, beside the study's Tables 1 to 3
python -m benchmarks.distributed figures   the same as its Figures 1 to 3; writes docs/frameworks/modes.png
"""
