"""The baselines of benchmarks/ rank a slot's phrases by what they say they do."""

import numpy as np
import pytest

import modeling
from benchmarks import rewriting_baselines as baselines
from bert_reference import load, random_values
from encoder import pretraining_heads
from rewriting import evaluation
from rewriting.slot_files import SlotExample
from rewriting_files import score, write_slots
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

SLOTS = [SlotExample("the cat sees a tree, ", ", and a dog finds it.",
                     ("a bird likes", "unliked", "the old house or the small house"), 1),
         SlotExample("", " . not or and " * 6, ("green river", "dog"), 1)]


@pytest.fixture(scope="module")
def language_model(tiny_model, tmp_path_factory):
    """A folder: the tiny model with a masked-LM head; all of its values are random."""
    folder = tmp_path_factory.mktemp("lm")
    (folder / "vocab.txt").write_text(open(tiny_model.vocab_file).read())
    (folder / "bert_config.json").write_text(open(tiny_model.bert_config_file).read())
    with tf.Graph().as_default(), tf.Session() as session:
        log_probabilities(tiny_model.config(), tf.zeros([1, 4], tf.int32))
        load(session, random_values(tf.global_variables()))
        tf.train.Saver().save(session, str(folder / "model.ckpt"), write_meta_graph=False)
    return folder


def log_probabilities(config, input_ids):
    """[1, t, V]: of every position, from the whole sequence output."""
    model = modeling.BertModel(config, False, input_ids)
    states = tf.reshape(model.get_sequence_output(), [-1, config.hidden_size])
    logits = pretraining_heads.masked_lm_logits(states, model.get_embedding_table(), config)
    return tf.nn.log_softmax(logits)


@pytest.mark.parametrize("max_seq_length", [40, 24])
def test_every_baseline_ranks_the_readable_phrases_by_its_scores(
        max_seq_length, tiny_model, language_model, tmp_path):
    too_long = SlotExample("a cat ", " sees.", ("a bird " * 20, "a tree"), 1)
    path = write_slots(tmp_path / "test.jsonl", [
        SLOTS[0]._replace(phrases=SLOTS[0].phrases + ("bird " * 40,)), too_long, SLOTS[1]])
    found = baselines.rank(path, str(language_model), max_seq_length)
    counts, texts = np.array([3, 2]), [f"{slot.before} {slot.after}" for slot in SLOTS]
    phrases = [phrase for slot in SLOTS for phrase in slot.phrases]
    expected = {
        "chance": np.zeros(5), "length": baselines.by_length(SLOTS),
        "BM25": [score(text, phrase, phrases) for text, slot in zip(texts, SLOTS)
                 for phrase in slot.phrases],
        "masked LM": likelihoods(tiny_model, language_model, max_seq_length)}
    assert found == {name: evaluation.rank(counts, np.ones(2), np.array(scores))
                     for name, scores in expected.items()}
    np.testing.assert_allclose(baselines.by_bm25(SLOTS), expected["BM25"], rtol=1e-5)


def test_the_length_that_is_like_the_clauses_around_comes_first():
    scores = baselines.by_length([
        SlotExample("a b c, ", ", a b c d e.", ("x", "x x x x", "x x x"), 1)])
    assert scores.argsort().tolist() == [0, 2, 1] and scores[1] == 0


def likelihoods(model, language_model, max_seq_length):
    """The mean log-probability of each phrase of SLOTS in its slot, one by one."""
    tokenizer, found = FullTokenizer(model.vocab_file), []
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.int32, [None, None])
        outputs = log_probabilities(model.config(), inputs)
        tf.train.Saver().restore(session, str(language_model / "model.ckpt"))
        for slot in SLOTS:
            for phrase in slot.phrases:
                ids, first, wanted = one_slot(tokenizer, slot, phrase, max_seq_length)
                values = session.run(outputs, {inputs: [ids]})
                found.append(np.mean([values[first + place, token]
                                      for place, token in enumerate(wanted)]))
    assert np.ptp(found) > 0.1
    return found


def one_slot(tokenizer, slot, phrase, max_seq_length):
    """(ids, the slot's first position, the phrase's ids), cut as a pair is."""
    before, tokens, after = map(tokenizer.tokenize, (slot.before, phrase, slot.after))
    while 3 + 2 * len(tokens) + len(before) + len(after) > max_seq_length:
        if len(before) > len(after):
            before = before[1:]
        else:
            after = after[:-1]
    whole = ["[CLS]", *before, *["[MASK]"] * len(tokens), *after, "[SEP]"]
    return (tokenizer.convert_tokens_to_ids(whole), 1 + len(before),
            tokenizer.convert_tokens_to_ids(tokens))
