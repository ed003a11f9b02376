"""The head that tags the words of sentences, as `runs` sees it: see `runs.head`."""

import json
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import label_config, model_files
from encoder.model_files import ModelFiles
from engine.checkpoints.checkpoints import Checkpoint
from engine.data import text_files
from engine.disk import files
from engine.errors import UserError
from engine.model import Forward, Mode
from runs import kinds, model_card, sets
from runs.head import Card, Encoded, Head, Job, Model, Reader, Result, Sets, Training
from runs.rows import Example
from tagging import data, evaluation, formats, model, report, schemes
from tagging.data import SentenceSet, TagSet
from tagging.formats import Layout, TaggedFile
from tagging.model import Tagger


def _facts(trained: Model) -> Dict[str, Any]:
    tags = trained.own.tags
    return {"task": "tagging", "label set": list(tags.labels), "scheme": tags.scheme,
            "--crf": trained.own.crf, **trained.encoder_facts()}


def require(trained: Model, checkpoint: Checkpoint, flag: str) -> None:
    """See `Head.require`."""
    model_files.require_classifier(checkpoint, flag)
    model_files.check_outputs(checkpoint, len(trained.own.tags.labels), flag)


def open_files(values: flags.FlagValues) -> Dict[str, TaggedFile]:
    """The files of the sets that the flags ask for, by the names of the sets.

    Raises:
        UserError: one is missing, or has no sentence.
    """
    layout = Layout(values.word_column, values.tag_column)
    return {name: formats.open_file(sets.find(values, name, formats.EXTENSIONS), layout,
                                    has_tags=name != "test") for name in sets.wanted(values)}


def _load(job: Job, values: flags.FlagValues) -> Sets:
    own, settings = job.model.own, job.settings
    found = {name: data.load_sentences(
        file, own.tags, job.model.encoding, settings.store_dir,
        dynamic_padding=settings.training.dynamic_padding)
        for name, file in open_files(values).items()}
    train = found.get("train") and _training(job, found["train"])
    return Sets(train, *({"": found[name]} if name in found else {} for name in ("dev", "test")))


def _training(job: Job, sentences: SentenceSet) -> Training:
    own, config = job.model.own, job.model.config
    return Training(
        len(sentences), sentences.content_hash, model.forward_of(config, own), sentences.source,
        baseline=sentences.baseline())


def _forward(trained: Model, *_: Any) -> Forward:
    return model.forward_of(trained.config, trained.own)


def _describe(own: Tagger) -> Dict[str, Any]:
    return {"kind": kinds.TAGS, "types": list(own.tags.types), "scheme": own.tags.scheme,
            "crf": own.crf}


def open_model(trained: ModelFiles) -> Model:
    """See `Head.open`."""
    description = trained.description()
    if not description or description["kind"] != kinds.TAGS:
        raise UserError(f"{trained.flag}={trained.path} has no trained tagger; train one "
                        "(--do_train)")
    path = trained.file(label_config.FILE)
    record = files.read_record(path, "the tagger's description",
                               {"types": list, "scheme": str, "crf": bool})
    if record["scheme"] not in schemes.NAMES:
        raise UserError(f"{path} is damaged: it has the scheme {record['scheme'][:20]!r}")
    own = Tagger(TagSet(tuple(record["types"]), record["scheme"]), record["crf"])
    found = Model(own, trained.config(), trained.encoding(description["max_seq_length"]))
    require(found, trained.checkpoint, trained.flag)
    return found


def _outputs(trained: Model, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
    whole = tf.ones_like(inputs["num_words"], tf.float32)
    words, scores = model.words_of(
        trained.config, trained.own, {**inputs, "opens": whole, "closes": whole}, mode)
    # Decoding goes from word to word, and needs two: one more is added, which is in no sentence.
    padded = words._replace(emissions=tf.pad(words.emissions, [[0, 0], [0, 1], [0, 0]]))
    return {"label_index": model.best_labels(trained.own, padded, scores)[:, :-1],
            "scores": words.emissions}


def _card(trained: Model) -> Card:
    labels = trained.own.tags.labels
    return Card(
        "It finds entities in sentences", labels,
        f"""\
`[CLS] sentence [SEP]` as WordPiece ids of `assets.extra/vocab.txt`, {model_card.casing(trained)},
at most {trained.encoding.max_seq_length} of them; the program below cuts a longer sentence into windows.
Inputs, all int32: `input_ids` `[batch, length]`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, all 0; `first_pieces` `[batch, words]`, the position in `input_ids` of each
word's first piece, padded with 0; `num_words` `[batch]`, at least 1.""",
        f"""\
`label_index`, int32 `[batch, words]`, the labels of the words, by their numbers above: of
the sequences that the scheme allows the best one; what stands after a sentence's last word means
nothing. `scores`, float32 `[batch, words, {len(labels)}]`, of each label by itself""",
        model_card.PREDICT.format(input="texts.txt"))


def _reader(trained: Model) -> Reader:
    def encode(examples: List[Example]) -> Encoded:
        texts = [text_files.whole_characters(example.text_a) for example in examples]
        units = [formats.units_of(text) for text in texts]
        # A text without words becomes one [UNK]; its tag is ignored.
        words = [[text[start:end] for start, end in found] or [""]
                 for text, found in zip(texts, units)]
        sentences = data.encode_words(words, trained.own.tags, trained.encoding)
        return Encoded(sentences.source(),
                       lambda predictions: _results(texts, units, sentences, predictions))

    return Reader(_forward(trained), encode, False, ["entities"])


def _results(texts: List[str], units: List[List[Tuple[int, int]]], sentences: SentenceSet,
             predictions: Dict[str, np.ndarray]) -> Iterator[Result]:
    entities = evaluation.entities_of(sentences, sentences.of_sentences(predictions["labels"]))
    for text, places, some in zip(texts, units, entities):
        found = [formats.entry_of(text, places, entity) for entity in some if places]
        yield Result([json.dumps(found, ensure_ascii=False)], {"entities": found})


HEAD = Head(
    "Tagging", "windows",
    facts=_facts, require=require, load=_load, forward=_forward,
    measure=evaluation.measure, write=evaluation.write, prediction_files=["predict.*"],
    describe=_describe, open=open_model,
    inputs={"input_ids": 2, "input_mask": 2, "segment_ids": 2, "first_pieces": 2, "num_words": 1},
    outputs=_outputs, card=_card, reader=_reader, page=report.page,
    num_outputs=lambda own: len(own.tags.labels),
    # The first is the default of --metric_for_best.
    metrics=lambda own: ("eval_f1", "eval_precision", "eval_recall", "eval_accuracy"))
