"""What a user's file of texts is, by its columns; its examples, one by one.

| columns | an example |
| --- | --- |
| one of texts | a text, which is its own positive |
| two or more of texts | an anchor, its positive and its hard negatives |
| two of texts, one of numbers | a pair and its score |
| two of texts, one of entailments | a premise, what it entails, what it contradicts |

A question of a file in SQuAD's format (.json) is an anchor, and its paragraph the positive.
"""

import collections
import itertools
import re
from typing import Any, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from encoder.label_types import Regression, SingleLabel
from engine import log
from engine.data import text_files
from engine.disk import files
from engine.errors import UserError
from engine.progress import counted
from runs import column_values, columns, squad_files, table_head
from runs.column_finder import Finder, Roles
from runs.rows import Columns, Example, Split, read_rows
from runs.table_head import Table

TEXTS, TUPLES, SCORES, ENTAILMENT, QUESTIONS = "texts", "tuples", "scores", "entailment", "questions"
EXTENSIONS = (*text_files.FORMATS, ".json")

# Common names of columns, the likeliest first.
_ANCHORS = ("anchor", "query", "question", "question1", "sentence1", "premise", "text_a", "text",
            *(first for first, _ in table_head.PAIRS))
_POSITIVES = ("positive", "question2", "sentence2", "hypothesis", "answer", "passage", "document",
              "context", "text_b", "text_pair", *(second for _, second in table_head.PAIRS))
_NEGATIVE = re.compile(r"(hard_)?negative([_ -]?\d+)?")
_LABELS = ("score", "similarity", "label", "labels", "gold_label", "is_duplicate")
_HEADER_NAMES = ("anchor", "positive", "negative", "context", "is_duplicate")
_ID_NAME = re.compile(r"(?!.*(label|class|score|relation|target|gold))(.*[\W_])?(id|idx|uuid)|"
                      r"(q|p|d|c|u|doc|pair|query|question|passage|corpus|sent)id")

_CONTRADICTED, _ENTAILED, _NEUTRAL = _RELATIONS = ("contradiction", "entailment", "neutral")
_NO_LABEL = "-"  # MNLI's, of pairs whose annotators disagree
_LABEL_KINDS = {SCORES: Regression(), ENTAILMENT: SingleLabel(_RELATIONS, {_NO_LABEL: _NEUTRAL})}


class TextFile(NamedTuple):
    """A file of texts. Made by `open_file`."""
    path: str
    layout: str
    num_texts: int  # of an example
    split: Split = Split("", Columns((), header=False, width=0), "json")  # none of a file of questions
    above: Optional[float] = None  # of a file with scores: those of pairs that are read as similar

    def facts(self) -> List[Any]:
        """What is read of the file, as stores, indexes and runs of 1.0 have it."""
        _, columns, form, keys, *_ = self.split
        return [self.layout, self.num_texts, form, *columns[:3], len(keys) or columns.width, keys, self.above]

    @property
    def has_scores(self) -> bool:
        """Whether the score of an example means something."""
        return self.layout == SCORES and self.above is None and self.split.columns.label is not None

    def describe(self) -> str:
        """What an example is."""
        hard = self.num_texts - 2
        if self.layout == ENTAILMENT:
            return "premises with an entailed hypothesis as the positive" + (
                " and a contradicted one as the hard negative" if hard > 0 else "")
        return {TEXTS: "single texts", SCORES: "pairs with a score",
                QUESTIONS: "questions with their paragraphs as the positives",
                TUPLES: "anchors with a positive"
                + (f" and {counted(hard, 'hard negatives')}" if hard > 0 else "")}[self.layout]

    def as_pairs(self) -> "TextFile":
        """Of a file with scores, the pairs whose score is above half the largest."""
        scores = [example.label for example in self.examples()]
        above = max(scores, default=0.0) / 2
        count = sum(score > above for score in scores)
        if not count:
            raise UserError(f"{self.path}: no pair has a score above 0, and --loss=ranking learns "
                            "from pairs that are similar")
        log.info(f"{self.path}: --loss=ranking learns from the {count:,} of {len(scores):,} pairs "
                 f"whose score is above {above:g}, half the largest")
        return self._replace(above=above)

    def examples(self) -> Iterator[Example]:
        """Streams the examples: an anchor, its positive, its hard negatives; a label is a pair's score.

        Only a file with entailment is read as a whole.
        """
        if self.layout == QUESTIONS:
            examples = self._of_questions()
        elif self.layout == ENTAILMENT and self.split.columns.label is not None:
            examples = self._of_relations()
        else:
            examples = (Example(texts, score) for texts, score in self._rows()
                        if self.above is None or score > self.above)
        first = next(examples, None)
        if first is None:
            raise UserError(f"{self.path} holds no examples")
        yield from itertools.chain([first], examples)

    def _of_questions(self) -> Iterator[Example]:
        for paragraph in squad_files.paragraphs(self.path):
            for question in paragraph.questions:
                texts = question.text, paragraph.context
                _check_texts(texts, f"{self.path}, question {question.id}")
                yield Example(texts)

    def _of_relations(self) -> Iterator[Example]:
        """Each entailment of a premise and, in a file with contradictions, one of those."""
        premises: Dict[str, Tuple[List[str], ...]] = {}  # → hypotheses, by _RELATIONS
        for (premise, hypothesis), relation in self._rows():
            premises.setdefault(premise, ([], [], []))[relation].append(hypothesis)
        num_left_out = 0
        for premise, (contradicted, entailed, _) in premises.items():
            if not entailed or self.num_texts == 3 and not contradicted:
                num_left_out += 1
                continue
            hard = itertools.cycle(contradicted)
            for hypothesis in entailed:
                yield Example((premise, hypothesis, *itertools.islice(hard, self.num_texts - 2)))
        if num_left_out:
            log.info(f"{self.path}: left out {num_left_out:,} of {len(premises):,} premises, which "
                     f"have no {' or no '.join((_ENTAILED, _CONTRADICTED)[:self.num_texts - 1])}")

    def _rows(self) -> Iterator[Tuple[Tuple[str, ...], Any]]:
        """The texts of each row but blank ones, and its label."""
        skipped: Counter[str] = collections.Counter()
        for line_number, _, example in read_rows(_LABEL_KINDS.get(self.layout), self.split, skipped=skipped):
            _check_texts(example.texts, f"{self.path}, line {line_number}")
            yield example
        for what, number in skipped.items():
            log.warn(f"{self.path}: skipped {number:,} {what}")


def _check_texts(texts: Sequence[str], where: str) -> None:
    if not all(map(str.strip, texts)):
        raise UserError(f"{where}: a text is empty; leave such examples out")


def open_file(path: str, given: Roles, header: Optional[bool], *, labelled: bool) -> TextFile:
    """Finds out what a file is, by the flags, the names of its columns and its first rows.

    Args:
        given: the columns of the flags, of the roles "text" and "label".
        header: whether the first line names the columns; None detects it.
        labelled: whether labels are read.
    """
    if path.lower().endswith(".json"):
        file = TextFile(files.require_file(path, "file of questions", files.DOCUMENT_BYTES), QUESTIONS, 2)
        log.info(f"{path}: {file.describe()}")
        return file
    table = table_head.read(path, header, _HEADER_NAMES)
    finder = _find(table, given, labelled)
    texts, labels = finder.places["text"], finder.places["label"]
    if not (labels or given.get("text")):
        columns.check_commas(table)
    layout, num_texts = TEXTS if len(texts) == 1 else TUPLES, len(texts)
    for label in labels:
        layout = _layout_of(table.values(label)) or _refuse_labels(table, label)
        if layout == SCORES and labelled:
            _check_scores(table, texts, label)
        elif labelled:
            relations = collections.Counter(map(str, table.values(label)))
            # A few contradictions are too few: premises without one would be left out.
            num_texts = 3 if 2 * relations[_CONTRADICTED] >= max(1, relations[_ENTAILED]) else 2
    file = TextFile(path, layout, num_texts, finder.split(labelled))
    finder.report(given, what=file.describe())
    if not given.get("text"):
        finder.warn_of_unread("--text_column=" + ",".join((*finder.columns("text"), "{}")))
    if labelled and layout == TUPLES and num_texts == 2:
        _warn_of_labels(finder)
    return file


def _find(table: Table, given: Roles, labelled: bool) -> Finder:
    """Finds the columns of the texts, and that of the label if there is one."""
    name = "".join(given.get("label", ()))
    if not (labelled or name in table.names or name.isdecimal() and int(name) <= table.width and not table.names):
        given = {**given, "label": ()}  # a test set may lack it
    finder = Finder(table, ("text", "label"), given)
    finder.places["text"] = finder.places["text"] or _named_texts(table)
    finder.find("label", _LABELS)
    if not finder.places["text"]:
        free = _without_numbers(table, finder.free)
        label = finder.places["label"] = finder.places["label"] or _detected_labels(table, free)
        partial = [position for position in free if table.is_partial(position) and position not in label]
        finder.places["text"] = [position for position in free if position not in (*label, *partial)]
        if partial:
            log.warn(f"{table.path}: not read are keys that only some objects have: "
                     f"{', '.join(map(table.column, partial))}")
    finder.check("text")
    if finder.places["label"] and len(finder.places["text"]) != 2:
        raise UserError(
            f"{table.path}: the label in column {table.column(*finder.places['label'])} would belong to "
            f"{len(finder.places['text'])} texts, and labels belong to pairs; name the columns of the two texts "
            "with --text_column=first,second")
    return finder


def _named_texts(table: Table) -> List[int]:
    """The columns of texts by their names; none if there is no pair."""
    pair = table.named((pair for pair in itertools.product(_ANCHORS, _POSITIVES) if pair[0] != pair[1]), "text")
    return [*pair, *(position for position, name in enumerate(table.names)
                     if pair and _NEGATIVE.fullmatch(name.strip().lower()))]


def _without_numbers(table: Table, free: Sequence[int]) -> List[int]:
    """The free columns but those that number the rows or have ids, which the log names."""
    numbers = [position for position in free if table.numbers_rows(position)
               or table.width > 1 and _has_ids(table, position)]
    if numbers:
        log.info(f"{table.path}: column {', '.join(map(table.column, numbers))} numbers the rows or has ids, and is not "
                 f"read; to read scores there, set --label_column={table.column(numbers[0])}, and texts --text_column")
    return [position for position in free if position not in numbers]


def _has_ids(table: Table, position: int) -> bool:
    values = table.values(position)
    is_named = bool(table.names) and bool(_ID_NAME.fullmatch(table.names[position].strip().lower()))
    return column_values.are_ids(values, with_letters=True) or (
        is_named and not column_values.holds_texts(values))


def _detected_labels(table: Table, free: Sequence[int]) -> List[int]:
    """A free column with labels in it, if there is one."""
    labels = [position for position in free
              if table.width > 1 and table.rows and _layout_of(table.values(position))]
    if len(labels) > 1:
        raise UserError(f"{table.path}: several columns have nothing but numbers or labels; {table.describe()}; name "
                        "those to read with --text_column and --label_column")
    return labels


def _warn_of_labels(finder: Finder) -> None:
    """Warns of columns that may say which of the pairs are similar."""
    table = finder.table
    unread = [table.column(position) for position in finder.free if table.values(position) and _layout_of(
        table.values(position)) and not (table.numbers_rows(position) or _has_ids(table, position))]
    if unread:
        log.warn(f"{table.path}: column {', '.join(unread)} is not read, and each pair counts as similar; if it says how "
                 f"similar the texts of a pair are, set --label_column={unread[0]}")


def _layout_of(labels: Sequence[Any]) -> Optional[str]:
    """What nearly all labels say of pairs; reading the file reports the others. None: nothing."""
    texts = [str(label).strip() for label in labels]
    if 10 * sum(text.lower() in (*_RELATIONS, _NO_LABEL) for text in texts) >= 9 * len(texts):
        return ENTAILMENT
    return SCORES if column_values.are_mostly_numbers(texts) else None


def _check_scores(table: Table, texts: Sequence[int], label: int) -> None:
    """Raises a UserError if the scores of premises and hypotheses are Hugging Face's numbers of relations.

    Warns of columns with other names if theirs may be, too.
    """
    numbers = {float(text) for text in map(str, table.values(label)) if column_values.are_numbers([text])}
    if not table.names or not {2} <= numbers <= {-1, 0, 1, 2}:
        return
    column = table.column(label)
    words = f"write {_ENTAILED} for 0, {_NEUTRAL} for 1, {_CONTRADICTED} for 2 and {_NO_LABEL} for -1"
    if [table.names[position].lower() for position in texts] == ["premise", "hypothesis"]:
        raise UserError(f"{table.path}: column {column} has the relations of premises and hypotheses as numbers, "
                        f"which would be read as scores: {words}")
    if {0, 1} <= numbers and table.names[label].strip().lower() in ("label", "labels", "gold_label"):
        log.warn(f"{table.path}: the numbers in column {column} are read as scores; if they are the classes of "
                 f"NLI, where 0 is entailment, {words}")


def _refuse_labels(table: Table, label: int) -> str:
    odd = next(text for text in sorted(str(value).strip() for value in table.values(label))
               if not column_values.are_numbers([text]))
    raise UserError(f"{table.path}: column {table.column(label)} has {log.brief(repr(odd))}, and "
                    "labels are numbers or entailment, neutral and contradiction; name another one "
                    "with --label_column, or the columns of the texts with --text_column")
