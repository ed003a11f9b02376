"""The probability of each word of a text under a language model: a line of JSON for each line.

  python -m pretraining.score --init_checkpoint=out < texts.txt > scores.jsonl

Each word is masked in turn, all its WordPieces at once (each WordPiece alone with
--nodo_whole_word_mask), and the model predicts it from the rest of the line:

  {"perplexity": 12.8, "tokens": [{"token": "a", "probability": 0.31}, ...]}

The perplexity is exp of the mean of -log(probability) over what was masked in turn; the
probability of a word is the product of its WordPieces'. The perplexity of a line without tokens
is null. Lines longer than --max_seq_length are cut into parts that are scored separately.
Memory does not grow with the text.
"""

import json
import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
from absl import flags

from encoder import model_flags
from encoder.encoding import Encoding
from engine import settings
from engine.cli import command, device_flags, shards
from engine.data import store, text_files
from engine.data.batches import Features, Source
from engine.data.text_files import OddRows
from engine.disk import provenance
from engine.inference import PredictionSettings
from pretraining import model, words
from runs.capability import Encoded
from runs.stream import Input, Stream, Texts, run


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    model_flags.define(values, "the model, which has a masked-LM head")
    flags.DEFINE_integer("max_seq_length", 128, "Longest input in tokens; longer lines are cut.",
                         flag_values=values)
    flags.DEFINE_bool("do_whole_word_mask", True, "Mask all WordPieces of a word at once.",
                      flag_values=values)
    flags.DEFINE_enum("word_segmenter", None, words.SEGMENTERS, f"With --do_whole_word_mask: {words.HELP}.",
                      flag_values=values)
    for name, text in (("input_file", "The text; default: standard input."),
                       ("output_file", "The scores; default: standard output.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    shards.define_flags(values)
    shards.define_skip_flag(values)
    settings.define_flags(values, PredictionSettings)
    values.set_default("predict_batch_size", 32)
    device_flags.define(values)
    return values


class Text(NamedTuple):
    """Some tokenized lines: T tokens, and where words, parts and lines begin."""
    ids: np.ndarray  # int32 [T]
    line_lengths: np.ndarray  # [lines]
    part_of: np.ndarray  # [T], the part that each token is in; a part fits into the model
    position_of: np.ndarray  # [T], of each token in its part, where [CLS] is 0
    begins_word: np.ndarray  # bool [T]

    @classmethod
    def of(cls, lines: List[str], encoding: Encoding, words_of: Optional[words.WordsOf]) -> "Text":
        """Tokenizes lines; the tokens of a word that `words_of` finds are masked together; None: each alone."""
        ids, lengths = encoding.tokenizer.encode_batch(lines)
        longest = encoding.max_seq_length - 2  # [CLS] and [SEP]
        in_line = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        position_of = in_line % longest + 1
        begins_word = np.ones(len(ids), bool)
        if words_of:
            begins_word = words.find_starts(lines, encoding.tokenizer, words_of)[0] | (position_of == 1)
        return cls(ids, lengths, np.cumsum(position_of == 1) - 1, position_of, begins_word)

    def source(self, encoding: Encoding) -> Source:
        """An example for each token: its part with the token's word masked; predicts the token."""
        tokenizer = encoding.tokenizer
        parts = np.bincount(self.part_of)
        records = store.Records.of_chunk({"ids": (self.ids, parts)})
        words = np.cumsum(self.begins_word) - 1
        word_starts = self.position_of[self.begins_word][words]
        word_ends = word_starts + np.bincount(words)[words]

        def fetch(indices: np.ndarray, length: int) -> Features:
            inside = parts[self.part_of[indices]][:, np.newaxis]
            positions = np.arange(length)
            input_ids = np.pad(records.padded("ids", self.part_of[indices], length - 1),
                               ((0, 0), (1, 0)), "constant", constant_values=tokenizer.cls_id)
            input_ids[positions == inside + 1] = tokenizer.sep_id
            masked = ((positions >= word_starts[indices, np.newaxis])
                      & (positions < word_ends[indices, np.newaxis]))
            input_ids[masked] = tokenizer.mask_id
            mask = (positions <= inside + 1).astype(np.int32)
            return {"input_ids": input_ids, "input_mask": mask,
                    "segment_ids": np.zeros_like(mask),
                    "masked_lm_positions": self.position_of[indices, np.newaxis].astype(np.int32),
                    "masked_lm_ids": self.ids[indices, np.newaxis],
                    "masked_lm_weights": np.ones([len(indices), 1], np.float32)}

        return Source(parts[self.part_of] + 2, fetch, encoding.max_seq_length)

    def scores(self, losses: np.ndarray, encoding: Encoding) -> Iterator[Dict[str, Any]]:
        """A JSON object for each line, from -log(probability) of each token, `losses` [T]."""
        tokens = encoding.tokenizer.convert_ids_to_tokens(self.ids.tolist())
        ends = np.cumsum(self.line_lengths)
        for start, end in zip(ends - self.line_lengths, ends):
            perplexity = None
            if start < end:
                mean = losses[start:end].sum(dtype=np.float64) / self.begins_word[start:end].sum()
                perplexity = _rounded(min(mean, 700.0))  # e^710 is more than a float holds
            yield {"perplexity": perplexity, "tokens": [
                {"token": token, "probability": _rounded(-loss)}
                for token, loss in zip(tokens[start:end], losses[start:end])]}


def _rounded(logarithm: float) -> float:
    return float(f"{math.exp(logarithm):.6g}")


class Scores(Stream):
    """A masked language model, and what it says of each line."""
    title, unit, rows, become = "Scoring", "tokens", "lines", "lines have no score"
    chunk_size = 2**16  # characters

    def __init__(self, values: flags.FlagValues):
        config, self._encoding, checkpoint = model_flags.load_masked_lm(values)
        self._words_of = words.segmenter(values.word_segmenter, do_whole_word_mask=values.do_whole_word_mask)
        super().__init__(model.forward_of(config, next_sentences=False), checkpoint, values)

    def size_of(self, row: str) -> int:
        return len(row) + 1

    def open(self, values: flags.FlagValues, source: Input, odd: OddRows) -> Texts:
        return Texts((line for _, line in text_files.lines(source, odd=odd)), lambda number, line, entry: json.dumps(
            entry, ensure_ascii=False) + "\n")

    def encode(self, rows: List[str]) -> Encoded:
        text = Text.of(rows, self._encoding, self._words_of)
        return Encoded(text.source(self._encoding), lambda predictions: text.scores(
            predictions.get("masked_lm_loss", np.zeros(0)), self._encoding))

    def model_facts(self) -> Dict[str, Any]:
        return {"vocabulary": self._encoding.vocab_hash,
                "model": provenance.Source(self.checkpoint.index_file)}


def main(values: flags.FlagValues) -> None:
    """Scores all lines of the input."""
    text_files.check_lines(values.input_file or "")
    with Scores(values) as opened:
        run(values, opened)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)
