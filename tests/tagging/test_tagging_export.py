"""An exported tagger has the tags and the scores of the model, also of sentences of one word."""

import random

import numpy as np
import pytest

from commands import run_here
from conftest import cpu_devices, on_tensorflow_1, on_tensorflow_2
from engine.checkpoints import checkpoints
from engine.inference import Predictor
from engine.model import Outputs
from exports import run_saved_model
from tagging import data, model, run
from tagging.model import Tagger
from tagging_files import write_random_tagger


@pytest.mark.parametrize("crf", (pytest.param(False, marks=on_tensorflow_1),
                                 pytest.param(True, marks=on_tensorflow_2)))
def test_the_export_has_the_tags_of_the_model(crf, tiny_model, tmp_path):
    write_random_tagger(tmp_path, tiny_model, crf)
    run_here(dict(output_dir=tmp_path, do_export=True), run)
    tags, generator = data.TagSet(("A",), "iob2"), random.Random(7)
    found = data.encode_words([generator.choices("cat dog the old".split(), k=generator.randint(1, 9))
                               for _ in range(20)], tags, tiny_model.encoding(16))
    words = data.encode_words([[word] for word in "cat dog the old house".split()], tags,
                              tiny_model.encoding(16))

    def forward(features, mode):
        tagger = Tagger(tags, crf)
        words, scores = model.words_of(tiny_model.config(), tagger, features, mode)
        return Outputs(loss=None, predictions={
            "labels": model.best_labels(tagger, words, scores), "emissions": words.emissions})

    with Predictor(forward, cpu_devices(1)) as predictor:
        predictor.restore(checkpoints.open_checkpoint(str(tmp_path)))
        expected = predictor.predict(found.source(), 20)
        of_words = predictor.predict(words.source(), 5)["labels"][:, :1]
    features = found.source().fetch(np.arange(20), 14)
    features_of_words = words.source().fetch(np.arange(5), 3)
    features_of_words["first_pieces"] = features_of_words["first_pieces"][:, :1]
    names = ("input_ids", "input_mask", "segment_ids", "first_pieces", "num_words")
    exported = tmp_path / "export"
    np.testing.assert_array_equal(
        run_saved_model(exported, features_of_words, names)["label_index"], of_words)
    outputs = run_saved_model(exported, features, names)
    for sentence, count in enumerate(features["num_words"]):
        np.testing.assert_array_equal(outputs["label_index"][sentence, :count],
                                      expected["labels"][sentence, :count])
        np.testing.assert_allclose(outputs["scores"][sentence, :count],
                                   expected["emissions"][sentence, :count], atol=1e-4)
    assert len(np.unique(expected["labels"])) > 1
    card = (exported / "README.md").read_text()
    assert "1. `B-A`" in card and "This checkpoint was not evaluated." in card
