"""Proves that a BERT means the same in TensorFlow's and in Hugging Face's files.

The converted encoder computes what a NumPy transcription of BERT in Hugging Face's
conventions computes; there and back gives the same bits.
"""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file
import tensorflow.compat.v1 as tf

import modeling
from conftest import checkpoint_values, plain_session
from encoder import vocabulary
from encoder.convert import convert_from_huggingface, convert_from_tensorflow
from huggingface_folders import (CONFIG, ENCODER, HEADS, POOLER, TOKENS, VOCAB,
                                 assert_same_values, numpy_bert, prefixed,
                                 random_tensors, write_bare_encoder, write_huggingface)


@pytest.mark.parametrize("hidden_act, ours", [("gelu", "gelu_erf"), ("gelu_new", "gelu")])
def test_the_converted_encoder_computes_what_the_source_does(tmp_path, hidden_act, ours):
    tensors = random_tensors({**ENCODER, **POOLER})
    source = write_huggingface(tmp_path / "source", tensors, config={"hidden_act": hidden_act})
    convert_from_huggingface(source, str(tmp_path / "out"))
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    assert config == {**{key: CONFIG[key] for key in config}, "hidden_act": ours}
    random = np.random.RandomState(1)
    mask = (np.arange(7) < np.array([[7], [3], [5]])).astype(int)
    batch = random.randint(VOCAB, size=[3, 7]), mask, random.randint(2, size=[3, 7])
    states, pooled = numpy_bert(tensors, ours, *batch)
    with tf.Graph().as_default(), plain_session() as session:
        model = modeling.BertModel(modeling.BertConfig.from_dict(config), False, *map(
            tf.constant, batch))
        tf.train.Saver().restore(session, str(tmp_path / "out" / "bert_model.ckpt"))
        found = session.run([model.get_embedding_output(), *model.get_all_encoder_layers()])
        np.testing.assert_allclose(session.run(model.get_pooled_output()), pooled, atol=1e-4)
    for state, expected in zip(found, states):
        np.testing.assert_allclose(state[mask > 0], expected[mask > 0], atol=1e-4)


@pytest.mark.parametrize("parts, architecture", [
    ({}, "BertModel"), (POOLER, "BertModel"), ({**POOLER, **HEADS}, "BertForPreTraining"),
    ({name: shape for name, shape in HEADS.items() if "predictions" in name}, "BertForMaskedLM")])
def test_from_hugging_face_and_back_gives_the_same_bits(tmp_path, parts, architecture):
    tensors = prefixed(random_tensors({**ENCODER, **parts}))
    source = write_huggingface(tmp_path / "source", tensors)
    conversion = convert_from_huggingface(source, str(tmp_path / "tensorflow"))
    assert bool(conversion.warnings) == ("pooler.dense.bias" not in parts)
    convert_from_tensorflow(conversion.output, str(tmp_path / "back"))
    assert_same_values(load_file(str(tmp_path / "back" / "model.safetensors")), tensors)
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == {
        **CONFIG, "architectures": [architecture], "pad_token_id": 0}
    for folder in ("tensorflow", "back"):
        assert ((tmp_path / folder / "vocab.txt").read_bytes()
                == (tmp_path / "source" / "vocab.txt").read_bytes())


def old_names(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta")


def ernies_names(name):
    return name.replace("bert.", "ernie.", 1)


@pytest.mark.parametrize("rename, config", [(old_names, {}), (ernies_names, {
    "model_type": "ernie", "architectures": ["ErnieForMaskedLM"], "use_task_id": False})])
def test_other_names_doubled_tensors_and_half_precision_are_understood(tmp_path, rename, config):
    tensors = {name: value.astype(np.float16) for name, value in
               prefixed(random_tensors({**ENCODER, **POOLER, **HEADS})).items()}
    expected = convert_from_huggingface(
        write_huggingface(tmp_path / "today", tensors), str(tmp_path / "expected"))
    others = {rename(name): value for name, value in tensors.items()}
    others["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    others["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    others[rename("bert.embeddings.position_ids")] = np.arange(16)[None]
    conversion = convert_from_huggingface(
        write_huggingface(tmp_path / "others", others, config=config), str(tmp_path / "out"))
    assert conversion.warnings == []
    written = checkpoint_values(conversion.output)
    assert_same_values(written, checkpoint_values(expected.output))
    assert {name for name in written if name.startswith("cls/")} == {
        "cls/predictions/transform/dense/kernel", "cls/predictions/transform/dense/bias",
        "cls/predictions/transform/LayerNorm/gamma", "cls/predictions/transform/LayerNorm/beta",
        "cls/predictions/output_bias",
        "cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"}
    np.testing.assert_array_equal(written["cls/predictions/transform/dense/kernel"],
                                  tensors["cls.predictions.transform.dense.weight"].T)


def test_a_layer_norm_unlike_ours_is_a_warning(tmp_path):
    source = write_huggingface(
        tmp_path / "source", random_tensors({**ENCODER, **POOLER}),
        config={"layer_norm_eps": 1e-5})
    epsilon, = convert_from_huggingface(source, str(tmp_path / "out")).warnings
    assert "layer_norm_eps is 1e-05" in epsilon


@pytest.mark.parametrize("config, tokens, lower_cased", [
    ({"do_lower_case": False}, ["a"], False), ({"do_lower_case": True}, ["A"], True),
    (None, ["[CLS]", "<S>", "a", "é"], True), (None, ["[CLS]", "a", "É"], False),
    (None, [*(f"word{number}" for number in range(300)), "Anna", "DNA"], True)])
def test_casing_is_the_tokenizer_s_or_else_what_the_vocabulary_shows(
        tmp_path, config, tokens, lower_cased):
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    assert vocabulary.read_casing(str(tmp_path)) == lower_cased


def test_without_vocab_txt_the_vocabulary_comes_from_tokenizer_json(tmp_path):
    source = write_bare_encoder(tmp_path / "source")
    expected = (tmp_path / "source" / "vocab.txt").read_bytes()
    os.remove(os.path.join(source, "vocab.txt"))
    ids = {token: i for i, token in enumerate(TOKENS)}
    with open(os.path.join(source, "tokenizer.json"), "w") as file:
        json.dump({"added_tokens": [{"content": "[CLS]", "id": ids.pop("[CLS]")}],
                   "model": {"type": "WordPiece", "vocab": ids}}, file)
    convert_from_huggingface(source, str(tmp_path / "out"))
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == expected
