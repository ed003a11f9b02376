"""The peer on PyTorch, for speed alone: a Hugging Face classifier, random weights, full examples.

Runs in an environment of its own (`torch`, `transformers`): AdamW with clipping; float16 with a
gradient scaler and bfloat16 by autocast. Prints one JSON line.

  python -m benchmarks.peers.huggingface_steps --config=JSON --length=128 --batch_size=64 \
    --precision=bfloat16 --device=cuda --num_steps=20
"""

import argparse
import contextlib
import json
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

WARM_UP_STEPS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the values of bert_config.json")
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--num_steps", type=int, required=True)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = args.precision != "float32"
    config = BertConfig(**json.loads(args.config), num_labels=2)
    model = BertForSequenceClassification(config).to(args.device).train()
    seconds = time_steps(model, batch_of(config, args), args)
    results = {"peers_sequences_per_second": args.batch_size * args.num_steps / seconds,
               "torch": torch.__version__}
    if args.device == "cuda":
        results["peers_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    print(json.dumps(results))


def batch_of(config, args):
    shape = [args.batch_size, args.length]
    return {"input_ids": torch.randint(config.vocab_size, shape, device=args.device),
            "attention_mask": torch.ones(shape, dtype=torch.long, device=args.device),
            "labels": torch.arange(args.batch_size, device=args.device) % 2}


def time_steps(model, batch, args):
    """Seconds of `num_steps` steps, after the first ones."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)
    scaler = torch.amp.GradScaler(args.device, enabled=args.precision == "float16")
    for number in range(WARM_UP_STEPS + args.num_steps):
        if number == WARM_UP_STEPS:
            wait(args.device)
            start = time.time()
        with narrow_products(args):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        loss.item()  # as a training that shows its loss
    wait(args.device)
    return time.time() - start


def narrow_products(args):
    if args.precision in ("float16", "bfloat16"):
        return torch.autocast(args.device, getattr(torch, args.precision))
    return contextlib.nullcontext()


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
