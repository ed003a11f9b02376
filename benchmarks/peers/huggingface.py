"""The peer on PyTorch: a Hugging Face encoder fine-tuned on a task of GLUE the usual way.

Runs in an environment of its own (`torch`, `transformers`, `scikit-learn`), on
two cores or whatever PyTorch finds: dynamic padding, linear warm-up and decay,
AdamW with clipping, as `run_glue` does; with --optimizer=google, Google's update, which lacks
Adam's bias correction. Prints one JSON line: the task's metrics, examples/s.

  python -m benchmarks.peers.huggingface --model_dir=DIR --data_dir=glue/CoLA --seed=1
"""

import argparse
import itertools
import json
import os
import time

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, r2_score
from sklearn.preprocessing import StandardScaler
from transformers import (AutoModelForSequenceClassification, AutoTokenizer,
                          get_linear_schedule_with_warmup)

UNDECAYED = ("bias", "LayerNorm.weight")
WARM_UP_STEPS = 10  # which are not timed


OF_CLASSES = {"accuracy": accuracy_score,
              "macro_f1": lambda labels, values: f1_score(labels, values, average="macro")}
# Columns of the texts and of the label, lines of header, labels (1: a regression; 0: any words), metrics.
TASKS = {
    "emoji": ((0,), 1, 1, 0, OF_CLASSES),
    "r52": ((0,), 1, 1, 0, OF_CLASSES),
    "topics": ((0,), 1, 1, 0, OF_CLASSES),
    "cola": ((3,), 1, 0, 2, {"accuracy": accuracy_score,
                             "matthews_correlation": matthews_corrcoef}),
    "sst-2": ((0,), 1, 1, 2, {"accuracy": accuracy_score}),
    "sts-b": ((7, 8), -1, 1, 1, {"pearson": lambda labels, values: pearsonr(labels, values)[0],
                                 "spearman": lambda labels, values: spearmanr(labels, values)[0],
                                 "r2": r2_score})}


def read(path, task):
    text_columns, label_column, header, num_labels, _ = TASKS[task]
    with open(path, encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file][header:]
    to_label = (str, float, int)[min(num_labels, 2)]
    return ([tuple(row[column] for column in text_columns) for row in rows],
            [to_label(row[label_column]) for row in rows])


def batch_of(tokenizer, examples):
    """The model's arguments of examples (texts, label)."""
    texts, labels = zip(*examples)
    return {**tokenizer(*map(list, zip(*texts)), truncation=True, max_length=128, padding="longest",
                        return_tensors="pt"), "labels": torch.tensor(labels)}


class GooglesAdam(torch.optim.Optimizer):
    """AdamW as BERT was trained with: moments start at zero and are not corrected for that."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                slots = self.state[parameter]
                if not slots:
                    slots["m"], slots["v"] = (torch.zeros_like(parameter) for _ in range(2))
                slots["m"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                slots["v"].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                update = slots["m"] / (slots["v"].sqrt() + group["eps"])
                parameter -= group["lr"] * (update + group["weight_decay"] * parameter)


def optimizer_of(model, kind, learning_rate):
    decayed, undecayed = [], []
    for name, parameter in model.named_parameters():
        (undecayed if any(part in name for part in UNDECAYED) else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": undecayed, "weight_decay": 0.0}]
    if kind == "google":
        return GooglesAdam(groups, {"lr": learning_rate, "eps": 1e-6})
    return torch.optim.AdamW(groups, lr=learning_rate, eps=1e-6)


def parser_of(description, *paths, batch_size):
    """A parser with required paths and the settings of a training."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("model_dir", *paths):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--batch_size", type=int, default=batch_size)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--optimizer", choices=("adamw", "google"), default="adamw")
    return parser


def loaded(kind, args, **options):
    """The model of a kind and its tokenizer, with the seed set."""
    torch.manual_seed(args.seed)
    return (kind.from_pretrained(args.model_dir, **options),
            AutoTokenizer.from_pretrained(args.model_dir))


def train_on(examples, batch_of, model, num_steps, args, autocast=False):
    """Trains on examples, of which `batch_of` makes the arguments of the model, in a new order in each epoch.

    Returns examples/s, without the first steps.
    """
    update = optimizer_of(model, args.optimizer, args.learning_rate)
    schedule = get_linear_schedule_with_warmup(update, int(num_steps * 0.1), num_steps)
    model.train()
    for step, part in enumerate(itertools.islice(_shuffled(examples, args.batch_size), num_steps), start=1):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(**batch_of(part)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        schedule.step()
        update.zero_grad()
        if step == WARM_UP_STEPS:
            start = time.time()
    return (num_steps - WARM_UP_STEPS) * args.batch_size / (time.time() - start)


def _shuffled(examples, batch_size):
    """Lists of so many examples, in a new order in each of endlessly many epochs."""
    while True:
        order = torch.randperm(len(examples)).tolist()
        for first in range(0, len(order) - batch_size + 1, batch_size):
            yield [examples[index] for index in order[first:first + batch_size]]


def in_parts(examples, size=32):
    """Lists of so many examples, in their order."""
    return (examples[first:first + size] for first in range(0, len(examples), size))


@torch.no_grad()
def fit_output_layer(model, tokenizer, examples):
    """Starts the output layer as the best linear model of the pooled output, by cross-validation."""
    model.eval()
    layer, features, labels = model.classifier, [], [label for _, label in examples]
    for part in in_parts(examples):
        batch = batch_of(tokenizer, part)
        del batch["labels"]
        features.append(model.base_model(**batch).pooler_output.numpy())
    features = np.concatenate(features)
    scaler = StandardScaler().fit(features)
    scale = np.maximum(scaler.scale_, 0.1 * np.sqrt(np.square(scaler.scale_).mean()))
    features = (features - scaler.mean_) / scale
    if layer.out_features == 1:
        probe = RidgeCV(np.logspace(0, 4, 9)).fit(features, labels)
    else:
        probe = LogisticRegressionCV(Cs=np.logspace(-4, 0, 7), cv=3, scoring="neg_log_loss", max_iter=1000,
                                     use_legacy_attributes=False, l1_ratios=(0,)).fit(features, labels)
    weights, bias = np.atleast_2d(probe.coef_), np.atleast_1d(probe.intercept_)
    if layer.out_features == 2:
        weights, bias = (np.concatenate([-part, part]) / 2 for part in (weights, bias))
    weights = weights / scale
    layer.weight.copy_(torch.tensor(weights))
    layer.bias.copy_(torch.tensor(bias - weights @ scaler.mean_))


@torch.no_grad()
def predict(model, tokenizer, examples):
    model.eval()
    predicted = []
    for part in in_parts(examples):
        logits = model(**batch_of(tokenizer, part)).logits
        predicted += (logits[:, 0] if logits.shape[1] == 1 else logits.argmax(-1)).tolist()
    return predicted


def main():
    parser = parser_of(__doc__, "data_dir", batch_size=32)
    parser.add_argument("--task", choices=sorted(TASKS), default="cola")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--initial_bias", action="store_true",
                        help="starts a regression at the labels' mean")
    parser.add_argument("--fit_output_layer", action="store_true", help="before the first step")
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16")
    parser.add_argument("--max_steps", type=int, default=0,
                        help="for timing: so many steps and no evaluation; 0: all epochs")
    args = parser.parse_args()
    texts, labels = read(os.path.join(args.data_dir, "train.tsv"), args.task)
    names = sorted(set(labels)) if TASKS[args.task][3] == 0 else None
    if names:
        labels = list(map(names.index, labels))
    model, tokenizer = loaded(AutoModelForSequenceClassification, args,
                              num_labels=len(names or range(TASKS[args.task][3])))
    if args.initial_bias:
        torch.nn.init.constant_(model.classifier.bias, np.mean(labels))
    examples = list(zip(texts, labels))
    if args.fit_output_layer:
        fit_output_layer(model, tokenizer, examples)
    results = {"rate": train_on(
        examples, lambda part: batch_of(tokenizer, part), model,
        int(args.max_steps or len(examples) * args.epochs / args.batch_size), args, args.autocast)}
    if not args.max_steps:
        texts, labels = read(os.path.join(args.data_dir, "dev.tsv"), args.task)
        labels = list(map(names.index, labels)) if names else labels
        predicted = predict(model, tokenizer, list(zip(texts, labels)))
        results.update({name: float(metric(labels, predicted))
                        for name, metric in TASKS[args.task][4].items()})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
