#!/bin/sh
#SBATCH --job-name=saved --time=10
# Counts to 60 and saves each tenth step: an attempt that loses its host goes on from the last one that was saved.
step=0
[ -n "$PHOENIX_CHECKPOINT" ] && step=$(cat step) && echo "going on at step $step, saved by attempt $PHOENIX_CHECKPOINT_ATTEMPT"
while [ "$step" -lt 60 ]; do
    sleep 1
    step=$((step + 1))
    [ $((step % 10)) -eq 0 ] && echo "$step" >step && phoenix checkpoint step
done
echo "done: $step steps"
