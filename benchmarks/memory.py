"""Memory of a training step: what the encoder's layers keep for the backward pass, and the peak.

  python -m benchmarks.memory

BERT-base with dropout, 32 × 128 full tokens, float32. Counted: the bytes that a layer's gradient
reads of its forward pass, beside the layer's input. Measured: the resident memory that
`run_classifier.py` reaches at most in one step on the CPU.
"""

import os
import subprocess
import sys
import tempfile
from typing import Any, Dict

import numpy as np

from engine.devices import runtime

import modeling
import tensorflow.compat.v1 as tf
from benchmarks import report, startup, step_graph

BASE = dict(vocab_size=30522, type_vocab_size=2)  # what BertConfig has by default, beside this
BATCH, LENGTH, LAYERS = 32, 128, 12
CARD_BYTES = 16e9
# Weights, gradients and the optimizer's two slots, in float32.
BYTES_PER_PARAMETER = 16


def kept_bytes(config: modeling.BertConfig, features: Dict[str, np.ndarray], **options: Any) -> int:
    """Bytes of its forward pass that a model's gradients read, but variables and layers' states.

    Args:
        features: input_ids, input_mask and token_type_ids, integers [b, t].
        options: other arguments of BertModel.
    """
    with tf.Graph().as_default() as graph, tf.Session(config=runtime.session_config()) as session:
        model = modeling.BertModel(config, True, dropout_seed=tf.constant([1, 2]), **options, **{
            name: tf.constant(value, tf.int32) for name, value in features.items()})
        states = model.get_all_encoder_layers()
        forward = set(graph.get_operations())
        variables = tf.trainable_variables()
        gradients = [tf.convert_to_tensor(x) for x in tf.gradients(
            tf.reduce_sum(tf.sin(states[-1])), variables) if x is not None]
        read = {x.name: x for op in step_graph.needed_for(gradients) - forward for x in op.inputs
                if x.op in forward and x.dtype != tf.resource}
        # With a beta of 0, layers' states would be equal to their standardized values.
        session.run([variable.assign(tf.random.normal(variable.shape, stddev=0.1))
                     for variable in variables])
        others, read = session.run([[variables, model.get_embedding_output(), *states], read])
    # Tensors with the same bytes share their memory: reshaped, or passed through.
    others = {array.tobytes() for array in tf.nest.flatten(others)}
    return sum(map(len, {array.tobytes() for array in read.values()} - others))


def kept_by_a_layer() -> int:
    draws = np.random.RandomState(0)
    features = {"input_ids": draws.randint(BASE["vocab_size"], size=[BATCH, LENGTH]),
                "input_mask": np.ones([BATCH, LENGTH]),
                "token_type_ids": draws.randint(2, size=[BATCH, LENGTH])}
    one, two = (kept_bytes(modeling.BertConfig(num_hidden_layers=layers, **BASE), features)
                for layers in (1, 2))
    return two - one


def batch_that_fits(kept: int) -> int:
    """Sequences a card holds by the count. A layer more is for what one computes between."""
    states = BATCH * LENGTH * 768 * 4  # bytes of a layer's input
    parameters = 109_482_240
    return int((CARD_BYTES - BYTES_PER_PARAMETER * parameters) / ((LAYERS + 1) * (kept + states) / BATCH))


def peak_bytes() -> int:
    """Resident memory at most, in a process that makes one step."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        flags = startup.write_task(folder, BASE, LENGTH, count=BATCH)
        process = subprocess.Popen(
            [sys.executable, "run_classifier.py", *flags, f"--output_dir={folder}/out",
             f"--train_batch_size={BATCH}", "--num_cpu_replicas=1", "--num_train_epochs=1"],
            cwd=report.ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            log.seek(0)
            sys.exit(log.read().decode())
    return usage.ru_maxrss * 1024


def main() -> None:
    report.parser_of(__doc__).parse_args()
    kept, peak = kept_by_a_layer(), peak_bytes()
    report.append(
        f"Memory of a training step, BERT-base, {BATCH} × {LENGTH}, float32",
        [{"kept by a layer": f"{kept / 1e6:,.0f} MB", "peak of one step": f"{peak / 1e6:,.0f} MB",
          "sequences in 16 GB, by the count": batch_that_fits(kept)}])


if __name__ == "__main__":
    main()
