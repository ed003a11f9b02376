"""Proves that a damaged model or a wrong command is one clear line, with nothing half-written."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from encoder import convert
from encoder.convert import convert_from_huggingface, convert_from_tensorflow
from engine.errors import UserError
from huggingface_folders import HIDDEN, VOCAB, write_bare_encoder


@pytest.fixture
def bare_encoder(tmp_path):
    return write_bare_encoder(tmp_path / "source")


def remove(name):
    return lambda folder: os.remove(os.path.join(folder, name))


def truncate(name, size):
    return lambda folder: os.truncate(os.path.join(folder, name), size)


def write(name, text):
    def change(folder):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    return change


def set_config(name="config.json", **entries):
    def change(folder):
        with open(os.path.join(folder, name)) as file:
            config = json.load(file)
        write(name, json.dumps({**config, **entries}))(folder)
    return change


def set_tensors(change_tensors):
    def change(folder):
        path = os.path.join(folder, "model.safetensors")
        tensors = load_file(path)
        change_tensors(tensors)
        save_file(tensors, path)
    return change


def only_a_pickle(name):
    return lambda folder: os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, name))


@pytest.mark.parametrize("damage, message", [
    (remove("config.json"), "config.json: No such file"),
    (remove("model.safetensors"), "model.safetensors: No such file"),
    (remove("vocab.txt"), "vocab.txt: No such file"),
    (only_a_pickle("pytorch_model.bin"), "pytorch_model.bin is a pickle"),
    (only_a_pickle("pytorch_model.bin.index.json"), "is a pickle"),
    (truncate("model.safetensors", 5000), "truncated"),
    (truncate("vocab.txt", 0), "vocab.txt is empty"),
    (write("vocab.txt", "x\n" * (VOCAB + 1)), "vocabulary .* 31 entries, .* vocab_size 30"),
    (set_config(model_type="roberta"), "model_type is 'roberta'; only models of BERT's own shape"),
    (set_config(model_type="ernie", use_task_id=True), "use_task_id is True"),
    (set_config(position_embedding_type="relative_key"), "position_embedding_type"),
    (set_config(hidden_act="swish"), "hidden_act is 'swish'.*gelu_new"),
    (set_config(num_attention_heads=5), "config.json: .*12.*5"),
    (set_config(intermediate_size=21), "intermediate.dense.weight has the shape .20, 12."),
    (set_config(num_hidden_layers=3), "lacks 16 of the 53 variables of a BERT's encoder"),
    (set_config(num_hidden_layers=1), "holds bert.encoder.layer.1.*different models"),
    (set_tensors(lambda tensors: tensors.pop("pooler.dense.bias")), "lacks 1 of the 2 .* pooler"),
    (set_tensors(lambda tensors: tensors.update(
        {"pooler.dense.bias": np.zeros(HIDDEN, np.int64)})), "of type I64"),
])
def test_a_bad_hugging_face_folder_is_one_clear_line(bare_encoder, tmp_path, damage, message):
    damage(bare_encoder)
    with pytest.raises(UserError, match=message):
        convert_from_huggingface(bare_encoder, str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path)) == ["source"]  # nothing half-written


@pytest.mark.parametrize("damage, message", [
    (remove("bert_model.ckpt.index"), "checkpoint"),
    (truncate("bert_model.ckpt.data-00000-of-00001", 2000), "cut short"),
    (truncate("bert_model.ckpt.index", 40), "is no TensorFlow checkpoint, or is damaged"),
    (remove("vocab.txt"), "holds no vocab.txt; copy there"),
    (set_config("bert_config.json", vocab_size=31), "word_embeddings has the shape .30, 12."),
    (set_config("bert_config.json", hidden_act="swish"), "_config.json: Unknown activation 'swish'"),
])
def test_a_bad_tensorflow_folder_is_one_clear_line(bare_encoder, tmp_path, damage, message):
    convert_from_huggingface(bare_encoder, str(tmp_path / "tensorflow"))
    damage(str(tmp_path / "tensorflow"))
    with pytest.raises(UserError, match=message):
        convert_from_tensorflow(str(tmp_path / "tensorflow"), str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path)) == ["source", "tensorflow"]


def test_a_folder_with_something_in_it_is_never_written_into(bare_encoder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    (tmp_path / "empty").mkdir()
    for taken in (bare_encoder, str(tmp_path / "full")):
        with pytest.raises(UserError, match="not empty"):
            convert_from_huggingface(bare_encoder, taken)
    for path, said in (("full/notes", "notes is a file, a mount point or not empty; name a new"),
                       ("full/notes/model", "full/notes cannot be written to: File exists")):
        with pytest.raises(UserError, match=said):
            convert_from_huggingface(bare_encoder, str(tmp_path / path))
    convert_from_huggingface(bare_encoder, str(tmp_path / "empty"))
    assert os.listdir(tmp_path / "full") == ["notes"]


def test_the_same_conversion_again_finds_its_folder_whole(bare_encoder, tmp_path, capsys):
    """Also with more in it, such as a training's files; other values are refused, and stay."""
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for _ in range(2):
        convert_from_huggingface(bare_encoder, ours)
        convert_from_tensorflow(ours, theirs)
        (tmp_path / "ours" / "notes").write_text("mine")
    said = capsys.readouterr().err
    assert f"{ours} is whole: nothing" in said and f"{theirs} is whole: nothing" in said
    config = tmp_path / "ours" / "bert_config.json"
    config.write_text(config.read_text().replace("gelu_erf", "relu"))
    with pytest.raises(UserError, match="not empty"):
        convert_from_tensorflow(ours, theirs)
    with pytest.raises(UserError, match="not empty"):
        convert_from_huggingface(bare_encoder, ours)
    assert "relu" in config.read_text()
    assert sorted(os.listdir(tmp_path)) == ["ours", "source", "theirs"]


@pytest.mark.parametrize("arguments, message", [
    ([], "one of --from_huggingface, --from_tensorflow and --from_checkpoint"),
    (["--from_huggingface=x"], "--output_dir is required"),
    (["--from_huggingface=x", "--output_dir=y", "--vocab_file=z"],
     "--vocab_file does not go with --from_huggingface"),
    (["--from_tensorflow=x", "--output_dir=y", "--labels=z"], "--labels does not go with --from_tens"),
])
def test_flags_that_make_no_sense_together_are_one_clear_line(arguments, message):
    values = convert.define_flags()
    values(["convert_checkpoint", *arguments])
    with pytest.raises(UserError, match=message):
        convert.main(values)
