#!/bin/sh
#SBATCH --job-name=hello
#SBATCH --cpus-per-task=2 --time=5
echo "job $PHOENIX_JOB_ID of $PHOENIX_USER: $PHOENIX_CPUS cores on $PHOENIX_NODELIST"
