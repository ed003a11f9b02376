"""The files of GLUE's tasks, and their examples as our code reads them."""

import os

from commands import arguments
from run_classifier import define_flags
from tasks import user_files
from tasks.table import TASKS, Task

# Quotes that do not pair, spaces at the ends, a line end that only Unicode knows, a byte
# order's neighbour, an empty field: what csv readers and line splitters stumble over.
NASTY = ('He said "no', "two  spaces and one at the end ", "a\u2028b\x85c\x0bd",
         "caf\u00e9 \u732b \U0001f600", "")
MNLI_HEADER = ("index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
               "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label").split()
MNLI_TEST_HEADER = MNLI_HEADER[:10]
XNLI_HEADER = ("language gold_label sentence1_binary_parse sentence2_binary_parse "
               "sentence1_parse sentence2_parse sentence1 sentence2 promptID").split()
MRPC_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]


def write_rows(directory, name: str, rows, end: str = "\n") -> None:
    path = os.path.join(str(directory), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write("".join("\t".join(row) + end for row in rows).encode("utf-8"))


def write_fixtures(directory) -> None:
    """The tasks of the original in their official layout, a folder each."""
    nli_labels = ("contradiction", "entailment", "neutral")
    write_rows(directory, "cola/train.tsv",
               [["gj04", str(i % 2), "*", text] for i, text in enumerate(NASTY)])
    write_rows(directory, "cola/dev.tsv", [["gj04", "1", "", text] for text in NASTY], "\r\n")
    write_rows(directory, "cola/test.tsv", [["index", "sentence"]] + [
        [str(i), text] for i, text in enumerate(NASTY)])
    mnli = [["0", "0", "0n", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)", text,
             NASTY[-1 - i], nli_labels[i % 3], nli_labels[i % 3]]
            for i, text in enumerate(NASTY)]
    for name in ("train", "dev_matched", "dev_mismatched"):
        write_rows(directory, f"mnli/{name}.tsv", [MNLI_HEADER] + mnli)
    write_rows(directory, "mnli/test_matched.tsv",
               [MNLI_TEST_HEADER] + [row[:10] for row in mnli])
    mrpc = [[str(i % 2), "702876", "702977", text, NASTY[-1 - i]] for i, text in enumerate(NASTY)]
    for name in ("train", "dev", "test"):
        write_rows(directory, f"mrpc/{name}.tsv", [MRPC_HEADER] + mrpc)
    write_rows(directory, "xnli/multinli/multinli.train.zh.tsv", [["premise", "hypo", "label"]] + [
        [text, NASTY[-1 - i], ("contradictory", "entailment", "neutral")[i % 3]]
        for i, text in enumerate(NASTY)])
    write_rows(directory, "xnli/xnli.dev.tsv", [XNLI_HEADER] + [
        [language, nli_labels[i % 3], "", "", "", "", text, NASTY[-1 - i], "1"]
        for i, text in enumerate(NASTY) for language in ("ar", "zh")])


def our_examples(task_name: str, split_name: str, data_dir: str):
    task = TASKS[task_name].within(data_dir)
    return list(getattr(task, split_name).examples(task.kind))


def user_task(folder, sets, *labels, **flags) -> Task:
    """The task of a user's files in a folder. `labels`: of a trained model, if there is one."""
    values = define_flags()
    values(["", *arguments({"data_dir": folder, **flags})])
    return user_files.make_task(values, sets, *labels)
