"""The peer: Google's run_pretraining (`bert-tensorflow==1.0.1`) as it is, timed.

Its own input_fn, model_fn, optimizer and TPUEstimator on the CPU, as its `main` puts them
together. Prints one JSON line with examples/s.

  python -m benchmarks.peers.google_pretraining --input_file=FILE --config=FILE --work_dir=DIR
"""

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from bert import modeling, run_pretraining  # noqa: E402

from benchmarks.peers.step_times import StepTimes  # noqa: E402

WARMUP_STEPS = 2


def make_estimator(args, num_train_steps):
    model_fn = run_pretraining.model_fn_builder(
        bert_config=modeling.BertConfig.from_json_file(args.config), init_checkpoint=None,
        learning_rate=5e-5, num_train_steps=num_train_steps, num_warmup_steps=1, use_tpu=False,
        use_one_hot_embeddings=False)
    run_config = tf.contrib.tpu.RunConfig(
        model_dir=os.path.join(args.work_dir, "out"), save_checkpoints_steps=10**6,
        tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=1000, num_shards=8))
    return tf.contrib.tpu.TPUEstimator(
        use_tpu=False, model_fn=model_fn, config=run_config,
        train_batch_size=args.batch_size, eval_batch_size=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    num_steps = WARMUP_STEPS + args.steps
    times = StepTimes()
    make_estimator(args, num_steps).train(
        run_pretraining.input_fn_builder(
            [args.input_file], args.length, args.predictions, is_training=True),
        max_steps=num_steps, hooks=[times])
    seconds = times.ends[-1] - times.ends[WARMUP_STEPS - 1]
    print(json.dumps({"rate": args.steps * args.batch_size / seconds}))


if __name__ == "__main__":
    main()
