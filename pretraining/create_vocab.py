"""A vocabulary for your own text: trained on it, or an existing one extended by domain words.

  python -m pretraining.create_vocab --input_file='books/*.txt' --output_dir=vocab

trains WordPiece (package tokenizers) and writes vocab.txt, with [PAD] in row 0, unused rows
and [UNK], [CLS], [SEP], [MASK] where BERT's vocabularies have them.

  python -m pretraining.create_vocab --extend_vocab --vocab_file=$BERT/vocab.txt \\
    --init_checkpoint=$BERT/bert_model.ckpt --words_file=words.txt --output_dir=extended

gives [unused] rows to the words of a file; writes vocab.txt and bert_model.ckpt, in which the
embedding of each such word is the mean of its WordPieces' and all else is unchanged.
"""

import os
import re
import shutil
from typing import Iterator, List

import numpy as np
from absl import flags

from encoder import model_files, vocabulary
from encoder.encoding import check_vocab_size
from engine import log, settings
from engine.checkpoints import checkpoints
from engine.cli import command
from engine.disk import files
from engine.errors import UserError
from engine.progress import Counter
from pretraining import texts
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

CHECKPOINT = "bert_model.ckpt"

_OF_EXTENSION = ("vocab_file", "init_checkpoint", "words_file")  # flags
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNUSED = re.compile(r"\[unused\d+\]")
# The share of the vocabulary for single characters. In scripts with more, the rarest are [UNK].
_ALPHABET_SHARE = 0.5


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()

    def define(kind, name, default, text, **limits):
        kind(name, default, text, flag_values=values, **limits)

    define(flags.DEFINE_string, "input_file", None, "text files, comma-separated: names, patterns "
           "and directories; .gz is unpacked")
    define(flags.DEFINE_string, "output_dir", None, "the folder to write; new or empty")
    define(flags.DEFINE_bool, "do_lower_case", True, "lower-case the text and drop its accents")
    define(flags.DEFINE_integer, "vocab_size", 30522, "most rows of a new vocabulary",
           lower_bound=6)
    define(flags.DEFINE_integer, "num_unused", 99, "unused rows of a new vocabulary",
           lower_bound=0)
    define(flags.DEFINE_integer, "min_frequency", 2, "how often a token of a new vocabulary must "
           "occur", lower_bound=1)
    define(flags.DEFINE_bool, "extend_vocab", False, "give unused rows of a vocabulary to words")
    define(flags.DEFINE_string, "vocab_file", None, "the vocabulary to extend")
    define(flags.DEFINE_string, "init_checkpoint", None, "the checkpoint to extend")
    define(flags.DEFINE_string, "words_file", None, "words to give rows to, one a line")
    flags.mark_flag_as_required("output_dir", flag_values=values)
    return values


def main(flag_values: flags.FlagValues) -> None:
    """Trains a vocabulary, or extends one, as the flags ask."""
    if flag_values.extend_vocab:
        extend(flag_values)
        return
    for name in _OF_EXTENSION:
        if flag_values[name].value:
            raise UserError(f"--{name} is for --extend_vocab")
    train(flag_values)


def train(flag_values: flags.FlagValues) -> None:
    """Writes a WordPiece vocabulary in BERT's order: [PAD], unused rows, special tokens, WordPieces.

    The package breaks ties between equally frequent WordPieces at random, so the rarest ones
    may differ from run to run.
    """
    vocab_size, do_lower_case = flag_values.vocab_size, flag_values.do_lower_case
    with files.new_folder(flag_values.output_dir, "--output_dir") as folder:
        try:
            from tokenizers import BertWordPieceTokenizer
        except ImportError as error:
            raise UserError("pretraining.create_vocab needs the package tokenizers: pip install "
                            "-r pretraining/requirements.txt") from error
        unused = (f"[unused{number}]" for number in range(flag_values.num_unused))
        head = ["[PAD]", *unused, *_SPECIAL]
        if vocab_size <= len(head):
            raise UserError(f"--vocab_size={vocab_size}: must be above {len(head)}, the special "
                            "and unused rows")
        # Splits text as BERT does: each ideograph is a word; lower-casing also strips accents.
        tokenizer = BertWordPieceTokenizer(lowercase=do_lower_case, strip_accents=do_lower_case,
                                           clean_text=True, handle_chinese_chars=True)
        tokenizer.train_from_iterator(
            _lines(flag_values.input_file), vocab_size=vocab_size - len(head),
            min_frequency=flag_values.min_frequency, special_tokens=[],
            limit_alphabet=max(1, int(vocab_size * _ALPHABET_SHARE)), show_progress=False)
        # Sorted, because the package numbers them differently each time.
        pieces = sorted(set(tokenizer.get_vocab()) - set(head))
        if not pieces:
            raise UserError("--input_file: there is no text in it")
        _write_vocab(folder, head + pieces, do_lower_case)
    log.info(f"{flag_values.output_dir}: {len(head + pieces):,} rows")


def extend(flag_values: flags.FlagValues) -> None:
    """Writes a vocabulary and a checkpoint in which unused rows belong to words."""
    for name in _OF_EXTENSION:
        settings.required(flag_values, name)
    tokenizer = vocabulary.load_tokenizer(flag_values.vocab_file, flag_values.do_lower_case)
    checkpoint = model_files.open_model(flag_values.init_checkpoint, "--init_checkpoint").checkpoint
    num_rows = checkpoint.shapes[_WORD_EMBEDDINGS][0]
    tokens = vocabulary.read_tokens(flag_values.vocab_file, num_rows)
    check_vocab_size(flag_values.vocab_file, len(tokens), num_rows, "--init_checkpoint")
    with files.new_folder(flag_values.output_dir, "--output_dir") as folder:
        words = _new_words(flag_values.words_file, tokenizer)
        rows = [row for row, token in enumerate(tokens) if _UNUSED.fullmatch(token)]
        if not 0 < len(words) <= len(rows):
            raise UserError(f"--words_file has {len(words):,} new words, and --vocab_file "
                            f"{len(rows):,} unused rows: give at least one word, and no more "
                            "words than rows")
        reader = tf.train.load_checkpoint(checkpoint.path)
        variables = {name: np.asarray(reader.get_tensor(name)) for name in checkpoint.shapes}
        embeddings = variables[_WORD_EMBEDDINGS].copy()
        for row, word in zip(rows, words):
            pieces = tokenizer.wordpiece_tokenizer.tokenize(word)
            embeddings[row] = variables[_WORD_EMBEDDINGS][
                tokenizer.convert_tokens_to_ids(pieces)].mean(axis=0)
            tokens[row] = word
        _write_vocab(folder, tokens, flag_values.do_lower_case)
        checkpoints.write_checkpoint(os.path.join(folder, CHECKPOINT),
                                     {**variables, _WORD_EMBEDDINGS: embeddings})
        config = os.path.join(model_files.folder_of(checkpoint.path), model_files.CONFIG)
        if os.path.exists(config):
            shutil.copy(config, folder)
        else:
            log.warn(f"--output_dir gets no {model_files.CONFIG}: none is beside "
                     f"--init_checkpoint={checkpoint.path}; copy it there")
    log.info(f"{flag_values.output_dir}: rows for {len(words):,} words: "
             f"{log.brief(', '.join(words))}")


def _new_words(words_file: str, tokenizer: FullTokenizer) -> List[str]:
    """The words of a file, as BERT sees them, that have no row yet, each once."""
    found = []
    for line_number, line in texts.read_lines(words_file):
        words = tokenizer.basic_tokenizer.tokenize(line)
        if len(words) > 1:
            raise UserError(f"{words_file}, line {line_number}: {line.strip()!r} is {len(words)} "
                            f"words for BERT ({' '.join(words)}), and a row is for one word")
        found += words
    return [word for word in dict.fromkeys(found) if word not in tokenizer.vocab]


def _lines(input_file: str) -> Iterator[str]:
    with Counter("Reading", unit="lines") as counter:
        for path in files.find(input_file or "", "--input_file"):
            for _, line in texts.read_lines(path):
                counter.advance(1)
                yield line


def _write_vocab(folder: str, tokens: List[str], do_lower_case: bool) -> None:
    files.write_text(os.path.join(folder, vocabulary.FILE), "\n".join(tokens) + "\n")
    vocabulary.write_casing(folder, do_lower_case)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)
