"""The peer of stage 1: the same losses over Google's modeling, every batch padded to 128.

Teacher and student are `bert-tensorflow==1.0.1`'s BertModel, each layer's nodes in the graph as
it makes them, and its optimizer; the attention scores are found in the graph. The batches are
in memory before the first step. Prints one JSON line.

  python -m benchmarks.peers.google_distillation --data_dir=DIR --model=DIR \\
    --student=2,384,12,1536 --layers=3,6
"""

import argparse
import json
import os
import re
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from bert import modeling, optimization, run_classifier, tokenization  # noqa: E402

from distillation import losses  # noqa: E402

LENGTH, BATCH, WARMUP_STEPS = 128, 32, 2


def batches(args):
    """Features of the first examples, [steps, BATCH, LENGTH] each."""
    tokenizer = tokenization.FullTokenizer(os.path.join(args.model, "vocab.txt"), True)
    examples = run_classifier.ColaProcessor().get_train_examples(args.data_dir)
    examples = examples[:BATCH * (WARMUP_STEPS + args.steps)]
    features = run_classifier.convert_examples_to_features(
        examples, ["0", "1"], LENGTH, tokenizer)
    return {name: np.array([getattr(feature, name) for feature in features]).reshape(
        [-1, BATCH, LENGTH]) for name in ("input_ids", "input_mask", "segment_ids")}


def model_of(config, is_training, inputs, scope):
    """States and embeddings, and attention scores before the mask, of each layer."""
    model = modeling.BertModel(config, is_training, *inputs, scope=scope)
    graph = tf.get_default_graph()
    pattern = re.compile(scope + r"/encoder/layer_(\d+)/attention/self/Mul$")
    scores = {int(pattern.match(op.name).group(1)): op.outputs[0]
              for op in graph.get_operations() if pattern.match(op.name)}
    states = [model.get_embedding_output()] + model.get_all_encoder_layers()
    return states, [scores[layer] for layer in range(config.num_hidden_layers)]


def loss_of(args, inputs):
    teacher = modeling.BertConfig.from_json_file(os.path.join(args.model, "bert_config.json"))
    student = modeling.BertConfig.from_dict(teacher.to_dict())
    (student.num_hidden_layers, student.hidden_size, student.num_attention_heads,
     student.intermediate_size) = map(int, args.student.split(","))
    layers = [int(layer) for layer in args.layers.split(",")]
    mask = inputs[1]
    taught_states, taught_scores = model_of(teacher, False, inputs, "teacher")
    states, scores = model_of(student, True, inputs, "bert")
    projected = [tf.layers.dense(state, teacher.hidden_size, name="projection", reuse=tf.AUTO_REUSE)
                 for state in states]
    return tf.add_n(
        [losses.hidden_loss(own, taught_states[layer], mask)
         for own, layer in zip(projected, [0] + layers)]
        + [losses.attention_loss(own, taught_scores[layer - 1], mask)
           for own, layer in zip(scores, layers)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="in CoLA's layout")
    parser.add_argument("--model", required=True)
    parser.add_argument("--student", required=True)
    parser.add_argument("--layers", required=True)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    data = batches(args)
    inputs = [tf.placeholder(tf.int32, [BATCH, LENGTH]) for _ in data]
    loss = loss_of(args, inputs)
    tf.train.get_or_create_global_step()
    train_op = optimization.create_optimizer(loss, 5e-5, 10000, 100, use_tpu=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(WARMUP_STEPS + args.steps):
            if step == WARMUP_STEPS:
                start = time.time()
            session.run(train_op, {placeholder: data[name][step] for placeholder, name in zip(
                inputs, ("input_ids", "input_mask", "segment_ids"))})
        seconds = time.time() - start
    print(json.dumps({"rate": args.steps * BATCH / seconds}))


if __name__ == "__main__":
    main()
