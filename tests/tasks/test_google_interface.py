"""What programs import from Google's run_classifier, imported from ours: the same values.

Against Google's package, which runs on TensorFlow 1.15; the training also against itself, with
and without MirroredStrategy.
"""

import numpy as np
import pytest

import run_classifier
import tokenization
from conftest import (assert_same_training, checkpoint_values, cpu_devices, googles, sentences)
from task_files import NASTY, write_fixtures, write_rows

import tensorflow.compat.v1 as tf

LENGTH, BATCH, STEPS = 12, 8, 4
SETS = [(name, split) for name in ("cola", "mnli", "mrpc", "xnli")
        for split in ("train", "dev", "test") if (name, split) != ("xnli", "test")]
PAIRS = [("The cat", "a dog"), ("the cat sees a small dog", "a tree and a bird"), ("cat", ""),
         ("", ""), NASTY[:2], *zip(sentences(20, seed=5), sentences(20, seed=6))]


def values_of(thing):
    return {name: value for name, value in vars(thing).items() if not name.startswith("_")}


def processor_of(module, name):
    return getattr(module, f"{name.capitalize()}Processor")()


@pytest.mark.parametrize("name, split", SETS)
def test_the_processors_return_googles_examples(name, split, tmp_path):
    theirs = googles("run_classifier")
    write_fixtures(tmp_path)
    examples, expected = (
        getattr(processor_of(module, name), f"get_{split}_examples")(str(tmp_path / name))
        for module in (run_classifier, theirs))
    assert list(map(values_of, examples)) == list(map(values_of, expected))
    assert (processor_of(run_classifier, name).get_labels()
            == processor_of(theirs, name).get_labels())


def test_a_subclass_reads_other_files_and_labels(tmp_path):
    class Mine(run_classifier.ColaProcessor):
        def get_labels(self):
            return ["no", "yes"]

        def get_dev_examples(self, data_dir):
            rows = self._read_tsv(f"{data_dir}/mine.tsv", quotechar='"')
            return self._create_examples(rows, "validation")

    write_rows(tmp_path, "mine.tsv", [["x", "yes", "", '"a\tcat"'], ["x", "no", "", "a dog"]])
    assert [(each.guid, each.text_a, each.label) for each in Mine().get_dev_examples(tmp_path)] == [
        ("validation-0", "a\tcat", "yes"), ("validation-1", "a dog", "no")]


def features_of(module, vocab_file, max_seq_length):
    tokenizer = tokenization.FullTokenizer(vocab_file)
    examples = [module.InputExample(str(index), *pair, label="yn"[index % 2])
                for index, pair in enumerate(PAIRS)] + [module.PaddingInputExample()]
    return module.convert_examples_to_features(examples, ["n", "y"], max_seq_length, tokenizer)


@pytest.mark.parametrize("max_seq_length", [3, 9, 40])
def test_features_are_googles(max_seq_length, tiny_model):
    expected = features_of(googles("run_classifier"), tiny_model.vocab_file, max_seq_length)
    found = features_of(run_classifier, tiny_model.vocab_file, max_seq_length)
    assert list(map(values_of, found)) == list(map(values_of, expected))


def many_features(tiny_model):
    tokenizer = tokenization.FullTokenizer(tiny_model.vocab_file)
    examples = [run_classifier.InputExample("", text, label=str(int("cat" in text)))
                for text in sentences(BATCH * STEPS, seed=7)]
    return run_classifier.convert_examples_to_features(examples, ["0", "1"], LENGTH, tokenizer)


def estimator(tiny_model, init_checkpoint, directory,
              num_replicas=None) -> tf.estimator.Estimator:
    """An Estimator as users write it; `num_replicas` None: without a strategy."""
    strategy = cpu_devices(num_replicas).strategy() if num_replicas else None
    model_fn = run_classifier.model_fn_builder(
        tiny_model.config(num_hidden_layers=1), 2, init_checkpoint, learning_rate=1e-3,
        num_train_steps=STEPS, num_warmup_steps=1, use_tpu=False, use_one_hot_embeddings=False)
    return tf.estimator.Estimator(
        model_fn, params=dict(batch_size=BATCH // (num_replicas or 1)),
        config=tf.estimator.RunConfig(model_dir=str(directory), train_distribute=strategy,
                                      tf_random_seed=1))


@pytest.fixture(scope="module")
def trained(tiny_model, with_head, tmp_path_factory):
    """Features, and the Estimator that was trained on them without a strategy."""
    features = many_features(tiny_model)
    alone = estimator(tiny_model, with_head, tmp_path_factory.mktemp("alone"))
    alone.train(run_classifier.input_fn_builder(features, LENGTH, False, True))
    return features, alone


def test_two_replicas_train_like_one_with_the_whole_batch(tiny_model, with_head, trained,
                                                          tmp_path):
    features, alone = trained
    together = estimator(tiny_model, with_head, tmp_path, num_replicas=2)
    together.train(run_classifier.input_fn_builder(features, LENGTH, False, True))
    found, expected = map(checkpoint_values, (str(tmp_path), alone.model_dir))
    assert found["global_step"] == STEPS
    assert np.abs(found["output_weights"] - checkpoint_values(with_head)["output_weights"]).max()
    assert_same_training(expected, found)


def test_evaluation_and_prediction_read_a_file_of_features(tiny_model, trained, tmp_path):
    _, alone = trained
    examples = [run_classifier.InputExample("", text, label=str(int("cat" in text)))
                for text in sentences(11, seed=8)]
    examples.append(run_classifier.PaddingInputExample())
    path = str(tmp_path / "dev.tf_record")
    run_classifier.file_based_convert_examples_to_features(
        examples, ["0", "1"], LENGTH, tokenization.FullTokenizer(tiny_model.vocab_file), path)
    input_fn = run_classifier.file_based_input_fn_builder(path, LENGTH, False, False)
    results = alone.evaluate(input_fn)
    probabilities = np.array([row["probabilities"] for row in alone.predict(input_fn)])[:11]
    labels = np.array([int(each.label) for each in examples[:11]])
    assert results["eval_accuracy"] == pytest.approx((probabilities.argmax(1) == labels).mean())
    assert results["eval_loss"] == pytest.approx(
        -np.log(probabilities[np.arange(11), labels]).mean(), rel=1e-4)


@pytest.mark.parametrize("name", ["input_fn_builder", "file_based_input_fn_builder"])
def test_a_batch_size_may_be_given_in_place_of_params(name, tiny_model, tmp_path):
    path, features = str(tmp_path / "dev.tf_record"), many_features(tiny_model)
    run_classifier.file_based_convert_examples_to_features(
        [run_classifier.InputExample("", "a cat", label="0")] * 7, ["0"], LENGTH,
        tokenization.FullTokenizer(tiny_model.vocab_file), path)
    examples = path if name.startswith("file") else features
    input_fn = getattr(run_classifier, name)(
        examples, LENGTH, is_training=True, drop_remainder=True, batch_size=3)
    # As the tutorial's `input_fn`, which knows no params.
    assert tf.data.get_output_shapes(input_fn())["input_ids"].as_list() == [3, LENGTH]


def test_the_model_gives_googles_values(tiny_model, trained):
    theirs = googles("run_classifier")
    features, alone = trained
    outputs = []
    for module in (run_classifier, theirs):
        with tf.Graph().as_default(), tf.Session() as session:
            inputs = [tf.constant([getattr(each, name) for each in features]) for name in (
                "input_ids", "input_mask", "segment_ids", "label_id")]
            config = tiny_model.config(num_hidden_layers=1)
            made = module.create_model(config, False, *inputs, 2, False)
            tf.train.Saver().restore(session, tf.train.latest_checkpoint(alone.model_dir))
            outputs.append(session.run(made))
    for found, expected in zip(*outputs):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_tpus_are_refused(tiny_model):
    with pytest.raises(ValueError, match="use_tpu"):
        run_classifier.model_fn_builder(tiny_model.config(), 2, None, 1e-3, STEPS, 1, True, False)
