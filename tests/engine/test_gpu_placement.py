"""A step of every training runs on the cards: nothing in it is left to soft placement.

The graphs are those of the training loop, built for cards that need not be there.
"""

import functools

import numpy as np
import pytest

import gpu_placement
import modeling
from benchmarks.step_graph import needed
from conftest import on_tensorflow_2
from distillation import model as distillation_model
from distillation.teacher import Teacher
from encoder import classifier, label_types
from engine.checkpoints import checkpoints
from engine.data.batches import Source
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.model import Training
from engine.training import loop
from engine.training.step_hook import StepHook
from pretraining import model as pretraining_model
from reading import model as reading_model
from similarity import model as similarity_model
from similarity.model import Objective
from tagging import model as tagging_model
from tagging.data import TagSet
from tagging.model import Tagger
from trainings import settings

import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.skipif(not tf.test.is_built_with_cuda(),
                                reason="this TensorFlow registers no kernels for GPUs")

BATCH, LENGTH, MASKED = 4, 8, 3
CONFIG = modeling.BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2,
                             num_attention_heads=2, intermediate_size=32,
                             max_position_embeddings=LENGTH, type_vocab_size=2)
TOKENS = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), ((LENGTH,), np.int32))
CLASS = {"label_ids": ((), np.int32)}
MASKED_TOKENS = {"masked_lm_positions": ((MASKED,), np.int32),
                 "masked_lm_ids": ((MASKED,), np.int32),
                 "masked_lm_weights": ((MASKED,), np.float32),
                 "masked_lm_mean_weight": ((), np.float32)}
PAIRS = {**dict.fromkeys(("anchor_ids", "anchor_mask"), ((LENGTH,), np.int32)),
         **dict.fromkeys(("candidate_ids", "candidate_mask"), ((1, LENGTH), np.int32)),
         "keys": ((2, 2), np.float32), "scores": ((), np.float32)}
TRIPLES = {**PAIRS, "keys": ((3, 2), np.float32),
           **dict.fromkeys(("candidate_ids", "candidate_mask"), ((2, LENGTH), np.int32))}
TAGS = TagSet(("LOC", "PER"), "iob2")
WORDS = {**dict.fromkeys(("first_pieces", "label_ids"), ((LENGTH,), np.int32)),
         "num_words": ((), np.int32),
         **dict.fromkeys(("opens", "closes", "weights"), ((), np.float32))}
EVERYTHING = dict(precision="float16", gradient_accumulation_steps=2, recompute_layers=True,
                  optimizer="lamb", layer_lr_decay=0.9)


@functools.lru_cache(maxsize=None)
def start():
    """A checkpoint of the encoder, which nobody reads."""
    with tf.Graph().as_default():
        modeling.BertModel(CONFIG, False, tf.zeros([1, 4], tf.int32))
        shapes = {variable.op.name: variable.shape.as_list()
                  for variable in tf.global_variables()}
    return checkpoints.Checkpoint("nowhere", shapes, dict.fromkeys(shapes, tf.float32))


# The trainings of all commands: the model, and the features beside its tokens.
FORWARDS = {
    "one class": (lambda: classifier.forward_of(CONFIG, 2), CLASS),
    "a number": (lambda: classifier.forward_of(CONFIG, 1), {"label_ids": ((), np.float32)}),
    "several classes": (lambda: classifier.forward_of(CONFIG, 5), {"label_ids": ((5,), np.float32)}),
    "pretraining": (lambda: pretraining_model.forward_of(CONFIG, next_sentences=True),
                    {**MASKED_TOKENS, "next_sentence_labels": ((), np.int32)}),
    "a teacher's states": (lambda: distillation_model.intermediate(
        CONFIG, Teacher(CONFIG, start(), None), attention=True), {}),
    "a teacher's outputs": (lambda: distillation_model.prediction(
        classifier.forward_of(CONFIG, 2), label_types.SingleLabel("ab"), temperature=1.0,
        label_weight=0.5), {**CLASS, "teacher_logits": ((2,), np.float32)}),
    "a teacher's vectors": (lambda: distillation_model.prediction(
        similarity_model.forward_of(CONFIG, "mean")), {"teacher_vectors": ((16,), np.float32)}),
    "answers": (lambda: reading_model.forward_of(CONFIG), dict.fromkeys(
        ("start_positions", "end_positions"), ((), np.int32))),
    "tags": (lambda: tagging_model.forward_of(CONFIG, Tagger(TAGS, crf=False)),
             WORDS),
    "tags of a CRF": (lambda: tagging_model.forward_of(CONFIG, Tagger(TAGS, crf=True)),
                      WORDS),
    "ranking": (lambda: similarity_model.training_forward_of(
        CONFIG, "mean", Objective("ranking", symmetric=True), 3, (8, 4)), TRIPLES),
    "ranking of pairs": (lambda: similarity_model.training_forward_of(
        CONFIG, "mean", Objective("ranking"), 2), PAIRS),
    "scores of pairs": (lambda: similarity_model.training_forward_of(
        CONFIG, "max", Objective("score"), 2), PAIRS)}


class Captured(Exception):
    """The graph of a training is complete, and no session of it was made."""


def graph_of(name, output_dir, monkeypatch, *, cards, from_checkpoint=True, **changes):
    """The graph of a training, and all operations of a step."""
    forward, more = FORWARDS[name]
    features = {**TOKENS, **more}
    source = Source(np.full(64, LENGTH), lambda indices, length: {
        feature: np.ones([len(indices), *shape], dtype)
        for feature, (shape, dtype) in features.items()}, LENGTH)
    results = []

    def begin(self):
        original(self)
        graph = tf.get_default_graph()
        results.extend(tensor.op for tensor in self._values.values())
        # The last thing that a step does on each card.
        results.extend(op for op in graph.get_operations() if op.type == "AssignAddVariableOp"
                       and "global_step" in op.inputs[0].op.name)
        raise Captured()
    original = StepHook.begin
    monkeypatch.setattr(StepHook, "begin", begin)
    devices = Devices(tuple(f"/gpu:{card}" for card in range(cards)), "GPU",
                      "nccl" if cards > 1 else "one_device", tf.ConfigProto())
    how = settings(output_dir, BATCH, **changes)._replace(
        init_checkpoint=start() if from_checkpoint else None)
    with pytest.raises(Captured):
        loop.take_steps(loop.Run({}, how, devices, Training(
            len(source.lengths), "", forward(), lambda: source)))
    return results[0].graph, needed(results)


def updates(operations):
    return [op for op in operations if op.type == "ResourceApplyAdam" and "GPU" in op.device]


@pytest.mark.parametrize("name, from_checkpoint, cards, changes", [
    ("one class", True, 1, {}),
    ("one class", True, 2, {}),
    ("one class", False, 2, dict(xla=True, **EVERYTHING)),
    ("one class", True, 1, dict(precision="float16")),
    pytest.param("one class", True, 1, dict(precision="bfloat16"), marks=on_tensorflow_2),
    ("ranking", True, 2, dict(gradient_accumulation_steps=2)),
    *[(name, True, 1, {}) for name in FORWARDS if name != "one class"]])
def test_a_step_runs_on_the_cards(name, from_checkpoint, cards, changes, tmp_path, monkeypatch):
    graph, operations = graph_of(name, tmp_path, monkeypatch, cards=cards,
                                 from_checkpoint=from_checkpoint, **changes)
    in_graph = [op for op in graph.get_operations() if op.type == "ResourceApplyAdam"]
    if "xla" in changes and runtime.COMPILES_UPDATES:
        calls = [op for op in operations if "PartitionedCall" in op.type and "GPU" in op.device
                 and "optimizer_update" in op.get_attr("f").name]
        assert len(calls) == cards and not in_graph
    else:
        assert len(updates(operations)) == len(in_graph) >= cards * 37
    # Of the whole graph: an initializer may hold back its variable.
    assert gpu_placement.kept_on_cpu(graph.get_operations()) == []
    assert gpu_placement.operations_without_kernels(graph, graph.get_operations()) == set()
    assert gpu_placement.copies_through_host(graph, operations) == []
    assert gpu_placement.round_trips(graph, operations) == []


def test_an_initializer_without_a_kernel_for_gpus_would_be_found():
    """It is colocated with its variable; with it, all that reads or updates the variable."""
    def restored(shape, dtype, partition_info=None):
        with tf.device("/cpu:0"):
            return tf.raw_ops.RestoreV2(prefix="nowhere", tensor_names=["x"],
                                        shape_and_slices=[""], dtypes=[dtype])[0]

    with tf.device("/gpu:0"):
        variable = tf.get_variable("x", [2], initializer=restored, use_resource=True)
        read = variable.read_value()
    moved = gpu_placement.kept_on_cpu(tf.get_default_graph().get_operations())
    assert {variable.op.name, read.op.inputs[0].op.name} <= {name.operation for name in moved}
