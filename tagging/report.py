"""Writes the report of a tagging run: settings, curves, scores, and sentences with mistakes."""

import os
from typing import Dict, List, Optional, Sequence

from engine import log
from engine.training import run_record, summaries
from tagging.evaluation import Evaluation
from tagging.formats import TaggedFile
from tagging.schemes import Entity
from tagging.training import Job
from tasks import report_facts, report_page
from tasks.report_page import Part, TaggedSentence

_FILE = "report.html"
_MAX_SENTENCES = 20
_MAX_WORDS = 200  # of a sentence on the page
_FIRST_WIDE = 0x2E80  # from here on scripts are written without spaces


def write(job: Job, dev: Optional[TaggedFile], evaluation: Optional[Evaluation]) -> None:
    """Writes report.html into the output directory.

    Args:
        dev: the file that was evaluated on.
        evaluation: None if none was.
    """
    output_dir = job.settings.output_dir
    history = summaries.read_history(output_dir)
    page = report_page.Report(
        title=f"tagging: {os.path.basename(os.path.abspath(output_dir))}",
        facts={"Settings": report_facts.settings("tagging", job.config, job.encoding,
                                                 run_record.load(output_dir)),
               "Environment": {"devices": job.devices.describe(),
                               "replicas": job.devices.num_replicas,
                               **report_facts.peak_memory(history),
                               **report_facts.environment()}},
        history=history, evaluation=list(evaluation.results.items()) if evaluation else [])
    if dev and evaluation:
        page = page._replace(
            per_class=[report_page.ClassScores(row["type"], row["precision"], row["recall"],
                                               row["f1"], row["num_true"])
                       for row in evaluation.per_type],
            tagged=_sentences(dev, evaluation))
    path = os.path.join(output_dir, _FILE)
    report_page.write_report(path, page)
    log.info(f"Report: {path}")


def _sentences(dev: TaggedFile, evaluation: Evaluation) -> List[TaggedSentence]:
    """The sentences with most mistakes. They are read again: the store has only token ids."""
    pairs = list(zip(evaluation.true, evaluation.predicted))
    mistakes = [len(set(true) ^ set(predicted)) for true, predicted in pairs]
    worst = sorted(range(len(pairs)), key=lambda index: -mistakes[index])[:_MAX_SENTENCES]
    wanted = {index for index in worst if mistakes[index]}
    found: Dict[int, TaggedSentence] = {}
    for index, sentence in enumerate(dev.sentences() if wanted else ()):
        if index in wanted:
            true, predicted = pairs[index]
            found[index] = TaggedSentence(parts(sentence.words, true, predicted),
                                          parts(sentence.words, predicted, true))
        if len(found) == len(wanted):
            break
    return [found[index] for index in worst if index in found]


def parts(words: Sequence[str], shown: Sequence[Entity], others: Sequence[Entity]) -> List[Part]:
    """A sentence in parts, each an entity or what is between two.

    Args:
        shown: the entities to show.
        others: those that they are compared with: one that is not among them is a mistake.
    """
    right, found, position = set(others), [], 0
    num_words = min(len(words), _MAX_WORDS)
    for entity in sorted(shown, key=lambda entity: entity.first):
        if entity.first >= num_words:
            break
        found.append(Part(text_of(words, position, entity.first)))
        found.append(Part(text_of(words, entity.first, entity.last + 1), entity.type,
                          entity in right))
        position = entity.last + 1
    rest = text_of(words, position, max(num_words, position))
    found.append(Part(rest + (" ..." if num_words < len(words) else "")))
    return [part for part in found if part.text]


def text_of(words: Sequence[str], first: int, end: int) -> str:
    """Words as running text, with the space that follows them, if one does."""
    return "".join(word + ("" if index + 1 == len(words) or _are_joined(word, words[index + 1])
                           else " ")
                   for index, word in enumerate(words[first:end], first))


def _are_joined(word: str, following: str) -> bool:
    # A word between tabs may be empty.
    return any(ord(char) >= _FIRST_WIDE for char in word[-1:] + following[:1])
