"""An export has requests of several lengths for TensorFlow Serving, which the export answers."""

import os
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import run_classifier
import run_squad
from commands import run_here
from conftest import ROOT
from exports import run_saved_model
from rewriting import run as rewriting
from tagging import run as tagging


@pytest.mark.parametrize("kind, command", [
    ("classifier", run_classifier), ("tagger", tagging), ("reader", run_squad), ("scorer", rewriting)])
def test_the_export_answers_its_warm_up_requests(kind, command, tmp_path):
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    model = str(tmp_path / "model")
    shutil.copytree(os.path.join(ROOT, "tests", "files_of_1.0.0", kind), model)
    run_here(dict(output_dir=model, do_export=True), command)
    export = os.path.join(model, "export")
    lengths = []
    for record in tf.python_io.tf_record_iterator(
            os.path.join(export, "assets.extra", "tf_serving_warmup_requests")):
        request = apis.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.signature_name == "serving_default"
        features = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        outputs = run_saved_model(export, features, list(features))
        assert all(len(values) == 1 and np.isfinite(values).all() for values in outputs.values())
        lengths.append(features["input_ids"].shape[1])
    assert lengths == [16, 24]
