"""How fast cards are: training, start-up, evaluation, augmentation, distillation, scaling."""

import contextlib
import functools
import json
import os
import subprocess
import tempfile
import time
from typing import Any, Dict, NamedTuple, Tuple

import numpy as np

from benchmarks import report, scaling, startup
from benchmarks.gpu_stages import common, tracing
from benchmarks.gpu_stages.common import Machine
from benchmarks.gpu_stages.correctness import write_task

import modeling
import tensorflow.compat.v1 as tf
from augmentation.masked_lm import MaskedLanguageModel, WordPositions
from distillation import model as distillation_model
from distillation.teacher import Teacher
from encoder import classifier, pretraining_heads
from engine.data.batches import Source
from engine.devices.precision import FLOAT16, FLOAT32, TF32
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Forward
from engine.training.settings import TrainingSettings
from pretraining import model as pretraining_model
from tokenization import BatchTokenizer

TOY_CARDS = 2
TOKENS_PER_STEP = 8192  # of a replica, in the tables of trainings
STUDENT = dict(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200)
TOY_STUDENT = dict(num_hidden_layers=1)


class Cell(NamedTuple):
    """A training of the tables."""
    size: str  # "base" or "large"
    length: int
    precision: str
    aid: str = ""  # "", "xla", "recompute_layers", or what the process has in its environment
    num_replicas: int = 1

    @property
    def name(self) -> str:
        """For the stage and its file."""
        cards = f"-{self.num_replicas}-cards" if self.num_replicas > 1 else ""
        parts = (self.size, str(self.length), self.precision, self.aid)
        return "-".join(filter(None, parts)) + cards

    def settings(self, batch_size: int) -> TrainingSettings:
        """How to train."""
        aids = {self.aid: True} if self.aid in ("xla", "recompute_layers") else {}
        return common.settings(batch_size, precision=self.precision, **aids)


def pretraining(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """Both objectives of pretraining, all tokens full."""
    common.prepare(cell.precision, cell.aid == "xla")
    devices = machine.devices(cell.num_replicas)
    forward, source = _pretraining(cell, machine)
    batch = 4 if machine.toy else TOKENS_PER_STEP // cell.length
    found = common.measure_what_fits(forward, source, devices, cell.settings(batch))
    return {**found, **_reached(found["sequences_per_second"], cell, machine)}


def trace(machine: Machine) -> Dict[str, Any]:
    """Where the time of a step of fine-tuning BERT-base goes, on all cards: float16, 128 tokens."""
    precision = TF32 if machine.toy else FLOAT16
    common.prepare(precision)
    config, traced = machine.config("base"), tracing.Traced()
    source = common.examples(config, machine.length(128), label_ids=common.classes)
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(common.Enough):
        common.train(classifier.forward_of(config, 2), source,
                     machine.devices(TOY_CARDS if machine.toy else machine.num_cards),
                     common.settings(4 if machine.toy else 32, precision=precision), 100, directory,
                     hooks=[traced])
    kernels = tracing.kernels(traced.step_stats)
    return {**tracing.summary(kernels),
            "files": {"trace.svg": tracing.picture(kernels),
                      "trace.json": tracing.chrome_trace(traced.step_stats)}}


def largest_batch(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """The largest batch of a doubling and of the step in between that fits a card's memory."""
    common.prepare(cell.precision, cell.aid == "xla")
    devices = machine.devices()
    forward, source = _pretraining(cell, machine)
    limit = 8 if machine.toy else len(source.lengths)

    def fits(size: int) -> bool:
        try:
            common.measure(forward, source, devices, cell.settings(size), 2)
        except UserError as error:
            if not common.is_out_of_memory(error):
                raise
            return False
        return True

    size = 2 if machine.toy else 16
    if not fits(size):
        return {"largest_batch": f"less than {size}"}
    while size * 2 <= limit and fits(size * 2):
        size *= 2
    if size * 2 > limit:
        return {"largest_batch": f"at least {size}"}
    return {"largest_batch": size * 3 // 2 if fits(size * 3 // 2) else size}


def _pretraining(cell: Cell, machine: Machine) -> Tuple[Forward, Source]:
    config, length = machine.config(cell.size), machine.length(cell.length)
    count = _masked(length)
    source = common.examples(
        config, length,
        masked_lm_positions=lambda size: np.tile(
            np.arange(1, count + 1, dtype=np.int32), (size, 1)),
        masked_lm_ids=lambda size: np.ones([size, count], np.int32),
        masked_lm_weights=lambda size: np.ones([size, count], np.float32),
        masked_lm_mean_weight=lambda size: np.full(size, count, np.float32),
        next_sentence_labels=common.classes)
    return pretraining_model.forward_of(config, next_sentences=True), source


def _masked(length: int) -> int:
    """Masked tokens, as in Google's and NVIDIA's pretraining: 20 of 128, 80 of 512."""
    return max(length * 20 // 128, 2)


def _reached(sequences_per_second: float, cell: Cell, machine: Machine) -> Dict[str, Any]:
    config, length = machine.config(cell.size), machine.length(cell.length)
    count, hidden = _masked(length), config.hidden_size
    masked_words = 3 * count * 2 * hidden * (hidden + config.vocab_size)
    return {"tflops": sequences_per_second / 1e12 * (
        scaling.our_flops(_shape(config), length, outputs=count + 1) + masked_words)}


def _shape(config: modeling.BertConfig) -> scaling.Shape:
    return scaling.Shape("", config.num_hidden_layers, config.hidden_size)


def start_up(machine: Machine) -> Dict[str, Any]:
    """Seconds from process start to the end of step 1, BERT-base, one card and all cards."""
    answer = {}
    for num_replicas in sorted({1, machine.num_cards}):
        with tempfile.TemporaryDirectory() as directory:
            flags = [*write_task(machine, directory, "base"), "--train_batch_size=4",
                     *machine.device_flags(num_replicas)]
            answer[f"seconds with {num_replicas}"] = startup.our_seconds(flags)
    return answer


def evaluation(machine: Machine) -> Dict[str, Any]:
    """Predicting with BERT-base at 128 full tokens, after a first pass."""
    config, length = machine.config("base"), machine.length(128)
    forward, batch = classifier.forward_of(config, 2), 4 if machine.toy else 128
    source, devices = common.examples(config, length, 16 * batch), machine.devices(training=False)
    with common.saved_model(forward, source) as start, Predictor(
            forward, devices) as predictor:
        predictor.restore(start)
        predictor.predict(source, batch)
        begin = time.time()
        predictor.predict(source, batch)
        rate = 16 * batch / (time.time() - begin)
    return {"batch": batch, "sequences_per_second": rate,
            "tflops": rate * scaling.our_flops(_shape(config), length) / 3 / 1e12}


def augmentation(machine: Machine) -> Dict[str, Any]:
    """Candidates for masked words in texts of 128 tokens, with BERT-base, after a first pass."""
    common.prepare(FLOAT32)
    config, batch = machine.config("base"), 4 if machine.toy else 128
    devices, words, width = machine.devices(training=False), 8 * batch, machine.length(128) - 2
    ids = np.random.RandomState(0).randint(5, config.vocab_size, words * width).astype(np.int32)
    positions = WordPositions(ids, np.arange(words) * width, np.full(words, width),
                              np.arange(words) % width)
    with tempfile.TemporaryDirectory() as directory:
        write_task(machine, directory, "base", count=0)
        tokenizer = BatchTokenizer(os.path.join(directory, "vocab.txt"))
    forward = functools.partial(_masked_lm, config)
    with common.saved_model(forward, common.examples(config, 8, 1)) as start, MaskedLanguageModel(
            config, start, tokenizer, devices,
            max_seq_length=width + 2, num_candidates=15, per_replica_batch_size=batch) as model:
        model.candidates(positions)
        begin = time.time()
        model.candidates(positions)
        return {"tokens": width + 2, "words_per_second": words / (time.time() - begin)}


def _masked_lm(config: modeling.BertConfig, features, mode) -> tf.Tensor:
    """All variables of the masked language model."""
    model = modeling.BertModel(config, mode.is_training, features["input_ids"])
    return pretraining_heads.masked_lm_logits(
        modeling.reshape_to_matrix(model.get_sequence_output()), model.get_embedding_table(),
        config)


def distillation(machine: Machine) -> Dict[str, Any]:
    """Stage 1: TinyBERT's student learns the states and the attention of BERT-base, 128 tokens."""
    config, student = machine.config("base"), machine.config("base", **(
        TOY_STUDENT if machine.toy else STUDENT))
    source = common.examples(config, machine.length(128))
    devices = machine.devices()
    with common.saved_model(classifier.forward_of(config, 2), source) as start:
        forward = distillation_model.intermediate(
            student, Teacher(config, start, None), attention=True)
        return common.measure_what_fits(forward, source, devices,
                                        common.settings(4 if machine.toy else 64))


def huggingface(precision: str, machine: Machine) -> Dict[str, Any]:
    """Fine-tuning of BERT-base at 128 full tokens, ours and Hugging Face's on PyTorch, in turn."""
    check = [machine.huggingface_python, "-c", "import torch, transformers"]
    if subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        raise UserError(f"{machine.huggingface_python} has no torch and transformers")
    ours = common.apart(fine_tuning, precision, machine)
    config = machine.config("base")
    answer = subprocess.run(
        [machine.huggingface_python, "-m", "benchmarks.peers.huggingface_steps",
         f"--config={json.dumps(config.to_dict())}", f"--length={machine.length(128)}",
         f"--batch_size={ours['batch']}", f"--precision={precision}",
         f"--device={'cpu' if machine.toy else 'cuda'}", f"--num_steps={common.TIMED_STEPS}"],
        cwd=report.ROOT, stdout=subprocess.PIPE, universal_newlines=True, check=True)
    peer = json.loads(answer.stdout.splitlines()[-1])
    return {**ours, **peer, "ours_over_peers":
            ours["sequences_per_second"] / peer["peers_sequences_per_second"]}


def fine_tuning(precision: str, machine: Machine) -> Dict[str, Any]:
    """Our classifier."""
    common.prepare(precision)
    config = machine.config("base")
    source = common.examples(config, machine.length(128), label_ids=common.classes)
    return common.measure_what_fits(
        classifier.forward_of(config, 2), source, machine.devices(),
        common.settings(4 if machine.toy else 64, precision=precision))
