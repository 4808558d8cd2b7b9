#!/usr/bin/env bash
# Ranks on one node, started by torchrun:  sbatch torchrun.sh python train.py
#SBATCH --job-name=prunedata
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --output=%x-%j.out
# For GPUs add --gpus-per-node=4, here or behind sbatch.
set -euo pipefail

torchrun --standalone --nproc-per-node="${RANKS_PER_NODE:-4}" --no-python "$@"
