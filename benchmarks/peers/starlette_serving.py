"""The peer without a framework: Starlette, tokenizers and onnxruntime, as one writes a server by hand.

  python -m benchmarks.peers.starlette_serving --file=serving-....onnx --vocab=vocab.txt --threads=1 --port=8502
"""

import argparse

import numpy as np
import onnxruntime
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import BertWordPieceTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--threads", type=int, required=True, help="of a step; 0: onnxruntime's default")
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(args.file, options, providers=["CPUExecutionProvider"])
    tokenizer = BertWordPieceTokenizer(args.vocab, lowercase=True)
    tokenizer.enable_truncation(128)

    async def predict(request: Request) -> JSONResponse:
        tokens = tokenizer.encode((await request.json())["inputs"])
        values = {"input_ids": tokens.ids, "input_mask": tokens.attention_mask, "segment_ids": tokens.type_ids}
        logits, = session.run(["logits"], {name: np.array([row], np.int32) for name, row in values.items()})
        exponents = np.exp(logits[0] - logits[0].max())
        scores = exponents / exponents.sum()
        return JSONResponse([{"label": str(label), "score": float(scores[label])} for label in np.argsort(-scores)])

    uvicorn.run(Starlette(routes=[Route("/predict", predict, methods=["POST"])]),
                host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
