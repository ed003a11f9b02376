"""A trained tagger, as other commands see it: see `tasks.kinds`. A text is a sentence."""

import json
from typing import Dict, Iterator, List, Tuple

import numpy as np

from encoder import model_files
from encoder.model_files import ModelFiles
from engine.data import text_files
from engine.errors import UserError
from tagging import data, evaluation, formats, model, schemes, training
from tagging.data import SentenceSet
from tagging.model import Tagger
from tasks import kinds
from tasks.examples import Example
from tasks.kinds import Encoded, Result


def open_model(model_dir: str) -> kinds.Model:
    """See `tasks.kinds`."""
    trained, tagger = open_files(model_dir)
    encoding = trained.encoding(trained.description()["max_seq_length"])

    def encode(examples: List[Example]) -> Encoded:
        texts = [text_files.whole_characters(example.text_a) for example in examples]
        units = [formats.units_of(text) for text in texts]
        # A text without words is read as an unknown one, whose tag nothing is made of.
        words = [[text[start:end] for start, end in found] or [""]
                 for text, found in zip(texts, units)]
        sentences = data.encode_words(words, tagger.tags, encoding)
        return Encoded(sentences.source(),
                       lambda predictions: _results(texts, units, sentences, predictions))

    forward = model.forward_of(trained.config(), tagger, encoding.max_seq_length,
                               gives_scores=True)
    return kinds.Model(forward, encode, False, ["entities"])


def open_files(path: str, flag: str = "--output_dir") -> Tuple[ModelFiles, Tagger]:
    """A trained tagger's files, and what is on the encoder.

    Args:
        path: see `model_files.open_model`.
        flag: the flag that gives it, for messages.

    Raises:
        UserError: there is no trained tagger, or its files do not fit together.
    """
    trained = model_files.open_model(path, flag)
    description = trained.description()
    if not description or description["kind"] != kinds.TAGS:
        raise UserError(f"{flag}={path} has no trained tagger; train one (--do_train)")
    tagger = training.described(trained.folder)
    model_files.require_classifier(trained.checkpoint, trained.flag)
    model_files.check_outputs(trained.checkpoint, len(tagger.tags.labels), trained.flag)
    return trained, tagger


def _results(texts: List[str], units: List[List[Tuple[int, int]]], sentences: SentenceSet,
             predictions: Dict[str, np.ndarray]) -> Iterator[Result]:
    tagged = evaluation.decoded(sentences, sentences.sentences(), predictions)
    for text, places, labels in zip(texts, units, tagged.labels):
        tags = [sentences.tags.labels[index] for index in labels[:len(places)]]
        found = [_entry(text, places[entity.first][0], places[entity.last][1], entity.type)
                 for entity in schemes.entities(tags)]
        yield Result([json.dumps(found, ensure_ascii=False)], {"entities": found})


def _entry(text: str, start: int, end: int, name: str) -> Dict[str, object]:
    """An entity, with its first character and the one after its last."""
    return {"start": start, "end": end, "label": name, "text": text[start:end]}
