"""What tests share with test_structure."""

import ast
import glob
import os

from conftest import ROOT

ROOT_MODULES = ("modeling", "graph_functions", "tokenization", "optimization", "multigpu_optimizer",
                "gradient_exchange", "replica_copies")
# These work on the labelled files of `tasks`.
ON_TASKS = ("augmentation", "rewriting", "distillation")
BELOW = ("runs", "encoder", "engine")
CAPABILITIES = {os.path.basename(os.path.dirname(path)) for path in glob.glob(
    os.path.join(ROOT, "*", "__init__.py"))} - {*BELOW, *ON_TASKS, "benchmarks"}
# Who may import whom, lowest first: a room imports rooms that stand before it.
MAY_IMPORT = {
    **{module: set(ROOT_MODULES) for module in ROOT_MODULES},
    "engine": {"engine", *ROOT_MODULES},
    "encoder": {"encoder", "engine", *ROOT_MODULES},
    "runs": {"runs", "encoder", "engine", *ROOT_MODULES},
    **{name: {name, *BELOW, *ROOT_MODULES} for name in CAPABILITIES},
    **{name: {name, "tasks", *BELOW, *ROOT_MODULES} for name in ON_TASKS},
    "run_classifier": {"tasks", *BELOW, *ROOT_MODULES},
    "run_squad": {"reading", "engine"},
    "extract_features": {"features", "runs", "encoder", "engine", *ROOT_MODULES},
}
ROOMS = set(MAY_IMPORT)


def syntax_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return ast.parse(file.read(), name)


def imported_rooms(name):
    for node in ast.walk(syntax_of(name)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        yield from (module.split(".")[0] for module in modules if module.split(".")[0] in ROOMS)
