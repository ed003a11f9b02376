"""The baselines rank a slot's phrases by what they say they do."""

import numpy as np
import pytest

import modeling
from bert_reference import load, random_values
from commands import arguments, ends_with_error
from conftest import cpu_devices
from encoder import pretraining_heads
from engine.checkpoints import checkpoints
from engine.cli import command
from engine.inference import Predictor
from rewriting import baselines, data, masked_lm, ranking
from rewriting.slot_files import SlotExample
from rewriting_files import encoding_of, score, write_slots
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

SLOTS = [SlotExample("the cat sees a tree, ", ", and a dog finds it.",
                      ("a bird likes", "unliked", "the old house or the small house"), 1),
             SlotExample("", " . not or and " * 6, ("green river", "dog"), 1)]


def test_the_length_that_is_like_the_clauses_around_comes_first():
    scores = baselines.by_length([
        SlotExample("a b c, ", ", a b c d e.", ("x", "x x x x", "x x x"), 1)])
    assert scores.argsort().tolist() == [0, 2, 1] and scores[1] == 0


def test_bm25_looks_for_the_words_around_the_slot():
    slots = [SlotExample("the old tree ", " a river", ("old river", "house", "tree tree"), 1),
                 SlotExample("no ", "word", ("old",), 1)]
    phrases = [phrase for slot in slots for phrase in slot.phrases]
    np.testing.assert_allclose(
        baselines.by_bm25(slots),
        [score(f"{slot.before} {slot.after}", phrase, phrases)
         for slot in slots for phrase in slot.phrases], rtol=1e-5)


@pytest.fixture(scope="module")
def language_model(tiny_model, tmp_path_factory):
    """The tiny model with a masked-LM head; all of its values are random."""
    prefix = str(tmp_path_factory.mktemp("lm") / "model.ckpt")
    config = tiny_model.config()
    with tf.Graph().as_default(), tf.Session() as session:
        log_probabilities(config, tf.zeros([1, 4], tf.int32))
        load(session, random_values(tf.global_variables()))
        tf.train.Saver().save(session, prefix, write_meta_graph=False)
    return prefix


def log_probabilities(config, input_ids):
    """[1, t, V]: of every position, from the whole sequence output."""
    model = modeling.BertModel(config, False, input_ids)
    states = tf.reshape(model.get_sequence_output(), [-1, config.hidden_size])
    logits = pretraining_heads.masked_lm_logits(states, model.get_embedding_table(), config)
    return tf.nn.log_softmax(logits)


@pytest.mark.parametrize("max_seq_length, num_replicas", [(40, 2), (24, 1)])
def test_the_masked_lm_s_score_is_the_mean_log_probability_of_the_phrase_in_its_slot(
        max_seq_length, num_replicas, tiny_model, language_model, tmp_path):
    config, encoding = tiny_model.config(), encoding_of(tiny_model, max_seq_length)
    path = write_slots(tmp_path / "test.jsonl", SLOTS)
    slot_set = data.load_slots(path, encoding, str(tmp_path), dynamic_padding=True)
    source = masked_lm.source_of(slot_set.pairs)
    with Predictor(masked_lm.forward_of(config), source, cpu_devices(num_replicas)) as predictor:
        predictor.restore(checkpoints.open_checkpoint(language_model))
        found = predictor.predict(source, 2)["log_likelihood"]
    tokenizer = FullTokenizer(tiny_model.vocab_file)
    expected = []
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.int32, [None, None])
        outputs = log_probabilities(config, inputs)
        tf.train.Saver().restore(session, language_model)
        for slot in SLOTS:
            for phrase in slot.phrases:
                ids, first, wanted = one_slot(tokenizer, slot, phrase, max_seq_length)
                values = session.run(outputs, {inputs: [ids]})
                expected.append(np.mean([values[first + place, token]
                                         for place, token in enumerate(wanted)]))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert np.ptp(expected) > 0.1


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


def test_the_command_prints_a_line_for_each_baseline(tiny_model, language_model, tmp_path,
                                                     capsys):
    path = write_slots(tmp_path / "test.jsonl", SLOTS)
    command.run(baselines.main, baselines.define_flags(), usage="", argv=[
        "baselines", *arguments({**tiny_model._asdict(), "init_checkpoint": language_model,
                                 "slots_file": path, "output_dir": tmp_path,
                                 "max_seq_length": 32, "num_cpu_replicas": 2})])
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["ranked by", *ranking.METRICS]
    assert [row[0] for row in rows] == ["chance", "length", "BM25", "masked LM"]
    chance = np.mean([np.mean([1, 1 / 2, 1 / 3]), np.mean([1, 1 / 2])])
    assert float(rows[0][1]) == pytest.approx(chance, abs=1e-3)


def test_all_baselines_rank_the_phrases_that_the_model_can_read(
        tiny_model, language_model, tmp_path, capsys):
    long = SlotExample("a cat ", " sees a dog.", ("a bird " * 20, "a tree"), 1)
    one_too_long = SlotExample("a cat ", " sees.", ("a bird", "a tree", "a house " * 20), 1)
    path = write_slots(tmp_path / "test.jsonl", [long, one_too_long])
    command.run(baselines.main, baselines.define_flags(), usage="", argv=[
        "baselines", *arguments({**tiny_model._asdict(), "init_checkpoint": language_model,
                                 "slots_file": path, "output_dir": tmp_path,
                                 "max_seq_length": 32, "num_cpu_replicas": 1})])
    said = capsys.readouterr()
    chance = dict(line.split("\t")[:2] for line in said.out.splitlines())["chance"]
    assert float(chance) == 0.75, "one slot of two phrases is left"
    assert "2 phrases are left out, and with their own phrase 1 slots" in said.err


def test_a_model_s_flags_without_a_checkpoint_are_refused(tmp_path, capsys):
    path = write_slots(tmp_path / "test.jsonl", SLOTS)
    with ends_with_error(capsys, "--init_checkpoint"):
        command.run(baselines.main, baselines.define_flags(), usage="",
                    argv=["baselines", f"--slots_file={path}", "--vocab_file=vocab.txt"])


def test_slots_that_cannot_be_ranked_are_refused_in_one_line(tmp_path, capsys):
    path = write_slots(tmp_path / "test.jsonl", [SlotExample("a ", "", ("cat",), 1)])
    with ends_with_error(capsys, "nothing to rank"):
        command.run(baselines.main, baselines.define_flags(), usage="",
                    argv=["baselines", f"--slots_file={path}"])


def test_a_checkpoint_without_a_masked_lm_head_is_refused_in_one_line(tiny_model, tmp_path, capsys):
    path = write_slots(tmp_path / "test.jsonl", SLOTS)
    with ends_with_error(capsys, "no masked-LM head (cls/predictions/...)"):
        command.run(baselines.main, baselines.define_flags(), usage="", argv=[
            "baselines", *arguments({**tiny_model._asdict(), "slots_file": path,
                                     "output_dir": tmp_path / "out", "max_seq_length": 32,
                                     "num_cpu_replicas": 1})])
    assert not (tmp_path / "out").exists()
