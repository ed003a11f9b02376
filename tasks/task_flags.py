"""The flags that say which task: one of the table, a user's files, or a user's processor."""

import os
from typing import Optional, Sequence, Tuple

from absl import flags

from engine import files, settings
from engine.errors import UserError
from tasks import label_types, processors, user_files
from tasks.table import TASKS, Task, find_task

# --task_name of a task that is made of a user's own files.
OWN_DATA = "file"


def define(values: flags.FlagValues) -> None:
    """A task by its name, of a user's files, or of a processor."""
    define_named(values)
    flags.DEFINE_string("processor", None, "In place of --task_name: path/to/file.py:ClassName "
                        "of a DataProcessor.", flag_values=values)


def define_named(values: flags.FlagValues) -> None:
    """A task by its name, or of a user's files."""
    flags.DEFINE_string("data_dir", None, "Directory with the task's .tsv files.",
                        flag_values=values)
    flags.DEFINE_string("task_name", None, f"One of {', '.join(sorted(TASKS))}; or {OWN_DATA}, "
                        "for a file of your own.", flag_values=values)
    user_files.define_flags(values)


def find(values: flags.FlagValues, sets: Sequence[str],
         known: Optional[Tuple[label_types.Kind, bool]] = None) -> Tuple[str, Task]:
    """The task's name and the task.

    Args:
        sets: those that the run needs, of "train", "dev" and "test", in this order.
        known: what the labels are, and whether texts are pairs, where that is not to be
            taken from the training file.

    Raises:
        UserError: there is no such task, or its files are not what they should be.
    """
    if values.processor and values.task_name:
        raise UserError(f"--processor={values.processor} and --task_name={values.task_name}: give "
                        "one of them")
    if values.processor:
        refuse_own_data_flags(values, ("data_dir",))
        return values.processor, processors.make_task(values.processor)
    name = settings.required(values, "task_name")
    if name == OWN_DATA:
        return name, user_files.make_task(user_files.Options.of_flags(values), sets, *(known or ()))
    refuse_own_data_flags(values, ("data_dir", "train_file"))
    name, task = find_task(name)
    if values.train_file:
        path = files.require_file(os.path.abspath(values.train_file), "--train_file")
        task = task._replace(train=task.train._replace(file=path))
    return name, task


def refuse_own_data_flags(values: flags.FlagValues, allowed: Sequence[str]) -> None:
    """Raises a UserError where a flag of a user's own files is set that is not among these."""
    for name in user_files.Options._fields:
        if name not in allowed and values[name].present:
            raise UserError(f"--{name} is for --task_name={OWN_DATA} alone")


def data_dir(values: flags.FlagValues) -> str:
    """The directory of the task's files; "" where they are named in full."""
    return "" if values.task_name == OWN_DATA else settings.required(values, "data_dir")
