"""How good and how fast trainings are beside each other and beside Hugging Face's: small sets and whole ones, over seeds.

  python -m benchmarks.quality --model=MINILM_TF --data=SHARED_DATA --work_dir=DIR --minutes=60 \\
    --peer_model=MINILM_HF --peer_python=PYTHON
  python -m benchmarks.quality ... --sets sts-b --variants before corrected --rates 2e-4 --before=TREE
  python -m benchmarks.quality ... --sets conll --variants random huggingface --rates 5e-5 --epochs 3 --seeds 1 2 3

A variant is what is compared: the update (Google's, or with Adam's bias correction), the output layer and what it
reads, the number of replicas, the precision, another checkout (--before), windows of so many batches, or the peer.
All have the same data, weights, examples a step, epochs, learning rates and schedule. The trainings of a set at a rate
run in turn, seed by seed; the result of each is WORK_DIR/<training>.json: the same command goes on with those that have
none, and ends with the table of those that have one. A training has failed if its record has the warning that it does
not learn.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from benchmarks import report
from benchmarks.quality_sets import SETS
from engine.disk import files
from engine.training import run_record
from reading import scores
from runs import results, squad_files

Results = List[Dict[str, Any]]


class Variant(NamedTuple):
    """How a set is trained on."""
    title: str
    flags: Tuple[str, ...] = ()  # of our command, or the peer's
    replicas: int = 1
    is_before: bool = False  # in the checkout of --before
    patch: str = ""  # a program that changes a function of ours before the command
    is_peer: bool = False  # the peer trains in place of ours


_WINDOW = """from engine.data import plan
plan.window_batches = lambda steps: {batches}"""
# The mean of the tokens' states takes the place of BERT's pooled output.
_MEAN = """import tensorflow.compat.v1 as tf
from encoder import bert
build = bert.build
def build_with_mean(config, features, mode, **more):
    model = build(config, features, mode, **more)
    model.get_pooled_output = lambda: bert.pooled(
        tf.cast(model.get_sequence_output(), tf.float32), features["input_mask"], "mean")
    return model
bert.build = build_with_mean"""
# The encoder is taken for one of those that have no pooler.
_NO_POOLER = """from runs import output_layer
left_out = output_layer.left_out
def without_pooler(checkpoint):
    kept = left_out(checkpoint)
    return kept.renamed({name: name for name in kept.shapes if "/pooler/" not in name})
output_layer.left_out = without_pooler"""
_FITTED = ("--fit_output_layer=true",)
_CORRECTED = ("--adam_bias_correction",)
VARIANTS = {
    "plain": Variant("Google's update"),
    "two_replicas": Variant("two replicas", replicas=2),
    "bfloat16": Variant("bfloat16", ("--precision=bfloat16",)),
    "fitted": Variant("output layer fitted", _FITTED),
    "fitted_mean": Variant("output layer fitted, on the mean of tokens", _FITTED, patch=_MEAN),
    "no_pooler": Variant("no pooler", patch=_NO_POOLER),
    "no_pooler_before": Variant("no pooler, before", is_before=True, patch=_NO_POOLER),
    "random": Variant("output layer starts at random", ("--fit_output_layer=false",)),
    "corrected": Variant("`--adam_bias_correction`", _CORRECTED),
    "before": Variant("before", is_before=True),
    "before_corrected": Variant("before, `--adam_bias_correction`", _CORRECTED, is_before=True),
    **{f"window_{count}": Variant(f"windows of {count}", patch=_WINDOW.format(batches=count)) for count in (50, 8, 1)},
    # Its own AdamW corrects the moments' bias, so that its first hundreds of steps are smaller.
    **{name: Variant(title, (flag,), is_peer=True) for name, title, flag in (
        ("huggingface", "Hugging Face", "--optimizer=adamw"),
        ("huggingface_google", "Hugging Face, Google's Adam", "--optimizer=google"),
        ("huggingface_fitted", "Hugging Face, output layer fitted", "--fit_output_layer"),
        ("huggingface_bias", "Hugging Face, bias at the labels' mean", "--initial_bias"))},
}


class Training(NamedTuple):
    """One of those to compare."""
    data: str
    rate: float
    variant: str
    seed: int

    def path(self, args: argparse.Namespace) -> str:
        """Where its result is, but for '.json'."""
        return os.path.join(args.work_dir, "-".join(map(str, self)))

    def result(self, args: argparse.Namespace) -> Dict[str, Any]:
        """Trains, unless the result is there."""
        run = _run_peer if VARIANTS[self.variant].is_peer else _run_ours
        return report.remembered(f"{self.path(args)}.json", lambda: {**run(args, self), "commit": report.commit()})


def _places(args: argparse.Namespace, training: Training) -> Dict[str, Any]:
    """What stands for the names in braces in a command's flags; writes the parts of the set if they are not there."""
    folder = os.path.join(args.work_dir, "data", training.data)
    if not os.path.exists(folder):
        with files.atomic_folder(folder) as draft:
            SETS[training.data].write(args.data, draft)
    return dict(folder=folder, data=args.data, out=training.path(args), epochs=args.epochs or SETS[training.data].epochs)


def _run_ours(args: argparse.Namespace, training: Training) -> Dict[str, Any]:
    data, variant, places = SETS[training.data], VARIANTS[training.variant], _places(args, training)
    command = [flag.format(**places) for flag in data.ours]
    if variant.patch:
        path, command = (command[0], command[1:]) if command[0] != "-m" else (command[1], command[2:])
        command = ["-c", f"""import runpy
{variant.patch}
runpy.run_module({path.replace(".py", "")!r}, run_name="__main__")""", *command]
    out = places["out"]
    ended = subprocess.run(
        [sys.executable, *command, "--do_train", "--do_eval", f"--num_cpu_replicas={variant.replicas}",
         f"--init_checkpoint={args.model}", f"--vocab_file={args.model}/vocab.txt",
         f"--bert_config_file={args.model}/bert_config.json", f"--output_dir={out}", f"--seed={training.seed}",
         f"--learning_rate={training.rate}", f"--num_train_epochs={places['epochs']}",
         f"--train_batch_size={data.batch_size // variant.replicas}", f"--store_dir={args.work_dir}/store",
         "--new_output_layer", *variant.flags],
        cwd=args.before if variant.is_before else report.ROOT, stderr=subprocess.PIPE, universal_newlines=True)
    if ended.returncode:
        sys.exit(ended.stderr)
    measured, rate = results.read(out), re.findall(r"([\d,.]+) examples/s", ended.stderr)[-1]
    failed = run_record.load(out).warning is not None
    shutil.rmtree(out)
    return {**{metric: measured.get(metric, measured.get(f"eval_{metric}")) for metric in data.metrics},
            "rate": float(rate.replace(",", "")), "steps": int(measured["global_step"]), "failed": failed}


def _run_peer(args: argparse.Namespace, training: Training) -> Dict[str, Any]:
    (module, *flags), places = SETS[training.data].peer, _places(args, training)
    if "--num_steps={steps}" in flags:  # as many as ours
        ours = next((name for name in args.variants if not VARIANTS[name].is_peer), "plain")
        places["steps"] = training._replace(variant=ours).result(args)["steps"]
    answer = report.answer_of(
        args.peer_python, "-m", module, *(flag.format(**places) for flag in flags),
        f"--model_dir={args.peer_model}", f"--seed={training.seed}", f"--learning_rate={training.rate}",
        f"--batch_size={SETS[training.data].batch_size}", *VARIANTS[training.variant].flags)
    if "--output_file={out}.json" in flags:
        answers, dev_file = f"{places['out']}.json", next(
            flag.split("=")[1].format(**places) for flag in flags if flag.startswith("--dev_file="))
        answer["f1"] = _f1_of_answers(answers, dev_file, "--version_2_with_negative" in flags)
        os.remove(answers)
    return answer


def _f1_of_answers(path: str, dev_file: str, version_2: bool) -> float:
    """In percent, as run_squad.py has it, of {question's id: answer}."""
    answers, measure = files.read_json(path, "answers"), scores.squad_2 if version_2 else scores.squad
    return 100 * float(np.mean([
        measure(answers.get(question.id, ""), [answer.text for answer in question.answers]).f1
        for paragraph in squad_files.paragraphs(dev_file) for question in paragraph.questions]))


def rows_of(args: argparse.Namespace, data: str, rate: float) -> Iterator[Dict[str, str]]:
    """A row for each variant and metric, of the trainings of a set at a rate."""
    of_all: Dict[str, Results] = {}  # by variant
    for seed, variant in itertools.product(args.seeds, args.variants):
        training = Training(data, rate, variant, seed)
        if os.path.exists(f"{training.path(args)}.json") or time.time() < args.end:
            of_all.setdefault(variant, []).append(training.result(args))
            print(*training, of_all[variant][-1], flush=True)
    first = next(iter(of_all.values()), [])
    for variant, ended in of_all.items():
        rates, of_first = ([each["rate"] for each in some] for some in (ended, first))
        failed = [each["failed"] for each in ended if "failed" in each]  # for the peer this is not known
        for metric in SETS[data].metrics:
            # A correlation with a constant is no number.
            values = np.nan_to_num(np.array([each[metric] for each in ended], float))
            yield {"set, metric": f"{data}, {metric}", "rate": f"{rate:g}",
                   "variant": VARIANTS[variant].title, "failed": f"{sum(failed)} of {len(failed)}" if failed else "–",
                   "mean ± deviation": report.mean_and_deviation(values),
                   "worst": f"{min(values):.3f}", "best": f"{max(values):.3f}",
                   "each seed": ", ".join(f"{value:.3f}" for value in values),
                   "examples/s (median)": f"{np.median(rates):.1f}",
                   "first / this": "" if ended is first or len(first) != len(ended) else report.ratios(of_first, rates)}


def main() -> None:
    parser = report.parser_of(__doc__, "model", "data", "work_dir")
    parser.add_argument("--peer_model", type=os.path.abspath)
    parser.add_argument("--peer_python")
    parser.add_argument("--before", type=os.path.abspath)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), required=True, help="several calls can run side by side")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=["plain", "corrected"])
    parser.add_argument("--rates", nargs="+", type=float, default=[2e-4, 5e-5])
    parser.add_argument("--epochs", type=float, help="in place of those of the sets")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--minutes", type=float, default=60, help="after which no training starts; 0: only the table")
    args = parser.parse_args()
    args.end = time.time() + 60 * args.minutes
    if any(VARIANTS[name].is_peer for name in args.variants):
        if not (args.peer_python and args.peer_model):
            parser.error("the peer needs --peer_python and --peer_model")
        if not all(SETS[name].peer for name in args.sets):
            parser.error(f"no peer trains on {', '.join(name for name in args.sets if not SETS[name].peer)}")
    rows = [row for pair in itertools.product(args.sets, args.rates) for row in rows_of(args, *pair)]
    if not rows:
        sys.exit("No training has ended yet.")
    report.append("Trainings beside each other, MiniLM encoder", rows,
                  **report.versions_of(args.peer_python, "torch", "transformers"))


if __name__ == "__main__":
    main()
