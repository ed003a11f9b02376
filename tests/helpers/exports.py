"""Exports, and what they compute."""

from commands import run_here

import tensorflow.compat.v1 as tf

INPUTS = ("input_ids", "input_mask", "segment_ids")


def train(tiny_model, output_dir, **flags):
    run_here({**tiny_model._asdict(), "output_dir": output_dir, "max_seq_length": 24,
              "train_batch_size": 4, "num_cpu_replicas": 2, "num_train_epochs": 1,
              "learning_rate": 1e-3, **flags})


def run_saved_model(export_dir, features, inputs=INPUTS):
    with tf.Graph().as_default(), tf.Session() as session:
        meta_graph = tf.saved_model.load(session, ["serve"], str(export_dir))
        signature = meta_graph.signature_def["serving_default"]
        assert signature.method_name == "tensorflow/serving/predict"
        assert sorted(signature.inputs) == sorted(inputs)
        for entry in signature.inputs.values():
            assert entry.dtype == tf.int32 and {
                axis.size for axis in entry.tensor_shape.dim} == {-1}
        return session.run(
            {name: entry.name for name, entry in signature.outputs.items()},
            {signature.inputs[name].name: features[name] for name in inputs})
