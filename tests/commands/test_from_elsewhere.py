"""Commands of other projects, and ours in their place.

docs/from-elsewhere.md has their documented commands and the list of their flags.
"""

import importlib
import json
import os
import re
import shlex
import shutil

import numpy as np
import pytest

from commands import ends_with_error
from conftest import WORDS, checkpoint_values, on_tensorflow_1, sentences
from engine.checkpoints import checkpoints
from engine.cli import command
from masked_lm import write_tiny_masked_lm
from pages import text_of
from pretraining_files import write_frozen
from reading_files import write_made_up
from rewriting_files import made_up_texts
from scripts.flags_page import commands
from tagging_files import columns, made_up
from task_files import MRPC_HEADER, write_rows

PAGE = text_of("docs/from-elsewhere.md")
# Their command, our program, and the result.
ROWS = re.findall(r"^\| `(\w+\.\w+ -[^`]*)` \| (`[^|]*`) \| ([^|]*) \|$", PAGE, re.MULTILINE)
ANSWERS = re.findall("^[^#\n]+: (.*)$", text_of("docs/flags-of-others.txt"), re.MULTILINE)


def module_of(program):
    """The command that a page calls `python -m name` or `name.py`."""
    name = program.strip("`").split(" ")[-1]
    return importlib.import_module(re.sub(r"\.py$", "", name))


def type_in(module, arguments):
    """Runs a command in this process."""
    command.run(module.main, module.define_flags(), usage="", argv=[module.__file__, *arguments])


def test_the_list_of_other_projects_flags_names_flags_that_exist():
    flags = {name: set(importlib.import_module(name).define_flags()) for name in commands()}
    for answer in ANSWERS:
        for named, other in re.findall(r"--(\w+)\S*(?: of ([a-z_]+\.[a-z_]+))?", answer):
            assert named in (flags[other] if other in flags else set.union(*flags.values())), answer


@pytest.mark.parametrize("arguments, expected", [
    (["--data_dir=x", "--task_name=abuse"], "unknown; choose from cola"),
    (["--task_name=ad"], "--task_name=ad: here, python -m rewriting.run does that task; or, in its "
     "place, --processor=FILE"),
    (["--task_name=abuse"], "or file for files of your own; or, in its place, --processor=FILE"),
    (["--misspelt", "--train_batch_siz=3"], "Unknown command line flag 'misspelt'")])
def test_run_classifier_names_what_to_type(arguments, expected, capsys):
    run_classifier = importlib.import_module("run_classifier")
    with ends_with_error(capsys, expected):
        type_in(run_classifier, ["--do_train", *arguments])


def test_the_rows_of_the_page_name_flags_that_exist():
    """Of our program, or of the command that prepares its input."""
    flags = {flag for name in commands() for flag in importlib.import_module(name).define_flags()}
    for _, program, result in ROWS:
        assert os.path.exists(module_of(program).__file__)
        assert result in ("runs", "`not included`") or set(re.findall(r"`--(\w+)", result)) & flags, result
        assert set(re.findall(r"`--(\w+)", result)) <= flags, result


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """What the documented commands read: a model with 512 positions, GLUE, SQuAD, texts."""
    directory = tmp_path_factory.mktemp("elsewhere")
    (directory / "bert").mkdir()
    shutil.copy(tiny_model.vocab_file, str(directory / "bert"))
    config = tiny_model.config(num_hidden_layers=1, max_position_embeddings=512).to_dict()
    (directory / "bert" / "bert_config.json").write_text(json.dumps(config))
    checkpoints.write_checkpoint(str(directory / "bert" / "bert_model.ckpt"), {
        **checkpoint_values(tiny_model.init_checkpoint),
        "bert/embeddings/position_embeddings": np.zeros([512, 16], np.float32)})
    texts = sentences(80, seed=11)
    (directory / "tmp").mkdir()
    (directory / "tmp" / "input.txt").write_text("the cat ||| a dog\n")
    (directory / "sample_text.txt").write_text("\n".join(texts[:40] + [""] + texts[40:]) + "\n")
    for name in ("train", "dev", "test"):
        write_rows(directory, f"CoLA/{name}.tsv",
                   [["x", str(i % 2), "", text] for i, text in enumerate(texts)])
        write_rows(directory, f"MRPC/{name}.tsv", [MRPC_HEADER] + [
            [str(i % 2), "1", "2", text, texts[-1 - i]] for i, text in enumerate(texts)])
    for name in ("train", "dev"):
        write_made_up(directory / f"{name}-v1.1.json")
    return directory


# Paths of the documented commands, and what is in their place in `folder`; its model has a layer.
PATHS = {"$TRAINED_CLASSIFIER": "{}/tmp/mrpc_output", "$GLUE_DIR": "{}", "$SQUAD_DIR": "{}",
         "/google-bert": "{}", "$BERT_BASE_DIR": "{}/bert", "/data/bert/uncased_L-12_H-768_A-12": "{}/bert",
         "./": "{}/", "=/tmp": "={}/tmp", "-1,-2,-3,-4": "-1"}


@on_tensorflow_1
def test_documented_commands_give_their_results(folder):
    for theirs, program, result in ROWS:
        if result == "runs":
            typed = re.sub("|".join(map(re.escape, PATHS)),
                           lambda match: PATHS[match.group()].format(folder), theirs)
            type_in(module_of(program), shlex.split(typed)[1:])
    written = [folder / name for name in (
        "tmp/mrpc_output/eval_results.txt", "tmp/mrpc_output/test_results.tsv",
        "tmp/tf_examples.tfrecord", "tmp/pretraining_output/eval_results.txt",
        "tmp/squad_base/predictions.json", "bert_dir/eval_results.txt", "tmp/output.jsonl")]
    assert [path for path in written if not path.exists()] == []
    assert len((folder / "tmp" / "mrpc_output" / "test_results.tsv").read_text().split("\n")) == 81


# The commands in each section, in order.
OURS = [
    (section.split("\n")[0].lstrip("# "),
     re.findall("^.*python.*$", "\n".join(shell), re.MULTILINE))
    for section in re.split("^## ", PAGE.replace("\\\n", ""), flags=re.MULTILINE)
    for shell in [re.findall(r"```shell\n(.*?)```", section, re.DOTALL)] if shell]


# What our commands get in place of what the page says: paths, weights, cards, sizes, batches and steps.
TOYS = {r"\$BERT": "released", r"--n(um)?_gpus=\d+": "--num_cpu_replicas=1", r"--student=[\d,]+": "--student=1,12,12,24",
        r"_seq_length=\d+": "_seq_length=96", r"_stride=\d+": "_stride=20",
        r"_batch_size=\d+": "_batch_size=8", r"_epochs=[\d.]+": "_epochs=1",
        r"(_accumulation|_train|_warmup|_checkpoints|_every)_steps=\d+": r"\1_steps=2"}


def type_ours(line):
    for real, toy in TOYS.items():
        line = re.sub(real, toy, line)
    program, _, arguments = line.partition("python ")[2].partition(" --")
    type_in(module_of(f"`{program}`"), shlex.split(f"--{arguments}"))


@pytest.fixture(scope="module")
def workplace(tiny_model, tmp_path_factory):
    """What our commands read, under the names that the page gives them."""
    directory = tmp_path_factory.mktemp("workplace")
    write_tiny_masked_lm(tiny_model, directory / "released", hidden_size=24, num_attention_heads=12,
                         max_position_embeddings=512)
    texts, rows = sentences(24, seed=11), made_up_texts(40)
    for name in ("train", "dev", "test"):
        write_rows(directory, f"glue/QQP/{name}.tsv", ["id qid1 qid2 question1 question2 is_duplicate".split()] + [
            ["1", "2", "3", text, texts[-1 - i], str(i % 2)] for i, text in enumerate(texts)])
        write_rows(directory, f"glue/MRPC/{name}.tsv", [MRPC_HEADER] + [
            [str(i % 2), "1", "2", text, texts[-1 - i]] for i, text in enumerate(texts)])
        write_rows(directory, f"glue/SST-2/{name}.tsv", [["sentence", "label"]] + [
            [text, str(i % 2)] for i, text in enumerate(texts[:6])])
        write_rows(directory, f"google-bert/CoLA/{name}.tsv", [
            ["x", str(i % 2), "", text] for i, text in enumerate(texts)])
        write_rows(directory, f"high_level/{name}.tsv", [
            ["x", "y", ("zero", "one", "two")[i % 3], text] for i, text in enumerate(texts)])
    for name, lines in (("corpus.txt", [*texts[:12], "", *texts[12:]]), ("texts.txt", rows),
                        ("ins.all", rows), ("new.txt", rows[:3]), ("sentences.txt", texts[:5]),
                        ("glove.6B.300d.txt", [f"{word} {' '.join(['0.1'] * 300)}"
                                               for word in WORDS])):
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    for name in ("train", "dev"):
        (directory / "squad").mkdir(exist_ok=True)
        (directory / "conll2003").mkdir(exist_ok=True)
        write_made_up(directory / "squad" / f"{name}-v1.1.json")
        (directory / "conll2003" / f"{name}.txt").write_text(columns(made_up(16, seed=1), "iob2"))
    for name in ("training", "test"):
        (directory / name).mkdir()
        write_frozen(directory / name / "part.tfrecord", 8, length=96, predictions=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        type_ours("python run_classifier.py --task_name=sst-2 --data_dir=glue/SST-2 --do_train "
                  "--init_checkpoint=$BERT --train_batch_size=32 --output_dir=finetuned")
        type_ours("python -m encoder.convert --from_tensorflow=$BERT --output_dir=bert-base-cased")
    return directory


def outputs_of(line):
    """The files and folders that a command of ours writes."""
    return re.findall(r"--output_(?:dir|file)=(\S+)", line)


@pytest.mark.parametrize("section, lines", OURS, ids=[section for section, _ in OURS])
def test_the_commands_of_a_section_run_one_after_another(section, lines, workplace, tmp_path,
                                                         monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(str(workplace), str(tmp_path / "workplace")))
    for line in lines:
        type_ours(line)
        assert all(os.path.getsize(path) for path in outputs_of(line)), line
    errors = capsys.readouterr().err
    if section == "TinyBERT and fast_td":
        # Both stages have learned from these, which were prepared for the first one.
        assert len(re.findall(r"Preparing \S*augmented/train\.tsv: \d+ examples", errors)) == 1
        assert os.listdir("prepared") and not os.path.exists("student/store")
