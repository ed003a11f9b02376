"""The flags that choose the task: one of the table, a user's files, or a user's processor."""

import os
from typing import Optional, Sequence, Tuple

from absl import flags

from engine import settings
from engine.disk import files
from engine.errors import UserError
from runs import sets
from tasks import processors, user_files
from tasks.model_folder import Classification
from tasks.table import OWN_DATA, TASKS, Task, find_task

HELP_TOPIC = "Data"  # of the flags defined here


def define(values: flags.FlagValues, *do_what: str) -> None:
    """Defines the flags of all three, and of what is done with the sets; see `sets.define_flags`."""
    define_named(values, *do_what)
    flags.DEFINE_string("processor", None, "Instead of --task_name: path/to/file.py:ClassName "
                        "of a DataProcessor.", flag_values=values)


def define_named(values: flags.FlagValues, *do_what: str) -> None:
    """Defines the flags of a task of the table and of a user's files."""
    of_own = " Only with --task_name=file."
    sets.define_flags(values, *do_what, notes={
        "data_dir": " With --task_name=file, these are .tsv, .txt (tab-separated), .csv or .jsonl; else the task's files.",
        "train_file": " With another task than file: one to use instead of the task's, in the same layout.",
        "dev_file": of_own, "test_file": of_own})
    flags.DEFINE_string("task_name", None, f"One of {', '.join(sorted(TASKS))}; or {OWN_DATA}, "
                        "for files of your own.", flag_values=values)
    user_files.define_flags(values)


def find(values: flags.FlagValues, names: Sequence[str],
         trained: Optional[Classification] = None) -> Classification:
    """The task that the flags choose.

    Args:
        names: of the sets that the run needs: "train", "dev" and "test", in this order.
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
        name, task = OWN_DATA, user_files.make_task(values, names, trained)
    else:
        name, task = of_table(values)
    return Classification(task.kind, trained_columns=task.trained_columns, task_name=name, task=task)


def of_table(values: flags.FlagValues) -> Tuple[str, Task]:
    """A task of the table and its name, its files where the flags say."""
    refuse_own_data_flags(values, ("data_dir", "train_file"))
    try:
        name, task = find_task(values.task_name)
    except UserError as error:
        other = "; or, in its place, --processor=FILE.py:CLASS for a DataProcessor" if "processor" in values else ""
        raise UserError(f"{error}{other}") from error
    if values.train_file:
        path = files.require_file(os.path.abspath(values.train_file), "--train_file")
        task = task._replace(train=task.train._replace(file=path))
    return name, task.within(settings.required(values, "data_dir"))


def refuse_own_data_flags(values: flags.FlagValues, allowed: Sequence[str]) -> None:
    """Raises a UserError if a flag for a user's own files is set, other than the allowed ones."""
    for name in user_files.FLAGS:
        if name not in allowed and values[name].present:
            raise UserError(f"--{name} is only for --task_name={OWN_DATA}")
