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

import collections
import os
import re
from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report
from engine.data import text_files
from engine.disk import files
from engine.training import summaries
from runs import results

import tensorflow.compat.v1 as tf

PICTURE = os.path.join(report.ROOT, "docs", "pretraining.png")
LENGTH = 64
SIZES = [f"--max_seq_length={LENGTH}", "--max_predictions_per_seq=10"]
BATCH_SIZE = 16
SHAPE = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4,
         "intermediate_size": 1024, "max_position_embeddings": LENGTH, "type_vocab_size": 2,
         # BERT's 0.02 is for a width of 768; so narrow a model takes far longer from it.
         "hidden_act": "gelu", "initializer_range": 0.05,
         # A few passes over the text cannot be learnt by heart.
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NUM_EVALUATIONS = 10


class Language(NamedTuple):
    """What a language is pretrained on."""
    name: str
    novels: str  # below --data
    vocab_size: int
    hold_out_every: int  # of its documents one is held out: about 1,000 examples


LANGUAGES = {"en": Language("English", "pretrain/en_books.txt", 3000, 10),
             "zh": Language("Chinese", "pretrain/zh_novels.txt", 8000, 30)}


class Run:
    """A language's parts, each a command whose result stays in the work directory."""

    def __init__(self, args):
        self.language = LANGUAGES[args.language]
        self._args = args
        self._reviews = os.path.join(args.data, "zh", "ChnSentiCorp")

    def path(self, name: str) -> str:
        return os.path.join(self._args.work_dir, self._args.language, name)

    def command(self, result: str, *command: str) -> None:
        """Runs a command, unless its result is there."""
        if not os.path.exists(result):
            report.run_here(*command)

    def documents(self) -> Tuple[List[str], List[str]]:
        """Those to train on, and those that are held out; a sentence a line."""
        with open(os.path.join(self._args.data, self.language.novels), encoding="utf-8") as file:
            text = "\n".join(line.strip() for line in file)
        documents = re.split("\n\n+", text.strip("\n"))  # blank lines stand between them
        if self._args.language == "zh":
            documents += ["\n".join(re.findall("[^。！？]+[。！？]*", text)) for text in self.training_reviews()]
        every = self.language.hold_out_every
        return ([document for number, document in enumerate(documents, 1) if number % every],
                documents[every - 1::every])

    def training_reviews(self) -> Dict[str, str]:
        """ChnSentiCorp's training texts and labels; texts of its dev set are left out."""
        dev, train = ({text: label for _, (label, text) in list(text_files.tsv_rows(
            os.path.join(self._reviews, name)))[1:]} for name in ("dev.tsv", "train.tsv"))
        return {text: label for text, label in train.items() if text not in dev}

    def prepare(self) -> None:
        """Writes the texts, the vocabulary, the model's shape and the examples."""
        os.makedirs(self.path(""), exist_ok=True)
        for name, documents in zip(("train", "held_out"), self.documents()):
            path = self.path(f"{name}.txt")
            if not os.path.exists(path):  # the examples know its time
                files.write_text(path, "\n\n".join(documents) + "\n")
        vocab_file = self.path("vocab/vocab.txt")
        os.makedirs(os.path.dirname(vocab_file), exist_ok=True)
        self.command(vocab_file, "-c", f"""from tokenizers import BertWordPieceTokenizer
special = ["[PAD]", *(f"[unused{{number}}]" for number in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
tokenizer = BertWordPieceTokenizer(lowercase=True)
tokenizer.train({self.path('train.txt')!r}, vocab_size={self.language.vocab_size},
                limit_alphabet={self.language.vocab_size // 2}, special_tokens=special, show_progress=False)
tokenizer.save_model({os.path.dirname(vocab_file)!r})""")
        with open(vocab_file, encoding="utf-8") as file:
            config = {**SHAPE, "vocab_size": len(list(file))}
        files.write_json(self.path("bert_config.json"), config)
        for name, passes in (("train", 4), ("held_out", 1)):
            output = self.path(f"{name}.tfrecord")
            self.command(f"{output}.json", "-m", "pretraining.create_data", *SIZES,
                         f"--input_file={self.path(name)}.txt", f"--output_file={output}",
                         f"--vocab_file={vocab_file}", f"--dupe_factor={passes}", "--objective=mlm")

    def train(self, result: str, *command: str) -> None:
        """Trains in the folder of the result, and evaluates."""
        self.command(
            result, *command, f"--output_dir={os.path.dirname(result)}", "--do_train", "--do_eval",
            "--num_gpus=0", f"--train_batch_size={BATCH_SIZE}", "--eval_batch_size=32",
            f"--vocab_file={self.path('vocab/vocab.txt')}",
            f"--bert_config_file={self.path('bert_config.json')}")

    def pretrain(self) -> None:
        steps = self._args.num_train_steps
        evaluate_every = max(1, steps // NUM_EVALUATIONS)
        self.train(
            self.path("pretrained/eval_results.txt"), "-m", "pretraining.run", *SIZES,
            f"--input_file={self.path('train.tfrecord')}",
            f"--eval_input_file={self.path('held_out.tfrecord')}",
            f"--num_train_steps={steps}", f"--num_warmup_steps={steps // 10}",
            f"--learning_rate={self._args.learning_rate}", f"--eval_every_steps={evaluate_every}",
            f"--save_checkpoints_steps={evaluate_every}", "--keep_checkpoint_max=1")

    def pretraining_row(self) -> Dict[str, str]:
        measured = results.read(self.path("pretrained"))
        examples = (files.read_json(self.path(f"{name}.tfrecord.json"), "facts")["num_examples"]
                    for name in ("train", "held_out"))
        documents = (f"{len(part):,}" for part in self.documents())
        constant = most_frequent_share(self.path("held_out.tfrecord"))
        return {
            "text": self.language.name,
            "documents: training, held-out": ", ".join(documents),
            "examples": ", ".join(f"{count:,}" for count in examples),
            f"steps of {BATCH_SIZE}": f"{self._args.num_train_steps:,}",
            "masked_lm_accuracy": f"{measured['masked_lm_accuracy']:.3f}",
            "always the most frequent token": f"{constant:.3f}",
            "perplexity": f"{measured['perplexity']:.1f}"}

    def finetune(self, start: str, seed: int) -> Dict[str, float]:
        """Metrics on ChnSentiCorp's dev set, from "pretrained" or "random" weights."""
        output_dir = self.path(f"finetuning/{start}-{seed}")
        initial = [f"--init_checkpoint={self.path('pretrained')}"] if start == "pretrained" else []
        self.train(
            f"{output_dir}/eval_results.json", "run_classifier.py", "--task_name=file",
            "--label_kind=classes", "--text_column=text_a", "--label_column=label",
            f"--train_file={self.path('reviews.tsv')}", f"--dev_file={self._reviews}/dev.tsv",
            *initial, f"--max_seq_length={LENGTH}", f"--seed={seed}",
            f"--num_train_epochs={self._args.finetuning_epochs}",
            f"--learning_rate={self._args.finetuning_learning_rate}",
            f"--store_dir={self.path('finetuning/store')}")
        return {"accuracy": results.read(output_dir)["eval_accuracy"]}

    def finetuning_rows(self) -> List[Dict[str, str]]:
        """What is learnt from pretrained and from random weights."""
        reviews = list(self.training_reviews().items())[:self._args.finetuning_examples]
        if not os.path.exists(self.path("reviews.tsv")):
            files.write_text(self.path("reviews.tsv"), "label\ttext_a\n" + "".join(
                f"{label}\t{text}\n" for text, label in reviews))
        return [report.row_of_seeds(f"from {start} weights", ("accuracy",),
                                    [self.finetune(start, seed) for seed in report.SEEDS])
                for start in ("pretrained", "random")]


def most_frequent_share(path: str) -> float:
    """The accuracy of one answer to all masked tokens of a file, the best one."""
    counts: Dict[int, int] = collections.Counter()
    for record in tf.python_io.tf_record_iterator(path):
        feature = tf.train.Example.FromString(record).features.feature
        weights = np.array(feature["masked_lm_weights"].float_list.value)
        counts.update(np.array(feature["masked_lm_ids"].int64_list.value)[weights > 0].tolist())
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
    parser = report.parser_of(__doc__, "data", "work_dir")
    parser.add_argument("--language", choices=sorted(LANGUAGES), required=True)
    parser.add_argument("--num_train_steps", type=int, default=7000, help=f"of {BATCH_SIZE} examples")
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--finetuning_examples", type=int, default=3000, help="Chinese only")
    parser.add_argument("--finetuning_epochs", type=float, default=3, help="Chinese only")
    parser.add_argument("--finetuning_learning_rate", type=float, default=1e-4,
                        help="Chinese only")
    args = parser.parse_args()
    run = Run(args)
    run.prepare()
    run.pretrain()
    draw(args.work_dir)
    report.append("Pretraining from nothing, 4 layers, 256 wide: held-out documents",
                  [run.pretraining_row()])
    if args.language == "zh":
        report.append(
            f"ChnSentiCorp's dev set after {args.finetuning_epochs:g} epochs over "
            f"{args.finetuning_examples:,} examples, three seeds (mean ± deviation)",
            run.finetuning_rows())


if __name__ == "__main__":
    main()
