"""`--to_onnx` writes one file that computes in onnxruntime what the export computes, for every kind."""

import os
import shutil

import numpy as np
import pytest

import run_classifier
import run_squad
from commands import ends_with_error, run_here
from conftest import ROOT
from encoder import convert
from engine.checkpoints import checkpoints
from exports import run_saved_model
from huggingface_folders import (
    classifier_tensors, config_entries, write_huggingface)
from rewriting import run as rewriting
from similarity import run as similarity
from tagging import run as tagging
from test_convert_sentences import write_sentences

TRAINED = {"classifier": run_classifier, "tagger": tagging, "reader": run_squad, "scorer": rewriting}
CONVERTED = {"multi_label": run_classifier, "regression": run_classifier, "similarity": similarity}


@pytest.fixture(scope="module", params=[*TRAINED, *CONVERTED])
def export(request, tmp_path_factory):
    """The export of a model of each kind."""
    kind, folder = request.param, tmp_path_factory.mktemp("model")
    model = str(folder / "model")
    if kind in TRAINED:
        shutil.copytree(os.path.join(ROOT, "tests", "files_of_1.0.0", kind), model)
    elif kind == "similarity":
        convert.convert_from_huggingface(write_sentences(folder / "source"), model)
    else:
        entries = config_entries(kind)
        convert.convert_from_huggingface(write_huggingface(
            folder / "source", classifier_tensors(len(entries["id2label"])), config=entries), model)
    run_here(dict(output_dir=model, do_export=True), {**TRAINED, **CONVERTED}[kind])
    return os.path.join(model, "export")


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


def test_onnxruntime_computes_what_the_export_computes(export, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    run_here(dict(from_tensorflow=export, to_onnx=tmp_path / "model.onnx"), convert)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'model.onnx'}\n"
    options = onnxruntime.SessionOptions()
    if onnxruntime.__version__.startswith("1.10."):  # it fails when it optimizes a CRF
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]
    for length, count in ((12, 7), (7, 1)):
        features = features_for(names, length, count)
        expected = run_saved_model(export, features, names)
        outputs = dict(zip(sorted(expected), session.run(sorted(expected), features)))
        for name, values in expected.items():
            assert outputs[name].dtype == values.dtype
            np.testing.assert_allclose(outputs[name], values, atol=1e-4, err_msg=name)
        assert count == 1 or any(np.ptp(values) > 1e-3 for values in expected.values())


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
