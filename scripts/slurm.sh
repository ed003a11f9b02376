#!/usr/bin/env bash
# Trains on several machines of a SLURM cluster: a job whose step has one process on each machine.
#
#   sbatch --nodes=2 --gpus-per-node=8 scripts/slurm.sh run_classifier.py --do_train ...
#
# Submit it in the repository, with sbatch's own flags (--partition, --time, --account, ...) in
# front, and a script or `-m MODULE` with its flags behind. Every machine must see the repository,
# the data and the output directory under the same path.
#
#   --ntasks-per-node=8 --gpus-per-task=1   a process for each card, in place of --gpus-per-node
#   PYTHON=...                              the interpreter, by default python
#   RESTARTS=...                            how often to start again after a loss, by default 3
#
#SBATCH --job-name=bert
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# Workers save the step that they are in, if they are told some time before the limit.
#SBATCH --signal=TERM@120
set -uo pipefail

python=${PYTHON:-python}
restarts=${RESTARTS:-3}

# The addresses of the processes, in the order of their numbers. Their ports are above those of common
# services, below Linux's ephemeral ports, and unlikely to be those of other jobs on the machine.
first_port=$((16384 + SLURM_JOB_ID % 256 * 64))
addresses=
for host in $(scontrol show hostnames "$SLURM_NODELIST"); do
  for ((local = 0; local < SLURM_NTASKS_PER_NODE; local++)); do
    addresses+="${addresses:+, }\"$host:$((first_port + local))\""
  done
done
export cluster="{\"worker\": [$addresses]}"
worker='TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}" \
  exec "$@"'

for ((restart = 0; ; restart++)); do
  # Workers end by themselves where one has failed, and say why; srun is not to end them before.
  srun --kill-on-bad-exit=0 --distribution=block --label bash -c "$worker" bash "$python" "$@"
  status=$?
  # Below 128 a restart mends nothing; 143 is the signal above, or scancel.
  if ((status < 128 || status == 143 || restart == restarts)); then exit "$status"; fi
  echo "status $status: starting again from the last checkpoint, restart $((restart + 1)) of $restarts" >&2
done
