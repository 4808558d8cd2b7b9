#!/usr/bin/env bash
# Ranks on several nodes, each started by srun itself:  sbatch srun.sh python train.py
#SBATCH --job-name=prunedata
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --output=%x-%j.out
# For GPUs add --gpus-per-node=4, here or behind sbatch.
set -euo pipefail

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}" # another for each job, as jobs may share a node
if (: < "/dev/tcp/${hosts[0]}/$port") 2> /dev/null; then
    echo "Expected a free port on ${hosts[0]}. Got $port, which is in use: MASTER_PORT=another sbatch ..." >&2
    exit 1
fi
export MASTER_ADDR="${hosts[0]}" MASTER_PORT="$port"

# Slurm tells each process which it is, and torch.distributed looks for that under names of its own.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" bash -c '
    export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"
    exec "$@"
' rank "$@"
