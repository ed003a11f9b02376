"""The peer: the training graph of Google's BERT (`bert-tensorflow==1.0.1`), for a card that need not be there."""

from typing import List

import tensorflow as tf
from bert import modeling, run_pretraining

from benchmarks import step_graph


def operations_of(workload: step_graph.Workload) -> List[tf.Operation]:
    """All operations that a step of pretraining in float32 runs, of a graph of their own."""
    size = workload.batch_size
    config = modeling.BertConfig(
        step_graph.VOCAB_SIZE, workload.hidden, workload.layers, workload.hidden // 64,
        4 * workload.hidden, type_vocab_size=2)
    model_fn = run_pretraining.model_fn_builder(
        config, None, 1e-4, 10, 1, use_tpu=False, use_one_hot_embeddings=False)
    shapes = {**dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [size, workload.length]),
              **dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
                              [size, step_graph.MASKED]), "next_sentence_labels": [size, 1]}
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        tf.train.get_or_create_global_step()
        features = {name: tf.placeholder(tf.float32 if "weights" in name else tf.int32, shape)
                    for name, shape in shapes.items()}
        spec = model_fn(features, None, tf.estimator.ModeKeys.TRAIN, {})
        return list(step_graph.needed([spec.train_op]))
