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
from pretraining import texts, vocabularies
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

CHECKPOINT = "bert_model.ckpt"

_OF_EXTENSION = ("vocab_file", "init_checkpoint", "words_file")  # flags
_SHOWN_WORDS = 10


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
    """Writes a vocabulary trained on the text."""
    with files.new_folder(flag_values.output_dir, "--output_dir") as folder:
        tokens = vocabularies.train(
            _lines(flag_values.input_file), vocab_size=flag_values.vocab_size,
            num_unused=flag_values.num_unused, do_lower_case=flag_values.do_lower_case,
            min_frequency=flag_values.min_frequency)
        _write_vocab(folder, tokens, flag_values.do_lower_case)
    log.info(f"{flag_values.output_dir}: {len(tokens):,} rows")


def extend(flag_values: flags.FlagValues) -> None:
    """Writes a vocabulary and a checkpoint in which unused rows belong to words."""
    for name in _OF_EXTENSION:
        settings.required(flag_values, name)
    tokenizer = vocabulary.load_tokenizer(flag_values.vocab_file, flag_values.do_lower_case)
    checkpoint = model_files.open_model(flag_values.init_checkpoint, "--init_checkpoint").checkpoint
    num_rows = checkpoint.shapes[vocabularies.WORD_EMBEDDINGS][0]
    tokens = vocabulary.read_tokens(flag_values.vocab_file, num_rows)
    check_vocab_size(flag_values.vocab_file, len(tokens), num_rows, "--init_checkpoint")
    with files.new_folder(flag_values.output_dir, "--output_dir") as folder:
        words = _words(flag_values.words_file, tokenizer)
        extended, added = vocabularies.extend(tokens, words, tokenizer)
        _write_vocab(folder, extended, flag_values.do_lower_case)
        reader = tf.train.load_checkpoint(checkpoint.path)
        variables = {name: np.asarray(reader.get_tensor(name)) for name in checkpoint.shapes}
        checkpoints.write_checkpoint(os.path.join(folder, CHECKPOINT),
                                     vocabularies.extend_embeddings(variables, added))
        config = os.path.join(model_files.folder_of(checkpoint.path), model_files.CONFIG)
        if os.path.exists(config):
            shutil.copy(config, folder)
        else:
            log.warn(f"--output_dir gets no {model_files.CONFIG}: none is beside "
                     f"--init_checkpoint={checkpoint.path}; copy it there")
    shown = ", ".join(word.word for word in added[:_SHOWN_WORDS])
    log.info(f"{flag_values.output_dir}: rows for {len(added):,} words: {shown}"
             + (" …" if len(added) > _SHOWN_WORDS else ""))


def _words(words_file: str, tokenizer: FullTokenizer) -> Iterator[str]:
    """The words of a file, as BERT sees them."""
    for line_number, line in texts.read_lines(words_file):
        words = tokenizer.basic_tokenizer.tokenize(line)
        if len(words) > 1:
            raise UserError(f"{words_file}, line {line_number}: {line.strip()!r} is {len(words)} "
                            f"words for BERT ({' '.join(words)}), and a row is for one word")
        yield from words


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
