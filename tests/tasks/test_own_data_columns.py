"""The columns of a training, in its later files: found, checked by their values, and CSV without a header refused."""


import pytest

from encoder import label_types
from engine.data.text_files import OddRows
from engine.errors import UserError
from runs import columns, table_head
from task_files import user_task
from tasks.model_folder import Classification
from test_own_data import make_task, rows_of
from test_own_data_layouts import TEXTS

LINES = "The quiet sailors wait, near the bridge.\nTwo farmers sleep, beside a horse.\n"


def find_in(tmp_path, content, trained=None, **given):
    (tmp_path / "texts.csv").write_text(content)
    table = table_head.read(str(tmp_path / "texts.csv"), None)
    return columns.find(table, given, labelled=False, takes_pairs=False, trained=trained).columns("text")


@pytest.mark.parametrize("trained", [
    None, columns.Trained("text", None, "label", None, 2), columns.Trained("2", None, "1", None, 2),
    columns.Trained("2", None, "3", None, 3)])
def test_csv_that_may_be_texts_with_commas_is_refused_with_the_ways_out(trained, tmp_path):
    with pytest.raises(UserError, match="texts.csv is CSV without a header.* .txt.* --text_column"):
        find_in(tmp_path, LINES, trained)
    assert find_in(tmp_path, LINES, trained, text=["2"]) == ["2"]
    assert find_in(tmp_path, "text,label\n" + LINES, trained) == ["text"]
    assert find_in(tmp_path, '"The quiet sailors wait, near the bridge."\n', trained) == ["1"]
    if trained and trained.label == "1":  # the columns of the training decide
        assert find_in(tmp_path, 'good,"the sea, it is calm"\nbad,the rain fell\n', trained) == ["2"]


@pytest.mark.parametrize("mark, header", [(";", ["id;text"]), ("\t", []), (";", ["7;a text"])])
def test_csv_with_other_marks_between_its_columns_is_refused(mark, header, tmp_path):
    content = "".join(line.replace(";", mark) + "\n" for line in [*header, "8;the cat, old", "9;a dog", "9;a dog"])
    trained = columns.Trained("text", None, "label", None, 3)
    if not header:
        content = content.replace(", old", "")
    with pytest.raises(UserError, match="texts.csv has no commas between columns.*by tabs in .tsv.*--text_column=1"):
        find_in(tmp_path, content, trained)
    assert find_in(tmp_path, content, text=["1"]) == ["1"]
    for others in ("a text; of two parts\nthe cat\n", f"a{mark}b\n", f"a{mark}b\na{mark}b{mark}c\n"):
        assert find_in(tmp_path, others) == ["1"]


@pytest.mark.parametrize("kind, labels, others", [
    (label_types.SingleLabel(["bad", "good"]), ["bad", "good"], ["ugly", "nice"]),
    (label_types.MultiLabel(["bad", "good"], ","), ["bad,good", "good"], ["ugly", "nice"]),
    (label_types.Regression(), ["2.5", "1"], ["ugly", "nice"])])
def test_the_columns_of_the_training_are_named_and_checked_by_their_values(kind, labels, others, tmp_path, capsys):
    trained = Classification(kind, False, columns.Trained("2", None, "1", None, 2))

    def roles_of(first, second):
        (tmp_path / "test.tsv").write_text("".join(f"{one}\t{two}\n" for one, two in zip(first * 12, second)))
        capsys.readouterr()
        rows = rows_of(user_task(tmp_path, ["test"], trained), "test")
        return rows[0][0], capsys.readouterr().err

    text, said = roles_of(labels, TEXTS)
    assert text == TEXTS[0] and "WARNING" not in said
    assert "text in column 2, not read: 1 (as in training)" in said and "--text_column" in said
    assert "WARNING" not in roles_of(["?"], TEXTS)[1]  # in the place of labels
    for more in (others, TEXTS):
        text, said = roles_of(more, TEXTS)
        assert text == TEXTS[0] and "WARNING" in said and "column 1 had the labels in training" in said
    with pytest.raises(UserError, match="column 2 had the texts in training, and has labels here.*--text_column"):
        roles_of(TEXTS, labels * 12)
    assert user_task(tmp_path, ["test"], trained, text_column="1").test.columns.texts == (0,)


@pytest.mark.parametrize("name, first, header, is_told", [
    ("texts.csv", "message", None, True), ("texts.tsv", "message", None, True), ("texts.tsv", "message", False, False),
    ("texts.txt", "message", None, False), ("texts.tsv", "text", None, False), ("texts.tsv", "message", True, False)])
def test_a_first_line_that_is_taken_for_a_text_is_told(name, first, header, is_told, tmp_path, capsys):
    (tmp_path / name).write_text("".join(f"{line}\n" for line in [first, "the rain fell", "the sea is calm"]))
    odd = OddRows("")
    examples, _ = columns.read_texts(str(tmp_path / name), {}, header, odd, takes_pairs=False)
    assert len(list(examples)) == (2 if header or first == "text" else 3)
    said = f"{name}: no header line: its first line, 'message', is a text; --header changes that"
    assert (said in capsys.readouterr().err) == is_told


@pytest.mark.parametrize("header, start", [("0", ""), ("0,1", ""), (",0", "{},"), (",0,1", "{},")])
def test_a_header_of_numbers_is_one(header, start, tmp_path, capsys):
    """Columns without names, as pandas writes them."""
    form = start + '"{}"' + ",good" * ("1" in header) + "\n"
    rows = "".join(form.format(*[row, text][not start:]) for row, text in enumerate(TEXTS))
    (tmp_path / "test.csv").write_text(header + "\n" + rows)
    kind = label_types.SingleLabel(["bad", "good"])
    trained = Classification(kind, False, columns.Trained("text", None, "label", None, 2))
    assert [text for text, *_ in rows_of(user_task(tmp_path, ["test"], trained), "test")] == TEXTS
    said = capsys.readouterr().err
    assert f"a header line, text in column {len(start) // 3 + 1}" in said and "no header line" not in said


def test_a_model_of_numbered_columns_reads_files_without_a_header(tmp_path):
    body = "".join(f'{"good bad".split()[row % 2]},"{text}"\n' for row, text in enumerate(TEXTS))
    task = make_task(tmp_path, {"train.csv": "0,1\n" + body, "dev.csv": body})
    assert rows_of(task, "train") == rows_of(task, "dev") and len(rows_of(task, "dev")) == len(TEXTS)
    with pytest.raises(UserError, match="no column '0' for --text_column; it has 2 columns and no names.*number, from 1"):
        make_task(tmp_path, {"train.csv": "0,1\n" + body}, text_column="0")


@pytest.mark.parametrize("content", ["0,1\ngood,bad\n", "1,2\ngood,the sea is calm\n", '0,2\ngood,"the sea is calm"\n'])
def test_other_numbers_are_no_header(content, tmp_path):
    (tmp_path / "train.csv").write_text(content)
    assert not table_head.read(str(tmp_path / "train.csv"), None).header


def test_the_flag_of_second_texts_decides_in_a_file_of_two_columns_without_a_header(tmp_path):
    (tmp_path / "texts.tsv").write_text("the cat\ta dog\n")
    table = table_head.read(str(tmp_path / "texts.tsv"), False)
    for given, texts in (({}, (0, 1)), ({"text_pair": ["1"]}, (1, 0))):
        assert columns.find(table, given, labelled=False, takes_pairs=None).split().columns.texts == texts
