"""Every command that trains is interrupted and repeated, with the flags of its page."""

import re
import signal

import processes
from commands import arguments, results_in, run_here
from engine.devices import runtime
from pages import blocks
from processes import step_of, wait_until
from reproducible_model import write_model
from toy_runs import RUNS, flags_of, module_of

# Each on one runtime, but for the classifier, which is a teacher. No page's training has a --loss.
OF_TENSORFLOW_1 = {"pretraining.run", "tagging.run --crf", "similarity.run"}
TRIED = [run for run in RUNS if "--loss" not in run and (
    run == "run_classifier" or (run in OF_TENSORFLOW_1) == runtime.IS_TENSORFLOW_1)]
# Others are named as their room.
PAGES = {"run_classifier": "fine-tuning", "run_squad": "reading", "choice.run": "multiple-choice"}
# It can be interrupted after any step, of which there are few.
CHANGES = dict(save_checkpoints_steps=1, num_cpu_replicas=1, train_batch_size=16)


def switches_of(run):
    """The flags without a value, such as --do_eval, of the training on a command's page."""
    command = run.split(" ")[0]
    shell = "".join(blocks(f"docs/{PAGES.get(command, command.split('.')[0])}.md", "shell"))
    stage, = re.findall(r"--stage=\w+", run) or [""]
    training = next(line for line in shell.replace("\\\n", "").splitlines()
                    if re.match(rf"python (-m )?{command}(\.py)? ", line)
                    and "--do_train" in line and stage in line)
    return dict.fromkeys(re.findall(r"--(\w+)(?= |$)", training), True)


def measured(output_dir):
    return results_in(output_dir) if (output_dir / "eval_results.txt").exists() else None


def test_a_signal_more_steps_and_a_repetition_lose_nothing(tmp_path, capsys):
    tiny_model = write_model(tmp_path / "model")  # which is also a teacher
    for run in TRIED:
        flags = {**flags_of(run, tmp_path, tiny_model), **switches_of(run), **CHANGES}
        assert flags["do_train"]
        output_dir, module = flags["output_dir"], module_of(run)
        process = processes.start(["-m", module.__name__, *arguments(flags)])
        wait_until(process, lambda: step_of(output_dir))
        process.send_signal(signal.SIGTERM)
        said, step = process.communicate()[1], step_of(output_dir)
        assert process.returncode == 128 + signal.SIGTERM, f"{run}: {said}"
        end = int(re.search(rf"has a checkpoint at step {step} of (\d+)", said.splitlines()[-1]).group(1))
        length = "num_train_epochs" if "num_train_epochs" in flags else "num_train_steps"
        flags[length] = flags[length] * 3 // 2 + 1
        capsys.readouterr()
        run_here(flags, module)
        assert f"Resuming from {output_dir}/model.ckpt-{step}" in capsys.readouterr().err
        longer, results = step_of(output_dir), measured(output_dir)
        run_here(flags, module)
        assert f"already trained to step {longer}" in capsys.readouterr().err
        assert measured(output_dir) == results and step_of(output_dir) == longer > end
