"""What each training aid costs and saves: time per step, peak memory, metric. Ours against ours.

  python -m benchmarks.aids --model=MINILM_TF --data=SHARED_DATA

The MiniLM encoder on 4,160 examples of SST-2, 32 a step on one replica, one epoch; then examples
that fill 512 tokens, 8 a step, for --recompute_layers. Each aid in turn, round after round,
each ratio to the plain training of the same round; the accuracy is the dev set's. Steps are the
median step: what XLA compiles and what an evaluation takes is in the seconds of the whole
command alone.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from benchmarks import report
from benchmarks.training_throughput import examples_of
from engine.training import summaries

PLAIN, RECOMPUTE = "none", "recompute_layers"
# Each aid is the flag of its name, and others that it needs.
AIDS = {
    PLAIN: [],
    "gradient_accumulation_steps=4": ["--train_batch_size=8"],
    "optimizer=lamb": ["--learning_rate=1e-3"],  # its steps are shares of weights' norms
    "layer_lr_decay=0.9": [],
    "eval_each_epoch": ["--do_eval"],
    "xla": [],
    RECOMPUTE: [],
}
BATCH_SIZE, LONG_BATCH_SIZE = 32, 8


class Measured(NamedTuple):
    """One training by the command."""
    step_seconds: float
    seconds: float  # of the whole command
    peak_mb: float  # resident memory
    log: str


def train(args, aid: str, data_dir: str, output_dir: str, *flags: str) -> Measured:
    flags = (*flags, *([] if aid == PLAIN else [f"--{aid}", *AIDS[aid]]))
    start = time.time()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(_command(args, data_dir, output_dir, "--do_train", *flags),
                                   cwd=report.ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.time() - start
        log.seek(0)
        said = log.read()
    if status:
        sys.exit(f"{aid} failed:\n{said}")
    rates = summaries.read_history(output_dir)["examples_per_second"]
    examples = int(re.search(r"= ([\d]+) examples per step", said).group(1))
    return Measured(float(np.median([examples / rate for _, rate in rates])), seconds,
                    usage.ru_maxrss / 1024, said)


def evaluate(args, data_dir: str, output_dir: str) -> float:
    """Accuracy on the dev set."""
    subprocess.run(_command(args, data_dir, output_dir, "--do_eval"), cwd=report.ROOT,
                   stderr=subprocess.DEVNULL, check=True)
    with open(os.path.join(output_dir, "eval_results.json")) as file:
        return json.load(file)["eval_accuracy"]


def _command(args, data_dir: str, output_dir: str, *flags: str) -> List[str]:
    return [sys.executable, "run_classifier.py", "--task_name=sst-2", f"--data_dir={data_dir}",
            f"--vocab_file={args.model}/vocab.txt", f"--output_dir={output_dir}",
            f"--bert_config_file={args.model}/bert_config.json",
            f"--init_checkpoint={args.model}/bert_model.ckpt", "--num_gpus=0", *flags]


def aids_rows(args, work_dir: str) -> List[Dict[str, str]]:
    data_dir = os.path.join(work_dir, "sst-2")
    write_sst2_layout(examples_of("sst2", args.data)[:args.examples], data_dir)
    shutil.copy(os.path.join(args.data, "glue/SST-2/dev.tsv"), data_dir)
    flags = ["--num_train_epochs=1", f"--train_batch_size={BATCH_SIZE}"]
    runs = _in_turn(args, args.aids, data_dir, flags)
    rows = []
    for aid in args.aids:
        row = _row(aid, runs[aid], runs[PLAIN])
        row["accuracy"] = f"{evaluate(args, data_dir, _output_dir(data_dir, aid)):.3f}"
        print(row, flush=True)
        rows.append(row)
    return rows


def long_rows(args, work_dir: str) -> List[Dict[str, str]]:
    data_dir = os.path.join(work_dir, "long")
    texts = [text for _, text in examples_of("full", args.data)]
    write_sst2_layout([(str(i % 2), f"{texts[2 * i]} {texts[2 * i + 1]}")
                       for i in range(LONG_BATCH_SIZE * args.long_steps)], data_dir)
    flags = ["--max_seq_length=512", f"--train_batch_size={LONG_BATCH_SIZE}",
             "--num_train_epochs=1"]
    aids = [aid for aid in args.aids if aid in (PLAIN, RECOMPUTE)]
    runs = _in_turn(args, aids, data_dir, flags)
    return [_row(aid, runs[aid], runs[PLAIN]) for aid in aids]


def write_sst2_layout(examples: Sequence[Tuple[str, str]], directory: str) -> None:
    os.makedirs(directory)
    with open(os.path.join(directory, "train.tsv"), "w", encoding="utf-8") as file:
        file.write("sentence\tlabel\n")
        file.writelines(f"{text}\t{label}\n" for label, text in examples)


def _output_dir(data_dir: str, aid: str) -> str:
    return os.path.join(data_dir, aid)


def _in_turn(args, aids: Sequence[str], data_dir: str, flags: Sequence[str]
             ) -> Dict[str, List[Measured]]:
    """What each training measured, round by round; the last round's output is left."""
    measured: Dict[str, List[Measured]] = {aid: [] for aid in aids}
    for _ in range(args.rounds):
        for aid, runs in measured.items():
            output_dir = _output_dir(data_dir, aid)
            shutil.rmtree(output_dir, ignore_errors=True)
            runs.append(train(args, aid, data_dir, output_dir, *flags))
            print(aid, *runs[-1][:3], flush=True)
    return measured


def _row(aid: str, runs: Sequence[Measured], plain: Sequence[Measured]) -> Dict[str, str]:
    steps, plain_steps = ([run.step_seconds for run in some] for some in (runs, plain))
    return {"aid": aid if aid == PLAIN else f"--{aid}",
            "seconds per step": f"{np.median(steps):.3f}",
            "of none's": report.ratios(steps, plain_steps),
            "the whole command, seconds": f"{np.median([run.seconds for run in runs]):.0f}",
            "peak memory, MB": f"{np.median([run.peak_mb for run in runs]):,.0f}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--aids", nargs="+", choices=list(AIDS), default=list(AIDS),
                        metavar="AID", help="with 'none' among them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--examples", type=int, default=4160)
    parser.add_argument("--long_steps", type=int, default=6)
    args = parser.parse_args()
    args.model, args.data = os.path.abspath(args.model), os.path.abspath(args.data)
    versions = {"TensorFlow": report.version_of(sys.executable, "tensorflow")}
    with tempfile.TemporaryDirectory() as work_dir:
        short, long = aids_rows(args, work_dir), long_rows(args, work_dir)
    report.append(
        f"Training aids, {args.examples:,} examples of SST-2, {BATCH_SIZE} a step", short,
        command="python -m benchmarks.aids", versions=versions)
    report.append(
        f"Training aids, 512 tokens, {LONG_BATCH_SIZE} a step", long,
        command="python -m benchmarks.aids", versions=versions)


if __name__ == "__main__":
    main()
