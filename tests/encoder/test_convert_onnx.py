"""`--to_onnx` writes one file that computes in onnxruntime what the export computes, for kinds that the page names."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import run_classifier
import run_squad
from commands import ends_with_error, run_here
from conftest import ROOT
from encoder import convert
from engine.checkpoints import checkpoints
from exports import run_saved_model
from pages import blocks
from runs import kinds
from runs.rows import Example
from similarity import run as similarity
from tagging import run as tagging
from test_convert_sentences import write_sentences

# test_prepared.py asks models of the other kinds.
TRAINED = {"classifier": run_classifier, "tagger": tagging, "reader": run_squad}


@pytest.fixture(scope="module", params=[*TRAINED, "similarity"])
def export(request, tmp_path_factory):
    """The export of a model of each kind."""
    kind, folder = request.param, tmp_path_factory.mktemp("model")
    model = str(folder / "model")
    if kind in TRAINED:
        shutil.copytree(os.path.join(ROOT, "tests", "files_of_1.0.0", kind), model)
    else:
        convert.convert_from_huggingface(write_sentences(folder / "source"), model)
    run_here(dict(output_dir=model, do_export=True), TRAINED.get(kind, similarity))
    return os.path.join(model, "export")


@pytest.fixture(scope="module")
def onnx(export, tmp_path_factory):
    """The export's file for onnxruntime."""
    pytest.importorskip("tf2onnx")
    path = str(tmp_path_factory.mktemp("onnx") / "model.onnx")
    run_here(dict(from_tensorflow=export, to_onnx=path), convert)
    return path


def features_for(names, length=12, count=7):
    """Made-up records of 3 to `length` tokens, padded."""
    random = np.random.RandomState(3)
    lengths = random.randint(3, length + 1, count)
    mask = (np.arange(length) < lengths[:, np.newaxis]).astype(np.int32)
    pieces = np.minimum(np.arange(1, length - 1), lengths[:, np.newaxis] - 2)
    features = {
        "input_ids": random.randint(5, 30, (count, length)) * mask, "input_mask": mask,
        "segment_ids": mask * (np.arange(length) > 4), "first_pieces": pieces, "num_words": lengths - 2}
    return {name: np.array(features[name], np.int32) for name in names}


def test_onnxruntime_computes_what_the_export_computes(export, onnx):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    if onnxruntime.__version__.startswith("1.10."):  # it fails when it optimizes a CRF
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    for tensor in session.get_inputs():
        assert tensor.type == "tensor(int64)" and tensor.shape[0] == "batch"
        assert tensor.shape[1:] in ([], ["words" if tensor.name == "first_pieces" else "sequence"])
    assert {tensor.shape[0] for tensor in session.get_outputs()} == {"batch"}
    metadata = session.get_modelmeta().custom_metadata_map
    with open(os.path.join(export, "assets.extra", "task.json"), encoding="utf-8") as file:
        for name, value in json.load(file).items():
            assert json.loads(metadata[name]) == value
    ours = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    names = {tensor.name: ours.get(tensor.name, tensor.name) for tensor in session.get_inputs()}
    for length, count in ((12, 7), (7, 1)):
        features = features_for(names.values(), length, count)
        expected = run_saved_model(export, features, names.values())
        outputs = dict(zip(sorted(expected), session.run(sorted(expected), {
            name: features[other].astype(np.int64) for name, other in names.items()})))
        for name, values in expected.items():
            assert outputs[name].dtype == values.dtype
            np.testing.assert_allclose(outputs[name], values, atol=1e-4, err_msg=name)
        assert count == 1 or any(np.ptp(values) > 1e-3 for values in expected.values())


TEXTS = {  # of each kind of model that the page's program is for
    "answers": ("what sees ?", "the old dog sees the cat ."), "classes": ("Unknown, \u4e2d\u6587!", None),
    "similarity": ("\u4e2d the", None), "tags": ("a, bird sees", None)}


def test_the_page_s_program_computes_what_the_model_does(export, onnx, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    trained, reader = kinds.open_reader(export)
    kind = trained.description()["kind"]
    if kind == "tags" and onnxruntime.__version__.startswith("1.10."):
        pytest.skip("onnxruntime 1.10 cannot compute it")
    program, = blocks("docs/export.md", "python")
    (tmp_path / "program.py").write_text(program)
    text, second = TEXTS[kind]
    source = reader.encode([Example((text, second) if second else (text,))]).source
    features = source.fetch(np.arange(1), source.lengths[0])  # one record, without padding
    names = [name for name in ("input_ids", "input_mask", "segment_ids", "first_pieces", "num_words")
             if name in features]
    printed = json.loads(subprocess.run(
        [sys.executable, "program.py", onnx, trained.file("vocab.txt"), text, *filter(None, [second])],
        cwd=str(tmp_path), check=True, stdout=subprocess.PIPE).stdout.decode("utf-8"))
    for name, (expected,) in run_saved_model(export, features, names).items():
        if kind == "tags":
            expected = expected[:len(printed[name])]  # without words of padding
        np.testing.assert_allclose(printed[name], expected, atol=1e-5, err_msg=name)
    if kind in ("classes", "tags"):
        assert len(printed["labels"]) == np.shape(printed.get("scores", [printed.get("probabilities")]))[-1]


def test_a_model_that_is_not_exported_is_refused(tmp_path, capsys):
    with ends_with_error(capsys, "is no export", "--do_export"):
        run_here(dict(from_tensorflow=os.path.join(ROOT, "tests", "files_of_1.0.0", "classifier"),
                      to_onnx=tmp_path / "model.onnx"), convert)
    with ends_with_error(capsys, "--output_dir does not go with --to_onnx"):
        run_here(dict(from_tensorflow=tmp_path, to_onnx=tmp_path / "model.onnx",
                      output_dir=tmp_path / "out"), convert)
    assert not os.listdir(str(tmp_path))


def test_an_export_that_is_damaged_is_refused(tmp_path, capsys):
    pytest.importorskip("tf2onnx")
    (tmp_path / "export" / "variables").mkdir(parents=True)
    checkpoints.write_checkpoint(
        str(tmp_path / "export" / checkpoints.EXPORTED), {"step": np.zeros(2)})
    (tmp_path / "export" / "saved_model.pb").write_bytes(b"no graph")
    with ends_with_error(capsys, str(tmp_path / "export"), "cannot be read"):
        run_here(dict(from_tensorflow=tmp_path / "export", to_onnx=tmp_path / "model.onnx"), convert)
    assert os.listdir(str(tmp_path)) == ["export"]
