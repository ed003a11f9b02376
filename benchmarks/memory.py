"""Memory of a training step: what the encoder's layers keep for the backward pass, and the peak.

  python -m benchmarks.memory

BERT-base with dropout, 32 × 128 full tokens, float32. Counted: the bytes that a layer's gradient
reads of its forward pass, beside the layer's input. Measured: the resident memory that
`run_classifier.py` reaches at most in one step on the CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, Sequence

import numpy as np

from benchmarks import report

BASE = dict(vocab_size=30522, type_vocab_size=2)  # what BertConfig has by default, beside this
BATCH, LENGTH, LAYERS = 32, 128, 12
CARD_BYTES = 16e9
# Weights, gradients and the optimizer's two slots, in float32.
BYTES_PER_PARAMETER = 16


def kept_bytes(config: Any, features: Dict[str, np.ndarray], **options: Any) -> int:
    """Bytes of its forward pass that a model's gradients read, but variables and layers' states.

    Args:
        config: a BertConfig.
        features: input_ids, input_mask and token_type_ids, integers [b, t].
        options: other arguments of BertModel.
    """
    import modeling
    from engine.devices import runtime
    import tensorflow.compat.v1 as tf
    with tf.Graph().as_default() as graph, tf.Session(config=runtime.session_config()) as session:
        model = modeling.BertModel(config, True, dropout_seed=tf.constant([1, 2]), **options, **{
            name: tf.constant(value, tf.int32) for name, value in features.items()})
        states = model.get_all_encoder_layers()
        forward = set(graph.get_operations())
        variables = tf.trainable_variables()
        gradients = [tf.convert_to_tensor(x) for x in tf.gradients(
            tf.reduce_sum(tf.sin(states[-1])), variables) if x is not None]
        read = {x.name: x for op in _step(gradients) - forward for x in op.inputs
                if x.op in forward and x.dtype != tf.resource}
        # With a beta of 0, layers' states would be equal to their standardized values.
        session.run([variable.assign(tf.random.normal(variable.shape, stddev=0.1))
                     for variable in variables])
        others, read = session.run([[variables, model.get_embedding_output(), *states], read])
    # Tensors with the same bytes share their memory: reshaped, or passed through.
    others = {array.tobytes() for array in tf.nest.flatten(others)}
    return sum(map(len, {array.tobytes() for array in read.values()} - others))


def _step(tensors: Sequence[Any]) -> set:
    """The operations that compute the tensors."""
    operations, waiting = set(), [x.op for x in tensors]
    while waiting:
        op = waiting.pop()
        if op not in operations:
            operations.add(op)
            waiting += [x.op for x in op.inputs]
    return operations


def kept_by_a_layer() -> int:
    import modeling
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


def peak_bytes(work_dir: str) -> int:
    """Resident memory at most, in a process that makes one step."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "run_classifier.py", "--task_name=cola", "--do_train",
             f"--data_dir={work_dir}", f"--vocab_file={work_dir}/vocab.txt",
             f"--bert_config_file={work_dir}/bert_config.json", f"--output_dir={work_dir}/out",
             f"--train_batch_size={BATCH}", f"--max_seq_length={LENGTH}", "--num_cpu_replicas=1",
             "--num_train_epochs=1"], cwd=report.ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            log.seek(0)
            sys.exit(log.read().decode())
    return usage.ru_maxrss * 1024


def write_task(directory: str) -> None:
    """A model's shape, a vocabulary, and as many full examples as a step has."""
    words = [f"w{index}" for index in range(BASE["vocab_size"] - 5)]
    with open(os.path.join(directory, "vocab.txt"), "w") as file:
        file.writelines(f"{word}\n" for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                                 *words))
    with open(os.path.join(directory, "bert_config.json"), "w") as file:
        json.dump(BASE, file)
    texts = np.random.RandomState(0).choice(words, [BATCH, LENGTH])
    with open(os.path.join(directory, "train.tsv"), "w") as file:
        file.writelines(f"x\t{index % 2}\t\t{' '.join(text)}\n" for index, text in enumerate(texts))


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    kept = kept_by_a_layer()
    with tempfile.TemporaryDirectory() as work_dir:
        write_task(work_dir)
        peak = peak_bytes(work_dir)
    report.append(
        f"Memory of a training step, BERT-base, {BATCH} × {LENGTH}, float32",
        [{"kept by a layer": f"{kept / 1e6:,.0f} MB", "peak of one step": f"{peak / 1e6:,.0f} MB",
          "sequences in 16 GB, by the count": str(batch_that_fits(kept))}],
        command="python -m benchmarks.memory",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()
