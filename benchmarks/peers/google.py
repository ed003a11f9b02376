"""The peers: Google's run_classifier, run_pretraining and run_squad (`bert-tensorflow==1.0.1`), timed.

Their own readers, converters, input_fn, model_fn and TPUEstimator on the CPU, as their `main` puts
them together. Prints one JSON line.

  python -m benchmarks.peers.google classifier --data_dir=DIR --model=DIR --measure=train|evaluate|prepare
  python -m benchmarks.peers.google squad --train_file=FILE --model=DIR --measure=train|prepare
  python -m benchmarks.peers.google pretraining --input_file=FILE --model=DIR
  python -m benchmarks.peers.google distillation --data_dir=DIR --model=DIR --student=2,384,12,1536 --layers=3,6
"""

import argparse
import json
import os
import re
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from bert import modeling, tokenization  # noqa: E402

WARM_UP_STEPS, STEPS = 2, 6
NO_TPU = dict(use_tpu=False, use_one_hot_embeddings=False)


class StepTimes(tf.train.SessionRunHook):
    """When each step ended."""

    def __init__(self):
        self.ends = []

    def after_run(self, run_context, run_values):
        self.ends.append(time.time())

    def rate(self, batch_size):
        """Examples a second, without the first steps."""
        times = self.ends[WARM_UP_STEPS - 1:]
        return (len(times) - 1) * batch_size / (times[-1] - times[0])


def estimator_of(model_fn, batch_size, folder):
    run_config = tf.contrib.tpu.RunConfig(
        model_dir=os.path.join(folder, "out"), save_checkpoints_steps=10**6,
        tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=1000, num_shards=8))
    return tf.contrib.tpu.TPUEstimator(
        use_tpu=False, model_fn=model_fn, config=run_config, train_batch_size=batch_size,
        eval_batch_size=8, predict_batch_size=8)


def training_rate(model_fn, input_fn, batch_size, folder):
    times = StepTimes()
    estimator_of(model_fn, batch_size, folder).train(
        input_fn, max_steps=WARM_UP_STEPS + STEPS, hooks=[times])
    return times.rate(batch_size)


def model_of(args):
    """The configuration, the checkpoint if there is one, and the tokenizer."""
    checkpoint = os.path.join(args.model, "bert_model.ckpt")
    return (modeling.BertConfig.from_json_file(os.path.join(args.model, "bert_config.json")),
            checkpoint if tf.train.checkpoint_exists(checkpoint) else None,
            tokenization.FullTokenizer(os.path.join(args.model, "vocab.txt"), do_lower_case=True))


# Each program is imported where it is used: they define the same flags.


def classifier(args, folder):
    from bert import run_classifier
    config, checkpoint, tokenizer = model_of(args)
    path, start = os.path.join(folder, "examples.tf_record"), time.time()
    processor = run_classifier.ColaProcessor()
    examples = (processor.get_dev_examples if args.measure == "evaluate"
                else processor.get_train_examples)(args.data_dir)
    if args.measure == "train":
        examples = examples[:32 * (WARM_UP_STEPS + STEPS + 10)]
    run_classifier.file_based_convert_examples_to_features(examples, ["0", "1"], 128, tokenizer, path)
    if args.measure == "prepare":  # from the text file on, as a user waits for it
        return len(examples) / (time.time() - start)
    model_fn = run_classifier.model_fn_builder(
        bert_config=config, num_labels=2, init_checkpoint=checkpoint, learning_rate=5e-5,
        num_train_steps=WARM_UP_STEPS + STEPS, num_warmup_steps=1, **NO_TPU)

    def input_fn(is_training):
        return run_classifier.file_based_input_fn_builder(
            input_file=path, seq_length=128, is_training=is_training, drop_remainder=is_training)

    if args.measure == "train":
        return training_rate(model_fn, input_fn(True), 32, folder)
    estimator, times = estimator_of(model_fn, 32, folder), StepTimes()
    estimator.train(input_fn(True), max_steps=1)
    estimator.evaluate(input_fn(False), hooks=[times])
    return times.rate(8)


def squad(args, folder):
    """SQuAD 2.0 in windows of 384 tokens, 12 a step."""
    from bert import run_squad
    config, checkpoint, tokenizer = model_of(args)
    path, start = os.path.join(folder, "train.tf_record"), time.time()
    tf.flags.FLAGS.mark_as_parsed()
    tf.flags.FLAGS.version_2_with_negative = True  # which the reader looks at
    examples = run_squad.read_squad_examples(args.train_file, is_training=True)
    writer = run_squad.FeatureWriter(filename=path, is_training=True)
    run_squad.convert_examples_to_features(
        examples=examples, tokenizer=tokenizer, max_seq_length=384, doc_stride=128, max_query_length=64,
        is_training=True, output_fn=writer.process_feature)
    writer.close()
    if args.measure == "prepare":
        return len(examples) / (time.time() - start)
    model_fn = run_squad.model_fn_builder(
        bert_config=config, init_checkpoint=checkpoint, learning_rate=5e-5,
        num_train_steps=WARM_UP_STEPS + STEPS, num_warmup_steps=0, **NO_TPU)
    return training_rate(model_fn, run_squad.input_fn_builder(
        path, 384, is_training=True, drop_remainder=True), 12, folder)


def pretraining(args, folder):
    """Random weights, 32 examples of 128 tokens a step."""
    from bert import run_pretraining
    model_fn = run_pretraining.model_fn_builder(
        bert_config=model_of(args)[0], init_checkpoint=None, learning_rate=5e-5,
        num_train_steps=WARM_UP_STEPS + STEPS, num_warmup_steps=1, **NO_TPU)
    return training_rate(model_fn, run_pretraining.input_fn_builder(
        [args.input_file], 128, 20, is_training=True), 32, folder)


# The peer of stage 1 of distillation: the same losses over Google's BertModel, with each layer's nodes in the graph as
# it makes them, and Google's optimizer. Every batch is padded to 128 tokens, and in memory before the first step.


def states_and_scores(config, is_training, inputs, scope):
    """States and embeddings, and attention scores before the mask, of each layer."""
    model = modeling.BertModel(config, is_training, *inputs, scope=scope)
    graph = tf.get_default_graph()
    pattern = re.compile(scope + r"/encoder/layer_(\d+)/attention/self/Mul$")
    scores = {int(pattern.match(op.name).group(1)): op.outputs[0]
              for op in graph.get_operations() if pattern.match(op.name)}
    states = [model.get_embedding_output()] + model.get_all_encoder_layers()
    return states, [scores[layer] for layer in range(config.num_hidden_layers)]


def distillation_loss(args, inputs):
    from distillation import losses
    teacher = model_of(args)[0]
    student = modeling.BertConfig.from_dict(teacher.to_dict())
    (student.num_hidden_layers, student.hidden_size, student.num_attention_heads,
     student.intermediate_size) = map(int, args.student.split(","))
    layers = [int(layer) for layer in args.layers.split(",")]
    mask = inputs[1]
    taught_states, taught_scores = states_and_scores(teacher, False, inputs, "teacher")
    states, scores = states_and_scores(student, True, inputs, "bert")
    projected = [tf.layers.dense(state, teacher.hidden_size, name="projection", reuse=tf.AUTO_REUSE)
                 for state in states]
    return tf.add_n(
        [losses.hidden_loss(own, taught_states[layer], mask)
         for own, layer in zip(projected, [0] + layers)]
        + [losses.attention_loss(own, taught_scores[layer - 1], mask)
           for own, layer in zip(scores, layers)])


def distillation(args, folder):
    from bert import optimization, run_classifier
    examples = run_classifier.ColaProcessor().get_train_examples(args.data_dir)[:32 * (WARM_UP_STEPS + STEPS)]
    features = run_classifier.convert_examples_to_features(examples, ["0", "1"], 128, model_of(args)[2])
    batches = [np.array([getattr(feature, name) for feature in features]).reshape([-1, 32, 128])
               for name in ("input_ids", "input_mask", "segment_ids")]
    inputs = [tf.placeholder(tf.int32, [32, 128]) for _ in batches]
    loss = distillation_loss(args, inputs)
    tf.train.get_or_create_global_step()
    train_op = optimization.create_optimizer(loss, 5e-5, 10000, 100, use_tpu=False)
    times = StepTimes()
    with tf.train.MonitoredSession(hooks=[times]) as session:
        for batch in zip(*batches):
            session.run(train_op, dict(zip(inputs, batch)))
    return times.rate(32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    programs = {program.__name__: program for program in (classifier, squad, pretraining, distillation)}
    parser.add_argument("program", choices=programs)
    parser.add_argument("--measure", choices=("train", "evaluate", "prepare"), default="train")
    parser.add_argument("--model", required=True)
    for name in ("data_dir", "train_file", "input_file", "student", "layers"):
        parser.add_argument(f"--{name}")
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"rate": programs[args.program](args, folder)}))


if __name__ == "__main__":
    main()
