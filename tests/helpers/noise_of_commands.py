"""What a command says that tells nobody anything."""

import os
import re

MARK = "log: "
MARK_LINES = f"""
def mark(log):
    write = log._print
    log._print = lambda text: [write("{MARK}" + line) for line in text.split(chr(10))]
"""
# As sitecustomize.py, for programs of scripts.
MARK_WHEN_LOADED = MARK_LINES + """
import importlib.machinery, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "engine.log":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), mark(module))
        return spec
sys.meta_path.insert(0, Finder())
"""
# In a line of ours: what tells nobody anything.
EMPTY = re.compile(r"\b0 of [\d,]+ |\b1 replicas|in 0\.0 s|\.\d{7}")


def noise(said, *allowed):
    """The lines that are neither marked nor begin in an allowed way, and those that say nothing."""
    return [line for line in said.splitlines()
            if not line.startswith((MARK, *allowed)) or EMPTY.search(line)]


def marked_lines(folder):
    """The environment variables with which every new process marks the lines of our log."""
    (folder / "sitecustomize.py").write_text(MARK_WHEN_LOADED)
    return {**{name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"},
            "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": ""}
