"""Raw texts from a user's files: lines, or a column of a table."""

from typing import Iterator, Optional, Tuple

from absl import flags

from engine.data.odd_rows import OddRows
from engine.disk import files
from runs import columns
from runs.rows import UNREAD, Example, read_split

HELP_TOPIC = "Data"  # of the flags defined here


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
        UserError: the file cannot be read, or no row has a text.
    """
    for example in _examples(path, what, columns.Roles(column), header, role):
        yield example.text_a


def read_with_categories(path: str, what: str, column: Optional[str], header: Optional[bool],
                         category_column: Optional[str]) -> Iterator[Tuple[str, str]]:
    """Streams texts with their categories, which are empty without a column of them.

    Args:
        what, column, header: see `read_texts`.
        category_column: the name of the column, or its number from 1.

    Raises:
        UserError: see `read_texts`.
    """
    roles = columns.Roles(column, category_column)
    for example in _examples(path, what, roles, header, "text"):
        yield example.text_a, (example.text_b or "").strip()


def _examples(path: str, what: str, given: columns.Roles, header: Optional[bool],
              role: str) -> Iterator[Example]:
    """Examples whose second text is the category, if there is a column of it."""
    table = columns.read_head(files.require_file(path, what), header)
    for column, its_role in ((given.text, role), (given.text_pair, "category")):
        if column is not None:
            table.position(column, its_role)
    roles = columns.find(
        table, given, labelled=False, takes_pairs=given.text_pair is not None)
    odd, count = OddRows("rows are read as empty texts"), 0
    for example in read_split(columns.split_of(table, roles), "", odd=odd):
        yield Example("", None, None) if example is UNREAD else example
        count += 1
    odd.report(count)
