"""The peer on PyTorch: a Hugging Face encoder fine-tuned to choose, as `run_swag` does it.

Runs in an environment of its own (`torch`, `transformers`): BertForMultipleChoice, dynamic padding, linear
warm-up and decay, AdamW with clipping. All questions have as many choices. Prints one JSON line: accuracy,
questions/s.

  python -m benchmarks.peers.huggingface_choice --model_dir=DIR --train_file=FILE --dev_file=FILE --num_steps=250
"""

import json

import torch
from transformers import AutoModelForMultipleChoice

from benchmarks.peers.huggingface import in_parts, loaded, parser_of, train_on


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def batch_of(tokenizer, questions, args):
    pairs = [(each["question"], choice) for each in questions for choice in each["choices"]]
    encoded = tokenizer(*map(list, zip(*pairs)), truncation=True, max_length=args.max_seq_length, padding="longest",
                        return_tensors="pt")
    return {**{name: values.view(len(questions), -1, values.shape[1]) for name, values in encoded.items()},
            "labels": torch.tensor([each["answer"] for each in questions])}


@torch.no_grad()
def accuracy(model, tokenizer, questions, args):
    model.eval()
    right = 0
    for part in in_parts(questions, 16):
        batch = batch_of(tokenizer, part, args)
        right += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return right / len(questions)


def main():
    parser = parser_of(__doc__, "train_file", "dev_file", batch_size=16)
    parser.add_argument("--num_steps", type=int, required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    args = parser.parse_args()
    model, tokenizer = loaded(AutoModelForMultipleChoice, args)
    rate = train_on(read(args.train_file), lambda part: batch_of(tokenizer, part, args), model, args.num_steps, args)
    print(json.dumps({"rate": rate, "accuracy": accuracy(model, tokenizer, read(args.dev_file), args)}))


if __name__ == "__main__":
    main()
