"""Commands with all that they read: files that a user supplies, and files of earlier runs."""

import importlib
import multiprocessing
import os
import shutil
from concurrent import futures
from typing import Any, Dict, List, NamedTuple, Tuple

Flags = Dict[str, Any]


class Scene(NamedTuple):
    """A command that succeeds in a few seconds, if its files are not damaged.

    They are those of a folder, which stands in flags as {}.
    """
    name: str
    module: str
    flags: Flags
    files: Tuple[str, ...]  # those to damage: paths in the folder, or beginnings of them
    # Beginnings of the names of files with checksums, or that are made again: if one is damaged and
    # the command succeeds, the results are as without the damage.
    checked: Tuple[str, ...] = ()
    results: Tuple[str, ...] = ()
    folder: str = ""  # from which it is copied

    def arguments(self, folder: str) -> List[str]:
        """The command's arguments, for files in a folder."""
        return [f"--{name}={str(value).replace('{}', folder)}"
                for name, value in self.flags.items()]

    def copy_to(self, folder: str) -> str:
        """Replaces the folder by a copy of the files that the flags name; returns its path."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name in {str(value).split("/")[1] for value in self.flags.values()
                     if str(value).startswith("{}/")}:
            path, copy = os.path.join(self.folder, name), os.path.join(folder, name)
            if os.path.isdir(path):
                shutil.copytree(path, copy)
            elif os.path.exists(path):
                shutil.copy(path, copy)
        return folder


def prepare(folder: str) -> List[Scene]:
    """Makes the scenes' files in a folder, whatever was there, most of them by commands."""
    shutil.rmtree(folder, ignore_errors=True)
    # Making them starts TensorFlow's threads, and the commands are forks of this process.
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as fork:
        return fork.submit(_make, os.path.realpath(folder)).result()


def _make(folder: str) -> List[Scene]:
    os.dup2(2, 1)  # what commands print, among what they say
    return importlib.import_module("benchmarks.fuzzing.toy_scenes").make(folder)
