"""The command trains, evaluates, predicts and exports; its vectors are the encoder's."""

import itertools
import json
import pathlib
import tempfile

import numpy as np
import pytest

import extract_features
from commands import ends_with_error, results_in, run_here
from conftest import on_tensorflow_2, plain_session, sentences
from engine.data.plan import TrainingPlan
from engine.model import Mode
from engine.training import run_record
from engine.workers.coordination import NO_PEERS
from exports import run_saved_model
from golden import losses_of
from reproducible_model import write_model
from runs import predict
from runs.rows import Example
from similarity import data, evaluation, model, run
from similarity.model import Objective
from similarity_files import pairs, scored, write
from similarity_reference import cosent, of_sizes, ranked, unit

import tensorflow.compat.v1 as tf

pytestmark = on_tensorflow_2  # test_similarity_search.py and test_similarity_losses.py are tried on both
LENGTH = 24
TEMPERATURE = 0.1


def vectors_of(texts, folder, checkpoint, pooling="mean", **more) -> np.ndarray:
    """The unit vectors that extract_features.py gives, [n, D]."""
    place = pathlib.Path(tempfile.mkdtemp(dir=str(folder)))
    run_here(dict(input_file=write(place / "texts.txt", [[text] for text in texts]),
                  output_file=place / "vectors.npy", init_checkpoint=checkpoint, pooling=pooling,
                  max_seq_length=LENGTH, num_cpu_replicas=1, **more), extract_features)
    return unit(np.load(str(place / "vectors.npy")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of all sets."""
    data_dir = tmp_path_factory.mktemp("similarity")
    write(data_dir / "train.tsv", pairs(48))
    write(data_dir / "dev.tsv", [row[:2] for row in pairs(14, 1)])
    write(data_dir / "test.tsv", pairs(9, 2))
    return data_dir


@pytest.fixture(scope="module")
def trained(tiny_model, folder):
    """The output directory of a run with all it can do."""
    run_here(dict(tiny_model._asdict(), data_dir=folder, output_dir=folder / "out",
                  max_seq_length=LENGTH, train_batch_size=4, num_train_epochs=2, pooling="max",
                  learning_rate=1e-3, num_cpu_replicas=2, matryoshka="16,8", eval_each_epoch=True,
                  do_train=True, do_eval=True, do_predict=True, do_export=True), run)
    return folder / "out"


@pytest.fixture(scope="module")
def vectors(folder, trained):
    """A function of texts of the tests below, by the trained model."""
    texts = [*itertools.chain(*pairs(9, 2), *pairs(14, 1)), *sentences(5, 7), *sentences(6, 8)]
    known = dict(zip(texts, vectors_of(texts, folder, trained, "max")))
    return lambda texts: np.array([known[text] for text in texts])


def test_similarities_are_those_of_the_encoder_s_vectors(trained, vectors):
    rows = np.array(pairs(9, 2))
    expected = [np.einsum("nd,nd->n", vectors(rows[:, 0]), vectors(rows[:, text]))
                for text in (1, 2)]
    written = np.loadtxt(str(trained / "test_results.tsv"))
    np.testing.assert_allclose(written, np.transpose(expected), atol=1e-5)


def test_positives_are_looked_for_among_all_texts_of_the_dev_set(trained, vectors):
    rows = pairs(14, 1)
    anchors, documents = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
    relevant = np.array([(anchors.index(row[0]), documents.index(row[1])) for row in rows])
    assert len(documents) < len(anchors)
    results = results_in(trained)
    for size, suffix in ((16, ""), (8, "_of_8")):
        of_queries, of_documents = (unit(vectors(texts)[:, :size]).astype(np.float32)
                                    for texts in (anchors, documents))
        for name, value in evaluation.retrieve(
                of_queries, of_documents, relevant).measures().items():
            assert results[name + suffix] == pytest.approx(value, abs=1e-6), name
    assert 0 < results["mrr_at_10"] < 1
    history = json.loads((trained / "evaluations.json").read_text())
    assert "mrr_at_10" in json.dumps(history)


def test_a_text_has_a_vector_and_a_pair_a_similarity(trained, vectors, folder, monkeypatch):
    texts = sentences(5, 7)
    expected = vectors(texts)
    (folder / "read.txt").write_text("".join(f"{text}\n" for text in texts))
    flags = dict(num_cpu_replicas=1, output_file=folder / "read.out", format="jsonl")
    for place in (trained, trained / "export"):
        run_here(dict(flags, output_dir=place, input_file=folder / "read.txt"), predict)
        lines = (folder / "read.out").read_text().splitlines()
        np.testing.assert_allclose([json.loads(line)["vector"] for line in lines], expected,
                                   atol=1e-5)
    write(folder / "read.tsv", zip(texts, texts[1:] + texts[:1]))
    run_here(dict(flags, output_dir=trained, input_file=folder / "read.tsv", format="tsv"), predict)
    header, *lines = (folder / "read.out").read_text().splitlines()
    assert header == "similarity"
    np.testing.assert_allclose(list(map(float, lines)), np.einsum(
        "nd,nd->n", expected, np.roll(expected, -1, 0)), atol=1e-5)


def test_the_export_has_the_vectors_of_the_model(trained, vectors, tiny_model):
    texts = sentences(6, 8)
    encoded = data.encode([Example((text,)) for text in texts], tiny_model.encoding(LENGTH), "")
    features = encoded.source().fetch(encoded.numbers[:, 0], LENGTH)
    found = run_saved_model(trained / "export", features)
    np.testing.assert_allclose(found["vectors"], vectors(texts), atol=1e-5)
    card = (trained / "export" / "README.md").read_text()
    assert "`vectors`, float32 `[batch, 16]`" in card and "first 16, 8 components" in card


def test_an_encoder_that_nobody_trained_is_evaluated(tiny_model, folder, tmp_path):
    run_here(dict(tiny_model._asdict(), dev_file=write(tmp_path / "dev.tsv", scored(20)),
                  output_dir=tmp_path / "out", max_seq_length=LENGTH, num_cpu_replicas=2,
                  pooling="cls", do_eval=True), run)
    rows = scored(20)
    first, second = (vectors_of([row[text] for row in rows], tmp_path, tiny_model.init_checkpoint,
                                "cls", vocab_file=tiny_model.vocab_file,
                                bert_config_file=tiny_model.bert_config_file) for text in (0, 1))
    expected = evaluation.pair_measures(np.einsum("nd,nd->n", first, second), np.array(
        [float(row[2]) for row in rows]))
    results = results_in(tmp_path / "out")
    assert set(results) == {"spearman", "pearson"}
    for name, value in results.items():
        assert value == pytest.approx(expected[name], abs=1e-5)


def test_the_model_s_folder_says_how_its_vectors_are_made(trained, folder, tmp_path, capsys):
    entries = json.loads((trained / "task.json").read_text())
    assert (entries["kind"], entries["pooling"], entries["matryoshka"]) == (
        "similarity", "max", [16, 8])
    flags = dict(data_dir=folder, do_eval=True, num_cpu_replicas=1)
    run_here(dict(flags, init_checkpoint=trained, output_dir=tmp_path), run)
    of_copy, of_run = results_in(tmp_path), results_in(trained)
    assert "mrr_at_10_of_8" in of_copy
    for name, value in of_copy.items():
        assert value == pytest.approx(of_run[name], abs=1e-6)
    with ends_with_error(capsys, "another --pooling", "was max, now mean"):
        run_here(dict(flags, output_dir=trained, pooling="mean"), run)


# --- The training ------------------------------------------------------------------------


def test_a_resumed_run_names_no_flag_that_the_command_would_choose_as_the_run_has_it(tmp_path, capsys):
    folder = tmp_path / "tries" / "lr-1e-05_seed-1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(dict(
        settings={"--warmup_proportion": 0.2, "--fit_output_layer": "auto"},
        facts={"--loss": "ranking", "--pooling": "mean", "--query_prefix": "", "--temperature": 0.1})))
    values = run.define_flags()
    values(["run", "--do_train", f"--output_dir={tmp_path}"])
    run_record.keep_settings(values, NO_PEERS)
    assert (values.loss, values.pooling, values.query_prefix) == ("ranking", "mean", "")
    assert capsys.readouterr().err == (
        f"{tmp_path} is resumed with its recorded --temperature=0.1, --warmup_proportion=0.2\n")


def train(folder, rows, flags, **more):
    """Trains on 2 x 2 x 2 examples a step, without dropout or with the model's."""
    folder.mkdir(exist_ok=True)
    run_here({**flags, **dict(
        train_file=write(folder / "train.tsv", rows), output_dir=folder / "out",
        max_seq_length=LENGTH, train_batch_size=2, gradient_accumulation_steps=2,
        num_cpu_replicas=2, do_train=True, temperature=TEMPERATURE), **more}, run)
    return folder / "out"


@pytest.mark.parametrize("loss", ("ranking", "score"))
def test_the_first_loss_is_that_of_all_examples_of_the_step(loss, tiny_model, tmp_path):
    rows = scored(40)
    if loss == "ranking":  # with positives that several anchors have
        found = pairs(40)
        rows = [(anchor, found[row % 5][1], hard) for row, (anchor, _, hard) in enumerate(found)]
    out = train(tmp_path, rows, tiny_model._asdict(), num_train_epochs=1, matryoshka="16,4",
                symmetric=loss == "ranking", spread_duplicates=False)
    texts = np.array([row[:3] if loss == "ranking" else row[:2] for row in rows])
    lengths = data.encode([Example(tuple(row)) for row in texts], tiny_model.encoding(LENGTH),
                          "").training_source().lengths
    chosen = TrainingPlan(lengths, 8, 42, window_batches=1).global_batch(0)
    assert loss == "score" or len(set(texts[chosen].ravel())) < texts[chosen].size
    found = vectors_of(texts[chosen].ravel(), tmp_path, tiny_model.init_checkpoint,
                       vocab_file=tiny_model.vocab_file,
                       bert_config_file=tiny_model.bert_config_file)
    expected, _ = of_sizes(found.reshape(8, texts.shape[1], -1).astype(np.float64), (16, 4), {
        "ranking": lambda part: ranked(part, texts[chosen], True, TEMPERATURE),
        "score": lambda part: cosent(part, np.array(
            [np.float32(rows[index][2]) for index in chosen]), TEMPERATURE)}[loss])
    assert losses_of(out, 1)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dropout", (0.0, 0.1))
def test_a_single_text_and_its_positive_have_different_masks(dropout, tiny_model):
    config = tiny_model.config(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    texts = data.encode([Example((text,)) for text in sentences(6)], tiny_model.encoding(LENGTH), "")
    features = texts.training_source().fetch(np.arange(6), LENGTH, LENGTH)
    forward = model.training_forward_of(config, "mean", Objective("ranking"), 2)
    with plain_session() as session:
        outputs = forward({name: tf.constant(value) for name, value in features.items()},
                          Mode(True, tf.constant([7, 3], tf.int64)))
        session.run(tf.global_variables_initializer())
        rows, loss = session.run([outputs.pooled.vectors,
                                  outputs.pooled.loss(outputs.pooled.vectors)])
    difference = np.abs(rows[:, :16] - rows[:, 16:32]).max()
    assert loss > 0 and (difference > 0.1 if dropout else difference < 1e-5)


def test_single_texts_train_and_get_vectors(tmp_path):
    flags = write_model(tmp_path / "model")._asdict()
    rows = [[text] for text in sentences(80)]
    test = write(tmp_path / "test.txt", [[text] for text in sentences(3, 5)])
    out = train(tmp_path, rows, flags, num_train_epochs=1, test_file=test, do_predict=True)
    found = np.loadtxt(str(out / "test_results.tsv"))
    np.testing.assert_allclose(found, vectors_of(sentences(3, 5), tmp_path, out), atol=1e-5)
