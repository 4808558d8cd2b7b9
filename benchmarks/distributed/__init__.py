"""Training on a cluster, after the study of 2017 (Campos et al., Distributed training strategies).

python -m benchmarks.distributed model     prints the tables in docs/scale.md: the study's Tables 1 and 2 by a model
"""
