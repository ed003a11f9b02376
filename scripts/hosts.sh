#!/usr/bin/env bash
# Trains on several machines: starts a worker on each of them over ssh.
#
#   scripts/hosts.sh a,b run_classifier.py --do_train ...
#
# Run it in the repository, on the first of the machines, with a script or `-m MODULE` and its flags behind. ssh
# must reach the others without a password and find the repository, the interpreter and the data there under
# the same paths. With localhost,localhost two workers run here.
#
#   PYTHON=...     the interpreter, by default python
#   PORT=...       of the first worker, by default 29400; the others have the following ones
#   RESTARTS=...   how often to start again after a loss, by default 3
set -uo pipefail

fail() {
  echo "error: $*" >&2
  exit 2
}

(($# > 1)) || fail "give the machines, separated by commas, then a script and its flags"
python=$(type -P "${PYTHON:-python}") || fail "PYTHON=${PYTHON:-python} is no program"
restarts=${RESTARTS:-3}
IFS=, read -ra hosts <<< "$1"
shift
addresses=
for index in "${!hosts[@]}"; do
  addresses+="${addresses:+, }\"${hosts[index]#*@}:$((${PORT:-29400} + index))\""
done

over_ssh() {
  ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=8 -- "$1" bash -s
}

# wait_for HOST SECONDS: until ssh reaches it, with the folder and the interpreter.
wait_for() {
  local end=$((SECONDS + $2))
  until printf 'cd %q && %q -c ""' "$PWD" "$python" | over_ssh "$1"; do
    ((SECONDS < end)) || fail "no worker can be started on $1: ssh must reach it without a password, and find" \
      "$PWD and $python there"
    sleep 5
  done
}

# config_of INDEX: a worker's TF_CONFIG.
config_of() {
  echo "{\"cluster\": {\"worker\": [$addresses]}, \"task\": {\"type\": \"worker\", \"index\": $1}}"
}

# worker INDEX COMMAND...: runs a worker, here or over ssh. There it gets the variables that name libraries and cards.
# All goes through standard input, since everybody on a machine sees command lines.
worker() {
  local index=$1 host=${hosts[$1]}
  shift
  if [[ $host == localhost ]]; then
    TF_CONFIG=$(config_of "$index") "$python" "$@"
  else
    {
      export -p | grep -E '^declare -x ((CUDA|NCCL)_[A-Z0-9_]*|(LD_LIBRARY_|PYTHON)PATH|XLA_FLAGS)='
      printf 'cd %q && export TF_CONFIG=%q && exec' "$PWD" "$(config_of "$index")"
      printf ' %q' "$python" "$@"
      echo ' < /dev/null'
    } | over_ssh "$host"
  fi 2>&1 | sed -u "s/^/[$host:$index] /"
}

chief= signalled=
# The chief tells the others, and all save their step. A trap can run before the chief's number is known.
trap 'if [[ $chief ]]; then signalled=1; else exit 143; fi' INT TERM
for ((restart = 0; ; restart++)); do
  for host in "${hosts[@]:1}"; do
    if [[ $host != localhost ]]; then wait_for "$host" $((restart ? 300 : 0)); fi
  done
  chief=starting
  TF_CONFIG=$(config_of 0) "$python" "$@" &
  chief=$!
  for ((index = 1; index < ${#hosts[@]}; index++)); do
    worker "$index" "$@" &
  done
  # A trap must not interrupt `wait`: bash then can lose the chief's status.
  while kill -0 "$chief" 2> /dev/null; do
    if [[ $signalled ]]; then
      signalled=
      kill -TERM "$chief" 2> /dev/null
    fi
    sleep 0.2
  done
  wait "$chief"
  status=$?
  chief=
  # The others end by themselves, and say why; ssh notices within two minutes that a machine is gone.
  for ((waited = 0; waited < 1500; waited++)); do
    if [[ -z $(jobs -r) ]]; then break; fi
    sleep 0.1
  done
  kill $(jobs -rp) 2> /dev/null
  # Below 128 a restart mends nothing; 130 and 143 are the signals above.
  if ((status < 128 || status == 130 || status == 143 || restart == restarts)); then exit "$status"; fi
  echo "status $status: starting again from the last checkpoint, restart $((restart + 1)) of $restarts" >&2
done
