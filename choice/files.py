"""Questions with choices, from files as people have them: a row of a table, or an object of JSON, each.

An object's choices are a list, or keys of their own; it may also have a text with several questions, as in RACE.
"""

import json
import re
from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union)

from engine import log
from engine.data import text_files
from engine.data.text_files import OddRows, Path, Unread, attempt
from engine.disk import files
from engine.disk.parts import Part
from engine.errors import UserError
from runs import column_values, table_head
from runs.column_finder import Finder, Roles
from runs.rows import Columns, Example, Split, read_rows
from runs.table_head import Table

EXTENSIONS = (*text_files.FORMATS, ".json")

ROLES = "text", "choice", "answer"  # of columns
# Common names, the likeliest first: of a text that a question is about, of the question, of lists of choices.
_CONTEXTS = "context article passage story paragraph sent1 premise".split()
_QUESTIONS = "question question_stem stem query prompt goal problem sent2 ctx sentence startphrase text".split()
_LISTS = "choices options endings candidates alternatives".split()
_ANSWERS = ("answer answerkey answer_key label correct correct_answer gold target answer_idx answer_index "
            "gold_label").split()
# A column with one of the choices, such as ending0, option_b, sol1, or C.
_CHOICE = re.compile("(choice|option|ending|answer|sol|solution|candidate|alternative|opt)?[ _-]?([0-9]{1,2}|[a-h])")
_BLANK = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")  # not within a word, such as get_value
_ANSWER = re.compile("[0-9]{1,2}|[a-hA-H]")
_HEADER_NAMES = (*_CONTEXTS, *_QUESTIONS, *_ANSWERS, "ending0", "choice1", "option1", "choice_a", "option_a")

Where = Tuple[str, str, Any]  # a file, "line" or "entry", and its number
Rows = Iterator[Tuple[Where, Optional[Mapping[str, Any]]]]  # values by the names of columns; None: not read


class Layout(NamedTuple):
    """The columns of a file and how its answers are written; each field is an entry of task.json.

    A column is given by its name or, in a table, by its number from 1.
    """
    text_columns: Sequence[str] = ()  # the question, or a context and the question
    choice_columns: Sequence[str] = ()  # one with lists, or one for each choice; (): not known
    answer_column: Sequence[str] = ()  # one, or none
    num_columns: int = 0
    answers: str = ""  # one of _WAYS


UNKNOWN = Layout()


class Question(NamedTuple):
    """A question and its choices."""
    context: str  # what it is about; "" for a question by itself
    text: str
    choices: Sequence[str]
    labels: Sequence[str]  # of the choices, if the file names them
    answer: str  # as the file has it; "" without one

    def texts(self) -> Tuple[str, ...]:
        """The one before the first [SEP], and those behind it: with a blank in a question, the choice takes its place."""
        if not self.context:
            return (self.text, *self.choices)
        before, *after = _BLANK.split(self.text, 1)
        return (self.context, *(before + choice + after[0] if after else f"{before} {choice}".strip()
                                for choice in self.choices))

    def right(self, way: str) -> Optional[int]:
        """The number of the right choice, from 0; None if the answer does not name one in this way, one of _WAYS."""
        names, answer = list(map(str, _WAYS[way](self))), self.answer
        if way == _LABELS and not self.labels:
            answer = answer.upper()
        elif way in _NUMBERS:
            answer = re.sub(r"\.0$", "", answer)
        return names.index(answer) if names.count(answer) == 1 else None


# How answers name choices → the names of a question's choices.
_LABELS, *_NUMBERS = "labels", "numbers from 0", "numbers from 1"
_WAYS: Mapping[str, Callable[[Question], Iterable[Any]]] = {
    _LABELS: lambda question: question.labels or map(chr, range(ord("A"), ord("A") + len(question.choices))),
    "numbers from 0": lambda question: range(len(question.choices)),
    "numbers from 1": lambda question: range(1, 1 + len(question.choices)), "texts": lambda question: question.choices}


class ChoiceFile(NamedTuple):
    """A file of questions. Made by `open_file`."""
    path: str
    layout: Layout  # without an answer if it is not read
    names: Sequence[str]  # of all columns
    split: Optional[Split]  # of a table

    def questions(self, odd: Optional[OddRows] = None, part: Optional[Part] = None) -> Iterator[Union[Question, Unread]]:
        """The questions of the file or a part; `odd` counts those that cannot be read."""
        return (row if isinstance(row, Unread) else attempt(odd, self._question, where, row)
                for where, row in self._rows(odd, part))

    def examples(self) -> Iterator[Example]:
        """The questions as the model reads them; their labels are the numbers of the right choices, if they are read."""
        for where, row in self._rows():
            question = self._question(where, row)
            right = question.right(self.layout.answers) if self.layout.answers else None
            if self.layout.answers and right is None:
                raise UserError("{}, {} {}: the answer is {}, and must name one of the {} choices; in this file answers are {}"
                                .format(*where, log.brief(repr(question.answer)), len(question.choices), self.layout.answers))
            yield Example(question.texts(), right)

    def _rows(self, odd: Optional[OddRows] = None, part: Optional[Part] = None) -> Rows:
        if not self.split:
            return _objects(part or self.path, odd)
        return (((self.path, "line", line), example and dict(zip(self.names, example.texts)))
                for line, _, example in read_rows(None, self.split, odd, part=part))

    def _question(self, where: Where, row: Mapping[str, Any]) -> Question:
        place, (texts, names, answer) = "{}, {} {}".format(*where), self.layout[:3]
        needed = [*texts, *answer, *(names if len(names) == 1 else [])]
        missing = next((name for name in needed if name not in row), None)
        if missing is not None:
            raise UserError(f"{place}: there is no {missing!r}")
        cells = [row.get(name) not in (None, "") for name in names]
        labels, choices = _listed(row[names[0]]) if len(names) == 1 else (
            [], [row[name] for name, has_choice in zip(names, cells) if has_choice])
        if len(names) > 1 and not all(cells[:len(choices)]):
            raise UserError(f"{place}: column {names[cells.index(False)]} is empty, and one of a later choice is not: answers "
                            "would name other choices; a question with fewer choices lacks the last ones")
        if len(choices) < 2 or labels and len(labels) != len(choices):
            found = row[names[0]] if len(names) == 1 else choices
            raise UserError(f"{place}: a question has two choices or more, in a list that may have a label for each or in "
                            f"columns of their own, and {', '.join(names)} has {log.brief(json.dumps(found))}")
        named = [(name, row[name]) for name in (*texts, *answer)] + [(names[0], each) for each in (*choices, *labels)]
        written = [text_files.as_text(place, name, value).strip() for name, value in named]
        first, last = len(texts) + len(answer), len(named) - len(labels)
        return Question(*["", *written[:len(texts)]][-2:], written[first:last], written[last:],
                        "".join(written[len(texts):first]))


def _listed(value: Any) -> Tuple[Sequence[Any], Sequence[Any]]:
    """The labels and the choices in a list or an object; without labels, or none at all."""
    if isinstance(value, dict):  # of two lists, as data sets of Hugging Face have them, or of label → text
        return ((value.get("label", []), value["text"]) if isinstance(value.get("text"), list)
                else (list(value), list(value.values())))
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return [each["label"] for each in value if "label" in each], [each.get("text") for each in value]
    return [], value if isinstance(value, list) else []


def _objects(path: Path, odd: Optional[OddRows] = None) -> Rows:
    """The object of each question in a file of JSON."""
    kind, values = _values(path, odd)
    for number, value in values:
        several, question = (value.get(name) for name in ("questions", "question")) if value else (None, None)
        if isinstance(several, list):  # a text with its questions: a list of the same length has a value for each of them
            lists = {{"questions": "question", "answers": "answer"}.get(name, name): each for name, each in value.items()
                     if isinstance(each, list) and len(each) == len(several)}
            yield from (((str(path), kind, f"{number}, question {place}"), {**value, **dict(zip(lists, of_one))})
                        for place, of_one in enumerate(zip(*lists.values()), 1))
        else:  # the question itself may be an object, with its choices
            yield (str(path), kind, number), (
                {**value, **question, "question": question.get("stem")} if isinstance(question, dict) else value)


def _values(path: Path, odd: Optional[OddRows]) -> Tuple[str, Iterable[Tuple[Any, Any]]]:
    """The objects of a file with their numbers, and what the numbers count: lines, or entries of one document."""
    if str(path).lower().endswith(".json"):
        text = files.read_text(str(path), "the file of questions", files.DOCUMENT_BYTES)
        first, _, others = text.strip().partition("\n")
        if not (others and first[:1] + first.rstrip()[-1:] == "{}"):  # else an object a line
            document = text_files.json_document(str(path), text)
            values = document if isinstance(document, list) else [document]
            if not all(isinstance(value, dict) for value in values):
                raise UserError(f"{path}: must have an object for each question, or for each text with its questions")
            return "entry", enumerate(values, 1)
    return "line", text_files.json_objects(path, odd)


def open_file(path: str, given: Roles, header: Optional[bool], *, labelled: bool,
              like: Layout = UNKNOWN) -> ChoiceFile:
    """Opens a file with the columns of the training's file `like` if it has them, else with those given or detected."""
    split = None
    if path.lower().endswith((".json", ".jsonl")):
        odd = OddRows("")
        table = table_head.of_objects(path, (row for _, row in _objects(path, odd)), odd)
    else:
        table = table_head.read(path, header, _HEADER_NAMES)
        split = Split(path, Columns(tuple(range(table.width)), header=table.header, width=table.width), table.format)
    names = tuple(map(table.column, range(table.width)))
    known, basis = given, "detected"
    if like.choice_columns and (table.names or table.width == like.num_columns) and all(
            name in names for name in (*like.text_columns, *like.choice_columns)):
        known, basis = dict(zip(ROLES, like)), "as in training"
        more = [name for name in map(table.column, _each(table)) if name not in like.choice_columns]
        if more and len(like.choice_columns) > 1:
            log.warn(f"{path}: not read are the choices in {', '.join(more)}, which the training's file did not have")
    elif not table.names:
        known = _by_places(table, given, labelled)
    finder = _find(table, known, labelled)
    file = ChoiceFile(path, Layout(*map(finder.columns, ROLES), table.width), names, split)
    if labelled:
        file = file._replace(layout=file.layout._replace(answers=_way(file, like.answers)))
    finder.report(given, basis, f"answers are {file.layout.answers}" if labelled else "")
    return file


def _way(file: ChoiceFile, likely: str) -> str:
    """How most answers name choices; of several such ways, the one that is `likely`, or else the first of _WAYS."""
    fits, answer = dict.fromkeys(sorted(_WAYS, key=lambda way: way != likely), 0), file.layout.answer_column[0]
    for question in file.questions():
        fits.update({way: count + 1 for way, count in fits.items() if question.right(way) is not None})
    found = max(fits, key=lambda way: fits[way])
    if not fits[found]:
        raise UserError(f"{file.path}: no answer in {answer} is the label of a choice, its number or its "
                        "text; is --answer_column right?")
    for other in (way for way, count in fits.items() if count == fits[found] > 0 and likely != found != way):
        if any(question.right(found) != question.right(other) for question in file.questions()):
            log.warn(f"{file.path}: the answers in {answer} could be {other}, and are read as {found}; "
                     "if that is wrong, write the text of the right choice as the answer")
    return found


def _by_places(table: Table, given: Roles, labelled: bool) -> Roles:
    """The columns of a file without a header: a question, its choices, the answer."""
    names = [table.column(position) for position in range(table.width)]
    doubt = ""
    first, last = table.values(0), table.values(table.width - 1)
    if "text" not in given and table.width > 1 and (column_values.count_rows(first) or column_values.holds_texts(
            table.values(1)) and not column_values.holds_texts(first)):
        doubt = "column 1 may number the questions"
    elif not (labelled or "choice" in given) and all(_ANSWER.fullmatch(str(value).strip()) for value in last):
        doubt = f"column {table.width} may have answers, which are not read here"
    if doubt:
        raise UserError(f"{table.path} has no header, and {doubt}: add a header line with the names of the columns, such "
                        "as question, A, B, answer")
    return {"text": names[:1], "choice": names[1:len(names) - labelled], "answer": names[-1:], **given}


def _find(table: Table, given: Roles, labelled: bool) -> Finder:
    """Finds the columns by their names. Choices are in a column of lists, or in a column each."""
    finder = Finder(table, ROLES[:2 + labelled], given)
    finder.find("text", _CONTEXTS, _QUESTIONS, among=range(table.width))
    finder.find("choice", _LISTS, among=[place for place in range(table.width) if any(
        isinstance(value, (list, dict)) for value in table.values(place))])
    choices = finder.places["choice"] = finder.places["choice"] or _each(table)
    if labelled:
        finder.find("answer", _ANSWERS, among=[place for place in range(table.width) if place not in choices])
    finder.check(*finder.places)
    return finder


def _each(table: Table) -> List[int]:
    """The columns of a choice each: the most whose names differ in their number or letter alone."""
    groups: Dict[Tuple[Optional[str], bool], List[Tuple[str, int]]] = {}
    for position, match in enumerate(_CHOICE.fullmatch(name.strip().lower()) for name in table.names):
        if match and (match.group(1) or not match.group(2).isdecimal()):
            groups.setdefault((match.group(1), match.group(2).isdecimal()), []).append(
                (match.group(2).zfill(2), position))
    return [position for _, position in sorted(max(groups.values(), key=len, default=[]))]


def read_questions(like: Layout, path: Path, given: Roles, header: Optional[bool], odd: OddRows
                   ) -> Tuple[Iterator[Example], int]:
    """The questions of a file or a part of one; a `ReadFile`."""
    if given:
        raise UserError("--text_column and --text_pair_column are for texts, and this model chooses among answers: its "
                        "columns are found as in its training, or by names such as question, A, B")
    if isinstance(path, Part) and str(path).lower().endswith(".json"):
        raise UserError(f"--shard: {path} is one document; a .jsonl file, with an object a line, can be divided")
    file = open_file(str(path), {}, header, labelled=False, like=like)
    part = path if isinstance(path, Part) else None
    examples = (question and Example(question.texts()) for question in file.questions(odd, part))
    return examples, 3  # a question and two choices
