"""Rewrites the tables of pages that come from benchmarks/results.md.

  python -m benchmarks.step_cost     # for example: appends its tables to results.md
  python -m benchmarks.page_tables   # then rewrites the pages

In a page, a table stands between `<!-- table: TITLE -->` and `<!-- end of table -->`. It is that of the
newest section of results.md with this title.
"""

import glob
import os
import re
from typing import Dict, List

from benchmarks import report

_BLOCK = re.compile(r"(<!-- table: (.*?) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)


def paths() -> List[str]:
    """The pages, in order."""
    return sorted(glob.glob(os.path.join(report.ROOT, "docs", "*.md")))


def newest_tables() -> Dict[str, str]:
    """Title → table, of the newest section of results.md with this title."""
    with open(report.RESULTS, encoding="utf-8") as file:
        sections = re.split(r"^## ", file.read(), flags=re.MULTILINE)[1:]
    tables = {}
    for section in sections:  # the newest comes last
        title, *lines = section.splitlines()
        tables[title] = "\n".join(line for line in lines if line.startswith("|"))
    return tables


def rewritten(page: str) -> str:
    """The text of a page with the newest tables."""
    tables = newest_tables()
    return _BLOCK.sub(lambda block: block.group(1) + tables[block.group(2)] + block.group(3), page)


def main() -> None:
    """Rewrites the pages, and says which have changed."""
    for path in paths():
        with open(path, encoding="utf-8") as file:
            page = file.read()
        if rewritten(page) != page:
            with open(path, "w", encoding="utf-8") as file:
                file.write(rewritten(page))
            print(f"{os.path.relpath(path, report.ROOT)}: has new tables")


if __name__ == "__main__":
    main()
