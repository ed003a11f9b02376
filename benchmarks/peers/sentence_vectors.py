"""The peer on PyTorch: sentence-transformers' vectors of texts, the mean of the tokens' states.

Runs in an environment of its own (`sentence-transformers`). Prints one JSON line: texts/s of a
second pass, tokenizing included.

  python -m benchmarks.peers.sentence_vectors --model_dir=DIR --input_file=texts.txt
"""

import argparse
import json
import time

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()
    with open(args.input_file, encoding="utf-8") as file:
        texts = file.read().splitlines()
    encoder = Transformer(args.model_dir, max_seq_length=args.max_seq_length)
    model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())],
                                device="cpu")
    model.encode(texts, batch_size=args.batch_size, show_progress_bar=False)
    start = time.time()
    model.encode(texts, batch_size=args.batch_size, show_progress_bar=False)
    seconds = time.time() - start
    print(json.dumps({"rate": len(texts) / seconds}))


if __name__ == "__main__":
    main()
