"""The peer on PyTorch: sentence-transformers trains an encoder on texts that belong together, or gives texts vectors.

Runs in an environment of its own (`sentence-transformers`, `datasets`, `accelerate`). A training writes the
model's folder. Vectors are the means of the tokens' states. Prints one JSON line: the examples per second, or the texts
of a second pass, tokenizing included.

  python -m benchmarks.peers.sentences train --model_dir=DIR --input_file=cases.json --output_dir=DIR \
    --seed=1 --learning_rate=2e-5 --batch_size=64 --max_seq_length=128
  python -m benchmarks.peers.sentences encode --model_dir=DIR --input_file=texts.txt
"""

import argparse
import json
import tempfile
import time

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

LOSSES = {"ranking": losses.MultipleNegativesRankingLoss, "score": losses.CoSENTLoss}


def encode(args):
    with open(args.input_file, encoding="utf-8") as file:
        texts = file.read().splitlines()
    encoder = Transformer(args.model_dir, max_seq_length=args.max_seq_length)
    model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())], device="cpu")
    model.encode(texts, batch_size=args.batch_size, show_progress_bar=False)
    start = time.time()
    model.encode(texts, batch_size=args.batch_size, show_progress_bar=False)
    return len(texts) / (time.time() - start)


def train(args):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    with open(args.input_file, encoding="utf-8") as file:
        case = json.load(file)
    columns = dict(zip(("anchor", "positive", "negative"), map(list, zip(*case["rows"]))))
    if case["scores"]:
        columns["score"] = case["scores"]
    model = SentenceTransformer(args.model_dir, device="cpu")
    model.max_seq_length = args.max_seq_length
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model, train_dataset=Dataset.from_dict(columns), loss=LOSSES[case["loss"]](model),
            args=SentenceTransformerTrainingArguments(
                output_dir=folder, num_train_epochs=1, per_device_train_batch_size=args.batch_size,
                learning_rate=args.learning_rate, warmup_steps=case["warmup_steps"],
                weight_decay=0.01, seed=args.seed, save_strategy="no", report_to=[], use_cpu=True,
                dataloader_drop_last=True, disable_tqdm=True))
        rate = trainer.train().metrics["train_samples_per_second"]
    model.save(args.output_dir)
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    programs = {program.__name__: program for program in (train, encode)}
    parser.add_argument("program", choices=programs)
    for name in ("model_dir", "input_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output_dir")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--learning_rate", type=float)
    args = parser.parse_args()
    print(json.dumps({"rate": programs[args.program](args)}))


if __name__ == "__main__":
    main()
