"""The peers of augmentation and rewriting, written plainly: a forward pass for each word or pair.

  python -m benchmarks.peers.one_at_a_time augment --model=BERT --data_dir=glue/CoLA --shows_text=true

Augmentation is the loop of TinyBERT's published data_augmentation.py: each word of one WordPiece is
a forward pass over the masked text and, with --shows_text, the text itself, with the scores of the
whole vocabulary at every position, the best of which the host sorts out. Rewriting is bert-ad's
worker: a pair is tokenized, padded to 128 tokens and scored, then the next. Same checkpoint and
texts as ours.
"""

import json
import sys
from typing import Callable, List

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

import modeling
import tensorflow.compat.v1 as tf
import tokenization
from augmentation.variants import words_of
from benchmarks.programs import NUM_CANDIDATES, arguments, cola_sentences, rate_of, slots_and_phrases
from encoder import model_files, pretraining_heads
from engine.model import INFERENCE

LENGTH, NUM_PAIRS, NUM_SENTENCES = 128, 100, 100


def session_of(graph: tf.Graph, checkpoint: str) -> tf.Session:
    session = tf.Session(graph=graph)
    tf.train.Saver().restore(session, checkpoint)
    return session


def augment(model: str, data_dir: str, shows_text: str = "") -> float:
    """Masked words a second."""
    opened = model_files.open_folder(model, "--model")
    config, tokenizer = opened.config(), tokenization.FullTokenizer(f"{model}/vocab.txt")
    with tf.Graph().as_default() as graph:
        inputs = [tf.placeholder(tf.int32, [1, None]) for _ in range(2)]
        bert = modeling.BertModel(config, False, inputs[0], token_type_ids=inputs[1])
        states = tf.reshape(bert.get_sequence_output(), [-1, config.hidden_size])
        scores = pretraining_heads.masked_lm_logits(states, bert.get_embedding_table(), config)
        session = session_of(graph, opened.checkpoint.path)

    def candidates(masked: List[str], text: str, position: int) -> List[str]:
        first, second = ["[CLS]", *masked, "[SEP]"], [*tokenizer.tokenize(text), "[SEP]"] * bool(shows_text)
        feed = [tokenizer.convert_tokens_to_ids(first + second)], [[0] * len(first) + [1] * len(second)]
        best = np.argsort(-session.run(scores, dict(zip(inputs, feed)))[position])[:NUM_CANDIDATES]
        return [token for token in tokenizer.convert_ids_to_tokens(best) if not token.startswith("##")]

    def work(texts: List[str]) -> int:
        count = 0
        for text in texts:
            words = words_of(text)
            pieces = [tokenizer.tokenize(word.text) for word in words]
            for index, word in enumerate(words):
                if word.may_be_replaced and len(pieces[index]) == 1:
                    masked = sum(pieces[:index] + [["[MASK]"]] + pieces[index + 1:], [])
                    candidates(masked, text, len(sum(pieces[:index], [])) + 1)
                    count += 1
        return count

    work(cola_sentences(data_dir, 10))  # warm
    return rate_of(lambda: work(cola_sentences(data_dir, NUM_SENTENCES)))


def rewrite(texts: str, pool_file: str, trained: str) -> float:
    """Scored pairs a second."""
    model, _, pairs = slots_and_phrases(texts, pool_file, trained)
    tokenizer = tokenization.FullTokenizer(model.encoding.vocab_file)
    with tf.Graph().as_default() as graph:
        inputs = {name: tf.placeholder(tf.int32, [1, LENGTH])
                  for name in ("input_ids", "input_mask", "segment_ids")}
        logits = model.forward()(inputs, INFERENCE).predictions["logits"]
        session = session_of(graph, model_files.open_folder(trained, "--trained").checkpoint.path)

    def score(before: str, phrase: str, after: str) -> np.ndarray:
        first = ["[CLS]", *tokenizer.tokenize(phrase), "[SEP]"]
        tokens = [*first, *tokenizer.tokenize(before), *["[MASK]"] * (len(first) - 2),
                  *tokenizer.tokenize(after), "[SEP]"][:LENGTH]
        padding = [0] * (LENGTH - len(tokens))
        rows = (tokenizer.convert_tokens_to_ids(tokens) + padding, [1] * len(tokens) + padding,
                ([0] * len(first) + [1] * len(tokens))[:len(tokens)] + padding)
        return session.run(logits, {each: [row] for each, row in zip(inputs.values(), rows)})

    score(*pairs[0])  # warm
    places = np.linspace(0, len(pairs) - 1, NUM_PAIRS).astype(int)
    return rate_of(lambda: len([score(*pairs[place]) for place in places]))


if __name__ == "__main__":
    program: Callable[..., float] = {"augment": augment, "rewrite": rewrite}[sys.argv[1]]
    print(json.dumps({"rate": program(**dict(arguments(sys.argv[2:])))}))
