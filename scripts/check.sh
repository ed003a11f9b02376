#!/usr/bin/env bash
# Runs the linter, then the tests, in the environment that environment.sh finds or makes.
#
#   scripts/check.sh                      all of them
#   scripts/check.sh -k equivalence       pytest's own arguments
#   PYTHON=python3.7 scripts/check.sh     on TensorFlow 1.15
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

use_environment
require tests/requirements.txt hypothesis pytest ruff
"$python" -m ruff check --config scripts/ruff.toml
PYTHON=$python exec scripts/test.sh "$@"
