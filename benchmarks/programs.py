"""Programs of ours that `benchmarks.throughput` measures, each without the import of modules.

  python -m benchmarks.programs NAME --argument=VALUE ...

Prints {"rate": what it does in a second}.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List

import numpy as np

from engine.devices import runtime

import modeling
import multigpu_optimizer
import tensorflow.compat.v1 as tf
from augmentation import run as augmentation
from augmentation.candidates import Candidates, parse
from encoder import classifier, model_files
from encoder.encoding import load_encoding
from engine.checkpoints import checkpoints
from engine.data.batches import Source
from engine.data.text_files import OddRows
from engine.devices import devices
from engine.devices.devices import dtype_of
from engine.disk import files
from engine.inference import Predictor
from features import extraction
from reading import data as reading_data
from rewriting import rewrite as rewriting, rewriter, texts as rewriting_texts
from rewriting.scorer import PhraseScorer
from tasks.data import load_texts
from tasks.table import TASKS
from tokenization import BatchTokenizer

BATCH_SIZE, NUM_TEXTS, NUM_CANDIDATES = 8, 64, 15
UPDATES, NUM_TOKENS = 3, 32 * 128
EXCLUDED = ["LayerNorm", "layer_norm", "bias"]


def rate_of(work: Callable[[], int]) -> float:
    """What `work` counts, by the second."""
    start = time.time()
    return work() / (time.time() - start)


def cola_sentences(data_dir: str, most: int) -> List[str]:
    task = TASKS["cola"].within(data_dir)
    examples = task.train.examples(task.kind)
    return [example.texts[0] for example in itertools.islice(examples, most)]


def encoding_of(model: str, length: int = 128):
    return load_encoding(f"{model}/vocab.txt", do_lower_case=True, max_seq_length=length, vocab_size=30522)


# --- Data ----------------------------------------------------------------------------------


def prepare(model: str, data_dir: str, task: str = "cola", store_dir: str = "") -> float:
    """Builds a store from a text file."""
    with tempfile.TemporaryDirectory() as folder:
        return rate_of(lambda: len(load_texts(
            TASKS[task].within(data_dir).train, TASKS[task].kind, encoding_of(model), store_dir or folder)))


def prepare_questions(model: str, train_file: str) -> float:
    settings = reading_data.WindowSettings(version_2_with_negative=True)
    with tempfile.TemporaryDirectory() as folder:
        return rate_of(lambda: len(reading_data.load(
            train_file, encoding_of(model, 384), settings, folder, is_training=True).records))


def one_answer(source: str, copy: str) -> float:
    """Writes a copy with the first answer of each question: Google's code takes no others."""
    content = files.read_json(source, "questions")
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                question["answers"] = question["answers"][:1]
    files.write_json(copy, content)
    return 0.0


def tokenize(model: str, data_dir: str, package: str = "") -> float:
    """Ours, which starts empty, or the `tokenizers` package, which uses all cores."""
    texts, vocab = cola_sentences(data_dir, 10**9), f"{model}/vocab.txt"
    if package:
        from tokenizers import BertWordPieceTokenizer
        theirs = BertWordPieceTokenizer(vocab)
        return rate_of(lambda: len([np.array(encoding.ids, np.int32) for encoding in
                                    theirs.encode_batch(texts, add_special_tokens=False)]))
    ours = BatchTokenizer(vocab)
    return rate_of(lambda: len(ours.encode_batch(texts)[1]))


def create_data(module: str, output_file: str, **flags: str) -> float:
    """A whole command, start-up included."""
    start = time.time()
    subprocess.run([sys.executable, "-m", module, f"--output_file={output_file}",
                    *(f"--{name}={value}" for name, value in flags.items())],
                   stderr=subprocess.DEVNULL, check=True)
    seconds = time.time() - start
    return sum(1 for _ in tf.python_io.tf_record_iterator(output_file)) / seconds


def load_pool(model: str, pool_file: str) -> float:
    """Prepares the phrases of a pool beside its file."""
    rewriter.load_pool(pool_file, encoding_of(model), os.path.dirname(pool_file))
    return 0.0


# --- Models --------------------------------------------------------------------------------


def second_pass(forward: Any, checkpoint: checkpoints.Checkpoint, source: Callable[[], Source],
                batch_size: int = BATCH_SIZE, precision: str = "float32") -> float:
    """Texts a second of a model that has predicted them once."""
    cpu = devices.find_devices(devices.DeviceSettings(num_gpus=0), training=False)
    with Predictor(forward, cpu._replace(dtype=dtype_of(precision))) as predictor:
        predictor.restore(checkpoint)
        predictor.predict(source(), batch_size)
        return rate_of(lambda: len(next(iter(predictor.predict(source(), batch_size).values()))))


def evaluate(model: str, data_dir: str, trained: str, precision: str) -> float:
    config = model_files.open_folder(model, "--model").config()
    with tempfile.TemporaryDirectory() as folder:
        task = TASKS["cola"].within(data_dir)
        texts = load_texts(task.dev, task.kind, encoding_of(model), folder)
        return second_pass(classifier.forward_of(config, 2), checkpoints.latest(trained),
                           lambda: texts.source(with_labels=False), precision=precision)


def features(model: str, input_file: str) -> float:
    """The mean of the last layer's states of each text, tokenizing included."""
    opened = model_files.open_folder(model, "--model")
    return second_pass(
        extraction.forward_of(opened.config(), [-1], "mean"), opened.checkpoint,
        lambda: extraction.tokenize(
            list(extraction.read_texts(input_file, OddRows(""))), encoding_of(model))[1], 32)


def augment(model: str, data_dir: str) -> float:
    """Without words of several WordPieces and without writing."""
    values = augmentation.define_flags()
    values(["augment", f"--init_checkpoint={model}", "--num_gpus=0", f"--M={NUM_CANDIDATES}",
            f"--predict_batch_size={BATCH_SIZE}"])
    with augmentation.open_model(values) as language_model:
        candidates = Candidates(language_model, None)

        def work(texts: List[str]) -> int:
            parsed = [parse(text, language_model.encoding.tokenizer) for text in texts]
            candidates.of_texts(parsed)
            return sum(int((text.positions >= 0).sum()) for text in parsed)

        work(cola_sentences(data_dir, 10))  # warm
        return rate_of(lambda: work(cola_sentences(data_dir, 500)))


def slots_and_phrases(texts: str, pool_file: str, trained: str):
    """The model, the texts, and the pairs that a rewriting of the texts scores."""
    model = PhraseScorer.open(model_files.open_folder(trained, "--trained"))
    phrases = rewriter.load_pool(pool_file, model.encoding, os.path.dirname(pool_file))
    lines = list(itertools.islice(rewriting_texts.read_texts(texts, "--texts"), NUM_TEXTS))
    slots, tried = rewriter.candidates(lines, phrases, model.encoding, 50)
    around = [slots[slot][1] for slot in tried.slots]
    return model, lines, [(texts.before, phrases.phrases([phrase])[0], texts.after)
                          for texts, phrase in zip(around, tried.phrases)]


def rewrite(texts: str, pool_file: str, trained: str) -> float:
    """All of `python -m rewriting.rewrite`, its search included."""
    _, lines, pairs = slots_and_phrases(texts, pool_file, trained)
    values = rewriting.define_flags()
    values(["rewrite", f"--output_dir={trained}", f"--pool_file={pool_file}", "--num_gpus=0",
            f"--predict_batch_size={BATCH_SIZE}", f"--store_dir={os.path.dirname(pool_file)}"])
    with rewriting.Rewrites(values) as stream:
        def work(texts: List[str]) -> int:
            stream.predict(stream.encode(texts))
            return len(pairs)

        work(lines[:8])  # warm
        return rate_of(lambda: work(lines))


# --- The update ----------------------------------------------------------------------------


def update(whose: str = "ours") -> float:
    """Of BERT-base's variables, with random gradients that are in memory already."""
    config = runtime.session_config() if whose == "ours" else tf.ConfigProto()
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        modeling.BertModel(modeling.BertConfig(vocab_size=30522), False, tf.zeros([1, 8], tf.int32))
        pairs = [(_gradient_of(variable), variable) for variable in tf.trainable_variables()]
        op = _our_update(pairs) if whose == "ours" else _googles_update(pairs)
        session.run(tf.global_variables_initializer())
        session.run(op)
        return rate_of(lambda: len([session.run(op) for _ in range(UPDATES)]))


def _gradient_of(variable: tf.Variable) -> Any:
    """Dense, but rows of the word embeddings."""
    is_sparse = "word_embeddings" in variable.name
    shape = [NUM_TOKENS, variable.shape[1]] if is_sparse else variable.shape
    values = tf.convert_to_tensor(tf.get_variable(
        f"{variable.op.name}/gradient", shape, trainable=False,
        initializer=tf.random_normal_initializer()))
    if not is_sparse:
        return values
    indices = np.random.RandomState(0).randint(0, variable.shape[0], NUM_TOKENS)
    return tf.IndexedSlices(values, tf.constant(indices), tf.shape(variable))


def _our_update(pairs: List[Any]) -> tf.Operation:
    return multigpu_optimizer.AdamWeightDecayOptimizer(
        1e-5, weight_decay_rate=0.01, exclude_from_weight_decay=EXCLUDED, clip_norm=1.0
    ).apply_gradients(pairs)


def _googles_update(pairs: List[Any]) -> tf.Operation:
    from bert import optimization
    gradients, variables = zip(*pairs)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    return optimization.AdamWeightDecayOptimizer(
        1e-5, weight_decay_rate=0.01, exclude_from_weight_decay=EXCLUDED
    ).apply_gradients(zip(clipped, variables))


def arguments(words: List[str]) -> Iterator[List[str]]:
    return (word[len("--"):].split("=", 1) for word in words)


PROGRAMS: Dict[str, Callable[..., float]] = {program.__name__: program for program in (
    prepare, prepare_questions, one_answer, load_pool, tokenize, create_data, evaluate, features, augment, rewrite,
    update)}

if __name__ == "__main__":
    print(json.dumps({"rate": PROGRAMS[sys.argv[1]](**dict(arguments(sys.argv[2:])))}))
