#!/usr/bin/env bash
# Runs the tests, in the environment that environment.sh finds or makes.
#
#   scripts/test.sh                      all tests
#   scripts/test.sh --fast               those that are not marked slow: under three minutes
#   scripts/test.sh -k equivalence       pytest's own arguments
#   PYTHON=python3.7 scripts/test.sh     on TensorFlow 1.15
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

if [[ ${1:-} == --fast ]]; then
  shift
  set -- -m "not slow" --durations=5 "${@:-tests}"
fi
use_environment
require tests/requirements.txt hypothesis pytest
exec "$python" -m pytest "${@:-tests}"
