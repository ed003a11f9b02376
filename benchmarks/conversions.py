"""Models of Hugging Face's classes come in and go out again: do they compute the same?

  python -m benchmarks.conversions --model=MINILM_HF --texts=SHARED_DATA/qa_en/squad1_dev.json \
    --peer_python=PYTHON

Each class is converted to a model folder, and from there back to Hugging Face. 50 questions (a reader reads their
contexts, too, and a model of multiple choice chooses one of their halves) go through transformers' pipelines and through the model here; all numbers are compared. PEER_PYTHON has torch and transformers.
"""

import os
import re
import tempfile
from typing import Any, Dict, List, Tuple

import numpy as np

from benchmarks import report
from encoder import bert, convert, huggingface, model_files, task_json
from engine.data import batches
from engine.devices import devices
from engine.disk import files
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Outputs
from runs import kinds
from runs.rows import Example
from tagging import formats

TITLE = "Models of Hugging Face: the largest difference of a number"
THERE, HERE, BACK = "there", "here", "back"
PEER = "benchmarks.peers.huggingface_models"
NUM_TEXTS, LONGEST = 50, 400  # characters of a context: one window here and there
# A word of letters and digits is one there, and two here.
MIXED = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")


def read_pairs(path: str) -> List[Tuple[str, str]]:
    """The first questions of a file, one of a context, with the beginnings of their contexts."""
    paragraphs = [paragraph for article in files.read_json(path, "questions")["data"]
                  for paragraph in article["paragraphs"]]
    pairs = [(paragraph["qas"][0]["question"], paragraph["context"][:LONGEST]) for paragraph in paragraphs]
    return [pair for pair in pairs if not MIXED.search(pair[0])][:NUM_TEXTS]


def values_of(folder: str, pairs: List[Tuple[str, str]]) -> List[Any]:
    """What the model here computes, in the form of the peer's."""
    trained = model_files.open_folder(folder, "--model")
    if not trained.description():
        return list(mean_states(trained, pairs))
    model = kinds.model_in(trained)
    is_reader, is_chooser = task_json.is_reader(trained.description()), task_json.is_chooser(trained.description())
    encoded = model.reader().encode([
        Example(pair if is_reader else (pair[0], *halves(pair[1])) if is_chooser else pair[:1]) for pair in pairs])
    if is_chooser:
        logits = predict(trained, encoded.source, lambda *step: model.forward()(*step).predictions)
        return [[share for _, share in result.scores] for result in encoded.decode(logits)]
    outputs = predict(trained, encoded.source, lambda features, mode: model.outputs(
        {name: features[name] for name in model.inputs}, mode))
    if is_reader:
        lengths = encoded.source.lengths
        return [[softmax(outputs[name][row, :length]) for name in ("start_logits", "end_logits")]
                for row, length in enumerate(lengths)]
    if not task_json.is_tagger(trained.description()):
        return list(outputs["probabilities"])
    labels, starts = model.tagger.tags.labels, [
        [start for start, _ in formats.units_of(question)] for question, _ in pairs]
    return [{str(start): [labels[scores.argmax()], softmax(scores).max()] for start, scores in zip(*row)}
            for row in zip(starts, outputs["scores"])]


def halves(text: str) -> Tuple[str, str]:
    return text[:len(text) // 2], text[len(text) // 2:]


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def mean_states(trained: model_files.ModelFiles, pairs: List[Tuple[str, str]]) -> np.ndarray:
    """The mean of a question's last states."""
    encoding, config = trained.encoding(128), trained.config()
    ids, counts = encoding.tokenizer.encode_batch([question for question, _ in pairs])
    rows = [[encoding.tokenizer.cls_id, *row, encoding.tokenizer.sep_id]
            for row in np.split(ids, np.cumsum(counts)[:-1])]

    def fetch(indices: np.ndarray, length: int) -> batches.Features:
        padded = np.zeros((len(indices), length), np.int32)
        for place, index in enumerate(indices):
            padded[place, :len(rows[index])] = rows[index]
        return {"input_ids": padded, "input_mask": (padded > 0).astype(np.int32),
                "segment_ids": np.zeros_like(padded)}

    source = batches.Source(np.array([len(row) for row in rows]), fetch, 128, True)
    return predict(trained, source, lambda features, mode: {"states": bert.pooled(bert.build(
        config, features, mode).get_sequence_output(), features["input_mask"], "mean")})["states"]


def predict(trained: model_files.ModelFiles, source: batches.Source, outputs: Any) -> Dict[str, np.ndarray]:
    with Predictor(lambda features, mode: Outputs(None, outputs(features, mode)),
                   devices.find_devices(devices.DeviceSettings(num_cpu_replicas=1))) as predictor:
        predictor.restore(trained.checkpoint)
        return predictor.predict(source, None)


def difference(ours: List[Any], theirs: List[Any]) -> float:
    """The largest difference of a number; infinite if a tag is another one or a word is missing."""
    largest = 0.0
    for one, other in zip(ours, theirs):
        if isinstance(one, dict):
            other = {start: value for start, value in other.items() if start in one}
            if {start: tag for start, (tag, _) in one.items()} != {start: tag for start, (tag, _) in other.items()}:
                return float("inf")
            one, other = ([value for _, (_, value) in sorted(each.items())] for each in (one, other))
        largest = max(largest, np.abs(np.subtract(one, other)).max())
    return float(largest)


def converted(folder: str, name: str) -> bool:
    """Converts a class's folder and the result again; returns whether it is taken."""
    here = os.path.join(folder, HERE, name)
    try:
        convert.convert_from_huggingface(os.path.join(folder, THERE, name), here)
    except UserError:
        return False
    convert.convert_from_tensorflow(here, os.path.join(folder, BACK, name))
    return True


def compared(names: List[str], folder: str, args: Any) -> List[Dict[str, str]]:
    """The rows of the table, of the classes whose models are in `folder`."""
    pairs, texts = read_pairs(args.texts), os.path.join(folder, "texts.json")
    files.write_json(texts, pairs)
    taken = {name: converted(folder, name) for name in names}
    folders = [os.path.join(folder, place, name) for place in (THERE, BACK) for name in names if taken[name]]
    theirs = report.answer_of(args.peer_python, "-m", PEER, "read", f"--texts={texts}", "--folders", *folders)
    rows = []
    for name, is_taken in taken.items():
        row = {"class": f"`{name}`", "in": "refused", "and back, as": "–"}
        if is_taken:
            ours, back = values_of(os.path.join(folder, HERE, name), pairs), os.path.join(folder, BACK, name)
            differences = [difference(ours, theirs[os.path.join(folder, place, name)]) for place in (THERE, BACK)]
            architecture, = files.read_json(os.path.join(back, huggingface.CONFIG), "config")["architectures"]
            row = {**row, "in": f"{differences[0]:.1e}", "and back, as": f"`{architecture}`, {differences[1]:.1e}"}
        rows.append(row)
    return rows


def main() -> None:
    """Prints the table."""
    parser = report.parser_of(__doc__, "model", "texts", "peer_python")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = report.answer_of(args.peer_python, "-m", PEER, "make", f"--model_dir={args.model}",
                                f"--output_dir={os.path.join(folder, THERE)}")
        rows = compared(made, folder, args)
    report.append(TITLE, rows, **report.versions_of(args.peer_python, "torch", "transformers"))


if __name__ == "__main__":
    main()
