"""The peer on PyTorch: sentence-transformers trains an encoder on texts that belong together.

Runs in an environment of its own (`sentence-transformers`, `datasets`, `accelerate`). Writes the trained
model's folder; prints one JSON line with the examples per second.

  python -m benchmarks.peers.sentence_training --model_dir=DIR --input_file=cases.json --output_dir=DIR \
    --seed=1 --learning_rate=2e-5 --batch_size=64 --max_seq_length=128
"""

import argparse
import json
import tempfile

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments)
from sentence_transformers.sentence_transformer import losses

LOSSES = {"ranking": losses.MultipleNegativesRankingLoss, "score": losses.CoSENTLoss}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model_dir", "input_file", "output_dir"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("seed", "batch_size", "max_seq_length"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--learning_rate", required=True, type=float)
    args = parser.parse_args()
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
    print(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main()
