"""The peer: Google's run_squad (`bert-tensorflow==1.0.1`) as it is, timed.

Its own reader, converter, input_fn, model_fn and TPUEstimator on the CPU, as its `main` puts them
together. Prints one JSON line.

  python -m benchmarks.peers.google_squad --train_file=FILE --model=DIR --work_dir=DIR \\
    --measure=train|prepare
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from bert import modeling, run_squad, tokenization  # noqa: E402

from benchmarks.peers.step_times import StepTimes  # noqa: E402

WARMUP_STEPS = 2
LENGTH, STRIDE, QUERY_LENGTH = 384, 128, 64


def prepare(args):
    """Converts the questions to a TFRecord file. Returns it and the number of questions."""
    examples = run_squad.read_squad_examples(args.train_file, is_training=True)
    tokenizer = tokenization.FullTokenizer(
        vocab_file=os.path.join(args.model, "vocab.txt"), do_lower_case=True)
    path = os.path.join(args.work_dir, "train.tf_record")
    writer = run_squad.FeatureWriter(filename=path, is_training=True)
    run_squad.convert_examples_to_features(
        examples=examples, tokenizer=tokenizer, max_seq_length=LENGTH, doc_stride=STRIDE,
        max_query_length=QUERY_LENGTH, is_training=True, output_fn=writer.process_feature)
    writer.close()
    return path, len(examples)


def measure_training(args):
    path, _ = prepare(args)
    num_steps = WARMUP_STEPS + args.steps
    model_fn = run_squad.model_fn_builder(
        bert_config=modeling.BertConfig.from_json_file(os.path.join(args.model, "bert_config.json")),
        init_checkpoint=os.path.join(args.model, "bert_model.ckpt"), learning_rate=5e-5,
        num_train_steps=num_steps, num_warmup_steps=0, use_tpu=False, use_one_hot_embeddings=False)
    run_config = tf.contrib.tpu.RunConfig(
        model_dir=os.path.join(args.work_dir, "out"), save_checkpoints_steps=10**6,
        tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=1000, num_shards=8))
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=False, model_fn=model_fn, config=run_config, train_batch_size=args.batch_size,
        predict_batch_size=8)
    times = StepTimes()
    estimator.train(
        run_squad.input_fn_builder(path, LENGTH, is_training=True, drop_remainder=True),
        max_steps=num_steps, hooks=[times])
    return args.steps * args.batch_size / (times.ends[-1] - times.ends[WARMUP_STEPS - 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--measure", choices=("train", "prepare"), required=True)
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--version_2_with_negative", action="store_true")
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.flags.FLAGS.mark_as_parsed()
    tf.flags.FLAGS.version_2_with_negative = args.version_2_with_negative
    if args.measure == "train":
        rate = measure_training(args)
    else:
        start = time.time()
        _, num_questions = prepare(args)
        rate = num_questions / (time.time() - start)
    print(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main()
