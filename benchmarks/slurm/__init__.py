"""Batch scripts for Slurm; docs/frameworks/distributed.md says when to take which.

sbatch torchrun.sh python train.py         one node: torchrun starts its ranks
sbatch srun_torchrun.sh python train.py    several nodes: srun starts a torchrun on each
sbatch srun.sh python train.py             several nodes: srun starts every rank itself
sbatch ray.sh python train.py              several nodes of one Ray cluster: workers that go at their own pace
"""
