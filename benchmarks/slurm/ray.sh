#!/usr/bin/env bash
# One Ray cluster over several nodes, and the program once, on the first:  sbatch ray.sh python train.py
#SBATCH --job-name=prunedata
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --exclusive
#SBATCH --output=%x-%j.out
# Exclusive, as symmetric-run ends with `ray stop`, which stops all of its user's Ray processes on a node.
# For GPUs add --gpus-per-node=4, here or behind sbatch: Ray finds them.
set -euo pipefail

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}" # another for each job, as jobs may share a node
if (: < "/dev/tcp/${hosts[0]}/$port") 2> /dev/null; then
    echo "Expected a free port on ${hosts[0]}. Got $port, which is in use: MASTER_PORT=another sbatch ..." >&2
    exit 1
fi

srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    ray symmetric-run --address="${hosts[0]}:$port" --min-nodes="$SLURM_JOB_NUM_NODES" \
    --num-cpus="${SLURM_CPUS_PER_TASK:-1}" -- "$@"
