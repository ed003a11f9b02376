"""What a model folder holds after pretraining, and what commands find in one."""

import codecs
import json
import os
import shutil

import pytest

import run_classifier
from commands import arguments, ends_with_error, run_here
from conftest import on_tensorflow_2, write_cola
from encoder import convert, model_files, model_flags, vocabulary
from engine.disk import files
from engine.errors import UserError
from masked_lm import write_tiny_masked_lm
from modeling import BertConfig
from pretraining import run as pretraining, score
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from shell_scripts import assert_one_error_line, run
from runs import predict
from tasks import model_folder
from shell_scripts import bare_machine_fixture, forking_python_fixture  # noqa: F401 (fixtures)


@pytest.fixture
def released(two_layers, tmp_path):
    """A folder of a released model, which a test may change."""
    folder = tmp_path / "released"
    shutil.copytree(os.path.dirname(two_layers.vocab_file), str(folder))
    return folder


@pytest.fixture
def flags(released, tmp_path):
    """The flags of Google's run_pretraining.py, as people give them."""
    return dict(
        input_file=write_frozen(tmp_path / "examples.tfrecord", 24), do_train=True,
        bert_config_file=released / "bert_config.json", num_cpu_replicas=1,
        output_dir=tmp_path / "out", max_seq_length=LENGTH, train_batch_size=8,
        max_predictions_per_seq=PREDICTIONS, num_train_steps=1, num_warmup_steps=0)


def values_of(module, given):
    values = module.define_flags()
    values(["command", *arguments(given)])
    return values


def vocabulary_of(flags):
    values = values_of(pretraining, flags)
    found = pretraining._vocabulary(values, model_flags.load_config_of_flags(values))
    return found and (found.vocab_file, found.do_lower_case)


def write_origin(flags, vocab_file, do_lower_case):
    """What `create_data` writes beside its examples."""
    with open(f"{flags['input_file']}.json", "w") as file:
        json.dump({"vocab_sha256": files.hash_of_file(str(vocab_file)),
                   "do_lower_case": do_lower_case}, file)


def test_pretraining_without_a_vocabulary_says_so_loudly_and_leaves_the_config(
        flags, released, capsys):
    os.remove(str(released / "vocab.txt"))
    run_here(flags, pretraining)
    warning, = [line for line in capsys.readouterr().err.splitlines() if "vocab.txt" in line]
    assert "WARNING" in warning and "--output_dir gets no vocab.txt" in warning
    assert "give --vocab_file" in warning
    names = os.listdir(str(flags["output_dir"]))
    assert "bert_config.json" in names and "vocab.txt" not in names


def test_the_vocabulary_is_the_examples_and_so_is_its_casing(flags, released, tmp_path, capsys):
    vocab_file = str(released / "vocab.txt")
    assert vocabulary_of(flags) == (vocab_file, True)
    write_origin(flags, vocab_file, False)
    assert vocabulary_of(flags) == (vocab_file, False)
    (tmp_path / "other.txt").write_text("other\n")
    write_origin(flags, tmp_path / "other.txt", True)
    assert vocabulary_of(flags) is None
    assert "is not the one that" in capsys.readouterr().err
    with pytest.raises(UserError, match="released/vocab.txt is not the one that"):
        vocabulary_of(dict(flags, vocab_file=vocab_file))
    assert vocabulary_of(dict(flags, vocab_file=tmp_path / "other.txt"))[1]
    with open(vocab_file, "a") as file:
        file.write("more\n")
    write_origin(flags, vocab_file, True)
    assert vocabulary_of(flags) is None  # it is too large for the model


def test_the_model_to_start_from_brings_its_config_vocabulary_and_casing(released, capsys):
    given = dict(init_checkpoint=released, max_seq_length=16)

    def loaded(**more):
        return model_flags.load_model(values_of(score, {**given, **more}))

    config, encoding = loaded()
    assert config.hidden_size == 16 and encoding.do_lower_case  # as Google's code has it
    vocabulary.write_casing(str(released), False)
    assert not loaded()[1].do_lower_case
    assert "--do_lower_case=false" in capsys.readouterr().err
    assert loaded(do_lower_case=True)[1].do_lower_case
    assert "the model's folder says false" in capsys.readouterr().err
    os.remove(str(released / "vocab.txt"))
    with pytest.raises(UserError, match="--vocab_file is required"):
        loaded()


def test_a_cased_model_is_not_lower_cased_in_silence(released, capsys):
    """Google's releases do not say that they are cased; their names and vocabularies do."""
    def loaded(folder, **given):
        values = values_of(score, dict(given, init_checkpoint=folder, max_seq_length=16))
        return model_flags.load_model(values)[1].do_lower_case

    vocab_file = released / "vocab.txt"
    vocab_file.write_text(vocab_file.read_text().replace("\ncat\n", "\nCat\n"))
    warning = "vocab.txt has words with capital letters, which are never found"
    assert loaded(released) and warning in capsys.readouterr().err
    for given in (True, False):
        assert loaded(released, do_lower_case=given) is given
    vocabulary.write_casing(str(released), True)
    assert loaded(released) and warning not in capsys.readouterr().err
    os.remove(str(released / "tokenizer_config.json"))
    cased = released.parent / "cased_L-12_H-768_A-12"
    released.rename(cased)
    with pytest.raises(UserError, match="give --do_lower_case=False"):
        loaded(cased)
    assert not loaded(cased, do_lower_case=False)


def test_a_checkpoint_that_is_no_bert_or_several_are_one_clear_line(released):
    for name in os.listdir(str(released)):
        if name.startswith("bert_model.ckpt"):
            shutil.copy(str(released / name), str(released / name.replace("bert", "other")))
    with pytest.raises(UserError, match="holds 2 checkpoints: give the prefix of one"):
        model_files.open_folder(str(released), "--init_checkpoint")
    with pytest.raises(UserError, match="holds no checkpoint, so it is no trained model"):
        model_files.open_folder(str(released.parent), "--init_checkpoint")


def test_a_byte_order_mark_is_no_part_of_a_vocabulary_or_a_config(tuned):
    """Editors of Windows begin each text file that they save with one."""
    plain = model_files.open_folder(str(tuned), "--init_checkpoint")
    encoding, config = plain.encoding(16), plain.config().to_dict()
    description, casing = plain.description(), tuned / vocabulary.CASING_FILE
    casing.write_text('{"model_max_length": 24}')
    names = ("vocab.txt", "bert_config.json", "task.json", vocabulary.CASING_FILE)
    for name in names:
        (tuned / name).write_bytes(codecs.BOM_UTF8 + (tuned / name).read_bytes())
    marked = model_files.open_folder(str(tuned), "--init_checkpoint")
    assert marked.encoding(16).tokenizer.vocab == encoding.tokenizer.vocab
    assert marked.config().to_dict() == config and marked.description() == description
    assert vocabulary.read_tokens(str(tuned), 99) == list(encoding.tokenizer.vocab)
    assert vocabulary.longest_input(str(tuned), 40) == 24
    assert BertConfig.from_json_file(marked.file("bert_config.json")).to_dict() == config


@pytest.fixture
def tuned(tiny_classifier, tmp_path):
    """The folder of a fine-tuned classifier, which a test may change."""
    shutil.copytree(str(tiny_classifier), str(tmp_path / "tuned"))
    return tmp_path / "tuned"


def test_a_config_with_fewer_layers_starts_a_training_and_predicts_nothing(
        two_layers, tuned, tmp_path, capsys):
    (tmp_path / "flat.json").write_text(two_layers.config(num_hidden_layers=1).to_json_string())
    masked_lm = write_tiny_masked_lm(two_layers, tmp_path / "masked_lm")
    given = dict(init_checkpoint=masked_lm.init_checkpoint, max_seq_length=16,
                 bert_config_file=tmp_path / "flat.json")
    with pytest.raises(UserError, match="--init_checkpoint=.* names 1 layers"):
        model_flags.load_masked_lm(values_of(score, given))
    assert model_flags.load_model(values_of(score, given))[0].num_hidden_layers == 1
    files.write_text(masked_lm.bert_config_file, (tmp_path / "flat.json").read_text())
    with pytest.raises(UserError, match="--init_checkpoint=.* names 1 layers"):
        model_flags.load_model(values_of(score, dict(given, bert_config_file=None)))
    with ends_with_error(capsys, "names 1 layers"):
        run_here(dict(given, init_checkpoint=tuned, task_name="cola", do_eval=True,
                      num_cpu_replicas=1, output_dir=tmp_path / "out",
                      data_dir=write_cola(tmp_path / "cola", train=8, dev=4)))


@pytest.mark.parametrize("changes, said", [
    (dict(labels=["0", "0"]), "task.json has the same label twice: 0, 0"),
    (dict(max_seq_length=2), "is 2, and the model has 40 positions"),
])
def test_a_description_that_is_not_the_model_s_is_one_line(changes, said, tuned):
    path = tuned / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(UserError, match=said):
        model_folder.load(model_files.open_folder(str(tuned), "--output_dir"))


@on_tensorflow_2
def test_a_file_of_another_model_is_refused_in_a_training_s_folder_and_in_an_export(tuned, capsys):
    run_here(dict(output_dir=tuned, do_export=True))
    for name, change, said in (
            ("vocab.txt", lambda text: text.replace("\ncat\ndog\n", "\ndog\ncat\n"),
             "its vocabulary is not that of its training"),
            ("task.json", lambda text: text.replace('"0"', '"x"').replace('"1"', '"0"').replace('"x"', '"1"'),
             "its label set is not that of its training"),
            ("task.json", lambda text: text.replace("_length\": 24", "_length\": 23"), "--max_seq_length"),
            ("bert_config.json", lambda text: text.replace('"gelu"', '"relu"'), "its model config is not that of its")):
        for folder, inside in ((tuned, tuned), (tuned / "export", tuned / "export" / "assets.extra")):
            own = (inside / name).read_text()
            assert change(own) != own
            (inside / name).write_text(change(own))
            for flags, module in ((dict(from_tensorflow=folder, output_dir=tuned / "converted"), convert),
                                  (dict(output_dir=folder, input_file=tuned / "vocab.txt"), predict)):
                with ends_with_error(capsys, f"={folder}: ", said, str(inside)):
                    run_here(flags, module)
            assert capsys.readouterr().out == ""
            (inside / name).write_text(own)


def test_better_names_of_labels_are_said(tuned, capsys):
    path = tuned / "task.json"
    path.write_text(path.read_text().replace('"1"', '"good"'))
    run_here(dict(output_dir=tuned, input_file=tuned / "vocab.txt", output_file=tuned / "found.tsv"), predict)
    assert (tuned / "found.tsv").read_text().startswith("label\t0\tgood\n")
    assert "its label set is not that of its training, as run.json says: was ['0', '1'], now ['0', 'good']" in (
        capsys.readouterr().err)


def test_the_longest_input_is_that_of_the_classifier_that_is_used(tuned, released):
    def length(**flags):
        return model_flags.load_model(values_of(run_classifier, flags))[1].max_seq_length

    files.write_json(str(released / "bert_config.json"), {
        **files.read_json(str(released / "bert_config.json"), ""), "max_position_embeddings": 512})
    known = json.loads((tuned / "task.json").read_text())["max_seq_length"]
    assert length(output_dir=tuned, do_eval=True) == known == length(init_checkpoint=tuned)
    assert length(output_dir=tuned, max_seq_length=9) == 9
    assert length(output_dir=released, init_checkpoint=released, do_train=True) == 128


def test_a_recipe_takes_an_export_with_its_vocabulary(
        tiny_classifier, bare_machine, forking_python, tmp_path):  # noqa: F811
    folder = tmp_path / "model"
    inside = folder / "assets.extra"
    inside.mkdir(parents=True)
    for name in ("vocab.txt", "bert_config.json", "task.json"):
        shutil.copy(str(tiny_classifier / name), str(inside))
    (folder / "saved_model.pb").write_text("")
    script = (f"source scripts/environment.sh; source scripts/inputs.sh; python={forking_python}; "
              "find_model; look_at_model_and_cards --num_gpus=0; echo $model $vocab_file $lower_case")
    result = run(bare_machine, script, MODEL=str(folder))
    assert result.stdout.splitlines()[-1] == f"{folder} {inside}/vocab.txt true", result.stderr
    (inside / "vocab.txt").unlink()
    assert_one_error_line(run(bare_machine, script, MODEL=str(folder)), "holds no vocab.txt")
