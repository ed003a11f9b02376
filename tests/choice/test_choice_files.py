"""Files of questions as people have them: SWAG's, RACE's, those of Hugging Face's data sets, tables."""

import json

import pytest

from choice import files
from engine.data.text_files import OddRows, Unread
from engine.errors import UserError
from runs.rows import Example


def objects(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


SWAG = (",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
        '0,v,1,A man. He,A man.,He,gold,runs,"sits, down",eats,flies,2\n')
RACE = {"answers": ["A", "C"], "options": [["x", "y", "z", "w"], ["p", "q", "r", "s"]],
        "questions": ["What _ ?", "Who?"], "article": "A text.", "id": "high1.txt"}
OF_RACE = [(("A text.", "What x ?", "What y ?", "What z ?", "What w ?"), 0),
           (("A text.", "Who? p", "Who? q", "Who? r", "Who? s"), 2)]
# File → content, the examples and their answers.
FILES = {
    "swag.csv": (SWAG, [(("A man.", "He runs", "He sits, down", "He eats", "He flies"), 2)]),
    "race.json": (json.dumps(RACE, indent=1), OF_RACE),
    "race lines.json": (objects(RACE, RACE), OF_RACE * 2),
    "race of hugging face.jsonl": (
        objects({"article": "T.", "question": "Q?", "options": ["a", "b"], "answer": "B", "example_id": "1"}),
        [(("T.", "Q? a", "Q? b"), 1)]),
    "commonsense.jsonl": (
        objects({"id": "1", "question": "Where?", "choices": {"label": ["A", "B", "C"], "text": ["a", "b", "c"]},
                 "answerKey": "B"}, {"question": "Who?", "choices": {"label": ["1", "2"], "text": ["d", "e"]},
                                     "answerKey": "2"}),
        [(("Where?", "a", "b", "c"), 1), (("Who?", "d", "e"), 1)]),
    "arc.jsonl": (
        objects({"question": {"stem": "Why?", "choices": [{"text": "a", "label": "1"}, {"text": "b", "label": "2"}]},
                 "answerKey": "2"}), [(("Why?", "a", "b"), 1)]),
    "numbers are texts.jsonl": (
        objects({"question": "3 + 1?", "choices": ["3", "4"], "answer": "4"},
                {"question": "1 + 1?", "choices": ["2", "5", "7"], "answer": "2"}),
        [(("3 + 1?", "3", "4"), 1), (("1 + 1?", "2", "5", "7"), 0)]),
    "from 1.jsonl": (objects(*({"sentence": "the _ ran", "option1": "cat", "option2": "dog", "answer": str(answer)}
                               for answer in (1, 2))), [(("the _ ran", "cat", "dog"), 0), (("the _ ran", "cat", "dog"), 1)]),
    "letters.tsv": ("question\tA\tB\tC\tanswer\nq\tx\ty\t\tb\np\tx\ty\tz\tC\n",
                    [(("q", "x", "y"), 1), (("p", "x", "y", "z"), 2)]),
    "no header.tsv": ("what is it\tx\ty\tz\t0\nwho is it\tx\ty\tz\t2\n",
                      [(("what is it", "x", "y", "z"), 0), (("who is it", "x", "y", "z"), 2)]),
    "truth.jsonl": (objects({"question": "q", "choices": ["true", "false"], "answer": False},
                            {"question": "p", "choices": [True, False], "answer": True}),
                    [(("q", "true", "false"), 1), (("p", "true", "false"), 0)]),
    "texts.csv": ('goal,sol1,sol2,correct\nq,"red, dark",blue,blue\n', [(("q", "red, dark", "blue"), 1)]),
}


def read(tmp_path, name, content, given={}, header=None, **options):  # noqa: B006
    (tmp_path / name).write_text(content)
    return files.open_file(str(tmp_path / name), given, header, labelled=True, **options)


@pytest.mark.parametrize("name", FILES)
def test_a_file_s_columns_and_answers_are_found(name, tmp_path, capsys):
    content, expected = FILES[name]
    file = read(tmp_path, name, content)
    assert list(file.examples()) == [Example(*each) for each in expected]
    said = capsys.readouterr().err  # the guesses
    assert "answer in column " in said and "to change that, set " in said and "answers are " in said


def test_flags_name_columns_by_name_or_number_and_other_files_follow_the_training_file(tmp_path):
    content = "a\tb\tc\td\nq\tx\ty\t1\np\tx\ty\t1\n"
    for given in (dict(text=["a"], choice=["b", "c"], answer=["d"]), dict(text=["1"], choice=["2", "3"], answer=["4"])):
        file = read(tmp_path, "train.tsv", "a\tb\tc\td\nq\tx\ty\t1\np\tx\ty\t2\n", given=given, header=True)
        assert [example.label for example in file.examples()] == [0, 1]
        dev = read(tmp_path, "dev.tsv", content, header=True, like=file.layout)  # alone, its 1 could be from 0
        assert [example.label for example in dev.examples()] == [0, 0]


@pytest.mark.parametrize("name, content, parts", [
    ("one.jsonl", objects({"question": "q", "choices": ["a"], "answer": 0}), ["line 1", "two choices or more"]),
    ("key.jsonl", objects(*[{"question": "q", "choices": ["a", "b"], "answer": each} for each in ("A", "A", "F")]),
     ["line 3", "'F'", "labels"]),
    ("missing.jsonl", objects({"question": "q", "choices": ["a", "b"], "answer": None}), ["'answer' is null", "a text"]),
    ("lacking.jsonl", objects({"question": "q", "choices": ["a", "b"], "answer": 1}, {"question": "q", "choices": ["a", "b"]}),
     ["line 2", "there is no 'answer'"]),
    ("equal.jsonl", objects(*({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", label]}, "answer": "A"}
                              for label in "BA")), ["line 2", "'A'", "one of the 2 choices"]),
    ("twice.jsonl", '{"question": "q", "choices": ["a", "b"], "answer": 0, "answer": 1}\n', ["line 1", "'answer' is there twice"]),
    ("names.tsv", "question\tA\tB\tanswer\tanswer\nq\ta\tb\tA\tB\n", ["2 columns are named 'answer'", "by its number"]),
    ("cut.json", json.dumps([RACE, RACE], indent=1)[:-60], ["line 4", "not JSON"]),
    ("none.csv", "x,y\n1,2\n", ["--text_column", "x, y"]),
    ("empty.jsonl", "", ["no examples"]), ("number.json", "[1]", ["an object for each question"]),
    ("bad line.json", objects(RACE) + '{"article": "a"\n', ["line 2", "not JSON"])])
def test_a_mistake_is_one_line_that_names_its_place(name, content, parts, tmp_path):
    with pytest.raises(UserError) as error:
        list(read(tmp_path, name, content).examples())
    for part in (name, *parts):
        assert part in str(error.value)


@pytest.mark.parametrize("given", [
    dict(answer=["A"]), dict(text=["answer"]), dict(choice=["A", "B", "question"]), dict(text=["question", "question"])])
def test_a_column_has_one_role(given, tmp_path):
    with pytest.raises(UserError, match="must name different columns"):
        read(tmp_path, "train.tsv", "question\tA\tB\tanswer\nq\ta\tb\tA\n", given)


@pytest.mark.parametrize("answers, counted_from_1, known, is_warned_of", [
    ((1, 2, 1), False, "", True), ((1, 2, 1), True, "numbers from 1", False), ((0, 2, 1), False, "numbers from 1", False),
    ((1, 2, 3), True, "", False), ((1, 2, 1), False, "numbers from 0", False)])
def test_answers_that_could_be_read_in_two_ways_are_read_as_in_training_or_with_a_warning(
        answers, counted_from_1, known, is_warned_of, tmp_path, capsys):
    content = objects(*({"question": "q", "choices": ["x", "y", "z"], "answer": answer} for answer in answers))
    file = read(tmp_path, "dev.jsonl", content, like=files.Layout(answers=known))
    assert [example.label for example in file.examples()] == [answer - counted_from_1 for answer in answers]
    assert ("could be numbers from 1, and are read as numbers from 0" in capsys.readouterr().err) == is_warned_of


@pytest.mark.parametrize("name, content", [
    ("gap.csv", "question,A,B,C,answer\nq,,x,y,B\n"),
    ("gap.jsonl", objects({"question": "q", "ending0": "x", "ending1": None, "ending2": "y", "answer": 1}))])
def test_an_empty_choice_before_another_is_refused(name, content, tmp_path):
    with pytest.raises(UserError, match="line [12]: column (A|ending1) is empty, and one of a later choice is not"):
        list(read(tmp_path, name, content).examples())


@pytest.mark.parametrize("rows, labelled, part", [
    ("{n}\twhat is the cat {n}\tx\ty\t0\n", True, "column 1 may number the questions"),
    ("q{n}\twhat is the cat {n}\tx\ty\n", False, "column 1 may number the questions"),
    ("what is the cat {n}\tthe old house\tthe river\t1\n", False, "column 4 may have answers")])
def test_a_file_without_a_header_has_no_column_of_ids_and_an_input_none_of_answers(rows, labelled, part, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("".join(rows.format(n=n) for n in range(20)))
    with pytest.raises(UserError, match=f"rows.tsv has no header, and {part}.*: add a header line"):
        files.open_file(str(path), {}, False, labelled=labelled)


def test_keys_that_come_late_and_choices_that_are_not_read_are_seen(tmp_path, capsys):
    early, late = ({"question": "q", "A": "x", "B": "y", "answer": "A"},
                   {"question": "q", "A": "x", "B": "y", "C": "z", "answer": "C"})
    file = read(tmp_path, "train.jsonl", objects(*[early] * 1001, late))
    assert [example.label for example in file.examples()][-2:] == [0, 2]
    trained = read(tmp_path, "few.jsonl", objects(early)).layout
    capsys.readouterr()
    read(tmp_path, "dev.jsonl", objects(early, {**late, "answer": "B"}), like=trained)
    assert "not read are the choices in C, which the training's file did not have" in capsys.readouterr().err


def test_answers_as_pandas_writes_them_and_answers_that_name_nothing(tmp_path):
    content = objects(*({"question": "q", "choices": ["x", "y", "z"], "answer": answer} for answer in (1.0, 3.0)))
    assert [example.label for example in read(tmp_path, "train.jsonl", content).examples()] == [0, 2]
    with pytest.raises(UserError, match="no answer in answer is the label of a choice, its number or its text"):
        read(tmp_path, "train.jsonl", objects({"question": "q", "choices": ["x", "y"], "answer": "why"}))


@pytest.mark.parametrize("question, expected", [
    ("He is _ today.", "He is old today."), ("He is ____.", "He is old."), ("He is_.", "He isold."),
    ("What does get_value do?", "What does get_value do? old")])
def test_a_choice_takes_the_place_of_a_blank_and_of_no_part_of_a_word(question, expected):
    assert files.Question("A text.", question, ["old"], [], "").texts() == ("A text.", expected)


def test_an_object_without_keys_is_a_question_that_cannot_be_read(tmp_path):
    question = {"question": "Where is the cat?", "A": "on the mat", "B": "on the log"}
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (question, {}, question)))
    odd = OddRows("have no answer")
    first, unread, last = files.read_questions(files.UNKNOWN, str(path), {}, None, odd)[0]
    assert first == last == Example(tuple(question.values()))
    assert unread == Unread(odd.first) == Unread(f"{path}, line 2: there is no 'question'")
