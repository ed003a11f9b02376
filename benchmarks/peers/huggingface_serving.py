"""The peer on PyTorch: Hugging Face's pipeline of a classifier behind FastAPI, as its pages show it.

Runs in an environment of its own (`transformers`, `fastapi`, `uvicorn`).

  python -m benchmarks.peers.huggingface_serving --model_dir=DIR --port=8502
"""

import argparse
from typing import Any

import uvicorn
from fastapi import Body, FastAPI
from transformers import pipeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    classify, app = pipeline("text-classification", model=args.model_dir, device="cpu"), FastAPI()

    @app.post("/predict")
    def predict(body: Any = Body()) -> Any:  # noqa: B008 (FastAPI's way to name the body)
        return classify(body["inputs"], top_k=None)

    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
