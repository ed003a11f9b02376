"""The peer on PyTorch: a Hugging Face encoder fine-tuned to tag words, as `run_ner` does it.

Runs in an environment of its own (`torch`, `transformers`, `conlleval`): labels on the first piece of
each word, dynamic padding, linear warm-up and decay, AdamW with clipping. Reads columns, and CLUENER's
lines character by character. Prints one JSON line: F1 by entity on the dev set, sentences/s.

  python -m benchmarks.peers.huggingface_ner --model_dir=DIR --train_file=FILE --dev_file=FILE --seed=1
"""

import json

import torch
from conlleval import evaluate
from transformers import AutoModelForTokenClassification

from benchmarks.peers.huggingface import in_parts, loaded, parser_of, train_on

IGNORED = -100  # the label that PyTorch's loss leaves out


def read(path):
    """Sentences: (words, tags)."""
    if path.endswith(".json"):
        with open(path, encoding="utf-8") as file:
            return [characters_of(json.loads(line)) for line in file]
    return columns_of(path)


def characters_of(value):
    """The characters of a line of CLUENER's, without spaces, which have no pieces, and their tags."""
    tags = ["O"] * len(value["text"])
    for kind, mentions in value["label"].items():
        for first, last in (span for spans in mentions.values() for span in spans):
            tags[first:last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
    words = [(character, tag) for character, tag in zip(value["text"], tags)
             if not character.isspace()]
    return tuple(zip(*words))


def columns_of(path):
    """Of columns the first and the last."""
    sentences, words, tags = [], [], []
    with open(path, encoding="utf-8") as file:
        for line in [*file, ""]:
            cells = line.split()
            if cells and cells[0] != "-DOCSTART-":
                words.append(cells[0])
                tags.append(cells[-1])
            elif words:
                sentences.append((words, tags))
                words, tags = [], []
    return sentences


def batch_of(tokenizer, sentences, labels):
    batch = tokenizer([words for words, _ in sentences], is_split_into_words=True, truncation=True,
                      max_length=128, padding="longest", return_tensors="pt")
    targets = torch.full(batch["input_ids"].shape, IGNORED)
    for row, (_, tags) in enumerate(sentences):
        before = None
        for position, word in enumerate(batch.word_ids(row)):
            if word is not None and word != before:
                targets[row, position] = labels.index(tags[word])
            before = word
    return {**batch, "labels": targets}


@torch.no_grad()
def predict(model, tokenizer, sentences, labels):
    """The tags of each sentence; of a word that was cut off, O."""
    model.eval()
    predicted = []
    for part in in_parts(sentences):
        batch = batch_of(tokenizer, part, labels)
        best = model(**batch).logits.argmax(-1)
        for (words, _), row, is_word in zip(part, best, batch["labels"] != IGNORED):
            tags = [labels[index] for index in row[is_word].tolist()]
            predicted.append(tags + ["O"] * (len(words) - len(tags)))
    return predicted


def main():
    parser = parser_of(__doc__, "train_file", "dev_file", batch_size=16)
    parser.add_argument("--epochs", type=float, default=1)
    args = parser.parse_args()
    training, dev = read(args.train_file), read(args.dev_file)
    labels = sorted({tag for _, tags in training for tag in tags})
    model, tokenizer = loaded(AutoModelForTokenClassification, args, num_labels=len(labels))
    rate = train_on(training, lambda part: batch_of(tokenizer, part, labels), model,
                    int(len(training) * args.epochs / args.batch_size), args)
    # conlleval knows E and S, and of BMES's M what it knows as I.
    lines = [line.replace(" M-", " I-")
             for (words, tags), predicted in zip(dev, predict(model, tokenizer, dev, labels))
             for line in [*map(" ".join, zip(words, tags, predicted)), ""]]
    print(json.dumps({"rate": rate,
                      "f1": evaluate(lines)["overall"]["chunks"]["evals"]["f1"]}))


if __name__ == "__main__":
    main()
