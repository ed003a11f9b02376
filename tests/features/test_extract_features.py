"""Features equal Google's, and do not depend on batches, replicas, chunks or interruptions."""

import gc
import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import extract_features
import modeling
from commands import arguments, ends_with_error, run_here
from conftest import on_tensorflow_1, on_tensorflow_2, plain_session, sentences
from engine.disk.artifact import GrowingFile
from features import extraction
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

LENGTH = 16  # tokens; some of the texts are longer
TEXTS = ["the cat sees a dog", "", "the cats liked it ||| a bird ||| not  quickly", "unknownword",
         *sentences(12, seed=4), " ||| ", "a ||| " + "the " * 30]


@pytest.fixture
def flags(two_layers, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return {**two_layers._asdict(), "input_file": tmp_path / "texts.txt", "layers": "-1,0",
            "output_file": tmp_path / "features", "max_seq_length": LENGTH,
            "batch_size": 2, "num_cpu_replicas": 2}


def lines_of(flags):
    with open(str(flags["output_file"]), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def expected(two_layers):
    """(tokens, whether it was cut, states [t, 2, D] of the layers -1 and 0) of each text alone."""
    tokenizer, found = FullTokenizer(two_layers.vocab_file), []
    with tf.Graph().as_default(), plain_session() as session:
        ids, segments = (tf.placeholder(tf.int32, [1, None]) for _ in range(2))
        layers = modeling.BertModel(two_layers.config(), False, ids, None,
                                    segments).get_all_encoder_layers()
        tf.train.Saver().restore(session, two_layers.init_checkpoint)
        for text in TEXTS:
            first, _, second = text.rpartition(" ||| ") if " ||| " in text.strip() else (text,) * 3
            a = tokenizer.tokenize(first)
            b = tokenizer.tokenize(second) if second is not first else []
            limit = LENGTH - (3 if b else 2)
            is_cut = len(a) + len(b) > limit
            while len(a) + len(b) > limit:
                (a if len(a) > len(b) else b).pop()
            tokens = ["[CLS]", *a, "[SEP]"] + ([*b, "[SEP]"] if b else [])
            states = session.run([layers[-1], layers[0]], {
                ids: [tokenizer.convert_tokens_to_ids(tokens)],
                segments: [[int(place > len(a) + 1) for place in range(len(tokens))]]})
            found.append((tokens, is_cut, np.stack([of_layer[0] for of_layer in states], axis=1)))
    return found


def test_lines_hold_each_tokens_states(flags, expected, capsys):
    run_here(flags, extract_features)
    lines = lines_of(flags)
    assert [line["linex_index"] for line in lines] == list(range(len(TEXTS)))
    for line, (tokens, _, states) in zip(lines, expected):
        assert [feature["token"] for feature in line["features"]] == tokens
        assert [[layer["index"] for layer in feature["layers"]]
                for feature in line["features"]] == [[-1, 0]] * len(tokens)
        np.testing.assert_allclose([[layer["values"] for layer in feature["layers"]]
                                    for feature in line["features"]], states, atol=1e-5)
    said = capsys.readouterr().err
    num_cut = sum(is_cut for _, is_cut, _ in expected)
    assert f"{num_cut} of 18 texts are longer than --max_seq_length=16: only their begin" in said
    assert sorted(os.listdir(os.path.dirname(str(flags["output_file"])))) == [
        "features", "features.json", "texts.txt"]


def test_features_are_googles(flags):
    pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")
    run_here(flags, extract_features)
    theirs = {name: value for name, value in flags.items() if name != "num_cpu_replicas"}
    theirs["output_file"] = f"{flags['output_file']}.googles"
    # In a process of its own, as its script was meant to run.
    result = subprocess.run([sys.executable, "-m", "bert.extract_features", *arguments(theirs)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert result.returncode == 0, result.stdout[-2000:]
    ours, googles = lines_of(flags), lines_of(theirs)
    assert without_values(ours) == without_values(googles)  # keys and their order included
    np.testing.assert_allclose(values_of(ours), values_of(googles), atol=1e-5)


def without_values(lines):
    return json.dumps([dict(line, features=[
        dict(feature, layers=[dict(layer, values=len(layer["values"]))
                              for layer in feature["layers"]])
        for feature in line["features"]]) for line in lines])


def values_of(lines):
    return [layer["values"] for line in lines for feature in line["features"]
            for layer in feature["layers"]]


POOLED = {"cls": lambda states: states[0], "mean": lambda states: states.mean(axis=0),
          "max": lambda states: states.max(axis=0)}


@pytest.mark.parametrize("pooling", [
    "mean", pytest.param("cls", marks=on_tensorflow_1), pytest.param("max", marks=on_tensorflow_2)])
def test_pooled_vectors_are_in_the_order_of_the_texts(pooling, flags, expected, tmp_path):
    run_here({**flags, "pooling": pooling, "output_file": tmp_path / "vectors.npy",
              "num_cpu_replicas": 1}, extract_features)
    found = np.load(str(tmp_path / "vectors.npy"), mmap_mode="r")
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, [POOLED[pooling](states).ravel() for *_, states in expected], atol=1e-5)
    if pooling != "mean":
        return
    flags["output_file"].write_text("{}")  # an earlier file
    run_here({**flags, "pooling": pooling, "layers": None, "num_cpu_replicas": 1}, extract_features)
    lines = lines_of(flags)
    assert [list(line) for line in lines] == [["linex_index", "values"]] * len(TEXTS)
    np.testing.assert_allclose([line["values"] for line in lines],
                               found[:, :found.shape[1] // 2], atol=1e-5)


@on_tensorflow_1
def test_memory_does_not_grow_with_the_file(flags, tmp_path, monkeypatch):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(100)))
    monkeypatch.setattr(extraction, "_CHUNK_TEXTS", 10)
    append, held = GrowingFile.append, []

    def watched(file, *chunk):
        if not held:
            tracemalloc.start()
        append(file, *chunk)
        del chunk
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    monkeypatch.setattr(GrowingFile, "append", watched)
    gc.collect()
    gc.freeze()  # what other tests have left is not looked through for each chunk
    run_here({**flags, "num_cpu_replicas": 1}, extract_features)
    gc.unfreeze()
    tracemalloc.stop()
    assert len(held) == 10
    grown = np.max(held[5:]) - np.max(held[:5])  # bytes, as Python and NumPy count them
    assert grown < (tmp_path / "features").stat().st_size / 20, held


def test_an_empty_file_has_no_features(flags, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("")
    run_here(flags, extract_features)
    assert lines_of(flags) == [] and "the input has no texts" in capsys.readouterr().err
    flags["output_file"] = tmp_path / "vectors.npy"
    run_here({**flags, "pooling": "mean"}, extract_features)
    assert np.load(str(flags["output_file"])).shape == (0, 32)


@pytest.mark.parametrize("changes, words", [
    ({"input_file": "/missing.txt"}, ("--input_file /missing.txt", "No such file")),
    ({"init_checkpoint": None}, ("--init_checkpoint is required",)),
    ({"output_file": "out.npy"}, ("--output_file=out.npy", "--pooling")),
    ({"layers": "-1,2"}, ("--layers=-1,2", "the model has 0 to 1, which are also -2 to -1")),
    ({"pooling": "sum"}, ("pooling", "cls|mean|max")),
    ({"max_seq_length": 41}, ("--max_seq_length=41", "40 positions")),
    ({"use_tpu": True}, ("--use_tpu=true", "--num_gpus")),
    ({"input_file": "latin.txt"}, ("latin.txt, line 2: not UTF-8",)),
    ({"input_file": "texts.jsonl"}, ("texts.jsonl", "each line is read as a text")),
    ({"input_file": "texts.tsv"}, ("texts.tsv", "each line is read as a text here, with the other columns")),
    ({"input_file": "wiki_00"}, ("wiki_00", "each line is read as a text here, with the other columns, marks and names")),
])
def test_wrong_input_is_one_line(changes, words, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"a\n\xff\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "texts.tsv").write_text("text\tlabel\na\t1\n")
    (tmp_path / "wiki_00").write_text('{"id": "1", "text": "a"}\n')  # as WikiExtractor writes it
    with ends_with_error(capsys, *words):
        run_here({**flags, **changes}, extract_features)
    assert not os.path.exists(str(flags["output_file"]))
