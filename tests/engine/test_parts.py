"""Parts of a file hold each record once, whole and in order, wherever they are cut."""

import csv
import io
import itertools

import pytest
from hypothesis import given, settings, strategies as st

from engine.data import text_files
from engine.disk.parts import Part, parts_of
from engine.errors import UserError
from pretraining import texts

COUNTS = (3, 60)
NUMBERS = itertools.count()
FIELDS = st.text(st.sampled_from('ab ,"\n\té猫'), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


def new(folder, content):
    """A file that no example has read before."""
    path = folder / f"{next(NUMBERS)}.tsv"
    path.write_bytes(content.encode("utf-8"))
    return path


def in_parts(read, path, count):
    return [(int(number), row) for index in range(count) for part in parts_of([str(path)], index, count)
            for number, row in read(part)]


@pytest.mark.parametrize("count", COUNTS)
@settings(deadline=None, max_examples=40)
@given(lines=st.lists(st.text(st.sampled_from("ab \té猫"), max_size=6)), ends=st.booleans())
def test_the_lines_of_all_parts_are_those_of_the_file(folder, count, lines, ends):
    path = new(folder, "\n".join(lines) + "\n" * ends)
    assert in_parts(text_files.lines, path, count) == list(text_files.lines(str(path)))


@pytest.mark.parametrize("count", COUNTS)
@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.lists(FIELDS, min_size=1, max_size=3)))
def test_the_rows_of_all_parts_are_those_of_the_csv_file(folder, count, rows):
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows(rows)
    path = new(folder, content.getvalue())
    whole = list(text_files.csv_rows(str(path)))
    assert [row for _, row in whole] == rows  # its line breaks are within quotes
    assert in_parts(text_files.csv_rows, path, count) == whole


@pytest.mark.parametrize("count", COUNTS)
@settings(deadline=None, max_examples=40)
@given(documents=st.lists(st.lists(st.text("aé", min_size=1, max_size=9), max_size=3)))
def test_the_documents_of_all_parts_are_those_of_the_file(folder, count, documents):
    def sentences(paths):
        by_document = {}
        for sentence in texts.read_sentences(paths):
            by_document.setdefault(sentence.document, []).append(sentence.text)
        return list(by_document.values())

    path = new(folder, "\n\n".join("\n".join(lines) for lines in documents))
    assert [document for index in range(count) for document in sentences(
        parts_of([str(path)], index, count))] == [lines for lines in documents if lines]


def test_several_files_are_cut_as_one_and_a_compressed_one_is_whole(tmp_path):
    sizes = {"a.txt": 10, "b.txt.gz": 20, "c.txt": 10}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    paths = [str(tmp_path / name) for name in sizes]
    assert [parts_of(paths, index, 4) for index in range(4)] == [
        [Part(paths[0], 0, 10)], [Part(paths[1], 0, 20)], [], [Part(paths[2], 0, 10)]]


def test_an_empty_file_has_empty_parts(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert parts_of([str(tmp_path / "empty.txt")], 0, 3) == []
    assert list(text_files.lines(Part(str(tmp_path / "empty.txt"), 0, 0))) == []


def test_an_error_in_a_part_names_the_line_of_the_whole_file(tmp_path):
    path = tmp_path / "objects.jsonl"
    path.write_text('{"text": "a"}\n' * 9 + "nonsense\n" + '{"text": "a"}\n' * 5)
    last, = parts_of([str(path)], 1, 2)
    with pytest.raises(UserError, match=r"objects.jsonl, line 10: not JSON"):
        list(text_files.json_objects(last))
