"""Fine-tunes BERT to tag the words of sentences with entities, on every visible GPU.

  python -m tagging.run --data_dir=ner --do_train --do_eval ...
"""

from typing import Optional

from absl import flags

from encoder import model_files, model_flags
from engine import settings
from engine.cli import command
from runs import sets, training_command
from runs.tries import TrySettings
from tagging import data, formats
from tagging.formats import Layout, TaggedFile
from tagging.capability import EntityTagger
from tagging.model import Tagger

USAGE = """Fine-tunes BERT to find entities in sentences, on every GPU that CUDA_VISIBLE_DEVICES
shows.

  python -m tagging.run --data_dir=ner --do_train --do_eval --do_predict \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out

--data_dir has train.*, dev.* and test.*: a word a line, in columns, as in CoNLL's shared tasks, a
blank line after each sentence; or JSON lines (.json, .jsonl), CLUENER's or with spans. The scheme
of the tags (IOB1, IOB2, BIOES, BMES) is detected. --do_predict writes every line of the test file
with what is predicted in an added column, to predict.* in --output_dir.
Batch sizes are per replica (GPU) and count sentences; a sentence longer than --max_seq_length is
read in overlapping windows."""


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    sets.define_flags(values, "Train on the train set.", "Evaluate on the dev set.",
                      "Tag the test set.")
    flags.DEFINE_integer("word_column", Layout().word_column, "The column of the words, from 1; "
                         "-1 is the last.", flag_values=values)
    flags.DEFINE_integer("tag_column", Layout().tag_column, "The column of the tags, from 1; -1 "
                         "is the last. The test file needs none.", flag_values=values)
    flags.DEFINE_bool("crf", False, "Train the scores of transitions between tags, and the "
                      "likelihood of whole sequences (a linear-chain CRF).", flag_values=values)
    training_command.define_flags(values, TrySettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    def model_of(values: flags.FlagValues) -> EntityTagger:
        layout = Layout(values.word_column, values.tag_column)
        files = {name: formats.open_file(sets.find(values, name, formats.EXTENSIONS), layout, has_tags=name != "test")
                 for name in sets.wanted(values)}
        return EntityTagger(files, _tagger(values, files.get("train")), *model_flags.load_model(values))

    training_command.run(values, EntityTagger, model_of)


def _tagger(values: flags.FlagValues, train_file: Optional[TaggedFile]) -> Tagger:
    """The tagger of the training file, or else that of the trained model."""
    if train_file:
        return Tagger(data.find_tags(train_file), values.crf)
    flag, path = model_flags.used(values) or ("--output_dir", settings.required(values, "output_dir"))
    return EntityTagger.open(model_files.open_folder(path, flag)).tagger


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
