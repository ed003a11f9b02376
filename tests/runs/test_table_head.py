"""What the first rows of a file with columns tell of the program that wrote it."""

import pytest

from runs import table_head


@pytest.mark.parametrize("name, content, is_told", [
    ("x.tsv", '"text"\t"label"\n"the sea"\t1\n"the rain"\t0\n', True),  # R without names of rows
    ("x.tsv", '"text"\t"label"\n"1"\t"the sea"\t"good"\n', True), ("x.txt", '"the sea"\n"the rain"\n', True),
    ("x.tsv", 'text\tlabel\nthe sea\t1\n"a ""big"" sea"\t0\n', True), ("x.tsv", 'the sea\t1\n"""Go"" he said"\t0\n', True),
    ("x.tsv", 'text\tlabel\n' + '"the sea, the rain"\t0\nthe sea\t1\n' * 3, True),  # Excel
    ("x.tsv", 'text\tlabel\n' + '"the sea, the rain"\t0\nthe sea, too\t1\n' * 3, False),
    ("x.csv", '"text","label"\n"a ""big"" sea","1"\n', False), ("x.txt", '"Where is it?"\nthe rain\n', False),
    ("x.tsv", '"the sea"\t1\n"the rain"\t0\n', False), ("x.tsv", '"Go" and "stop"\t1\n"a "big" sea"\t0\n', False),
    ("x.tsv", 'a "" sign\t1\nthe ""big"" sea\t0\n""\t1\n', False)])
def test_quotes_that_a_program_may_have_added_are_told(name, content, is_told, tmp_path, capsys):
    (tmp_path / name).write_text(content)
    table_head.read(str(tmp_path / name), None)
    said = capsys.readouterr().err
    assert ("WARNING" in said) == is_told
    assert (f"{name}: quotes are text in .tsv" in said and "write it as .csv" in said) == is_told


@pytest.mark.parametrize("name, line, is_told", [
    ("x.txt", '{"text": "the sea"}', True), ("x.tsv", '{ "text": 1 }', True), ("x.jsonl", '{"text": "the sea"}', False),
    ("x.txt", "{sic} the sea", False), ("x.tsv", '1\t{"text": "the sea"}', False)])
def test_json_that_is_read_as_texts_is_told(name, line, is_told, tmp_path, capsys):
    (tmp_path / name).write_text(f"{line}\n" * 3)
    table_head.read(str(tmp_path / name), None)
    assert ("seem to be JSON objects, and each is read as a text" in capsys.readouterr().err) == is_told
