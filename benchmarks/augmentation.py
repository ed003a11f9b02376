"""Masked words/s of the augmentation: ours and one forward per word, in turn, in one run.

  python -m benchmarks.augmentation --model=BERT --data_dir=glue/CoLA

BERT is a folder with vocab.txt, bert_config.json and bert_model.ckpt with a masked-LM head.
The peer is the loop of TinyBERT's published data_augmentation.py, written plainly: each word
of one WordPiece is a forward of its own, over the masked text and the text itself, with the
scores of the whole vocabulary at every position, the best of which the host sorts out. Ours
masks the text alone, as the paper does; a second peer is that loop with our input. All have the
same checkpoint and sentences, and are timed from their second forward on, without words of several
WordPieces and without writing. The peers have a process of their own.
"""

import argparse
import itertools
import os
import sys
import time
from typing import Dict, List

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report
from augmentation.candidates import Candidates, parse
from augmentation.masked_lm import MaskedLanguageModel
from augmentation.variants import words_of
from encoder import pretraining_heads
from encoder.config import load_config
from encoder.encoding import Encoding, load_encoding
from engine.checkpoints import checkpoints
from engine.devices import devices
from tasks.data import read_examples
from tasks.table import TASKS
from tokenization import BatchTokenizer

import modeling
import tensorflow.compat.v1 as tf

NUM_CANDIDATES = 15
SHOWS_TEXT = {"one forward per word, as published": True,
              "one forward per word, with our input": False}


class OneWordAtATime:
    """The peer; `shows_text`: its input holds the text unmasked, too, as the published one."""

    def __init__(self, config: modeling.BertConfig, checkpoint: checkpoints.Checkpoint,
                 encoding: Encoding, *, shows_text: bool):
        self._tokenizer = encoding.tokenizer
        self._shows_text = shows_text
        with tf.Graph().as_default() as graph:
            self._inputs = [tf.placeholder(tf.int32, [1, None]) for _ in range(2)]
            model = modeling.BertModel(config, False, self._inputs[0],
                                       token_type_ids=self._inputs[1])
            states = tf.reshape(model.get_sequence_output(), [-1, config.hidden_size])
            self._scores = pretraining_heads.masked_lm_logits(
                states, model.get_embedding_table(), config)  # [length, vocabulary]
            self._session = tf.Session(graph=graph)
            tf.train.Saver().restore(self._session, checkpoint.path)

    def candidates(self, text: str) -> List[List[str]]:
        """The candidates for each word of one WordPiece that may be replaced."""
        words = [word for word in words_of(text)]
        pieces = [self._tokenizer.tokenize(word.text) for word in words]
        found = []
        for index, word in enumerate(words):
            if word.may_be_replaced and len(pieces[index]) == 1:
                masked = pieces[:index] + [["[MASK]"]] + pieces[index + 1:]
                found.append(self._of_mask(sum(masked, []), self._tokenizer.tokenize(text),
                                           len(sum(masked[:index], [])) + 1))
        return found

    def _of_mask(self, masked: List[str], pieces: List[str], position: int) -> List[str]:
        first, second = ["[CLS]", *masked, "[SEP]"], [*pieces, "[SEP]"] * self._shows_text
        ids = self._tokenizer.convert_tokens_to_ids(first + second)
        segments = [0] * len(first) + [1] * len(second)
        scores = self._session.run(self._scores, dict(zip(self._inputs, ([ids], [segments]))))
        best = np.argsort(-scores[position])[:NUM_CANDIDATES]
        tokens = self._tokenizer.convert_ids_to_tokens(best)
        return [token for token in tokens if not token.startswith("##")]


_peers: Dict[str, OneWordAtATime] = {}


def make_peers(model: str) -> None:
    for name, shows_text in SHOWS_TEXT.items():
        _peers[name] = OneWordAtATime(*load(model), shows_text=shows_text)


def load(model: str):
    config = load_config(f"{model}/bert_config.json")
    encoding = load_encoding(f"{model}/vocab.txt", do_lower_case=True,
                             max_seq_length=config.max_position_embeddings,
                             vocab_size=config.vocab_size)
    return config, checkpoints.open_checkpoint(f"{model}/bert_model.ckpt"), encoding


def their_rate(peer: str, texts: List[str]) -> float:
    start = time.time()
    count = sum(len(_peers[peer].candidates(text)) for text in texts)
    return count / (time.time() - start)


def our_rate(candidates: Candidates, tokenizer: BatchTokenizer, texts: List[str]) -> float:
    start = time.time()
    parsed = [parse(text, tokenizer) for text in texts]
    candidates.of_texts(parsed)
    count = sum(position is not None for text in parsed for position in text.positions)
    return count / (time.time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    examples = read_examples(TASKS["cola"], TASKS["cola"].train, os.path.abspath(args.data_dir))
    texts = [example.text_a for example in itertools.islice(examples, args.sentences)]
    config, checkpoint, encoding = load(args.model)
    rates = {name: [] for name in ("ours", *SHOWS_TEXT)}
    with report.peers_process(make_peers, args.model) as process, MaskedLanguageModel(
            config, checkpoint, encoding.tokenizer,
            devices.find_devices(num_gpus=0, training=False),
            max_seq_length=encoding.max_seq_length, num_candidates=NUM_CANDIDATES,
            per_replica_batch_size=8) as model:
        candidates = Candidates(encoding.tokenizer, model, None)
        for some in [texts[:10], *[texts] * args.pairs]:  # the first only warms up
            for name in SHOWS_TEXT:
                rates[name].append(process.submit(their_rate, name, some).result())
            rates["ours"].append(our_rate(candidates, encoding.tokenizer, some))
            print(", ".join(f"{name} {found[-1]:.1f}" for name, found in rates.items()), flush=True)
    ours = rates["ours"][1:]
    report.append(
        "Augmentation, CoLA, 1 replica: masked words/s (median)",
        [{"ours": f"{np.median(ours):.1f}", "the peer is": name,
          "peer": f"{np.median(rates[name][1:]):.1f}",
          "ours / peer": report.ratios(ours, rates[name][1:])} for name in SHOWS_TEXT],
        command="python -m benchmarks.augmentation",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()
