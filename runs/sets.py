"""The files of a command's sets: train.*, dev.* and test.* in --data_dir, or --<name>_file."""

import os
from typing import List, Mapping, Sequence

from absl import flags

from engine.disk import files
from engine.errors import UserError

HELP_TOPIC = "Data"  # of the flags defined here

FLAG_OF = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}


def define_flags(values: flags.FlagValues, *do_what: str, notes: Mapping[str, str] = {}) -> None:
    """Defines --data_dir, the files of the sets, and the flags of FLAG_OF with these help texts.

    Args:
        notes: end the help of flags, by their names.
    """
    helps = {"data_dir": "Directory with train.*, dev.* and test.*.", **{
        f"{name}_file": f"The {name} set, by default {name}.* in --data_dir." for name in FLAG_OF}}
    for name, text in helps.items():
        flags.DEFINE_string(name, None, text + notes.get(name, ""), flag_values=values)
    for flag, text in zip(FLAG_OF.values(), do_what):
        flags.DEFINE_bool(flag, False, text, flag_values=values)


def wanted(values: flags.FlagValues) -> List[str]:
    """The names of the sets that the flags ask for."""
    return [name for name, flag in FLAG_OF.items() if flag in values and values[flag].value]


def find(values: flags.FlagValues, name: str, extensions: Sequence[str]) -> str:
    """The path of a set; raises a UserError if there is none, or several."""
    given, data_dir = values[f"{name}_file"].value, values.data_dir
    if given:
        return files.require_file(os.path.abspath(given), f"--{name}_file")
    if not data_dir:
        raise UserError(f"the {name} set is missing: give --data_dir or --{name}_file")
    if not os.path.isdir(data_dir):
        raise UserError(f"--data_dir={data_dir}: there is no such directory")
    candidates = [name + extension for extension in extensions]
    there = [file for file in candidates if os.path.exists(os.path.join(data_dir, file))]
    if len(there) != 1:
        raise UserError(f"--data_dir={data_dir} has "
                        f"{' and '.join(there) or 'none of ' + ', '.join(candidates)}; name the "
                        f"file with --{name}_file")
    return os.path.abspath(os.path.join(data_dir, there[0]))
