"""What a training writes at its start is there at its end, whoever removes it meanwhile."""

import os


from commands import run_here
from engine.checkpoints import checkpoints
from engine.training import checkpoint_hook
from toy_runs import flags_of, module_of


def test_files_that_are_removed_during_a_training_are_written_again(tiny_model, tmp_path, capsys, monkeypatch):
    flags = {**flags_of("similarity.run", tmp_path, tiny_model), "num_train_epochs": 1, "save_checkpoints_steps": 3}
    out, removed = str(flags["output_dir"]), {}
    original = checkpoint_hook.SaveHook._save

    def save_and_remove(self, session):
        for name in () if removed else ("task.json", "vocab.txt", "bert_config.json", "tokenizer_config.json",
                                        "run.json"):
            path = os.path.join(out, name)
            with open(path) as file:
                removed[path] = file.read()
            os.remove(path)
        original(self, session)
    monkeypatch.setattr(checkpoint_hook.SaveHook, "_save", save_and_remove)
    run_here(flags, module_of("similarity.run"))
    said = capsys.readouterr().err
    assert f"WARNING: removed from {out} during the training: bert_config.json, run.json" in said
    assert "written again" in said and "not written again" not in said
    assert {path: open(path).read() for path in removed} == removed
    assert checkpoints.latest(out).global_step == 10
    run_here(flags, module_of("similarity.run"))
    assert "already trained to step 10 of 10" in capsys.readouterr().err
