"""Fine-tunes a model on tagged sentences: what the engine needs for it."""

import os
from typing import Any, Dict, NamedTuple, Optional

import numpy as np

from encoder import label_config, model_files
from encoder.encoding import Encoding
from engine import files
from engine.devices import Devices
from engine.errors import UserError
from engine.model import Forward
from engine.training import run, throughput
from engine.training.evaluations import Evaluate
from engine.training.settings import RunSettings
from modeling import BertConfig
from tagging import schemes
from tagging.data import SentenceSet, TagSet
from tagging.model import Tagger, forward_of
from tasks import class_weights, kinds, label_types

# The first is the default of --metric_for_best.
METRICS = ("eval_f1", "eval_precision", "eval_recall", "eval_accuracy")
RESULT_FILES = ("eval_results.txt", "eval_results.json", "predict.*", "report.html")


class Job(NamedTuple):
    """A tagger, a model, the devices and the settings: all that a run needs except its data."""
    tagger: Tagger
    config: BertConfig
    encoding: Encoding
    devices: Devices
    settings: RunSettings

    def forward(self, *, gives_scores: bool = False) -> Forward:
        """See `model.forward_of`."""
        return forward_of(self.config, self.tagger, self.encoding.max_seq_length,
                          gives_scores=gives_scores)

    def facts(self) -> Dict[str, Any]:
        """What identifies the run: a resumed run must have the same facts."""
        tags = self.tagger.tags
        return {"task": "tagging", "label set": list(tags.labels),
                "scheme (--scheme)": tags.scheme, "--crf": self.tagger.crf,
                "model config": self.config.to_dict(),
                "vocabulary": self.encoding.vocab_hash,
                "casing (--do_lower_case)": self.encoding.do_lower_case,
                "--max_seq_length": self.encoding.max_seq_length}


def train(job: Job, sentences: SentenceSet, evaluate: Evaluate) -> None:
    """Trains for the epochs of the job's settings; resumes an earlier run.

    Args:
        evaluate: evaluates a checkpoint on the dev set; called only if the settings ask for
            evaluation during the training.
    """
    run.train(run.Run(
        facts={**job.facts(), "training data": sentences.content_hash},
        settings=job.settings,
        devices=job.devices,
        num_examples=len(sentences),
        forward=job.forward(),
        make_source=lambda: sentences.source(_label_weights(job, sentences)),
        operations=lambda lengths: (throughput.FORWARD_AND_BACKWARD
                                    * throughput.encoder_forward(job.config, lengths)),
        evaluate=evaluate,
        save_description=lambda: save_description(job),
        result_files=RESULT_FILES))


def check_class_weights(text: Optional[str], tagger: Tagger) -> None:
    """Raises a UserError if --class_weights is not for this tagger."""
    class_weights.parse(text, _classes(tagger.tags))
    if text and tagger.crf:
        raise UserError(f"--class_weights={text} weighs the loss of each word, and the loss of --crf "
                        "is that of a sentence's tags together; leave one of them out")


def _classes(tags: TagSet) -> label_types.SingleLabel:
    """What has a weight: each type of entities, and being outside of all."""
    return label_types.SingleLabel((schemes.OUTSIDE, *tags.types))


def _label_weights(job: Job, sentences: SentenceSet) -> Optional[np.ndarray]:
    """The weight of each label in the loss, [labels]; None if all are equal."""
    own = job.settings.own
    if not (own and own.class_weights):
        return None
    classes = _classes(sentences.tags)
    class_of = np.array([classes.labels.index(schemes.split(label)[1] or schemes.OUTSIDE)
                         for label in sentences.tags.labels])
    words = class_of[sentences.records.flat("labels")]
    return class_weights.of_classes(own.class_weights, classes, words)[class_of]


def save_description(job: Job) -> None:
    """Writes the description of the model beside its checkpoints."""
    output_dir, encoding = job.settings.output_dir, job.encoding
    model_files.save(output_dir, job.config, encoding.vocab_file, encoding.do_lower_case)
    files.write_json(os.path.join(output_dir, label_config.FILE), {
        **description_of(job.tagger), "lists_mentions": job.tagger.tags.lists_mentions,
        "do_lower_case": encoding.do_lower_case,
        "max_seq_length": encoding.max_seq_length})


def description_of(tagger: Tagger) -> Dict[str, Any]:
    """What of a model's description says what its outputs mean."""
    return {"kind": kinds.TAGS, "types": list(tagger.tags.types), "scheme": tagger.tags.scheme,
            "crf": tagger.crf}


def described(folder: str) -> Tagger:
    """The tagger that `save_description` described; raises a UserError if the file is damaged."""
    path = os.path.join(folder, label_config.FILE)
    record = files.read_record(path, "the tagger's description",
                               {"types": list, "scheme": str, "crf": bool})
    if record["scheme"] not in schemes.NAMES or not all(
            isinstance(name, str) for name in record["types"]):
        raise UserError(f"{path} is damaged: it has the scheme {record['scheme'][:20]!r} and the "
                        f"types {str(record['types'])[:40]}")
    lists_mentions = record.get("lists_mentions", False)  # older models do not have it
    if not isinstance(lists_mentions, bool):
        raise UserError(f"{path} is damaged: lists_mentions is {str(lists_mentions)[:20]!r}")
    return Tagger(TagSet(tuple(record["types"]), record["scheme"], lists_mentions), record["crf"])
