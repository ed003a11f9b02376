"""What an error names as the way out is followed, and works."""

import importlib
import os
import re

import pytest

import run_classifier
from commands import ends_with_error, run_here
from conftest import on_tensorflow_2, sentences
from distillation import run as distillation
from pretraining import score
from pretraining_files import LENGTH, PREDICTIONS
from rewriting import rewrite
from similarity import run as similarity
from runs import predict

pytestmark = on_tensorflow_2  # the hints depend on no runtime

CPU = dict(num_cpu_replicas=1)
TRAINS = dict(CPU, do_train=True, train_batch_size=8, num_train_epochs=1, max_seq_length=LENGTH)


@pytest.fixture
def places(models, tmp_path):
    """What "{...}" stands for in the flags of the tables: models, files, and new folders."""
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(3)))
    (tmp_path / "pool.txt").write_text("a bird\nthe dog\n")
    cola = str(models.flags["data_dir"])
    return {**{writer: path for writer, path in models.at.items()},
            **{name: str(models.folder / name) for name in (
                "slots/train.jsonl", "examples.tfrecord", "pairs.tsv")},
            "model": models.at["Google's release, without heads"], "cola": cola,
            **{name: str(tmp_path / name) for name in (
                "texts.txt", "pool.txt", "new", "other")}}


def filled(flags, places):
    return {name: re.sub(r"\{(.+?)\}", lambda match: places[match.group(1)], value)
            if isinstance(value, str) else value for name, value in flags.items()}


def error_of(capsys, flags, module):
    with ends_with_error(capsys) as lines:
        run_here(flags, module)
    return lines[-1]


def command_in(message):
    """The module that a message names, and the flags that it gives to it; those left open not."""
    module, flags = re.search(r"python\s+-m ([\w.]+?)((?:\.?,? (?:with |and )?--[\w=/.,-]+)*)[.;,]?(?: |$)",
                              message).groups()
    given = dict(flag.partition("=")[::2] for flag in re.findall(r"--([\w=/.-]+)", flags))
    return importlib.import_module(module), {
        name: value or True for name, value in given.items() if value not in ("...", "STUDENT")}


# Command and flags that are refused; what is added to the flags of the command that the error names;
# what to change in the refused flags so that they work then, None if they need not be run again.
NAMED = {
    "a folder of Hugging Face": (
        predict, dict(CPU, output_dir="{encoder.convert --from_tensorflow}",
                      input_file="{texts.txt}", output_file="{other}"),
        dict(output_dir="{new}"), dict(output_dir="{new}")),
    "a classifier of Google's code": (
        predict, dict(CPU, output_dir="{Google's run_classifier}", input_file="{texts.txt}",
                      output_file="{other}"),
        dict(labels="0,1", output_dir="{new}"), dict(output_dir="{new}")),
    "a classifier that shall rewrite": (
        rewrite, dict(CPU, output_dir="{run_classifier}", pool_file="{pool.txt}",
                      input_file="{texts.txt}", output_file="{other}"),
        dict(TRAINS, train_file="{slots/train.jsonl}", init_checkpoint="{model}", output_dir="{new}",
             vocab_file="{model}/vocab.txt", bert_config_file="{model}/bert_config.json"),
        dict(output_dir="{new}")),
    "a scorer that shall be evaluated on texts": (
        run_classifier, dict(CPU, init_checkpoint="{rewriting.run}", output_dir="{new}",
                             task_name="cola", data_dir="{cola}", do_eval=True),
        dict(CPU, output_dir="{new}", dev_file="{slots/train.jsonl}"), None),
    "a student that shall predict": (
        distillation, dict(TRAINS, teacher="{run_classifier}", task_name="cola",
                           data_dir="{cola}", stage="prediction", student="1,16,2,32",
                           test_file="{texts.txt}", output_dir="{new}"),
        dict(CPU, output_dir="{distillation.run --stage=prediction}", output_file="{other}"), None),
    "a classifier that shall predict words": (
        score, dict(CPU, init_checkpoint="{run_classifier}", input_file="{texts.txt}",
                    max_seq_length=LENGTH, output_file="{other}"),
        dict(TRAINS, num_train_epochs=None, num_train_steps=1, num_warmup_steps=0,
             input_file="{examples.tfrecord}", max_predictions_per_seq=PREDICTIONS,
             init_checkpoint="{model}", output_dir="{new}"),
        dict(init_checkpoint="{new}")),
}


@pytest.mark.parametrize("case", NAMED)
def test_the_command_that_an_error_names_works(case, places, capsys):
    module, refused, more, changes = NAMED[case]
    message = error_of(capsys, filled(refused, places), module)
    named, flags = command_in(message)
    flags = {name: value for name, value in flags.items() if name != "do_predict"}
    run_here({**flags, **filled(more, places)}, named)
    if changes is not None:
        run_here(filled({**refused, **changes}, places), module)


def test_an_export_is_evaluated_and_made_anew_with_the_flags_that_the_errors_name(places, capsys):
    flags = filled(dict(CPU, dev_file="{pairs.tsv}", do_eval=True), places)
    export = places["similarity.run --do_export"]
    before = sorted(os.listdir(export))
    message = error_of(capsys, {**flags, "output_dir": export}, similarity)
    checkpoint, = re.findall(r"give it as --init_checkpoint=(\S+), and another --output_dir", message)
    run_here({**flags, "init_checkpoint": checkpoint, "output_dir": places["new"]}, similarity)
    assert os.listdir(places["new"]) and sorted(os.listdir(export)) == before
    message = error_of(capsys, {"output_dir": export, "do_export": True}, similarity)
    assert "--do_export needs the output directory of the training" in message
    run_here({"output_dir": os.path.dirname(export), "do_export": True}, similarity)
