"""Questions about contexts, tokenized in windows in a store, for training and for prediction."""

import dataclasses
import functools
import json
import pathlib
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from encoder import windows
from encoder.encoding import Encoding, open_or_tokenize
from engine import log
from engine.data import store, text_columns
from engine.data.batches import Source, token_features
from engine.data.store import chunk_of
from engine.disk import files, provenance
from engine.disk.parts import in_chunks
from engine.errors import UserError
from engine.model import Baseline
from engine.settings import REFUSED, setting
from runs import linear_probe, squad_files
from runs.squad_files import Answer, Paragraph, Question, Words

_CHUNK_CHARACTERS = 1 << 20
_COUNTS = ("num_questions", "num_unlabelled", "num_left_out", "num_misplaced")
_SAMPLED_TOKENS = 20  # of a window
_TINY = 1e-9  # the share of windows without an answer where there are none
NUM_SPECIAL = 3  # of `[CLS] question [SEP] tokens of the context [SEP]`, a window


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How a long context is read."""
    topic = "Long texts"
    doc_stride: int = setting(
        128, "Tokens from the beginning of a window over a long context to that of the next.",
        positive=True, change=REFUSED)
    max_query_length: int = setting(
        64, "Longest question in tokens; longer ones are cut.", positive=True, change=REFUSED)
    version_2_with_negative: bool = setting(
        False, "Some questions have no answer in their context, as in SQuAD 2.0.", change=REFUSED)


class TokenizedQuestion(NamedTuple):
    """A question, and what is needed to write its answers."""
    id: str
    context: str
    answers: Sequence[str]  # the right ones, if the file has them
    token_words: np.ndarray  # the number of the context's word that each token is of
    input_ids: Sequence[np.ndarray]  # the tokens of each window
    query_length: int  # tokens of the question in each window
    spans: windows.Windows


class QuestionSet:
    """Questions, in windows. Made by `load` and `encode`.

    Attributes:
        records: one for each question, with the columns of `_columns`.
        first_window: of each question, and the number of all windows, [questions + 1].
        path: of the file, "" of questions in memory.
        content_hash: two sets with the same hash hold the same questions.
        encoding, settings: how they were tokenized.
    """

    def __init__(self, path: str, records: store.Records, content_hash: str, encoding: Encoding,
                 settings: WindowSettings):
        self.path = path
        self.records = records
        self.content_hash = content_hash
        self.encoding = encoding
        self.settings = settings
        self.first_window = records.offsets("window_lengths")
        lengths = records.flat("window_lengths")
        first_segments = np.repeat(records.scalars("query_length") + 2, np.diff(self.first_window))
        # The same token ids with one record for each window.
        of_windows = store.Records.of_chunk({
            "input_ids": (records.flat("input_ids"), lengths), "first_segment_length": first_segments})
        self._source = Source(lengths, functools.partial(token_features, of_windows),
                              encoding.max_seq_length)

    def __len__(self) -> int:
        return len(self._source.lengths)

    @property
    def is_labelled(self) -> bool:
        """Whether the file has the answers of all questions; only of a set that `load` made."""
        return not self.records.facts["num_unlabelled"]

    def training_source(self) -> Source:
        """Batches of windows, with start_positions and end_positions, int32 [b]."""
        starts, ends = self.records.flat("starts"), self.records.flat("ends")

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return {**self._source.fetch(indices, length), "start_positions": starts[indices],
                    "end_positions": ends[indices]}

        return self._source._replace(fetch=fetch)

    def baseline(self) -> Baseline:
        """Always predicting no answer at its frequency, and else any token alike."""
        starts, lengths = self.records.flat("starts"), self._source.lengths
        share = np.clip(np.mean(starts == 0), _TINY, 1.0 - _TINY)

        def loss(indices: np.ndarray) -> float:
            any_token = np.log(np.maximum(lengths[indices] - 1, 1)) - np.log(1.0 - share)
            return float(np.where(starts[indices] == 0, -np.log(share), any_token).mean())

        return Baseline("always predicting no answer at its frequency, or any token", loss)

    def sample(self, most_tokens: int) -> linear_probe.Sample:
        """Windows with some of their tokens: both ends of the answer, and others by chance.

        A conditional logit that is fitted to a random sample of what is not chosen has the same weights in expectation
        (McFadden, "Modelling the Choice of Residential Location", 1978); here the answer's other end always is in it.
        """
        indices = linear_probe.sample(len(self), most_tokens // _SAMPLED_TOKENS)
        lengths = self._source.lengths[indices]
        ends = [self.records.flat(name)[indices, np.newaxis] for name in ("starts", "ends")]
        order = np.random.RandomState(0).rand(len(indices), max(_SAMPLED_TOKENS, lengths.max()))
        for positions in ends:
            np.put_along_axis(order, positions.astype(int), -1.0, axis=1)
        order[np.arange(order.shape[1]) >= lengths[:, np.newaxis]] = 2.0  # padding
        counts = np.minimum(lengths, _SAMPLED_TOKENS)
        is_there = np.arange(_SAMPLED_TOKENS) < counts[:, np.newaxis]
        positions = np.where(is_there, order.argsort(axis=1)[:, :_SAMPLED_TOKENS], 0)

        def fetch(windows_: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return {**self._source.fetch(windows_, length),
                    "positions": positions[np.searchsorted(indices, windows_)].astype(np.int32)}

        labels = np.stack([(positions == right)[is_there] for right in ends], axis=1)
        return linear_probe.Sample(self._source._replace(fetch=fetch), indices, lambda features: linear_probe.Rows(
            features[is_there], labels, counts))

    def source(self, questions: slice) -> Source:
        """Batches of the windows of some questions, which follow each other."""
        return self._source.subset(slice(*self.first_window[[questions.start, questions.stop]]))

    def question(self, number: int) -> TokenizedQuestion:
        """A question to be answered."""
        records, this = self.records, slice(number, number + 1)
        identity, context, answers = (text_columns.from_chunk(records.values(name, this))[0]
                                      for name in ("id", "context", "answers"))
        (token_words, _), (lengths, _), (ids, _) = (
            records.values(name, this) for name in ("token_words", "window_lengths", "input_ids"))
        query_length = int(records.scalars("query_length")[number])
        return TokenizedQuestion(
            identity, context, json.loads(answers), token_words, _split(ids, lengths), query_length,
            _spans(len(token_words), query_length, self.encoding, self.settings))

    def parts(self, num_windows: int) -> Iterator[slice]:
        """All questions in parts that have about so many windows, or one question."""
        counts = np.diff(self.first_window)
        for part in in_chunks(range(len(self.records)), num_windows, counts.__getitem__):
            yield slice(part[0], part[-1] + 1)


def load(path: str, encoding: Encoding, settings: WindowSettings, store_dir: str, *,
         is_training: bool) -> QuestionSet:
    """Opens the tokenized questions of a file, preparing them first if needed.

    Args:
        is_training: leaves out the questions whose answers do not point at their text.
    """
    files.require_file(path, "the file of questions", files.DOCUMENT_BYTES)
    content = provenance.content_hash(path, store_dir)
    key = {"content": content, **encoding.facts(), "is_training": is_training,
           "differing_ids": not is_training, **dataclasses.asdict(settings)}
    prepare = _Preparation(path, encoding, settings, is_training, dict.fromkeys(_COUNTS, 0))
    records = open_or_tokenize(
        path, encoding, store_dir,
        f"{'train' if is_training else 'questions'}-{pathlib.Path(path).stem}", key,
        _columns(encoding, is_training), prepare.paragraphs, prepare.chunk, unit="paragraphs",
        chunk_size=_CHUNK_CHARACTERS, size_of=lambda paragraph: len(paragraph.context),
        facts=lambda: prepare.counts)
    questions = QuestionSet(path, records, content, encoding, settings)
    counts, num_questions = records.facts, f"{records.facts['num_questions']:,} questions"
    if is_training and counts["num_misplaced"]:
        log.warn(f"{path}: {counts['num_misplaced']:,} answers are not where their answer_start "
                 f"says; they are not learned from, and {counts['num_left_out']:,} of "
                 f"{num_questions}, which have no other, are left out")
    if not len(questions):
        raise UserError(f"{path}: of its {num_questions} none can be used: they have no answers "
                        "where their answer_start says, or no context")
    return questions


def encode(paragraphs: Iterable[Paragraph], encoding: Encoding,
           settings: WindowSettings) -> QuestionSet:
    """Questions in memory, tokenized to be answered."""
    prepare = _Preparation("", encoding, settings, False, dict.fromkeys(_COUNTS, 0))
    records = store.Records.of_chunk(prepare.chunk(paragraphs))
    return QuestionSet("", records, "", encoding, settings)


def _columns(encoding: Encoding, is_training: bool) -> Dict[str, store.Column]:
    numbers = store.Column("int32", ragged=True)
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True),
               "window_lengths": numbers,  # tokens of each window, all together
               "query_length": store.Column("int32", ragged=False)}
    if is_training:
        return {**columns, "starts": numbers, "ends": numbers}  # of the answer in each window
    return {**columns, "id": text_columns.COLUMN, "context": text_columns.COLUMN,
            "answers": text_columns.COLUMN,  # a JSON list of texts
            "token_words": numbers}  # the number of the word that each token is of


class _Preparation(NamedTuple):
    """Cuts the questions of a file into windows, and counts what is odd about them."""
    path: str
    encoding: Encoding
    settings: WindowSettings
    is_training: bool
    counts: Dict[str, int]  # by the names of _COUNTS

    def paragraphs(self) -> Iterator[Paragraph]:
        """The paragraphs of the file; the ids of questions to answer must differ."""
        self.counts.update(dict.fromkeys(_COUNTS, 0))
        seen: Dict[str, str] = {}
        for paragraph in squad_files.paragraphs(self.path):
            for question in () if self.is_training else paragraph.questions:
                this = f"question {len(seen) + 1:,} ({log.brief(repr(question.text))})"
                other = seen.setdefault(question.id, this)
                if other is not this:
                    raise UserError(f"{self.path}: {other} and {this} have the same id, "
                                    f"{question.id!r}: their answers need different ones")
            yield paragraph

    def chunk(self, paragraphs: Iterable[Paragraph]) -> store.Chunk:
        """The questions of some paragraphs."""
        rows = [row for paragraph in paragraphs for row in self._rows(paragraph)]
        return chunk_of(rows, _columns(self.encoding, self.is_training))

    def _rows(self, paragraph: Paragraph) -> Iterator[Dict[str, Any]]:
        """The records of a paragraph's questions."""
        words = squad_files.words_of(paragraph.context)
        context = _Context(words, *self.encoding.tokenizer.encode_batch(words.texts))
        self.encoding.counts.add_rows(1, num_pairs=1)
        self.encoding.counts.add(
            [paragraph.context], context.ids, context.lengths.sum(keepdims=True))
        token_words = np.repeat(np.arange(len(context.lengths)), context.lengths)
        cls, sep = [self.encoding.tokenizer.cls_id], [self.encoding.tokenizer.sep_id]
        queries = _split(*self.encoding.encode([question.text for question in paragraph.questions]))
        for question, query in zip(paragraph.questions, queries):
            self.counts["num_questions"] += 1
            self.counts["num_unlabelled"] += question.answers is None
            query = query[:self.settings.max_query_length]
            spans = _spans(len(context.ids), len(query), self.encoding, self.settings)
            ids = [part for start, length in zip(*spans)
                   for part in (cls, query, sep, context.ids[start:start + length], sep)]
            row = {"input_ids": np.concatenate(ids) if ids else np.zeros(0, np.int64),
                   "window_lengths": spans.lengths + len(query) + NUM_SPECIAL,
                   "query_length": len(query)}
            if not self.is_training:
                answers = json.dumps([answer.text for answer in question.answers or ()])
                texts = {"id": question.id, "context": paragraph.context, "answers": answers}
                yield {**row, "token_words": token_words,
                       **{name: text_columns.to_value(text) for name, text in texts.items()}}
                continue
            span = self._answer_span(question, paragraph.context, context)
            if span:  # at [CLS] in windows that do not have it as a whole
                first, last = span
                is_there = (first >= spans.starts) & (last < spans.starts + spans.lengths)
                shift = len(query) + 2 - spans.starts
                yield {**row, "starts": np.where(is_there, first + shift, 0),
                       "ends": np.where(is_there, last + shift, 0)}

    def _answer_span(self, question: Question, text: str,
                     context: "_Context") -> Optional[Tuple[int, int]]:
        """The tokens of the answer to learn; (-1, -1) without one; None: it cannot be learned."""
        if not question.answers:
            if self.settings.version_2_with_negative and question.answers is not None:
                return -1, -1
            if question.answers is None:
                raise UserError(f"{self.path}: the question {question.id} has neither `answers` nor `is_impossible`: a "
                                "training needs one of them")
            raise UserError(f"{self.path}: the question {question.id} has no answer to learn; set "
                            "--version_2_with_negative if questions may have none, as in SQuAD 2.0")
        right = [answer for answer in question.answers if points_at_text(answer, text)]
        self.counts["num_misplaced"] += len(question.answers) - len(right)
        self.counts["num_left_out"] += not right
        return _span_of(right[0], context, self.encoding) if right else None


def points_at_text(answer: Answer, context: str) -> bool:
    """Whether the text of an answer is where it says."""
    return bool(answer.text.strip()) and answer.start >= 0 and context.startswith(
        answer.text, answer.start)


class _Context(NamedTuple):
    """A context, tokenized word by word."""
    words: Words
    ids: np.ndarray  # [tokens]
    lengths: np.ndarray  # the tokens of each word, [words]


def _split(values: np.ndarray, lengths: np.ndarray) -> List[np.ndarray]:
    """Consecutive parts of an array, which have these lengths."""
    return np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _spans(num_tokens: int, query_length: int, encoding: Encoding,
           settings: WindowSettings) -> windows.Windows:
    """The windows over a context."""
    return windows.over(num_tokens, encoding.max_seq_length - query_length - NUM_SPECIAL,
                        settings.doc_stride)


def _span_of(answer: Answer, context: _Context, encoding: Encoding) -> Tuple[int, int]:
    """The first and last token of an answer.

    They are those of the words that it is in, or the first ones within these words that are the
    answer's own: of "(1895-1943)." only 1895, if that is the answer. So it is in the original.
    """
    first_word = context.words.of_character(answer.start)
    last_word = context.words.of_character(answer.start + len(answer.text) - 1)
    start = int(context.lengths[:first_word].sum())
    end = start + int(context.lengths[first_word:last_word + 1].sum()) - 1
    wanted = encoding.tokenizer.encode_batch([answer.text])[0].tolist()
    within = context.ids[start:end + 1].tolist()
    for offset in range(len(within) - len(wanted) + 1):
        if wanted and within[offset:offset + len(wanted)] == wanted:
            return start + offset, start + offset + len(wanted) - 1
    return start, end
