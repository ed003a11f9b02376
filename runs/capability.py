"""The interface of every capability, `Capability`, and the types that its methods take and return.

Everything else of a command is in `runs.training_command`.
"""

import abc
import copy
from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar,
    Union)

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import model_files
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Source
from engine.data.text_files import OddRows, Path
from engine.devices.devices import Devices
from engine.model import Forward, Mode, Training
from engine.settings import REFUSED, recorded
from engine.training.settings import EpochSchedule, RunSettings
from modeling import BertConfig
from runs.column_finder import Roles
from runs.report_page import Section
from runs.rows import Example


class Job(NamedTuple):
    """A model, the devices and the settings: all that a run needs except its data."""
    model: "Capability"
    devices: Devices
    settings: RunSettings
    predict_batch_size: Optional[int] = None
    trained: Optional[Checkpoint] = None  # the model to use; None: that which is trained


def facts_of(job: Job, data: Training) -> Dict[str, Any]:
    """What identifies the run of a training."""
    return {**job.model.facts(), "training data": data.content_hash, **data.facts,
            **recorded(*job.model.settings, change=REFUSED)}


class Sets(NamedTuple):
    """The sets that a run needs, tokenized. A held-out set has a length, in records; one in `dev` has a content_hash."""
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
    warning: Optional[str] = None  # says that the model knows little more than a constant answer


LEAST_JUDGED = 50  # examples of a dev set; fewer say little of a model


def warning_of_loss(loss: float, baseline: str, bound: float, num_examples: int) -> Optional[str]:
    """Says that a dev set's loss is no lower than that of a constant answer; None if it is."""
    if loss < bound or num_examples < LEAST_JUDGED:
        return None
    return (f"on the dev set this model's loss is {loss:.4g}, and {baseline} has {bound:.4g}: either it has learnt "
            "nothing that holds beyond the training set, as with labels or columns that are mixed up, or it was "
            "trained for so long that it is too sure of its mistakes; compare the metrics, and try fewer epochs")


Predict = Callable[[Source], Dict[str, np.ndarray]]  # the predictions for all examples of a source


class Result(NamedTuple):
    """What is predicted for a text."""
    fields: Sequence[str]  # the columns of a line
    entry: Dict[str, Any]  # the same as a JSON object
    norm: float = 1.0  # of a vector, before its length was made 1
    scores: Sequence[Tuple[str, float]] = ()  # of all that could be predicted; (): it is not one of several


AnyResult = Union[Result, str]  # or why the model cannot read the text


class Encoded(NamedTuple):
    """Some texts as the model reads them: any number of records for each text."""
    source: Source
    # (predictions for all records, each [n, ...]) → a result for each text, in order.
    decode: Callable[[Dict[str, np.ndarray]], Iterable[AnyResult]]
    num_left_out: Sequence[int] = ()  # the tokens of each text that the model does not read; (): none


class Takes(NamedTuple):
    """Which texts an example has that a model reads."""
    least: int  # how many
    most: Optional[int]  # None: any number
    names: Sequence[str]  # of the first ones, for people; the last name is that of all others

    @property
    def pairs(self) -> Optional[bool]:
        """Whether they are pairs; None: texts or pairs."""
        return None if (self.least, self.most) == (1, 2) else self.most == 2

    @property
    def are_several(self) -> bool:
        """Whether there may be more than a pair."""
        return self.most is None or self.most > 2

    def after(self, count: int) -> "Takes":
        """For the rest of an input whose first example has `count` texts: it does not mix single texts and pairs."""
        return self if self.pairs is not None else self._replace(least=count, most=count)

    def allows(self, count: int) -> bool:
        """Whether an example can have so many texts."""
        return self.least <= count and (self.most is None or count <= self.most)

    def describe(self, form: str) -> str:
        """Names the model's inputs, for messages. `form` is the template of an example, such as "[{}]"."""
        if self.most == 1 or self.pairs is None and not self.are_several:
            return "single texts" if self.most == 1 else "single texts or pairs, and not both in one input"
        names = ["first", "second"] if self.pairs else [
            *self.names, *self.names[-1:] * (self.least - len(self.names)), *["..."] * (self.most is None)]
        return f"{'pairs of' if self.pairs else 'several'} texts, each as {form.format(', '.join(names).lower())}"


TEXT = Takes(1, 1, ("Text",))
PAIR = Takes(2, 2, ("First text", "Second text"))
TEXT_OR_PAIR = Takes(1, 2, ("First text", "Second text, to compare (may stay empty)"))


# (a file or part, columns that flags give, --header, what counts bad rows) → its examples, and how many texts they
# have at least.
ReadFile = Callable[[Path, Roles, Optional[bool], OddRows], Tuple[Iterator[Example], int]]


class Reader(NamedTuple):
    """How a trained model reads texts."""
    forward: Forward
    encode: Callable[[List[Example]], Encoded]
    takes: Takes
    columns: Sequence[str]  # the names of the fields of a result
    does: str  # for the service's page: "finds entities in a text"
    pair_columns: Sequence[str] = ()  # the names of the fields for pairs, if it also takes texts
    ranks_first: bool = False  # of the pairs of a query and texts, the texts stand first
    read: Optional[ReadFile] = None  # None: `columns.read_texts`, without a training's columns
    report: Callable[[str], None] = lambda name: None  # see `Encoding.report`; set by `runs.kinds`


class Card(NamedTuple):
    """What the README.md of an export says of this kind of model, in Markdown."""
    summary: str  # what the model does
    labels: Sequence[str]  # in the order of the outputs; none for a model without
    inputs: str  # what the inputs are
    outputs: str
    command: str = "python -m runs.predict --output_dir=export < texts.txt"  # that reads the export


class Capability(abc.ABC):
    """A model of one kind, except its variables: an encoder with a head on it.

    A subclass is a kind of model, and has what commands need to train, evaluate, export and read texts
    with it. An instance is made from flags or, by `open`, from a model folder.

    Attributes of a kind:
        verb: "Tagging", for the log of predictions.
        unit: what a set's records are, in the plural: "windows".
        prediction_files: the names of what `write` writes, which a training outdates.
        inputs: of an export, int32, and how many dimensions each has.
        loss: the name of the loss among the results, which --metric_for_best can name, too.
        length: the class of the settings of a training's length.

    Attributes:
        config: of the encoder.
        encoding: how it reads texts; None if pretraining does not know the vocabulary.
        settings: objects of settings classes that only this kind of training has.
    """
    verb: str
    unit: str
    prediction_files: Sequence[str] = ()
    inputs: Mapping[str, int] = {"input_ids": 2, "input_mask": 2, "segment_ids": 2}
    loss: Optional[str] = "eval_loss"
    length: Type = EpochSchedule
    settings: Sequence[Any] = ()

    def __init__(self, config: BertConfig, encoding: Optional[Encoding]):
        self.config, self.encoding = config, encoding

    @classmethod
    def open(cls, trained: ModelFiles) -> "Capability":
        """The model in a folder, checked against its checkpoint."""
        raise NotImplementedError

    def replaced(self: "Kind", **attributes: Any) -> "Kind":
        """The same model with other values of some attributes."""
        other = copy.copy(self)
        vars(other).update(attributes)
        return other

    def check(self) -> None:  # noqa: B027 (most kinds fit any encoder)
        """Raises a UserError if the model and its encoder do not fit."""

    @abc.abstractmethod
    def facts(self) -> Dict[str, Any]:
        """What identifies a run; "task" is its name."""

    def encoder_facts(self) -> Dict[str, Any]:
        """What identifies the encoder of a run."""
        return {"model config": self.config.to_dict(),
                "vocabulary": self.encoding.vocab_hash,
                "casing (--do_lower_case)": self.encoding.do_lower_case,
                "--max_seq_length": self.encoding.max_seq_length}

    def num_outputs(self) -> Optional[int]:
        """How many outputs the layer must have that a training starts from; None: any number."""
        return None

    def labels_of(self, description: Mapping[str, Any], where: str) -> Sequence[str]:
        """The labels of the outputs, in their order, of a model of this kind; none without labels.

        Args:
            description: the content of its task.json.
            where: the model, for a message that the description is damaged.
        """
        return ()

    def metrics(self) -> Sequence[str]:
        """The metrics for --metric_for_best; the first is its default."""
        return ()

    def require(self, checkpoint: Checkpoint, flag: str) -> None:
        """Raises a UserError, which names the flag, if the checkpoint lacks this head: a layer with `num_outputs`."""
        model_files.require_classifier(checkpoint, flag)
        model_files.check_outputs(checkpoint, self.num_outputs(), flag)

    def load(self, job: Job, values: flags.FlagValues,
             training: Optional[Callable[[Job, Any], Training]] = None) -> Sets:
        """The sets that the flags ask for.

        Args:
            training: makes a training of the training set, for a student of this kind.
        """
        raise NotImplementedError

    def forward(self, sets: Sequence[Any] = (), checkpoint: Optional[Checkpoint] = None) -> Forward:
        """The model that predicts these held-out sets, with the variables of the checkpoint."""
        raise NotImplementedError

    def measure(self, job: Job, held_out: Any, predict: Predict) -> Measured:
        """How good the predictions of a set of `Sets.dev` are."""
        raise NotImplementedError

    def write(self, job: Job, test: Any, suffix: str, predict: Predict) -> Optional[Measured]:
        """Writes what is predicted for the set `suffix` of `Sets.test`.

        Returns:
            The metrics, if it also measures the set.
        """
        raise NotImplementedError

    def page(self, job: Job, measured: Measured) -> List[Section]:
        """Sections of the report, beside metrics and curves."""
        return []

    def describe(self) -> Dict[str, Any]:
        """The entries of task.json, from which `open` makes the model; {}: there is no such file."""
        return {}

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        """The outputs of an export, by name, from the placeholders of `inputs`."""
        raise NotImplementedError

    def card(self) -> Card:
        """What README.md of an export says of the model."""
        raise NotImplementedError

    def reader(self) -> Reader:
        """How the model reads plain texts."""
        raise NotImplementedError


Kind = TypeVar("Kind", bound=Capability)
