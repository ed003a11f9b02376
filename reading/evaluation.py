"""Answers questions with a trained model, writes the answers, and scores them.

The questions are answered part by part, so that memory does not grow with their number; all windows
of a question are in the same part.
"""

import contextlib
import json
import math
import os
from typing import Any, Callable, ContextManager, Dict, Iterator, Optional, Tuple

from encoder import model_files
from engine import checkpoints, files, inference, log
from engine.inference import Predictor
from engine.progress import Counter
from engine.training import run, summaries
from engine.training.evaluations import Evaluate
from reading import answers, measures, model
from reading.answers import Answers
from reading.data import QuestionSet
from reading.scores import Scores
from reading.training import N_BEST, NULL_ODDS, PREDICTIONS, RESULTS, Job

# --measure → how answers are compared, if all questions have one, and if some have none.
MEASURES = {"squad": (measures.squad, measures.squad_2), "cmrc": (measures.cmrc, measures.cmrc)}
_WINDOWS_AT_A_TIME = 2048


def metrics(may_have_none: bool) -> Tuple[str, ...]:
    """The results by which the best checkpoint can be chosen, the default first."""
    return ("f1", "exact", "best_f1", "best_exact") if may_have_none else ("f1", "exact_match")


def answer(job: Job, questions: QuestionSet, predictor: Predictor, batch_size: int,
           advance: Callable[[int], None]) -> Iterator[Tuple[str, Tuple[str, ...], Answers]]:
    """The id of each question, its right answers, and those of the model, in the file's order.

    Args:
        predictor: with the values of a checkpoint.
        batch_size: windows per replica and step.
        advance: called with the number of windows of each finished step.
    """
    for part in questions.parts(_WINDOWS_AT_A_TIME):
        logits = predictor.predict(questions.source(part), batch_size, advance)
        yield from answers.find_all(questions, part, logits, job.answers)


def evaluator(job: Job, questions: Optional[QuestionSet]) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on these questions."""
    def results_of(predictor: Predictor, advance: Callable[[int], None]) -> Dict[str, float]:
        return _score(job, questions, predictor, job.settings.evaluation.eval_batch_size, advance)

    return inference.scorer(lambda checkpoint: job.forward, lambda: _source(questions), job.devices,
                            results_of)


def _source(questions: QuestionSet):
    return questions.source(slice(0, questions.num_questions))


def _score(job: Job, questions: QuestionSet, predictor: Predictor, batch_size: int,
           advance: Callable[[int], None],
           write: Callable[[str, Answers], None] = lambda identity, found: None
           ) -> Dict[str, float]:
    """The results of all questions; none if the file does not have their answers.

    Args:
        write: called with the id of each question and its answers.
    """
    may_have_none = job.windows.version_2_with_negative
    scores = Scores(MEASURES[job.measure][may_have_none], may_have_none=may_have_none)
    for identity, right, found in answer(job, questions, predictor, batch_size, advance):
        scores.add(found.text, right, found.null_odds or 0.0)
        write(identity, found)
    return scores.results() if questions.is_labelled else {}


def score(job: Job, questions: QuestionSet, batch_size: int, *, writes_predictions: bool) -> None:
    """Answers the questions; writes the answers and, if the file has the right ones, the results.

    Raises:
        UserError: there is no trained model, or it does not match the job.
    """
    checkpoint = trained_checkpoint(job)
    log.info(f"Answering with {checkpoint.path} (step {checkpoint.global_step})")
    with Predictor(job.forward, _source(questions), job.devices) as predictor, Counter(
            "Answering", unit="windows", total=len(questions)) as counter:
        predictor.restore(checkpoint)
        if writes_predictions:
            with _prediction_files(job) as write:
                results = _score(job, questions, predictor, batch_size, counter.advance, write)
        else:
            results = _score(job, questions, predictor, batch_size, counter.advance)
    if results:
        _write_results(job, results, checkpoint.global_step)


@contextlib.contextmanager
def _prediction_files(job: Job) -> Iterator[Callable[[str, Answers], None]]:
    """A function that writes the answers to a question into the files of the original.

    The files get their names when all is written.
    """
    names = [PREDICTIONS, N_BEST, *([NULL_ODDS] if job.windows.version_2_with_negative else [])]
    with contextlib.ExitStack() as stack:
        entries = {name: stack.enter_context(_json_object(os.path.join(
            job.settings.output_dir, name))) for name in names}

        def write(identity: str, found: Answers) -> None:
            entries[PREDICTIONS](identity, found.text)
            entries[N_BEST](identity, found.n_best())
            if NULL_ODDS in entries:
                entries[NULL_ODDS](identity, found.null_odds)

        yield write
    log.info(f"Answered: {job.settings.output_dir}/{PREDICTIONS}")


@contextlib.contextmanager
def _json_object(path: str) -> Iterator[Callable[[str, Any], None]]:
    """A function that writes an entry of a JSON object, in the layout of the original's files."""
    with files.output(path) as file:
        is_empty = [True]

        def write(key: str, value: Any) -> None:
            entry = json.dumps({key: value}, indent=4)
            file.write(("{" if is_empty[0] else ",") + entry[1:-len("\n}")])
            is_empty[0] = False

        yield write
        file.write("{}\n" if is_empty[0] else "\n}\n")


def trained_checkpoint(job: Job) -> checkpoints.Checkpoint:
    """The best or else the newest checkpoint of the output directory, or else --init_checkpoint.

    Raises:
        UserError: there is none, it belongs to another run, or it does not answer questions.
    """
    checkpoint, flag = run.find_trained(job.settings, job.facts())
    model.require_head(checkpoint, flag)
    model_files.check_layers(checkpoint, job.config, flag)
    return checkpoint


def _write_results(job: Job, results: Dict[str, float], global_step: int) -> None:
    """Writes and logs the scores, as lines `name = value` and as JSON."""
    output_dir = job.settings.output_dir
    written = {**results, "global_step": global_step}
    files.write_text(os.path.join(output_dir, RESULTS[0]),
                     "".join(f"{name} = {value}\n" for name, value in written.items()))
    files.write_json(os.path.join(output_dir, RESULTS[1]), {
        name: value if math.isfinite(value) else None for name, value in written.items()})
    summaries.write_evaluation(output_dir, results, global_step)
    log.results(written)
