"""What a capability hands over, a `Head`, and what its functions take and return.

A `Head` is made of plain functions. They take a `Model`, whose `own` is a value of the capability's:
a tagger's tags, a reader's settings. Everything else of a command is in `runs.command`.
"""

from typing import (
    Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Type,
    Union)

import numpy as np
import tensorflow.compat.v1 as tf

from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.model import Baseline, Forward, Mode
from engine.training.settings import EpochSchedule, RunSettings
from modeling import BertConfig
from runs.columns import Trained
from runs.rows import Example


class Model(NamedTuple):
    """An encoder with a head on it, except its variables: from flags, or from a model folder."""
    own: Any  # what the head is made of, of a type of the capability's
    config: BertConfig
    encoding: Optional[Encoding]  # None if pretraining does not know the vocabulary

    def encoder_facts(self) -> Dict[str, Any]:
        """What identifies the encoder of a run."""
        return {"model config": self.config.to_dict(),
                "vocabulary": self.encoding.vocab_hash,
                "casing (--do_lower_case)": self.encoding.do_lower_case,
                "--max_seq_length": self.encoding.max_seq_length}


class Job(NamedTuple):
    """A model, the devices and the settings: all that a run needs except its data."""
    head: "Head"
    model: Model
    devices: Devices
    settings: RunSettings
    predict_batch_size: Optional[int] = None


class Training(NamedTuple):
    """What a model is trained on, and the loss."""
    num_examples: int
    content_hash: str  # of the data
    forward: Forward
    make_source: Callable[[], Source]  # called only if something is left to train
    facts: Mapping[str, Any] = {}  # identify the run, in addition to those of the head
    description: Mapping[str, Any] = {}  # entries of task.json that only the data determine
    ties_embeddings: bool = False  # the word embeddings are output weights, too
    baseline: Optional[Baseline] = None  # a training whose loss is not below it learns nothing
    loss_unit: float = 1.0  # see `loop.Run`


def facts_of(job: Job, data: Training) -> Dict[str, Any]:
    """What identifies the run of a training."""
    return {**job.head.facts(job.model), "training data": data.content_hash, **data.facts}


class Sets(NamedTuple):
    """The sets that a run needs, tokenized. A held-out set has a length: the number of its records."""
    train: Optional[Training] = None
    # Suffix of the names of the results → set. The set "" chooses the best checkpoint.
    dev: Mapping[str, Any] = {}
    test: Mapping[str, Any] = {}  # by the suffix of the files of predictions

    def held_out(self) -> List[Any]:
        """All sets that are predicted."""
        return [*self.dev.values(), *self.test.values()]


class Measured(NamedTuple):
    """How good a model's predictions of a set are."""
    results: Dict[str, float]  # eval_results.txt
    details: Mapping[str, Any] = {}  # JSON values for eval_results.json alone
    table: Sequence[Mapping[str, Any]] = ()  # rows for the log
    shown: Any = None  # what the report page needs


Predict = Callable[[Source], Dict[str, np.ndarray]]  # the predictions for all examples of a source


class Result(NamedTuple):
    """What is predicted for a text."""
    fields: Sequence[str]  # the columns of a line
    entry: Dict[str, Any]  # the same as a JSON object


AnyResult = Union[Result, str]  # or why the model cannot read the text


class Encoded(NamedTuple):
    """Some texts as the model reads them: any number of records for each text."""
    source: Source
    # (predictions for all records, each [n, ...]) → a result for each text, in order.
    decode: Callable[[Dict[str, np.ndarray]], Iterable[AnyResult]]
    num_left_out: Sequence[int] = ()  # the tokens of each text that the model does not read; (): none


class Reader(NamedTuple):
    """How a trained model reads texts, one by one or in pairs."""
    forward: Forward
    encode: Callable[[List[Example]], Encoded]
    takes_pairs: Optional[bool]  # None: texts or pairs, as the input has them
    columns: Sequence[str]  # the names of the fields of a result
    trained_columns: Optional[Trained] = None  # of the texts in the training's file
    pair_columns: Sequence[str] = ()  # the names of the fields for pairs, if `takes_pairs` is None
    ranks_first: bool = False  # of the pairs of a query and texts, the texts stand first
    report: Callable[[str], None] = lambda name: None  # see `Encoding.report`; set by `runs.kinds`


class Card(NamedTuple):
    """What the README.md of an export says of this kind of model, in Markdown."""
    summary: str  # what the model does
    labels: Sequence[str]  # in the order of the outputs; none for a model without
    inputs: str  # what the inputs are
    outputs: str
    command: str  # of this project that reads the export


class Head(NamedTuple):
    """What a capability puts on the encoder. Errors that the functions raise are UserErrors."""
    verb: str  # "Tagging", for the log of predictions
    unit: str  # of a set's records: "windows"

    # The model: what identifies a run; what is wrong with flags or a checkpoint.
    facts: Callable[[Model], Dict[str, Any]]  # "task" is its name
    require: Callable[[Model, Checkpoint, str], None]  # (..., flag): the checkpoint has this head

    # The data: how sets are loaded, which model predicts them, what is measured and written.
    load: Callable[..., Sets]  # (job, flags); of what a teacher can be, also what makes its `Training`
    forward: Callable[[Model, Sequence[Any], Checkpoint], Forward]  # (..., sets, checkpoint)
    measure: Callable[[Job, Any, Predict], Measured]  # (..., a set of `Sets.dev`)
    # (..., a set of `Sets.test`, its suffix) → the metrics, if it also measures the set.
    write: Optional[Callable[[Job, Any, str, Predict], Optional[Measured]]] = None
    prediction_files: Sequence[str] = ()  # patterns of what it writes, which a training outdates

    # The model folder: the entries of task.json, and the way back.
    describe: Callable[[Any], Dict[str, Any]] = lambda own: {}  # (own); {}: there is no task.json
    open: Optional[Callable[[ModelFiles], Model]] = None

    # The export: outputs by name, for the placeholders `inputs`, int32, of so many dimensions.
    outputs: Optional[Callable[[Model, Dict[str, tf.Tensor], Mode], Dict[str, tf.Tensor]]] = None
    card: Optional[Callable[[Model], Card]] = None
    inputs: Mapping[str, int] = {"input_ids": 2, "input_mask": 2, "segment_ids": 2}

    # `python -m runs.predict`; None for a model that reads no plain texts.
    reader: Optional[Callable[[Model], Reader]] = None
    # (job, what was measured) → parts of `report_page.Report`.
    page: Callable[[Job, Measured], Dict[str, Any]] = lambda job, measured: {}

    check: Callable[[Model], None] = lambda model: None  # head and encoder fit
    num_outputs: Callable[[Any], Optional[int]] = lambda own: None  # of the output layer to load
    metrics: Callable[[Any], Sequence[str]] = lambda own: ()  # (own), for --metric_for_best
    loss: Optional[str] = "eval_loss"  # for --metric_for_best, too
    length: Type = EpochSchedule  # settings class of the length of a training
