#!/bin/sh
#SBATCH --job-name=sweep --array=1-20
#SBATCH --cpus-per-task=4 --time=10
# One element of a parameter sweep: a whole host of the tour's cloud for five minutes.
echo "element $PHOENIX_ARRAY_TASK_ID on $PHOENIX_NODELIST"
sleep 300
