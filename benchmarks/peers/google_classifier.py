"""The peer: Google's run_classifier (`bert-tensorflow==1.0.1`) as it is, timed.

Its own processor, converter, input_fn, model_fn and TPUEstimator on the CPU, as its
`main` puts them together. Prints one JSON line.

  python -m benchmarks.peers.google_classifier --data_dir=DIR --model=DIR --work_dir=DIR \\
    --measure=train|evaluate|prepare
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from bert import modeling, run_classifier, tokenization  # noqa: E402

from benchmarks.peers.step_times import StepTimes  # noqa: E402

WARMUP_STEPS = 2


def make_estimator(args, num_train_steps):
    config = modeling.BertConfig.from_json_file(os.path.join(args.model, "bert_config.json"))
    checkpoint = os.path.join(args.model, "bert_model.ckpt")
    model_fn = run_classifier.model_fn_builder(
        bert_config=config, num_labels=2,
        init_checkpoint=checkpoint if tf.train.checkpoint_exists(checkpoint) else None,
        learning_rate=5e-5, num_train_steps=num_train_steps,
        num_warmup_steps=num_train_steps // 10, use_tpu=False, use_one_hot_embeddings=False)
    run_config = tf.contrib.tpu.RunConfig(
        model_dir=os.path.join(args.work_dir, "out"), save_checkpoints_steps=10**6,
        tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=1000, num_shards=8))
    return tf.contrib.tpu.TPUEstimator(
        use_tpu=False, model_fn=model_fn, config=run_config, train_batch_size=32,
        eval_batch_size=8, predict_batch_size=8)


def prepare(args, examples):
    """Converts examples to a TFRecord file. Returns it and the sentences per second."""
    tokenizer = tokenization.FullTokenizer(
        vocab_file=os.path.join(args.model, "vocab.txt"), do_lower_case=True)
    path = os.path.join(args.work_dir, "examples.tf_record")
    start = time.time()
    run_classifier.file_based_convert_examples_to_features(
        examples, ["0", "1"], 128, tokenizer, path)
    return path, len(examples) / (time.time() - start)


def input_fn(path, is_training):
    return run_classifier.file_based_input_fn_builder(
        input_file=path, seq_length=128, is_training=is_training, drop_remainder=is_training)


def measure_training(args, examples):
    num_steps = WARMUP_STEPS + args.steps
    path, _ = prepare(args, examples[:32 * (num_steps + 10)])
    times = StepTimes()
    make_estimator(args, num_steps).train(
        input_fn(path, True), max_steps=num_steps, hooks=[times])
    seconds = times.ends[-1] - times.ends[WARMUP_STEPS - 1]
    return args.steps * 32 / seconds


def measure_evaluation(args, examples):
    path, _ = prepare(args, examples)
    estimator = make_estimator(args, 1)
    estimator.train(input_fn(path, True), max_steps=1)
    times = StepTimes()
    estimator.evaluate(input_fn(path, False), hooks=[times])
    seconds = times.ends[-1] - times.ends[WARMUP_STEPS - 1]
    return (len(times.ends) - WARMUP_STEPS) * 8 / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="in CoLA's layout")
    parser.add_argument("--model", required=True)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--measure", choices=("train", "evaluate", "prepare"), required=True)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    processor = run_classifier.ColaProcessor()
    if args.measure == "evaluate":
        rate = measure_evaluation(args, processor.get_dev_examples(args.data_dir))
    elif args.measure == "train":
        rate = measure_training(args, processor.get_train_examples(args.data_dir))
    else:
        # From the text file on, as a user waits for it.
        start = time.time()
        examples = processor.get_train_examples(args.data_dir)
        prepare(args, examples)
        rate = len(examples) / (time.time() - start)
    print(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main()
