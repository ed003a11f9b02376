"""Trains BERT to give similar texts similar vectors, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python -m similarity.run --data_dir=pairs --do_train --do_eval --do_predict \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out

--data_dir has train.*, dev.* and test.*: .tsv, .txt (tab-separated), .csv or .jsonl with an anchor
and its positive a line, also with hard negatives; pairs with a score or a label 0 or 1; pairs with
entailment, neutral or contradiction; single texts; or .json in SQuAD's format, for questions and
their paragraphs. The columns decide, and the log says which. Every other text of a step, on all
cards and in all micro-batches, is a negative.
--do_eval also measures a model that is not trained, given as --init_checkpoint. --do_predict writes
the similarities of each line's texts, or a single text's vector, to test_results.tsv.
Batch sizes are per replica (GPU) and count examples.
"""

import dataclasses
from typing import Any, Dict, Sequence, Tuple

from absl import flags

from encoder import bert, model_flags
from engine import settings
from engine.cli import command
from engine.errors import UserError
from runs import column_finder, sets, training_command
from runs.tries import TrySettings
from similarity import files, model
from similarity.files import TextFile
from similarity.capability import Similarity, TextEncoder, described
from similarity.model import Objective


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    sets.define_flags(values, "Train on the train set.", "Evaluate on the dev set.",
                      "Write the similarities of the test set's pairs, or its texts' vectors.")
    column_finder.define_flags(values, {
        "text": "the texts (anchor, positive, hard negatives)", "label": "the score or label"}, several=["text"])
    flags.DEFINE_enum("pooling", None, bert.POOLINGS, "A text's vector: the mean or maximum of its "
                      "tokens' states, or the state of [CLS]; default: as the model's folder says, "
                      "or else mean.", flag_values=values)
    flags.DEFINE_string("query_prefix", None, "Put before the first text of an example, such as "
                        "'query: '; default: as the model's folder says, or else nothing.",
                        flag_values=values)
    flags.DEFINE_list("matryoshka", None, "Numbers of components, such as 384,128,64: the first so "
                      "many of a vector are trained to be vectors by themselves; default: as the "
                      "model's folder says, or else all alone.", flag_values=values)
    training_command.define_flags(values, Objective, TrySettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    training_command.run(values, TextEncoder, lambda values: TextEncoder(
        _similarity(values), *model_flags.load_model(values)))


def _similarity(values: flags.FlagValues) -> Similarity:
    """What the flags say, and the model's folder where they say nothing; the files of the sets."""
    folder = next(iter(model_flags.folders(values)), None)
    known = folder and described(folder) or Similarity()
    chosen: Dict[str, Any] = {name: values[name].value for name in ("pooling", "query_prefix")
                              if values[name].value is not None}
    if values.matryoshka is not None:
        chosen["matryoshka"] = _sizes(values.matryoshka)
    similarity = known._replace(**chosen, files=_open_files(values))
    if "train" not in similarity.files:
        return similarity
    objective, train = _objective(settings.from_flags(values, Objective), similarity.files["train"])
    if similarity.query_prefix and train.num_texts == 1:
        raise UserError(f"--query_prefix={similarity.query_prefix}: {train.path} has single texts, "
                        "and a prefix tells queries from documents; leave it out (--query_prefix=)")
    return similarity._replace(objective=objective, files={**similarity.files, "train": train})


def _sizes(texts: Sequence[str]) -> Tuple[int, ...]:
    sizes = tuple(int(text) for text in texts if text.strip().isdecimal())
    if len(sizes) != len(texts) or 0 in sizes or len(set(sizes)) < len(sizes):
        raise UserError(f"--matryoshka={','.join(texts)}: must be different numbers of components, "
                        "separated by commas")
    return sizes


def _open_files(values: flags.FlagValues) -> Dict[str, TextFile]:
    given = column_finder.of_flags(values, "text", "label")
    opened = {name: files.open_file(sets.find(values, name, files.EXTENSIONS), given, values.header,
                                    labelled=name != "test") for name in sets.wanted(values)}
    dev = opened.get("dev")
    if dev and dev.num_texts == 1:
        raise UserError(f"{dev.path} has single texts, and an evaluation compares pairs: each line "
                        "must have two texts")
    return opened


def _objective(chosen: Objective, train: TextFile) -> Tuple[Objective, TextFile]:
    """The loss that fits the training file, or that of the flag; the file as the loss reads it."""
    loss = chosen.loss or (model.SCORE if train.has_scores else model.RANKING)
    if loss == model.SCORE and not train.has_scores:
        raise UserError(f"--loss=score needs pairs with numbers as labels, and {train.path} has "
                        f"{train.describe()}; name the column with --label_column, or leave "
                        "--loss out")
    if loss == model.SCORE and chosen.symmetric:
        raise UserError("--symmetric is for --loss=ranking, and --loss=score ranks whole pairs; "
                        "leave one of them out")
    ranks = loss == model.RANKING
    return (dataclasses.replace(chosen, loss=loss, spread_duplicates=ranks and chosen.spread_duplicates),
            train.as_pairs() if ranks and train.has_scores else train)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)
