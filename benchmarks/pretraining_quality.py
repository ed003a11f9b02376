"""Small models pretrained from nothing: what they predict of held-out text, and its use.

  python -m benchmarks.pretraining_quality --language=en --data=SHARED_DATA --work_dir=DIR
  python -m benchmarks.pretraining_quality --language=zh --data=SHARED_DATA --work_dir=DIR

4 layers, 256 wide, a vocabulary of the text's own, masks drawn anew in each epoch. English:
novels. Chinese: novels and ChnSentiCorp's training texts without their labels; then
ChnSentiCorp is learnt from this model and from random weights, three seeds each and all else
the same. Training texts that the dev set has, too, are dropped, and a
text that occurs twice counts once. Whole documents are held out: chapters and reviews.

The curves of the languages in the work directory are drawn into docs/pretraining.png (pip install
matplotlib). What is finished there is not repeated, and what was interrupted is continued: keep the flags.
"""

import argparse
import os
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report
from engine.data import text_files
from engine.disk import files
from engine.training import summaries
from pretraining.texts import split_paragraph
from runs import results

import tensorflow.compat.v1 as tf

PICTURE = os.path.join(report.ROOT, "docs", "pretraining.png")
LENGTH = 64
SIZES = [f"--max_seq_length={LENGTH}", "--max_predictions_per_seq=10"]
BATCH_SIZE = 16
TRAINING = ["--num_gpus=0", f"--train_batch_size={BATCH_SIZE}"]
SHAPE = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4,
         "intermediate_size": 1024, "max_position_embeddings": LENGTH, "type_vocab_size": 2,
         # BERT's 0.02 is for a width of 768; so narrow a model takes far longer from it.
         "hidden_act": "gelu", "initializer_range": 0.05,
         # A few passes over the text cannot be learnt by heart.
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NUM_EVALUATIONS = 10

Review = Tuple[str, str]  # label, text


class Language(NamedTuple):
    """What a language is pretrained on."""
    name: str
    novels: str  # below --data
    vocab_size: int
    hold_out_every: int  # of its documents one is held out: about 1,000 examples


LANGUAGES = {"en": Language("English", "pretrain/en_books.txt", 3000, 10),
             "zh": Language("Chinese", "pretrain/zh_novels.txt", 8000, 30)}


def documents_of(path: str) -> List[str]:
    """The documents of a file, one sentence a line; blank lines stand between them."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    documents = "\n".join(lines).split("\n\n")
    return [document.strip("\n") for document in documents if document.strip("\n")]


def training_reviews(folder: str) -> List[Review]:
    """ChnSentiCorp's training rows, each text once, without those of its dev set."""
    def rows(name):
        numbered = list(text_files.tsv_rows(os.path.join(folder, name)))
        return [(label, text) for _, (label, text) in numbered[1:]]

    dev_texts = {text for _, text in rows("dev.tsv")}
    labels = {text: label for label, text in rows("train.tsv") if text not in dev_texts}
    return [(label, text) for text, label in labels.items()]


def split_documents(documents: List[str], every: int) -> Tuple[List[str], List[str]]:
    """Those to train on, and one of `every` that is held out."""
    return ([document for i, document in enumerate(documents) if (i + 1) % every],
            documents[every - 1::every])


class Run:
    """A language's parts, each a command whose result stays in the work directory."""

    def __init__(self, args):
        self.language = LANGUAGES[args.language]
        self._code = args.language
        self._args = args
        self._work_dir = os.path.join(args.work_dir, args.language)
        self._reviews = os.path.join(args.data, "zh", "ChnSentiCorp")
        os.makedirs(self._work_dir, exist_ok=True)

    def path(self, *names: str) -> str:
        return os.path.join(self._work_dir, *names)

    def command(self, result: str, *command: str) -> None:
        """Runs a command, unless its result is there."""
        if not os.path.exists(result):
            subprocess.run([sys.executable, *command], cwd=report.ROOT, check=True)

    @property
    def vocab_file(self) -> str:
        return self.path("vocab", "vocab.txt")

    @property
    def model_flags(self) -> List[str]:
        return [f"--vocab_file={self.vocab_file}",
                f"--bert_config_file={self.path('bert_config.json')}"]

    def documents(self) -> List[str]:
        documents = documents_of(os.path.join(self._args.data, self.language.novels))
        if self._code == "zh":
            documents += ["\n".join(split_paragraph(text))
                          for _, text in training_reviews(self._reviews)]
        return documents

    def write_texts(self) -> None:
        for name, documents in zip(("train", "held_out"), split_documents(
                self.documents(), self.language.hold_out_every)):
            path = self.path(f"{name}.txt")
            if not os.path.exists(path):  # the examples know its time
                files.write_text(path, "\n\n".join(documents) + "\n")

    def write_model(self) -> None:
        """The vocabulary and the model's shape."""
        self.command(self.vocab_file, "-m", "pretraining.create_vocab",
                     f"--input_file={self.path('train.txt')}",
                     f"--vocab_size={self.language.vocab_size}",
                     f"--output_dir={self.path('vocab')}")
        with open(self.vocab_file, encoding="utf-8") as file:
            rows = sum(1 for _ in file)
        files.write_json(self.path("bert_config.json"), {**SHAPE, "vocab_size": rows})

    def create_data(self) -> None:
        for name, passes in (("train", 4), ("held_out", 1)):
            output = self.path(f"{name}.tfrecord")
            self.command(f"{output}.json", "-m", "pretraining.create_data", *SIZES,
                         f"--input_file={self.path(name + '.txt')}", f"--output_file={output}",
                         f"--vocab_file={self.vocab_file}", f"--dupe_factor={passes}",
                         "--objective=mlm")

    def pretrain(self) -> None:
        steps = self._args.num_train_steps
        evaluate_every = max(1, steps // NUM_EVALUATIONS)
        self.command(
            self.path("pretrained", "eval_results.txt"), "-m", "pretraining.run", *SIZES, *TRAINING,
            f"--input_file={self.path('train.tfrecord')}",
            f"--eval_input_file={self.path('held_out.tfrecord')}",
            *self.model_flags, f"--output_dir={self.path('pretrained')}", "--do_train", "--do_eval",
            f"--num_train_steps={steps}", f"--num_warmup_steps={steps // 10}",
            f"--learning_rate={self._args.learning_rate}", f"--eval_every_steps={evaluate_every}",
            f"--save_checkpoints_steps={evaluate_every}", "--keep_checkpoint_max=1",
            "--eval_batch_size=32")

    def pretraining_row(self) -> Dict[str, str]:
        measured = results.read(self.path("pretrained"))
        train, held_out = (files.read_json(self.path(f"{name}.tfrecord.json"), "facts")
                           for name in ("train", "held_out"))
        documents = split_documents(self.documents(), self.language.hold_out_every)
        constant = most_frequent_share(self.path("held_out.tfrecord"))
        return {
            "text": self.language.name,
            "documents: training, held-out": ", ".join(f"{len(part):,}" for part in documents),
            "examples": f"{train['num_examples']:,}, {held_out['num_examples']:,}",
            f"steps of {BATCH_SIZE}": f"{self._args.num_train_steps:,}",
            "masked_lm_accuracy": f"{measured['masked_lm_accuracy']:.3f}",
            "always the most frequent token": f"{constant:.3f}",
            "perplexity": f"{measured['perplexity']:.1f}"}

    def finetune(self, start: str, seed: int) -> Dict[str, float]:
        """Metrics on ChnSentiCorp's dev set, from "pretrained" or "random" weights."""
        output_dir = self.path("finetuning", f"{start}-{seed}")
        given = [f"--init_checkpoint={self.path('pretrained')}"] if start == "pretrained" else []
        self.command(
            os.path.join(output_dir, "eval_results.json"), "run_classifier.py", "--task_name=file", "--label_kind=classes",
            "--text_column=text_a", "--label_column=label",
            f"--train_file={self.path('reviews.tsv')}",
            f"--dev_file={os.path.join(self._reviews, 'dev.tsv')}",
            *self.model_flags, *given, *TRAINING, f"--max_seq_length={LENGTH}",
            f"--output_dir={output_dir}", "--do_train", "--do_eval", f"--seed={seed}",
            f"--num_train_epochs={self._args.finetuning_epochs}",
            f"--learning_rate={self._args.finetuning_learning_rate}", "--eval_batch_size=32",
            f"--store_dir={self.path('finetuning', 'store')}")
        return {"accuracy": results.read(output_dir)["eval_accuracy"]}

    def finetuning_rows(self) -> List[Dict[str, str]]:
        """What is learnt from pretrained and from random weights."""
        reviews = training_reviews(self._reviews)[:self._args.finetuning_examples]
        if not os.path.exists(self.path("reviews.tsv")):
            files.write_text(self.path("reviews.tsv"), "label\ttext_a\n" + "".join(
                f"{label}\t{text}\n" for label, text in reviews))
        return [report.row_of_seeds(f"from {start} weights", ("accuracy",),
                              [self.finetune(start, seed) for seed in report.SEEDS])
                for start in ("pretrained", "random")]


def most_frequent_share(path: str) -> float:
    """The accuracy of one answer to all masked tokens of a file, the best one."""
    counts: Dict[int, int] = {}
    for record in tf.python_io.tf_record_iterator(path):
        feature = tf.train.Example.FromString(record).features.feature
        weights = np.array(feature["masked_lm_weights"].float_list.value)
        tokens = np.array(feature["masked_lm_ids"].int64_list.value)[weights > 0]
        for token in tokens.tolist():
            counts[token] = counts.get(token, 0) + 1
    return max(counts.values()) / sum(counts.values())


def draw(work_dir: str) -> None:
    """The evaluations of each language in the work directory, over the steps."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(8, 3), dpi=120, layout="constrained")
    accuracy, perplexity = figure.subplots(1, 2)
    for code, language in LANGUAGES.items():
        history = summaries.read_history(os.path.join(work_dir, code, "pretrained", "eval"))
        for axes, name in ((accuracy, "masked_lm_accuracy"), (perplexity, "perplexity")):
            if name in history:
                axes.plot(*zip(*history[name]), marker="o", markersize=3, label=language.name)
    accuracy.set(title="Masked tokens guessed, held-out documents", xlabel="step", ylim=(0, None))
    perplexity.set(title="Perplexity, held-out documents", xlabel="step", yscale="log")
    for axes in (accuracy, perplexity):
        axes.legend(frameon=False)
    with files.atomic_path(PICTURE) as path:
        figure.savefig(path, format="png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", choices=sorted(LANGUAGES), required=True)
    parser.add_argument("--data", required=True, help="the data sets' folder")
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--num_train_steps", type=int, default=7000, help=f"of {BATCH_SIZE} examples")
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--finetuning_examples", type=int, default=3000, help="Chinese only")
    parser.add_argument("--finetuning_epochs", type=float, default=3, help="Chinese only")
    parser.add_argument("--finetuning_learning_rate", type=float, default=1e-4,
                        help="Chinese only")
    args = parser.parse_args()
    args.data, args.work_dir = os.path.abspath(args.data), os.path.abspath(args.work_dir)
    run = Run(args)
    run.write_texts()
    run.write_model()
    run.create_data()
    run.pretrain()
    draw(args.work_dir)
    flags = [f"--{name}={value}" for name, value in vars(args).items()
             if name not in ("data", "work_dir")]
    about: Dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.pretraining_quality", *flags]),
        "versions": {"TensorFlow": report.version_of(sys.executable, "tensorflow")}}
    report.append("Pretraining from nothing, 4 layers, 256 wide: held-out documents",
                  [run.pretraining_row()], **about)
    if args.language == "zh":
        report.append(
            f"ChnSentiCorp's dev set after {args.finetuning_epochs:g} epochs over "
            f"{args.finetuning_examples:,} examples, three seeds (mean ± deviation)",
            run.finetuning_rows(), **about)


if __name__ == "__main__":
    main()
