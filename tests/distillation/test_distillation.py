"""A student from a teacher, through the commands: both stages, and what is made of the result."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from commands import answers_of, ends_with_error, results_in, run_here
from conftest import checkpoint_values, cpu_devices, on_tensorflow_2, sentences, write_cola
from distillation import losses, model, run, student, teacher, training
from encoder import label_types
from encoder.pretraining_tfrecords import Sizes, open_store
from engine.checkpoints import checkpoints
from engine.model import INFERENCE, Mode
from golden import losses_of
from pretraining_files import LENGTH, features_of, write_frozen
from encoder import classifier
from similarity_files import write_model
from tasks.data import load_texts
from tasks.table import TASKS

SHAPE = "1,8,2,12"  # of a student with another hidden size than its teacher's, 16
LONGEST = 24


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return write_cola(tmp_path_factory.mktemp("cola"), train=48, dev=21, test=13)


@pytest.fixture(scope="module")
def flags(data_dir, tiny_classifier, tmp_path_factory):
    """The flags of a stage of 6 steps; those that other tests start from are on two replicas."""
    return dict(task_name="cola", data_dir=data_dir, teacher=tiny_classifier, do_train=True,
                store_dir=tmp_path_factory.mktemp("store"), max_seq_length=LONGEST,
                train_batch_size=8, num_cpu_replicas=1, num_train_epochs=1, learning_rate=1e-3)


ON_TWO = dict(train_batch_size=4, num_cpu_replicas=2)


@pytest.fixture(scope="module")
def first_stage(flags, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("first")
    run_here({**flags, **ON_TWO, "stage": "intermediate", "student": SHAPE,
              "output_dir": output_dir}, run)
    return output_dir


@pytest.fixture(scope="module")
def both_stages(flags, first_stage, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("second")
    run_here({**flags, **ON_TWO, "stage": "prediction", "student": first_stage, "do_eval": True,
              "eval_every_steps": 3, "output_dir": output_dir}, run)
    return output_dir


def parameters(directory):
    return set(checkpoints.open_checkpoint(str(directory)).parameters())


def encoder_variables(config):
    """Names, as a model makes them."""
    with tf.Graph().as_default():
        modeling.BertModel(config, False, tf.zeros([1, 2], tf.int32))
        return {variable.op.name for variable in tf.global_variables()}


# --- The two stages ------------------------------------------------------------------------


@on_tensorflow_2
def test_each_stage_leaves_an_encoder_with_its_head_and_nothing_of_the_teacher(
        flags, tiny_model, first_stage, both_stages, capsys):
    encoder = encoder_variables(tiny_model.config(num_hidden_layers=1))
    assert parameters(first_stage) == encoder | {"projection/kernel", "projection/bias"}
    assert parameters(both_stages) == encoder | {"output_weights", "output_bias"}
    first, second = (checkpoint_values(str(stage)) for stage in (first_stage, both_stages))
    assert np.abs(first["projection/kernel"] - np.eye(8, 16)).max() > 1e-4, "it learns"
    name = "bert/embeddings/word_embeddings"
    assert np.abs(first[name] - second[name]).max() > 1e-4
    config = json.loads((both_stages / "bert_config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"]) == (1, 8)
    with ends_with_error(capsys, "another --temperature: was 1.0, now 2.0"):
        run_here({**flags, **ON_TWO, "stage": "prediction", "student": first_stage,
                  "temperature": 2, "output_dir": both_stages}, run)


def test_the_student_evaluates_predicts_and_exports_like_any_model(both_stages, flags):
    evaluated = results_in(both_stages)
    assert [row["step"] for row in json.loads(
        (both_stages / "evaluations.json").read_text())["evaluations"]] == [3, 6]
    run_here(dict(task_name="cola", data_dir=flags["data_dir"], output_dir=both_stages,
                  max_seq_length=LONGEST, do_eval=True, do_predict=True, num_cpu_replicas=1))
    assert results_in(both_stages) == pytest.approx(evaluated, rel=1e-5)
    assert len((both_stages / "predict.txt").read_text().splitlines()) == 13
    run_here(dict(output_dir=both_stages, do_export=True), run)
    for page in ("report.html", "export/README.md"):
        for named in ("--teacher", str(flags["teacher"]), "--stage", "prediction"):
            assert named in (both_stages / page).read_text()


def test_augmented_texts_may_train_and_long_ones_are_read_as_the_teacher_reads_them(
        flags, tmp_path, capsys):
    taught, augmented = tmp_path / "teacher", tmp_path / "train_aug.tsv"
    shutil.copytree(str(flags["teacher"]), str(taught), ignore=shutil.ignore_patterns("run.json"))
    description = json.loads((taught / "task.json").read_text())
    description["long_texts"] = {"long_texts": "windows", "window_overlap": 5}
    (taught / "task.json").write_text(json.dumps(description))
    augmented.write_text("".join(f"x\t{index % 2}\t\t{text}\n"
                                 for index, text in enumerate(sentences(80, seed=9))))
    run_here({**flags, "stage": "intermediate", "student": "1,16,4,32", "attention_loss": False,
              "teacher": taught, "train_file": augmented, "output_dir": tmp_path / "out"}, run)
    assert "80 examples x 1 epoch = 10 steps" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["facts"]["--long_texts"] == (
        description["long_texts"])


@pytest.mark.parametrize("stage, epochs, learning_rate", [
    ("intermediate", 50, 5e-5), ("prediction", 3, 3e-5)])
def test_the_papers_epochs_lengths_and_rates_are_the_defaults(
        flags, first_stage, tmp_path, stage, epochs, learning_rate):
    data_dir = write_cola(tmp_path / "cola", train=2)
    run_here({**flags, "data_dir": data_dir, "stage": stage, "student": first_stage,
              "num_train_epochs": None, "max_seq_length": None, "learning_rate": None,
              "output_dir": tmp_path / "out", "train_batch_size": 2 * epochs}, run)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["settings"]["--num_train_epochs"] == epochs
    assert record["settings"]["--learning_rate"] == learning_rate
    # The paper's 64 are more than the positions that the toy has.
    assert record["facts"]["--max_seq_length"] == 40


# --- Without a task ------------------------------------------------------------------------


def test_general_distillation_reads_the_texts_of_pretraining_without_their_masks(
        tiny_model, tmp_path):
    path = write_frozen(tmp_path / "examples.tfrecord", 9)
    taught = teacher.load_encoder(os.path.dirname(tiny_model.vocab_file), LENGTH)
    texts = open_store(path, "--input_file", Sizes(
        LENGTH, max_predictions_per_seq=LENGTH, vocab_size=taught.config.vocab_size), str(tmp_path))
    source = training.source_of_texts(texts, taught.encoding)
    features = source.fetch(np.arange(9), LENGTH)
    for index, example in enumerate(features_of(9)):
        size = len(example["input_ids"])
        np.testing.assert_array_equal(features["input_ids"][index, :size], example["input_ids"])
        np.testing.assert_array_equal(features["segment_ids"][index, :size],
                                      example["segment_ids"])
        assert features["input_mask"][index].sum() == size == source.lengths[index]


def test_a_student_of_general_distillation_goes_on_with_a_task(
        tiny_model, flags, tmp_path, capsys):
    here = {"stage": "general", "teacher": os.path.dirname(tiny_model.vocab_file),
            "student": SHAPE, "input_file": write_frozen(tmp_path / "examples.tfrecord", 24),
            "max_seq_length": LENGTH, "do_train": True, "num_cpu_replicas": 1,
            "train_batch_size": 8, "num_train_epochs": 1, "output_dir": tmp_path / "general"}
    run_here(here, run)
    said = capsys.readouterr().err
    assert "24 examples x 1 epoch = 3 steps" in said
    assert [line for line in said.splitlines() if "WARNING" in line] == [
        "WARNING: --student=1,8,2,12 has another hidden size than the teacher (16): "
        "it starts from random values"]
    assert "projection/kernel" in parameters(tmp_path / "general")
    run_here(here, run)
    assert "nothing is left to train" in capsys.readouterr().err
    with ends_with_error(capsys, "--task_name is for a task"):
        run_here({**here, "task_name": "cola"}, run)
    run_here({**flags, "stage": "intermediate", "student": tmp_path / "general",
              "num_train_epochs": 0.2, "output_dir": tmp_path / "task"}, run)
    assert "initialized at random" not in capsys.readouterr().err


# --- What a student starts from ------------------------------------------------------------


def test_a_student_of_the_teachers_width_starts_with_its_layers_and_head(
        flags, tiny_classifier, tmp_path, capsys):
    output_dir = tmp_path / "out"
    run_here({**flags, "stage": "prediction", "student": "1,16,2,32", "learning_rate": 1e-12,
              "num_train_epochs": 0.5, "store_dir": tmp_path / "store", "output_dir": output_dir}, run)
    said = capsys.readouterr().err
    assert "initialized at random" not in said
    assert "Computing the teacher's logits: 24 examples" in said  # those of half an epoch
    ours, taught = checkpoint_values(str(output_dir)), checkpoint_values(str(tiny_classifier))
    for name in parameters(output_dir):
        learned = name.replace("/layer_0/", "/layer_1/")
        np.testing.assert_allclose(ours[name], taught[learned], atol=1e-7, err_msg=name)


@pytest.mark.parametrize("own, others, expected", [
    (4, 12, [3, 6, 9, 12]), (4, 6, [1, 3, 4, 6]), (3, 3, [1, 2, 3])])
def test_layers_are_mapped_uniformly_up_to_the_last(tiny_model, own, others, expected):
    small, big = (tiny_model.config(num_hidden_layers=layers) for layers in (own, others))
    assert student.learned_layers(small, big) == expected


# --- The teacher's outputs -----------------------------------------------------------------


def test_the_teachers_outputs_are_computed_once_and_kept_for_each_example(
        tiny_classifier, data_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(teacher, "_CHUNK_EXAMPLES", 4)
    taught = teacher.load(str(tiny_classifier))
    task = TASKS["cola"].within(data_dir)
    texts = load_texts(task.train, task.kind, taught.encoding, str(tmp_path))
    for is_computed in (True, False):
        source = teacher.with_outputs(
            taught, texts.source(with_labels=True), texts.source(with_labels=False),
            texts.store_name, cpu_devices(2), used=np.array([1, 3, 19, 20, 33, 47]),
            per_replica_batch_size=4, store_dir=str(tmp_path))
        said = capsys.readouterr().err
        assert ("Computing the teacher's logits: 6 examples" in said) == is_computed
        features = source.fetch(np.array([47, 3, 20, 19]), LONGEST)
        with tf.Graph().as_default(), tf.Session() as session:
            forward = classifier.forward_of(taught.config, 2)
            logits = forward({name: tf.constant(value) for name, value in features.items()},
                             INFERENCE).predictions["logits"]
            tf.train.Saver().restore(session, taught.checkpoint.path)
            np.testing.assert_allclose(features["teacher_logits"], session.run(logits), atol=1e-5)


# Their formulas: tests/distillation/test_distillation_losses.py.
_LOSS_OF_OUTPUTS = {
    "classes": losses.soft_cross_entropy, "multi_label": losses.soft_sigmoid_cross_entropy,
    "regression": lambda student, teacher, tau: losses.output_error(student, teacher)}


@pytest.mark.parametrize("kind, columns, label_weight", [
    (label_types.SingleLabel("ab"), 2, 0.25), (label_types.MultiLabel("ab", ","), 2, 0.0),
    (label_types.MultiLabel("ab", ","), 2, 0.25), (label_types.Regression(), 1, 0.25)])
def test_every_kind_of_label_has_a_loss_that_can_be_mixed_with_the_labels(
        tiny_model, kind, columns, label_weight):
    rng = np.random.RandomState(0)
    taught, tau = rng.normal(size=[3, columns]).astype(np.float32), 2.0
    labels = {"classes": np.array([0, 1, 1]), "multi_label": np.float32([[0, 1], [1, 1], [0, 0]]),
              "regression": np.float32([0.5, -1, 2])}[kind.name]
    features = {name: tf.constant(np.ones([3, 6]), tf.int32)
                for name in ("input_ids", "input_mask", "segment_ids")}
    features["input_ids"] += tf.range(3)[:, tf.newaxis]
    features.update(teacher_logits=tf.constant(taught), label_ids=tf.constant(labels))
    forward = model.prediction(
        classifier.forward_of(tiny_model.config(), kind.num_outputs), kind, temperature=tau,
        label_weight=label_weight)
    outputs = forward(features, Mode(is_training=True))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        loss, logits = session.run([outputs.loss, outputs.predictions["logits"]])
        wanted = session.run(_LOSS_OF_OUTPUTS[kind.name](logits, taught, tau))
    expected = (1 - label_weight) * wanted + label_weight * kind.losses(logits, labels).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


# --- Vectors -------------------------------------------------------------------------------


@pytest.fixture
def of_vectors(two_layers, tmp_path):
    """The flags of a distillation from a model for similarity of two layers."""
    folder = write_model(tmp_path / "vectors", two_layers, pooling="max", query_prefix="the: ")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(48)))
    return dict(teacher=folder, train_file=tmp_path / "texts.txt", do_train=True, num_cpu_replicas=2,
                train_batch_size=4, num_train_epochs=4, learning_rate=3e-3,
                store_dir=tmp_path / "store", output_dir=tmp_path / "student",
                student="1,16,2,32", stage="prediction")


def vectors_in(folder, texts, tmp_path):
    """The vectors that a model folder gives, [n, D]."""
    return np.array([answer["vector"] for answer in answers_of(folder, texts, tmp_path)])


def test_a_student_of_vectors_starts_at_their_distance_and_is_a_model_for_similarity(
        of_vectors, tmp_path):
    texts = sentences(8, seed=3)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    flags = {**of_vectors, "num_train_epochs": 1, "learning_rate": 1e-12}
    run_here(flags, run)
    out = flags["output_dir"]
    ours, taught = (vectors_in(folder, texts, tmp_path) for folder in (out, flags["teacher"]))
    distance = 1 - np.einsum("nd,nd->n", ours, taught).mean()
    assert losses_of(out, 1)[0] == pytest.approx(distance, abs=1e-5) and distance > 0.01
    description = json.loads((out / "task.json").read_text())
    assert [description[name] for name in ("kind", "pooling", "query_prefix")] == [
        "similarity", "max", "the: "]
    assert not [name for name in parameters(out) if name.startswith("teacher")]


def test_a_student_learns_the_states_then_the_vectors(of_vectors, tmp_path, capsys):
    run_here({**of_vectors, "stage": "intermediate", "num_train_epochs": 1,
              "output_dir": tmp_path / "first"}, run)
    capsys.readouterr()
    run_here({**of_vectors, "student": tmp_path / "first"}, run)
    assert "initialized at random" not in capsys.readouterr().err
    losses_of_steps = losses_of(of_vectors["output_dir"], 24)
    assert np.mean(losses_of_steps[-6:]) < 0.7 * np.mean(losses_of_steps[:6])


@pytest.mark.parametrize("changes, parts", [
    (dict(student=SHAPE), ("vectors of 8 components", "--teacher of 16", "hidden size 16")),
    (dict(do_eval=True), ("--do_eval", "python -m similarity.run")),
    (dict(label_weight=0.5), ("--label_weight", "gives vectors")),
    (dict(task_name="cola"), ("--task_name", "gives vectors")),
    (dict(train_file=None), ("the train set is missing",)),
    (dict(text_column="3"), ("--text_column", "3"))])
def test_what_a_teacher_of_vectors_does_not_need_is_refused(of_vectors, capsys, changes, parts):
    with ends_with_error(capsys, *parts):
        run_here({**of_vectors, **changes}, run)
