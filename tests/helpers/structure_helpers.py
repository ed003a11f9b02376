"""What tests share with test_structure."""

import ast
import functools
import glob
import os

from conftest import ROOT

ROOT_MODULES = ("modeling", "tokenization", "optimization", "multigpu_optimizer")
BASE = (*ROOT_MODULES, "replication")
# These work on the labelled files of `tasks`.
ON_TASKS = ("augmentation", "rewriting", "distillation")
BELOW = ("runs", "encoder", "engine", "replication")
CAPABILITIES = {os.path.basename(os.path.dirname(path)) for path in glob.glob(
    os.path.join(ROOT, "*", "__init__.py"))} - {*BELOW, *ON_TASKS, "benchmarks"}
# Who may import whom, lowest first: a room imports rooms that stand before it.
MAY_IMPORT = {
    "replication": {"replication"},
    **{module: set(BASE) for module in ROOT_MODULES},
    "engine": {"engine", *BASE},
    "encoder": {"encoder", "engine", *BASE},
    "runs": {"runs", "encoder", "engine", *BASE},
    **{name: {name, *BELOW, *BASE} for name in CAPABILITIES},
    **{name: {name, "tasks", *BELOW, *BASE} for name in ON_TASKS},
    "run_classifier": {"tasks", *BELOW, *BASE},
    "run_squad": {"reading", "engine"},
    "extract_features": {"features", "runs", "encoder", "engine", *BASE},
}
ROOMS = set(MAY_IMPORT)


@functools.lru_cache(maxsize=None)
def nodes_of(name):
    """All nodes of a file's syntax."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return list(ast.walk(ast.parse(file.read(), name)))


def imported_rooms(name):
    for node in nodes_of(name):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        yield from (module.split(".")[0] for module in modules if module.split(".")[0] in ROOMS)
