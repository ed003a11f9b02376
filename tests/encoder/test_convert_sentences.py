"""A folder of sentence-transformers goes in and comes out with what makes vectors of its states."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import answers_of
from encoder.convert import convert_from_huggingface, convert_from_tensorflow
from engine.errors import UserError
from huggingface_folders import (
    ENCODER, HIDDEN, POOLER, POSITIONS, assert_same_values, numpy_states, random_tensors,
    write_huggingface)

MODULES = [("", "sentence_transformers.models.Transformer"),
           ("1_Pooling", "sentence_transformers.models.Pooling"),
           ("2_Normalize", "sentence_transformers.models.Normalize")]
# Of versions before 6, and since.
OLD_POOLING = {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": False,
               "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
               "pooling_mode_mean_sqrt_len_tokens": False}
NEW_POOLING = {"embedding_dimension": HIDDEN, "pooling_mode": "max", "include_prompt": True}


def write_sentences(folder, *, modules=MODULES, pooling=OLD_POOLING, settings=None, length=None):
    """A folder of sentence-transformers with a random encoder."""
    write_huggingface(folder, random_tensors({**ENCODER, **POOLER}),
                      tokenizer_config={"do_lower_case": True, "model_max_length": 14})
    (folder / "modules.json").write_text(json.dumps([
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (path, kind) in enumerate(modules)]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if settings is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    if length is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(
            {"max_seq_length": length, "do_lower_case": False}))
    return str(folder)


def task_of(folder):
    return json.loads((folder / "task.json").read_text())


def test_the_files_of_version_6_are_read_without_settings_too(tmp_path):
    """The encoder may be in a folder of its own."""
    modules = [("0_Encoder", "sentence_transformers.base.modules.transformer.Transformer"),
               ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling")]
    source = tmp_path / "source"
    write_sentences(source, modules=modules, pooling=NEW_POOLING)
    (source / "0_Encoder").mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (source / name).rename(source / "0_Encoder" / name)
    warning, = convert_from_huggingface(str(source), str(tmp_path / "out")).warnings
    assert "vectors keep their lengths there" in warning
    assert task_of(tmp_path / "out") == {
        "kind": "similarity", "pooling": "max", "query_prefix": "", "matryoshka": [],
        "do_lower_case": True, "max_seq_length": 14}  # the tokenizer's


def test_there_and_back_gives_the_same_bits_and_the_same_vectors_files(tmp_path):
    settings = {"prompts": {"query": "word: ", "document": ""}, "default_prompt_name": None,
                "similarity_fn_name": "cosine"}
    source = write_sentences(tmp_path / "source", settings=settings, length=10)
    assert convert_from_huggingface(source, str(tmp_path / "ours")).warnings == []
    assert task_of(tmp_path / "ours") == {
        "kind": "similarity", "pooling": "mean", "query_prefix": "word: ", "matryoshka": [],
        "do_lower_case": True, "max_seq_length": 10}
    assert convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "back")).warnings == []
    assert_same_values({name[len("bert."):]: value for name, value in load_file(
        str(tmp_path / "back" / "model.safetensors")).items()},
        load_file(str(tmp_path / "source" / "model.safetensors")))

    def back(*names):
        return json.loads(tmp_path.joinpath("back", *names).read_text())

    assert [(module["path"], module["type"]) for module in back("modules.json")] == MODULES
    pooling = back("1_Pooling", "config.json")
    assert pooling == {name: OLD_POOLING[name] for name in pooling}
    assert back("config_sentence_transformers.json") == settings
    assert back("sentence_bert_config.json") == {"max_seq_length": 10, "do_lower_case": False}
    assert back("tokenizer_config.json")["do_lower_case"] is True
    convert_from_huggingface(str(tmp_path / "back"), str(tmp_path / "again"))
    assert task_of(tmp_path / "again") == task_of(tmp_path / "ours")


@pytest.mark.parametrize("mode, pool", [("mean", np.mean), ("max", np.max),
                                        ("cls", lambda states, axis: states[0])])
def test_the_converted_model_gives_the_vectors_of_the_source(mode, pool, tmp_path):
    source = write_sentences(tmp_path / "source", pooling={**NEW_POOLING, "pooling_mode": mode})
    convert_from_huggingface(source, str(tmp_path / "ours"))
    texts = ("words word", "word")
    for answer, text in zip(answers_of(tmp_path / "ours", texts, tmp_path), texts):
        vector = pool(numpy_states(source, text)[0], axis=0)
        np.testing.assert_allclose(answer["vector"], vector / np.linalg.norm(vector), atol=1e-5)


def test_texts_that_are_lower_cased_before_a_cased_tokenizer_are_refused(tmp_path):
    source = write_sentences(tmp_path / "source", length=12)
    for name, value in (("sentence_bert_config.json", True), ("tokenizer_config.json", False)):
        (tmp_path / "source" / name).write_text(json.dumps({"do_lower_case": value}))
    with pytest.raises(UserError, match="lower-cases texts before the tokenizer, which does not"):
        convert_from_huggingface(source, str(tmp_path / "out"))


def test_the_settings_of_an_old_folder_are_read(tmp_path):
    source = write_sentences(tmp_path / "source", length=7)
    os.rename(os.path.join(source, "sentence_bert_config.json"), os.path.join(source, "sentence_distilbert_config.json"))
    convert_from_huggingface(source, str(tmp_path / "out"))
    assert task_of(tmp_path / "out")["max_seq_length"] == 7


def test_prompts_of_other_texts_are_named(tmp_path):
    source = write_sentences(tmp_path / "source", length=POSITIONS + 1, settings={
        "prompts": {"query": "query: ", "passage": "passage: "}})
    warning, = convert_from_huggingface(source, str(tmp_path / "out")).warnings
    assert "'passage: '" in warning
    assert task_of(tmp_path / "out")["max_seq_length"] == 14


@pytest.mark.parametrize("changes, words", [
    (dict(modules=[*MODULES[:2], ("2_Dense", "sentence_transformers.models.Dense")]),
     ("modules.json", "Transformer, Pooling, Dense")),
    (dict(modules=[(*MODULES[0],), ("../1_Pooling", MODULES[1][1])]), ("'../1_Pooling'",)),
    (dict(pooling={**OLD_POOLING, "pooling_mode_cls_token": True}), ("cls", "mean")),
    (dict(pooling={"pooling_mode": "lasttoken"}), ("lasttoken", "cls, mean, max")),
    (dict(pooling={**NEW_POOLING, "include_prompt": False}), ("include_prompt",)),
    (dict(pooling={}), ("1_Pooling", "cls, mean, max")),
    (dict(settings={"prompts": {"query": 1}}), ("config_sentence_transformers.json", "damaged")),
    (dict(settings={"prompts": {"document": "passage: "}, "default_prompt_name": "document"}),
     ("default_prompt_name", "'passage: '")),
    (dict(length="long"), ("sentence_bert_config.json", "damaged")),
    *((dict(modules_file=content), ("modules.json",)) for content in (
        "{}", "[{\"type\": \"a.Transformer\"}]")),
])
def test_what_cannot_be_converted_is_named(changes, words, tmp_path):
    modules_file = changes.get("modules_file")
    source = write_sentences(tmp_path / "source", **{} if modules_file else changes)
    if modules_file:
        (tmp_path / "source" / "modules.json").write_text(modules_file)
    with pytest.raises(UserError) as raised:
        convert_from_huggingface(source, str(tmp_path / "out"))
    for word in words:
        assert word in str(raised.value)
    assert not (tmp_path / "out").exists()
