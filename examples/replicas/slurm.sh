#!/bin/bash
# Four replicas on four nodes. Two minutes before the time is over Slurm sends SIGUSR1: all replicas save after the same step, and
# the job queues itself again.
#SBATCH --job-name=photos
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue

run="srun --mpi=pmix memfit train --threads $SLURM_CPUS_PER_TASK"
if [ -e runs/photos/last.json ]; then
  $run --resume runs/photos
else
  $run photos.toml --out runs/photos
fi
# 130: stopped and saved.
if [ $? -eq 130 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
