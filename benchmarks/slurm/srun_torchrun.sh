#!/usr/bin/env bash
# Ranks on several nodes, on each started by a torchrun of its own:  sbatch srun_torchrun.sh python train.py
#SBATCH --job-name=prunedata
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --output=%x-%j.out
# For GPUs add --gpus-per-node=4, here or behind sbatch.
set -euo pipefail

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}" # another for each job, as jobs may share a node
if (: < "/dev/tcp/${hosts[0]}/$port") 2> /dev/null; then
    echo "Expected a free port on ${hosts[0]}. Got $port, which is in use: MASTER_PORT=another sbatch ..." >&2
    exit 1
fi

# The number of its node is known to each torchrun, and not here. By a number torchrun does not guess from names of
# hosts which of them is the first, which fails where names and addresses don't agree.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    bash -c 'exec torchrun --node-rank="$SLURM_NODEID" "$@"' torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="${RANKS_PER_NODE:-4}" \
    --master-addr="${hosts[0]}" --master-port="$port" --no-python "$@"
