"""Fine-tunes a model that scores how well a phrase fits a slot, and ranks phrases with it.

  python -m rewriting.run --data_dir=slots --do_train --do_eval ...
"""

from absl import flags

from encoder import model_flags
from engine.cli import command
from rewriting.scorer import CLASSIFICATION, PhraseScorer, find
from runs import sets, training_command
from tasks import capability

USAGE = """Fine-tunes any BERT checkpoint to score how well a phrase fits a slot of a text, on
every GPU that CUDA_VISIBLE_DEVICES shows.

  python -m rewriting.run --data_dir=slots --do_train --do_eval --vocab_file=$BERT/vocab.txt \\
    --bert_config_file=$BERT/bert_config.json --init_checkpoint=$BERT/bert_model.ckpt \\
    --output_dir=out

--data_dir is the output of `python -m rewriting.create_data`, or has files in bert-ad's format.
--do_predict scores the phrases of the test set, whose labels are not needed: test_results.tsv has
the probabilities of "does not fit" and "fits", predict.txt the likelier of them, a line for each
phrase in the order of the file. --do_export writes the model for other programs.
Batch sizes are per replica (GPU) and count pairs of a slot and a phrase."""


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    sets.define_flags(values, "Train on the train set.", "Rank the phrases of the dev set.",
                      "Predict which phrases of the test set fit; it needs no labels.")
    flags.DEFINE_bool("do_test", False, "Rank the phrases of the test set; the names of its "
                      "metrics end in _test.", flag_values=values)
    capability.define_flags(values)
    training_command.define_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, ranks, predicts and exports, as the flags ask."""
    def scorer(values: flags.FlagValues) -> PhraseScorer:
        for name in sets.wanted(values) + ["test"] * values.do_test:
            find(values, name)  # what is missing shall not wait for the model
        return PhraseScorer(CLASSIFICATION._replace(predict_labels=values.predict_labels),
                            *model_flags.load_model(values))

    training_command.run(values, PhraseScorer, scorer)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
