# shellcheck shell=bash
# Finds or makes the Python environment that the other scripts run in. Sourced, not run.
#
# `use_environment` sets $python to the interpreter of
#   1. the one that PYTHON=... names, where it has a supported TensorFlow, or else an
#      environment in the repository that is made with it;
#   2. the active environment as it is, where it has a supported TensorFlow (in a container
#      of NVIDIA's, say);
#   3. an environment in the repository, made with the first of Python 3.11, 3.10, 3.9, 3.7, or
#      with a Python 3.11 that uv brings where there is none of them, if uv is there.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=      # the interpreter to run
environment= # the directory of an environment of ours; empty where $python is used as it is

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 2
}

use_environment() {
  local base=${PYTHON:-}
  local -a candidates=(python3 python)
  if [[ -n $base ]]; then candidates=("$base"); fi
  for python in "${candidates[@]}"; do
    python=$(type -P "$python") || continue
    [[ $python == /* ]] || python=$PWD/$python
    if has_supported_tensorflow "$python"; then break; fi
    python=
  done
  if [[ -z $python ]]; then
    [[ -n $base ]] || base=$(find_python 3.11 3.10 3.9 3.7) || base=$(bring_python) || exit 2
    use_own_environment "$base"
  fi
  require "$repository/requirements.txt" absl jinja2 numpy safetensors six sklearn tqdm
}

# use_own_environment PYTHON: the repository's environment for its version.
use_own_environment() {
  local version
  version=$(python_version "$1") || fail "PYTHON=$1 is no program that runs as Python"
  [[ " 3.7 3.9 3.10 3.11 " == *" $version "* ]] || fail "PYTHON=$1 is Python $version: TensorFlow" \
    "1.15 needs Python 3.7, TensorFlow 2.15 needs 3.9, 3.10 or 3.11"
  environment=$repository/.venv-$version
  # Two scripts started together must not make it at the same time.
  exec 9>> "$repository/scripts/environment.sh"
  if type -P flock >/dev/null; then flock 9; fi
  make_environment "$1" "$environment"
  exec 9>&-
  python=$environment/bin/python
}

# make_environment PYTHON DIRECTORY: an environment that has requirements.txt, and CUDA where a
# card of NVIDIA's answers; at once where it is there, anew where it is half-made or outdated.
make_environment() {
  if [[ ! -f $(stamp "$2" -r "$repository/requirements.txt") ]]; then
    rm -rf "$2"
    "$1" -m venv "$2" || fail "$1 cannot make environments; install its venv module"
    install "$2" "pip>=20.3" # older ones do not know the wheels of today
    install "$2" -r "$repository/requirements.txt"
  fi
  if [[ $(python_version "$1") != 3.7 ]] && nvidia-smi -L >/dev/null 2>&1; then
    install "$2" "tensorflow[and-cuda]==2.15.1"
  fi
}

# require FILE MODULE...: sees to it that the environment has the requirements of FILE, which
# are these modules. One that is used as it is stays as it is.
require() {
  local missing
  if [[ -n $environment ]]; then
    install "$environment" -r "$1"
    return
  fi
  missing=$("$python" -c 'import importlib.util, sys
print(*[name for name in sys.argv[1:] if not importlib.util.find_spec(name)])' "${@:2}")
  [[ -z $missing ]] || fail "$python has its own TensorFlow but lacks ${missing// /, }:" \
    "install what $1 names, but TensorFlow"
}

# install DIRECTORY ARGUMENT...: what pip shall install there; at once where it has done so.
install() {
  local marker
  marker=$(stamp "$@")
  if [[ -f $marker ]]; then return; fi
  say "Installing into ${1#"$repository"/}: ${*:2}"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" ||
    fail "pip could not install ${*:2}; its lines above say why"
  touch "$marker"
}

# stamp DIRECTORY ARGUMENT...: prints the file that says that pip has installed this there; another
# one when a file of requirements changes.
stamp() {
  { printf '%s\n' "${@:2}" && cat "$repository"/{,*/}requirements.txt; } | cksum |
    { read -r sum _ && printf '%s\n' "$1/installed-$sum"; }
}

# find_python VERSION...: prints an interpreter of the first of these that can make environments.
find_python() {
  local version candidate
  for version in "$@"; do
    while read -r candidate; do
      # Found is not enough: a version manager's shim may lead nowhere.
      if [[ $(python_version "$candidate") == "$version" ]] &&
          "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        printf '%s\n' "$candidate"
        return
      fi
    done < <(type -aP "python$version" || true
      compgen -G "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version*/bin/python$version")
  done
  return 1
}

# bring_python: prints the Python 3.11 that uv has, or brings; fails where there is no uv.
bring_python() {
  type -P uv >/dev/null || fail "there is no Python here that TensorFlow supports: install Python" \
    "3.11 (or 3.10, 3.9; 3.7 for TensorFlow 1.15) with its venv module, or uv, which brings one, or" \
    "name an interpreter with PYTHON=..."
  UV_PYTHON_INSTALL_BIN=0 uv python install --quiet 3.11 >&2 ||
    fail "uv could not bring Python 3.11; its lines above say why"
  UV_PYTHON_PREFERENCE=only-managed uv python find 3.11
}

# has_supported_tensorflow PYTHON: looks at its version's header, since starting TensorFlow takes seconds.
has_supported_tensorflow() {
  "$1" -c 'import glob, importlib.util, os, re, sys
folder = os.path.dirname(importlib.util.find_spec("tensorflow").origin)
header, = glob.glob(glob.escape(folder) + "*/include/tensorflow/core/public/version.h")
found = re.findall("define TF_M..OR_VERSION ([0-9]+)", open(header).read())
sys.exit(found not in (["1", "15"], ["2", "15"]))' >/dev/null 2>&1
}

# python_version PYTHON: prints 3.11, say; fails where it does not run.
python_version() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}
