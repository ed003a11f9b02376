"""Raw texts from a user's files: lines, or a column of a table."""

import os
from typing import Iterator, Optional

from absl import flags

from engine import files
from engine.data import text_files
from engine.errors import UserError
from tasks import columns
from tasks.examples import read_split


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags that tell where in a file the texts are."""
    flags.DEFINE_string("text_column", None, "The column of the text, its name or its number, "
                        "from 1; default: detected.", flag_values=values)
    flags.DEFINE_bool("header", None, "Whether the first line names the columns; default: "
                      "detected.", flag_values=values)


def read_texts(path: str, what: str, column: Optional[str] = None,
               header: Optional[bool] = None, role: str = "text") -> Iterator[str]:
    """Streams the texts of a .tsv, .txt (tab-separated), .csv or .jsonl file.

    Args:
        what: the flag that names the file, for errors.
        column, header: see `define_flags`.
        role: of the column, for errors: its flag is --<role>_column.

    Raises:
        UserError: the file cannot be read, or a row is unlike the first ones.
    """
    if os.path.splitext(path)[1].lower() not in text_files.FORMATS:
        raise UserError(f"{what}={path}: its name must end in one of "
                        f"{', '.join(text_files.FORMATS)}")
    table = columns.read_head(files.require_file(path, what), header)
    if column is not None:
        table.position(column, role)
    said = columns.Roles(column, None, None)
    roles = columns.complete_texts(said, table, takes_pairs=False)
    columns.report(table, roles, said)
    split = columns.split_of(table, roles, table, labelled=False)
    for example in read_split(split, ""):
        yield example.text_a
