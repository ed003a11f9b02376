"""A checkpoint to start from that lacks variables of the encoder, or has them under other names."""

import os
import re
import shutil

import numpy as np
import pytest

import toy_runs
from commands import ends_with_error, run_here
from conftest import checkpoint_values
from distillation import run as distillation
from encoder import convert, model_files
from engine.checkpoints import checkpoints
from engine.errors import UserError
from huggingface_folders import assert_same_values
from pretraining_files import write_frozen



def renamed(*changes):
    """What gives a variable another name, by pairs of a pattern and its replacement."""
    def name_of(name):
        for pattern, spelling in changes:
            name = re.sub(pattern, spelling, name)
        return name
    return name_of


def without(pattern):
    return lambda name: None if re.search(pattern, name) else name


NAMES_OF_OTHERS = (
    renamed(("LayerNorm/gamma", "LayerNorm/weight"),
            ("LayerNorm/beta", "LayerNorm/bias")),
    renamed(("^bert/", "")),
    renamed(("^bert/", "tf_bert_model/bert/"), ("layer_", "layer_._"),
            ("word_embeddings", "word_embeddings/weight"),
            ("(position|token_type)_embeddings", r"\1_embeddings/embeddings")))


@pytest.fixture
def folder_of(two_layers, tmp_path):
    """A function that writes the model with other names of its variables, or without some."""
    def write(name_of):
        folder = tmp_path / "changed"
        shutil.copytree(os.path.dirname(two_layers.vocab_file), str(folder))
        values = checkpoint_values(two_layers.init_checkpoint)
        checkpoints.write_checkpoint(str(folder / "bert_model.ckpt"), {
            name_of(name): value for name, value in values.items() if name_of(name)})
        return two_layers._replace(init_checkpoint=str(folder / "bert_model.ckpt"))
    return write


@pytest.mark.parametrize("run", [run for run in toy_runs.RUNS if "distillation" not in run])
def test_no_training_starts_without_a_layer(run, folder_of, tmp_path, capsys):
    model = folder_of(without("/layer_1/"))
    with ends_with_error(capsys, "bert_model.ckpt lacks 16 of the 37 variables", "all of layer_1"):
        toy_runs.train(run, tmp_path, model)
    assert not os.path.exists(str(tmp_path / run))


def test_nor_does_a_student_start_without_a_layer(folder_of, two_layers, tmp_path, capsys):
    folder = os.path.dirname(folder_of(without("/layer_1/")).init_checkpoint)
    flags = toy_runs.flags_of("distillation.run --stage=general", tmp_path, two_layers)
    with ends_with_error(capsys, f"--student={folder}/bert_model.ckpt lacks 16 of the 37"):
        run_here(dict(flags, student=folder, teacher=os.path.dirname(two_layers.vocab_file)),
                 distillation)


def check(model):
    opened = model_files.open_folder(model.init_checkpoint, "--init_checkpoint")
    model_files.check_encoder(opened.checkpoint, opened.config(), opened.flag)


@pytest.mark.parametrize("name_of, said", [
    (without("^bert/(?!embeddings)"), "lacks 32 of the 37 variables .* all of attention"),
    (renamed(("/layer_", "/group_")), "lacks 32 of the 37 variables"),
    (without("embeddings"), "is not a BERT: it has none of the model's variables")])
def test_a_missing_part_is_one_clear_line(name_of, said, folder_of):
    with pytest.raises(UserError, match=said) as raised:
        check(folder_of(name_of))
    assert "encoder.convert" not in str(raised.value)


@pytest.mark.parametrize("run", ["pretraining.run", "tagging.run --crf", "distillation.run --stage=intermediate"])
def test_a_training_that_reads_no_pooler_keeps_the_identity_for_one_that_does(run, folder_of, tmp_path, capsys):
    model = folder_of(without("^bert/pooler|^cls"))
    folder = os.path.dirname(model.init_checkpoint)
    changes = {}
    if run == "pretraining.run":
        changes["input_file"] = write_frozen(tmp_path / "no pairs.tfrecord", 80, drop=["next_sentence_labels"])
    elif "distillation" in run:
        toy_runs.train("run_classifier", tmp_path, model)
        changes["student"] = folder
    toy_runs.train(run, tmp_path, model, **changes)
    assert "has no pooler: it starts as the identity" in capsys.readouterr().err
    kept = checkpoint_values(str(tmp_path / run))
    np.testing.assert_array_equal(kept["bert/pooler/dense/kernel"], np.eye(16))
    np.testing.assert_array_equal(kept["bert/pooler/dense/bias"], np.zeros(16))


@pytest.mark.parametrize("pattern, count", [
    ("^bert/embeddings/(?!word)", 4), ("layer_0/attention/self/query/bias", 1),
    ("layer_0/.*LayerNorm", 4), ("^bert/pooler", 0)])
def test_other_missing_variables_are_counted(pattern, count, folder_of, capsys):
    """Models that predict words have no pooler."""
    check(folder_of(without(pattern)))
    warned = f"bert_model.ckpt lacks {count} of the 37 variables of the model's encoder, such as bert/"
    said = capsys.readouterr().err
    assert (warned in said and said.startswith("WARNING: ")) if count else not said


@pytest.mark.parametrize("name_of", NAMES_OF_OTHERS)
def test_known_names_have_the_command_that_converts_them(
        name_of, folder_of, two_layers, tmp_path, capsys):
    with pytest.raises(UserError) as raised:
        check(folder_of(name_of))
    command = str(raised.value).split(": python -m encoder.convert ")[1].split(" makes ")[0]
    flags = dict(re.findall(r"--(\w+)=(\S+)", command), output_dir=tmp_path / "ours")
    run_here(flags, convert)
    assert_same_values(checkpoint_values(two_layers.init_checkpoint),
                       checkpoint_values(str(tmp_path / "ours" / "bert_model.ckpt")))
    assert sorted(os.listdir(str(tmp_path / "ours"))) == sorted(
        ["bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index",
         "tokenizer_config.json", "vocab.txt"])
    with ends_with_error(capsys, "--labels names 2 labels, and the classifier has 0 outputs"):
        run_here(dict(flags, labels="a,b", output_dir=tmp_path / "more"), convert)
