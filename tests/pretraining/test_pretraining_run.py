"""The command: Google's flags and results, every example once, resuming, the way to fine-tuning."""

import json
import os

import numpy as np
import pytest

from commands import ends_with_error, on_cola, results_in, run_here
from conftest import checkpoint_values, on_tensorflow_1
from engine.training.settings import StepSchedule
from pretraining import run
from pretraining_files import LENGTH, PREDICTIONS, features_of, serialized, write_frozen
from pretraining_files import pretrained_fixture  # noqa: F401 (a fixture)

import tensorflow.compat.v1 as tf

GOOGLES_KEYS = ["global_step", "loss", "masked_lm_accuracy", "masked_lm_loss",
                "next_sentence_accuracy", "next_sentence_loss"]


@pytest.fixture
def flags(tiny_model, tmp_path):
    return dict(
        input_file=write_frozen(tmp_path / "train.tfrecord", 40),
        eval_input_file=write_frozen(tmp_path / "held_out.tfrecord", 19, seed=1),
        bert_config_file=tiny_model.bert_config_file, init_checkpoint=tiny_model.init_checkpoint,
        output_dir=tmp_path / "out", max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS,
        train_batch_size=4, num_train_steps=6, num_warmup_steps=2, learning_rate=1e-3,
        num_cpu_replicas=2, do_train=True, do_eval=True)


@on_tensorflow_1
def test_what_was_pretrained_is_evaluated_with_googles_keys_and_fine_tuned(
        flags, tiny_model, tmp_path):
    run_here(flags, run)
    results = results_in(tmp_path / "out")
    assert list(results) == GOOGLES_KEYS + ["perplexity"]
    assert results["global_step"] == 6
    assert results["perplexity"] == pytest.approx(np.exp(results["masked_lm_loss"]))
    assert results["loss"] == pytest.approx(
        results["masked_lm_loss"] + results["next_sentence_loss"])
    run_here(on_cola(tiny_model, tmp_path, train=16, init_checkpoint=tmp_path / "out", learning_rate=1e-12,
                     output_dir=tmp_path / "tuned"))
    before, after = (checkpoint_values(str(tmp_path / name)) for name in ("out", "tuned"))
    encoder = [name for name in after if name.startswith("bert/") and "adam" not in name]
    assert len(encoder) == 23
    for name in encoder:
        np.testing.assert_allclose(after[name], before[name], atol=1e-7, err_msg=name)


def test_max_eval_steps_takes_the_first_examples_and_says_so(flags, pretrained, tmp_path, capsys):
    run_here(dict(flags, do_train=False, init_checkpoint=pretrained, eval_batch_size=2,
                  max_eval_steps=3), run)
    assert "only the first 12 of 19 examples are evaluated" in capsys.readouterr().err
    first = write_frozen(tmp_path / "first.tfrecord", 12, seed=1)
    run_here(dict(flags, do_train=False, init_checkpoint=pretrained, eval_input_file=first,
                  output_dir=tmp_path / "first"), run)
    assert results_in(tmp_path / "out") == pytest.approx(results_in(tmp_path / "first"), rel=1e-5)


def test_the_best_checkpoint_is_that_of_the_lowest_loss(flags, tmp_path, capsys):
    run_here(dict(flags, eval_every_steps=3, learning_rate=0.5), run)
    history = json.loads((tmp_path / "out" / "evaluations.json").read_text())
    assert history["metric"] == "loss" and len(history["evaluations"]) == 2
    best = min(history["evaluations"], key=lambda evaluation: evaluation["loss"])
    assert best["step"] == 3, "a rate that is too high makes it worse"
    assert results_in(tmp_path / "out")["global_step"] == 3
    with ends_with_error(capsys, "another training data"):  # it is not mixed up with another run
        run_here(dict(flags, input_file=flags["eval_input_file"]), run)


def test_records_without_labels_train_a_model_without_a_next_sentence_head(flags, tmp_path):
    unlabelled = write_frozen(tmp_path / "one.tfrecord", 40, drop=["next_sentence_labels"])
    run_here(dict(flags, input_file=unlabelled, eval_input_file=None, num_cpu_replicas=1), run)
    names = [name for name in GOOGLES_KEYS if not name.startswith("next")] + ["perplexity"]
    assert list(results_in(tmp_path / "out")) == names
    held = checkpoint_values(str(tmp_path / "out"))
    assert not [name for name in held if name.startswith("cls/seq_relationship")]


def damaged(path):
    content = open(path, "rb").read()
    open(path, "wb").write(content[:500] + b"x" + content[501:])
    return path


@pytest.mark.parametrize("changes, mentions", [
    (dict(input_file="{}/empty.tfrecord"), ("--input_file", "no record")),
    (dict(input_file="{}/text.txt"), ("text.txt is no TFRecord file, leave it out",)),
    (dict(input_file="{}/typed", vocab_file="{}/text.txt"), ("typed.json", "description", "'vocab_sha256'")),
    (dict(input_file="{}/cut.tfrecord"), ("cut.tfrecord", "damaged")),
    (dict(input_file="{}/other.tfrecord"), ("other.tfrecord", "masked_lm_positions")),
    (dict(vocab_file="{}/text.txt"), ("--vocab_file", "text.txt", "train.tfrecord")),
    (dict(max_seq_length=32), ("train.tfrecord", f"--max_seq_length={LENGTH}", "32")),
    (dict(max_predictions_per_seq=5), (f"--max_predictions_per_seq={PREDICTIONS}", "5")),
    (dict(bert_config_file="{}/small.json"), ("train.tfrecord", "vocab_size 20")),
])
def test_bad_input_is_one_line_that_names_it_and_exit_status_2(
        flags, tiny_model, tmp_path, capsys, changes, mentions):
    write_frozen(tmp_path / "empty.tfrecord", 0)
    (tmp_path / "text.txt").write_text("It is a truth universally acknowledged.\n" * 9)
    damaged(write_frozen(tmp_path / "cut.tfrecord", 20))
    write_frozen(tmp_path / "other.tfrecord", 2, drop=["masked_lm_positions", "masked_lm_ids",
                                                       "masked_lm_weights"])
    for name, digest in (("train.tfrecord", '"0"'), ("typed", "3")):
        (tmp_path / f"{name}.json").write_text(
            f'{{"vocab_sha256": {digest}, "do_lower_case": true}}')
    write_frozen(tmp_path / "typed", 2)
    (tmp_path / "small.json").write_text(tiny_model.config(vocab_size=20).to_json_string())
    changes = {name: value.replace("{}", str(tmp_path)) if isinstance(value, str) else value
               for name, value in changes.items()}
    with ends_with_error(capsys, *mentions):
        run_here({**flags, **changes}, run)
    assert not [name for _, _, names in os.walk(str(tmp_path)) for name in names if ".tmp-" in name]


def test_what_cannot_be_evaluated_is_refused_before_examples_are_prepared(flags, tmp_path, capsys):
    for changes, said in ((dict(init_checkpoint=None), "has no trained model"), ({}, "masked-LM head")):
        with ends_with_error(capsys, said):
            run_here({**flags, "do_train": False, "eval_input_file": tmp_path / "none", **changes}, run)


def test_the_default_warm_up_is_a_tenth_of_a_short_training_and_stays_when_it_is_resumed(flags, tmp_path, capsys):
    flags = dict(flags, num_warmup_steps=None, do_eval=False, eval_input_file=None, num_cpu_replicas=1)
    run_here(dict(flags, num_train_steps=20), run)
    said = capsys.readouterr().err
    assert "20 steps, 2 of them warm-up" in said and "the warm-up takes" not in said
    run_here(dict(flags, num_train_steps=30), run)
    assert "30 steps, 2 of them warm-up" in capsys.readouterr().err


def test_the_default_warm_up_of_a_long_training_is_google_s():
    assert StepSchedule(num_train_steps=1_000_000).schedule(1, 1).warmup_steps == 10_000
    assert StepSchedule(num_train_steps=100_000).schedule(1, 1).warmup_steps == 10_000
    assert StepSchedule(num_train_steps=5, num_warmup_steps=10_000).schedule(1, 1).warmup_steps == 10_000


def test_a_warm_up_that_outlasts_the_training_is_one_warning(flags, tiny_model, tmp_path, capsys):
    run_here(dict(flags, num_warmup_steps=10_000, do_eval=False), run)
    said = capsys.readouterr().err
    assert said.count("the warm-up takes 10,000 steps and the training 6: the learning rate only rises, to 0.0006 "
                      "of --learning_rate; lower --num_warmup_steps") == 1
    run_here(on_cola(tiny_model, tmp_path, train=16, warmup_proportion=1, output_dir=tmp_path / "tuned"))
    assert "lower --warmup_proportion" in capsys.readouterr().err


def test_equal_next_sentence_labels_are_a_warning_whoever_wrote_the_records(flags, tmp_path, capsys):
    with tf.python_io.TFRecordWriter(str(tmp_path / "equal.tfrecord")) as writer:
        for features in features_of(40):
            writer.write(serialized(dict(features, next_sentence_labels=[0])))
    run_here(dict(flags, input_file=tmp_path / "equal.tfrecord", do_eval=False, eval_input_file=None,
                  num_train_steps=1, num_warmup_steps=0), run)
    assert ("WARNING: next_sentence_label is 0 in 100.0% of the examples: nothing is learned about next "
            "sentences") in capsys.readouterr().err
