"""The rules between the rooms: imports point one way, and each framework object has one owner."""

import ast
import functools
import os
import subprocess
import sys

import pytest

from conftest import ROOT
from encoder import task_json
from runs import kinds
from structure_helpers import BASE, MAY_IMPORT, ROOMS, ROOT_MODULES, imported_rooms, nodes_of


@functools.lru_cache(maxsize=None)
def python_files():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                             "*.py"], cwd=ROOT, stdout=subprocess.PIPE, universal_newlines=True)
    names = [name for name in listed.stdout.split("\n") if name]
    if listed.returncode or not names:
        pytest.skip("not a git checkout")
    return names


def room_of(name):
    first = name.split(os.sep)[0]
    return first[:-len(".py")] if first.endswith(".py") else first


def files_with(condition):
    """The files of the rooms that have a node of syntax for which this holds."""
    return {name for name in python_files() if room_of(name) in ROOMS
            and any(map(condition, nodes_of(name)))}


def test_imports_point_one_way():
    wrong = [f"{name} imports {imported}" for name in python_files()
             if room_of(name) in ROOMS
             for imported in imported_rooms(name)
             if imported not in MAY_IMPORT[room_of(name)]]
    assert not wrong


def test_imports_within_the_engine_point_one_way():
    folders = ["disk", "checkpoints", "workers", "devices", "data", "training", "cli"]  # lowest first
    wrong = []
    for name in (name for name in python_files() if name.startswith("engine/") and name.count("/") == 2):
        imported = {node.module.split(".")[1] for node in nodes_of(name)
                    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("engine.")}
        above = folders[folders.index(name.split("/")[1]) + 1:]
        wrong += [f"{name} imports engine.{folder}" for folder in imported.intersection(above)]
    assert not wrong


OWNERS = {
    "MirroredStrategy": {"engine/devices/devices.py"},
    "MultiWorkerMirroredStrategy": {"engine/devices/devices.py"},
    "Estimator": {"engine/training/loop.py"},
    # The second makes specs for the Estimators of other programs.
    "EstimatorSpec": {"engine/training/loop.py", "tasks/google_interface.py"},
    # Imports do not show what this loads.
    "import_module": {"runs/kinds.py"},
    "contrib": set()}


def test_a_framework_object_has_one_owner():
    for attribute, owners in OWNERS.items():
        assert files_with(
            lambda node: isinstance(node, ast.Attribute) and node.attr == attribute) == owners, attribute


def test_capabilities_are_named_by_the_table_of_kinds_and_by_themselves_alone():
    """The names of the kinds are in encoder/task_json.py; of other modules, the strings mean something else."""
    owners = {kind: path.split(".")[0] for kind, path in kinds.CLASSES.items()
              if kind not in task_json.LABEL_TYPES}
    constants = {name: value for name, value in vars(task_json).items() if value in list(owners)}
    assert set(constants.values()) == set(owners)

    def named(node):
        value = getattr(node, "value", getattr(node, "s", None))  # .s: Python 3.7
        if isinstance(node, ast.Attribute):
            return constants.get(node.attr)
        return value if isinstance(value, str) and value in owners else None

    naming = {(name, named(node)) for name in python_files() if room_of(name) in ROOMS
              for node in nodes_of(name) if named(node) and room_of(name) != owners[named(node)]}
    assert {(name, kind) for name, kind in naming
            if name not in ("encoder/task_json.py", "runs/kinds.py")} == {
                ("runs/table_head.py", "tags"), ("choice/files.py", "answers"), ("runs/squad_files.py", "answers"),
                ("serving/routes.py", "similarity")}  # a column, and entries of JSON


def test_what_others_may_have_written_is_opened_where_it_is_looked_at_first():
    """A pipe would wait for ever, a device may be endless. The others open files of this repository,
    parts of files that are open, what has been looked at (stores, unfinished outputs),
    and files of Google's interface."""
    def reads(node):
        if not isinstance(node, ast.Call):
            return False
        modes = [str(getattr(part, "value", getattr(part, "s", ""))) for part in (  # .s: Python 3.7
            *node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode"))]
        return getattr(node.func, "id", "") == "open" and not any(
            letter in mode for mode in modes for letter in "wax")
    assert files_with(reads) == {
        "engine/disk/files.py", "serving/app.py", "engine/disk/parts.py",
        "modeling.py", "tokenization.py", "engine/disk/artifact.py"}


def test_only_the_runtime_and_the_graph_functions_ask_which_tensorflow_runs():
    """To print the version is fine; to compare it, or try what one of the two lacks, is not."""
    def asks(node):
        if isinstance(node, ast.Try):
            # An import of TensorFlow's that may fail.
            return any(isinstance(statement, ast.ImportFrom)
                       and (statement.module or "").split(".")[0] == "tensorflow"
                       for statement in node.body)
        if isinstance(node, (ast.Call, ast.Compare)):
            compared = [node.func] if isinstance(node, ast.Call) else [node.left, *node.comparators]
            return any(isinstance(part, ast.Attribute) and part.attr in ("VERSION", "__version__")
                       for operand in compared for part in ast.walk(operand))
        return isinstance(node, ast.Attribute) and node.attr == "IS_TENSORFLOW_1"
    assert files_with(asks) == {"engine/devices/runtime.py", "replication/graph_functions.py"}


# Imports each module in a process of its own, as far as the first import of TensorFlow.
IMPORT_EACH = """
import importlib, os, sys
import absl.flags, numpy  # once for all
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:
                print(module, flush=True)
            os._exit(0)
sys.meta_path.insert(0, Finder())
for module in sys.argv[1:]:
    if not os.fork():
        importlib.import_module(module)
        os._exit(0)
    _, status = os.wait()
    if status:
        print(module, "cannot be imported", flush=True)
"""


def test_no_module_loads_tensorflow_before_its_notices_are_silenced():
    """Those of the root's modules are the business of the programs that import them."""
    modules = [name[:-len(".py")].replace("/", ".").replace(".__init__", "")
               for name in python_files()
               if room_of(name) in {*ROOMS, "scripts"} - set(BASE)]
    environment = {name: value for name, value in os.environ.items()
                   if name != "TF_CPP_MIN_LOG_LEVEL"}
    too_early = subprocess.run([sys.executable, "-c", IMPORT_EACH, *modules], cwd=ROOT,
                               env=environment, stdout=subprocess.PIPE, universal_newlines=True)
    assert (too_early.returncode, too_early.stdout) == (0, "") and len(modules) > 100


def test_no_file_can_run_code():
    """No pickle, no objects in arrays, no text that is run; templates are the project's own."""
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    calls = {"eval", "exec", "compile", "__import__"}

    def runs_code(node):
        if isinstance(node, ast.Import):
            return any(alias.name.split(".")[0] in modules for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            return (node.module or "").split(".")[0] in modules
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Name):
            return node.func.id in calls
        # np.load reads pickles; a text as a template would be a program.
        return (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
                and (node.func.value.id, node.func.attr) in (("np", "load"), ("jinja2", "Template"))
                or isinstance(node.func, ast.Attribute) and node.func.attr == "from_string"
                or any(keyword.arg == "allow_pickle" for keyword in node.keywords))
    assert files_with(runs_code) == set()


def test_a_file_gets_its_name_in_the_file_layer_alone():
    """Which syncs it before. TensorFlow writes checkpoints, logs and records under other names."""
    def renames(node):
        return (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in (
                    ("os", "rename"), ("os", "replace"), ("shutil", "move")))
    temporary = "engine/disk/scratch.py"  # its folders are not kept
    assert files_with(renames) == {"engine/disk/files.py", temporary}


def test_no_function_of_the_engine_rebinds_a_variable_of_its_module():
    """What a run needs is handed down. How much a process logs belongs to it, as its streams do."""
    rebinding = files_with(lambda node: isinstance(node, ast.Global))
    assert {name for name in rebinding if room_of(name) == "engine"} == {"engine/log.py"}


def test_the_root_holds_what_the_design_names_and_no_more():
    modules = {name for name in python_files() if os.sep not in name}
    commands = ("run_classifier", "run_squad", "extract_features")
    assert modules == {f"{name}.py" for name in (*ROOT_MODULES, *commands)}
