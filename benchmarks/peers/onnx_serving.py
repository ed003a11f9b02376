"""The peer with another engine: onnxruntime computes in the place of TensorFlow's session.

The HTTP code, the queue and the weights are ours. Takes the flags of `serving.run`; ONNX_THREADS in the
environment is the number of threads of a batch, by default all cores.

  ONNX_THREADS=1 python -m benchmarks.peers.onnx_serving --model=out/demo --port=8502
"""

import os
import tempfile

import onnxruntime
import tensorflow.compat.v1 as tf
from tf2onnx import convert

from engine import inference
from engine.checkpoints import onnx_file, saved_model
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli import command
from engine.data.batches import Features
from engine.devices.devices import Devices
from engine.model import Forward
from serving import model, run


class OnnxSession:
    """A `serving.session.FrozenSession` on the CPU."""

    def __init__(self, forward: Forward, checkpoint: Checkpoint, example: Features,
                 devices: Devices, device: str):
        with tf.Graph().as_default() as graph:
            inputs = {name: tf.placeholder(values.dtype, [None] * values.ndim, name=name)
                      for name, values in example.items()}
            mode = inference.mode_on(devices)
            mode = mode._replace(computation=mode.computation._replace(inlined=True))
            with tf.variable_scope("", custom_getter=saved_model.constants(checkpoint)):
                predictions = forward(inputs, mode).predictions
            outputs = {name: tf.identity(tensor, name=f"output_{name}").name
                       for name, tensor in predictions.items()}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            convert.from_graph_def(
                graph.as_graph_def(), input_names=[f"{name}:0" for name in inputs],
                output_names=list(outputs.values()), opset=onnx_file.OPSET, output_path=path,
                tensors_to_rename={**{f"{name}:0": name for name in inputs},
                                   **{tensor: name for name, tensor in outputs.items()}})
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = int(os.environ.get("ONNX_THREADS", 0))
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"])
        self._names = [tensor.name for tensor in self._session.get_inputs()]
        self._outputs = [tensor.name for tensor in self._session.get_outputs()]

    def run(self, features: Features) -> Features:
        """The predictions of the model."""
        return dict(zip(self._outputs, self._session.run(
            None, {name: features[name] for name in self._names})))

    def close(self) -> None:
        """Nothing is to be freed."""


if __name__ == "__main__":
    model.FrozenSession = OnnxSession
    command.run(run.main, run.define_flags(), usage=run.USAGE)
