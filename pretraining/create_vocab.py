"""A vocabulary for your own text.

  python -m pretraining.create_vocab --input_file='books/*.txt' --output_dir=vocab

trains WordPiece (package tokenizers) and writes vocab.txt, with [PAD] in row 0, unused rows
and [UNK], [CLS], [SEP], [MASK] where BERT's vocabularies have them.
"""

import os
from typing import Iterator

from absl import flags

from encoder import vocabulary
from engine import log, settings
from engine.cli import command
from engine.data import text_files
from engine.disk import files, patterns
from engine.disk.artifact import WHOLE, Artifact
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.progress import Counter
from pretraining import texts

_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The share of the vocabulary for single characters. In scripts with more, the rarest are [UNK].
_ALPHABET_SHARE = 0.5


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("input_file", None, "text files, comma-separated: names, patterns and "
                        "directories; .gz is unpacked", flag_values=values)
    flags.DEFINE_string("output_dir", None, "the folder to write; new or empty", flag_values=values)
    flags.DEFINE_bool("do_lower_case", True, "lower-case the text and drop its accents",
                      flag_values=values)
    flags.DEFINE_integer("vocab_size", 30522, "most rows of the vocabulary", lower_bound=6,
                         flag_values=values)
    flags.DEFINE_integer("num_unused", 99, "unused rows of the vocabulary", lower_bound=0,
                         flag_values=values)
    flags.mark_flag_as_required("output_dir", flag_values=values)
    return values


def main(flag_values: flags.FlagValues) -> None:
    """Writes a vocabulary in BERT's order: [PAD], unused rows, special tokens, WordPieces.

    The package breaks ties between equally frequent WordPieces at random, so the rarest ones
    may differ from run to run.
    """
    vocab_size, do_lower_case = flag_values.vocab_size, flag_values.do_lower_case
    output = os.path.join(flag_values.output_dir, vocabulary.FILE)
    parent = os.path.dirname(os.path.abspath(flag_values.output_dir))
    files.make_directory(parent, "the folder of --output_dir")  # removes what killed processes left
    if os.path.exists(output) and _artifact(output, flag_values).state().name == WHOLE:
        log.info(f"{output} is whole: nothing is left to do")
        return
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
            min_frequency=2, special_tokens=[],
            limit_alphabet=max(1, int(vocab_size * _ALPHABET_SHARE)), show_progress=False)
        # Sorted, because the package numbers them differently each time.
        pieces = sorted(set(tokenizer.get_vocab()) - set(head))
        if not pieces:
            raise UserError("--input_file: there is no text in it")
        files.write_text(os.path.join(folder, vocabulary.FILE), "\n".join(head + pieces) + "\n")
        vocabulary.write_casing(folder, do_lower_case)
        draft = os.path.join(folder, vocabulary.FILE)
        files.write_json(f"{draft}.json", _artifact(output, flag_values).described(draft))
    log.info(f"{flag_values.output_dir}: {len(head + pieces):,} rows")


def _artifact(path: str, values: flags.FlagValues) -> Artifact:
    return Artifact(path, {**settings.as_facts(values, ("input_file", "output_dir")), "--input_file": [
        Source(path) for path in patterns.find(values.input_file or "", "--input_file")]})


def _lines(input_file: str) -> Iterator[str]:
    with Counter("Reading", unit="lines") as counter:
        for path in patterns.find(input_file or "", "--input_file"):
            text_files.check_lines(path)
            for _, line in texts.read_lines(path):
                counter.advance(1)
                yield line


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)
