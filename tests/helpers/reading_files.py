"""Made-up questions about made-up contexts, in SQuAD's format, for the tests of reading."""

import json
import random

import numpy as np

from conftest import WORDS
from reading import data
from reading.data import WindowSettings

PLAIN = [word for word in WORDS if word.isalpha()]
# Words that the tiny model's vocabulary cuts, drops or does not know.
ODD = ["(dog's)", "Dogs,", "cat.", "Ünliked", "treehouse", "the-river", "\u200b", "THE", "bird!?"]


def question(identity, text, answers, **entries):
    return {"id": identity, "question": text,
            "answers": [{"text": answer, "answer_start": start} for answer, start in answers],
            **entries}


def text_of(*paragraphs, **entries):
    """A file with these (context, questions), each paragraph in an article of its own."""
    data = [{"title": "made up", "paragraphs": [{"context": context, "qas": questions}]}
            for context, questions in paragraphs]
    return json.dumps({"version": "1.1", "data": data, **entries})


def write(path, *paragraphs, **entries):
    """Writes `text_of`."""
    path.write_text(text_of(*paragraphs, **entries), encoding="utf-8")
    return str(path)


def write_made_up(path, *, contexts=8, per_context=3, seed=0, unanswerable=0.0):
    """Contexts of 20 to 80 words; the answers are spans of 1 to 4 of their words."""
    generator = random.Random(seed)
    paragraphs = []
    for number in range(contexts):
        words = [generator.choice(PLAIN if generator.random() < 0.8 else ODD)
                 for _ in range(generator.randint(20, 80))]
        context = " ".join(words)
        questions = []
        for index in range(per_context):
            first = generator.randrange(len(words) - 4)
            start = len(" ".join([*words[:first], ""]))
            answer = " ".join(words[first:first + generator.randint(1, 4)])
            has_none = generator.random() < unanswerable
            asked = " ".join(generator.choice(PLAIN) for _ in range(generator.randint(2, 12))) + " ?"
            questions.append(question(f"{number}-{index}", asked, [] if has_none else
                                      [(answer, start)], is_impossible=has_none))
        paragraphs.append((context, questions))
    return write(path, *paragraphs)


def load(path, tiny_model, tmp_path, is_training=True, **settings):
    return data.load(path, tiny_model.encoding(32), WindowSettings(**{
        "doc_stride": 10, "max_query_length": 8, **settings}), str(tmp_path / "store"),
        is_training=is_training)


def features(questions, is_training):
    source = (questions.training_source() if is_training else
              questions.source(slice(0, len(questions.records))))
    return source.fetch(np.arange(len(questions)), 32)


def googles_features(google, path, tiny_model, is_training, v2, monkeypatch):
    """The windows that Google's code makes; it logs each of the first ones."""
    flags = type("Flags", (), {"version_2_with_negative": v2, "verbose_logging": False})
    monkeypatch.setattr(google, "FLAGS", flags)
    monkeypatch.setattr(google.tf.logging, "info", lambda *args: None)
    found = []
    google.convert_examples_to_features(
        google.read_squad_examples(path, is_training),
        google.tokenization.FullTokenizer(tiny_model.vocab_file), 32, 10, 8, is_training,
        found.append)
    return found
