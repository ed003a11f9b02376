"""The flags that choose the task: one of the table, a user's files, or a user's processor."""

import os
from typing import Optional, Sequence

from absl import flags

from engine import settings
from engine.disk import files
from engine.errors import UserError
from tasks import processors, user_files
from tasks.model_folder import Classification
from tasks.table import OWN_DATA, TASKS, find_task

HELP_TOPIC = "Data"  # of the flags defined here


def define(values: flags.FlagValues) -> None:
    """Defines the flags of all three."""
    define_named(values)
    flags.DEFINE_string("processor", None, "Instead of --task_name: path/to/file.py:ClassName "
                        "of a DataProcessor.", flag_values=values)


def define_named(values: flags.FlagValues) -> None:
    """Defines the flags of a task of the table and of a user's files."""
    flags.DEFINE_string("data_dir", None, "Directory with the task's files.",
                        flag_values=values)
    flags.DEFINE_string("task_name", None, f"One of {', '.join(sorted(TASKS))}; or {OWN_DATA}, "
                        "for files of your own.", flag_values=values)
    user_files.define_flags(values)


def find(values: flags.FlagValues, sets: Sequence[str],
         trained: Optional[Classification] = None) -> Classification:
    """The task that the flags choose.

    Args:
        sets: the sets that the run needs, of "train", "dev" and "test", in this order.
        trained: what a trained model classifies; without it, the labels are those of the training
            file.
    """
    if values.processor and values.task_name:
        raise UserError(f"--processor={values.processor} and --task_name={values.task_name}: give "
                        "one of them")
    if values.processor:
        refuse_own_data_flags(values, ("data_dir",))
        name, task = values.processor, processors.make_task(values.processor, settings.required(values, "data_dir"))
    elif settings.required(values, "task_name") == OWN_DATA:
        name, task = OWN_DATA, user_files.make_task(values, sets, trained)
    else:
        refuse_own_data_flags(values, ("data_dir", "train_file"))
        try:
            name, task = find_task(values.task_name)
        except UserError as error:
            raise UserError(f"{error}; or, in its place, --processor=FILE.py:CLASS for a "
                            "DataProcessor") from error
        if values.train_file:
            path = files.require_file(os.path.abspath(values.train_file), "--train_file")
            task = task._replace(train=task.train._replace(file=path))
        task = task.within(settings.required(values, "data_dir"))
    return Classification(task.kind, trained_columns=task.trained_columns, task_name=name, task=task)


def refuse_own_data_flags(values: flags.FlagValues, allowed: Sequence[str]) -> None:
    """Raises a UserError if a flag for a user's own files is set, other than the allowed ones."""
    for name in user_files.FLAGS:
        if name not in allowed and values[name].present:
            raise UserError(f"--{name} is only for --task_name={OWN_DATA}")
