"""The peer on PyTorch: sentence-transformers' vectors of texts, and its losses without dropout.

Runs in an environment of its own (`sentence-transformers`). Prints one JSON line: the loss of each
batch.

  python -m benchmarks.peers.sentence_losses --model_dir=DIR --input_file=cases.json \
    --output_file=vectors.npy
"""

import argparse
import json

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

SIZES = [384, 128, 64]
LOSSES = {
    "ranking": losses.MultipleNegativesRankingLoss,
    "symmetric": lambda model: losses.MultipleNegativesRankingLoss(
        model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"),
    # The mean over the sizes; its default is the sum.
    "matryoshka": lambda model: losses.MatryoshkaLoss(
        model, losses.MultipleNegativesRankingLoss(model), SIZES, [1 / len(SIZES)] * len(SIZES)),
    "score": losses.CoSENTLoss}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model_dir", "input_file", "output_file"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    with open(args.input_file, encoding="utf-8") as file:
        cases = json.load(file)
    model = SentenceTransformer(args.model_dir, device="cpu")
    model.eval()
    np.save(args.output_file, model.encode(cases["texts"], show_progress_bar=False))
    found = {}
    for name, case in cases["batches"].items():
        features = [model.preprocess(list(column)) for column in zip(*case["rows"])]
        labels = torch.tensor(case["scores"]) if case["scores"] else None
        with torch.no_grad():
            found[name] = LOSSES[case["loss"]](model)(features, labels).item()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
