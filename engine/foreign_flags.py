"""The flags of other BERT projects, and what to type here in their place.

A command that is given one says so in one line, instead of guessing at a misspelling. The same
table makes the lists in docs/from-elsewhere.md.
"""

import os
import re
from typing import Container, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence


class Program(NamedTuple):
    """Scripts of another project, and how their flags differ from our command's."""
    project: str
    scripts: str
    command: str  # our module
    flags: Mapping[str, str]  # their flag → what to type instead, or why nothing


_ONE_PROCESS = "leave it out: one process drives all cards; --num_gpus limits them"
_CHECKPOINT = "--vocab_file, --bert_config_file, --init_checkpoint: the files in that folder"
_FLOAT16 = "--precision=float16; leave it out if theirs is off"
_DECAY = "leave it out: it is always 0.01, as in BERT"
_NO_LOGS = "leave it out: report.html and tensorboard show the training"
_CPU = "--num_gpus=0"
_WHICH_CARDS = "--num_gpus, and CUDA_VISIBLE_DEVICES for which cards"
_NO_TAGGER = "not included; rewriting.run learns to fill slots instead"
_NO_TENSORRT = "not included; --do_export writes a SavedModel for it"
_NO_TRITON = "not included; --do_export writes a SavedModel"

_TORCH = {
    "cache_dir": "--store_dir",
    "local_rank": _ONE_PROCESS,
    "no_cuda": _CPU,
    "weight_decay": _DECAY,
}

_DISTILLATION = {
    **_TORCH,
    "teacher_model": "--teacher; also give --stage and --do_train",
    "student_model": "--student; to evaluate one, --models of distillation.compare",
    "do_lower_case": "leave it out: the teacher's folder says it",
    "eval_step": "--eval_every_steps; checkpoints: --save_checkpoints_steps",
    "data_url": "leave it out: it is for a cloud service",
}

_BERT_MULTI_GPU = {
    "use_gpu": "leave it out: all visible cards are used; --num_gpus=0 for the CPU",
    "num_gpu_cores": "--num_gpus",
    "use_fp16": _FLOAT16,
    "save_for_serving": "--do_export",
}

# A flag on a command line, as absl and argparse take it.
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)")

PROGRAMS = (
    Program("TinyBERT and fast_td", "`task_distill.py`, `fast_td.py`", "distillation.run", {
        **_DISTILLATION,
        "pred_distill": "--stage=prediction; without it, --stage=intermediate",
        "aug_train": "--train_file=FILE, the train.tsv that augmentation.run wrote",
    }),
    Program("TinyBERT", "`general_distill.py`", "distillation.run", {
        **_DISTILLATION,
        "pregenerated_data": "--input_file=FILES of pretraining.create_data, and --stage=general",
        "reduce_memory": "leave it out: texts stay on disk",
        "continue_train": "leave it out: the same command resumes",
    }),
    Program("TinyBERT", "`data_augmentation.py`", "augmentation.run", {
        "pretrained_bert_model": _CHECKPOINT,
        "glue_dir": "--data_dir=GLUE_DIR/TASK, and --output_dir for the result",
        "glove_embs": "--glove_embs",
        "N": "--N",
        "M": "--M",
        "p": "--p",
    }),
    Program("TinyBERT", "`pregenerate_training_data.py`", "pretraining.create_data", {
        "train_corpus": "--input_file",
        "output_dir": "--output_file=FILE.tfrecord",
        "bert_model": "--vocab_file: vocab.txt in that folder",
        "reduce_memory": "leave it out: texts stay on disk",
        "num_workers": "--num_processes",
        "epochs_to_generate": "--dupe_factor; or --masks=dynamic, new masks in each epoch",
        "max_seq_len": "--max_seq_length",
        "one_seq": "--one_sentence_per_example, with --objective=mlm",
        "data_url": "leave it out: it is for a cloud service",
    }),
    Program("bert-ad", "`create_pretraining_data_{large,mass,mlm}.py`", "pretraining.create_data", {
        "slice_name": "leave it out: --output_file is the whole name",
        "root_data_path": "--input_file with the whole path, patterns included",
    }),
    Program("bert-ad", "`run_lm_predict.py`", "pretraining.score", {
        "output_dir": "--output_file",
        "max_predictions_per_seq": "leave it out: every word of a text is masked in turn",
    }),
    Program("bert-ad", "`bert_worker*.py`", "rewriting.rewrite", {
        "gpu_id": _WHICH_CARDS,
        "task_index": _ONE_PROCESS,
        "task_num": _ONE_PROCESS,
        "output_pattern": "--output_file",
    }),
    Program("bert-multi-gpu (haoyuhu)", "`run_custom_classifier*.py`", "run_classifier", {
        **_BERT_MULTI_GPU,
        "num_labels": "leave it out: the data says it; --label_kind=multi_label for several labels",
    }),
    Program("bert-multi-gpu (haoyuhu)", "`run_seq_labeling.py`", "tagging.run", {
        **_BERT_MULTI_GPU,
        "task_name": "leave it out: the files in --data_dir say their tags",
    }),
    Program("bert-multi-gpu (haoyuhu)", "`run_custom_classifier.sh`", "run_classifier", {
        "s": "--max_seq_length",
        "g": "--num_gpus",
        "b": "--train_batch_size",
        "l": "--learning_rate",
        "e": "--num_train_epochs",
        "c": "CUDA_VISIBLE_DEVICES, in the environment",
    }),
    Program("NVIDIA's BERT for TensorFlow 1", "`run_classifier.py`", "run_classifier", {
        "amp": _FLOAT16,
        "use_xla": "--xla",
        "horovod": _ONE_PROCESS,
        "num_accumulation_steps": "--gradient_accumulation_steps",
        "optimizer_type": "--optimizer=adamw for their adam, or --optimizer=lamb",
        "display_loss_steps": _NO_LOGS,
        "dllog_path": _NO_LOGS,
        "verbose_logging": _NO_LOGS,
        "doc_stride": "leave it out: it is for question answering",
        "use_trt": _NO_TENSORRT,
    }),
    Program("NVIDIA's BERT for TensorFlow 1", "`run_pretraining.py`", "pretraining.run", {
        "input_files_dir": "--input_file",
        "eval_files_dir": "--eval_input_file",
        "allreduce_post_accumulation": "leave it out: replicas exchange gradients once a step",
        "manual_fp16": _FLOAT16,
        "init_loss_scale": "leave it out: the loss scale of --precision=float16 adapts itself",
        "report_loss": _NO_LOGS,
    }),
    Program("Hugging Face", "`run_glue.py`, `run_xnli.py`", "run_classifier", {
        **_TORCH,
        "model_name_or_path": f"{_CHECKPOINT}, after --from_huggingface of encoder.convert",
        "config_name": "--bert_config_file",
        "tokenizer_name": "--vocab_file",
        "dataset_name": "--task_name=file with --train_file, --dev_file and --test_file",
        "dataset_config_name": "--task_name=file with --train_file, --dev_file and --test_file",
        "validation_file": "--dev_file",
        "text_column_name": "--text_column",
        "text_column_names": "--text_column and --text_pair_column",
        "label_column_name": "--label_column",
        "do_regression": "--label_kind=regression",
        "language": "leave it out: --task_name=xnli is Chinese; --task_name=file takes any",
        "train_language": "leave it out: --task_name=xnli is Chinese; --task_name=file takes any",
        "max_length": "--max_seq_length",
        "pad_to_max_length": "--dynamic_padding=false",
        "per_device_train_batch_size": "--train_batch_size",
        "per_gpu_train_batch_size": "--train_batch_size",
        "per_device_eval_batch_size": "--eval_batch_size, --predict_batch_size",
        "per_gpu_eval_batch_size": "--eval_batch_size, --predict_batch_size",
        "max_steps": "--num_train_epochs; --num_train_steps of pretraining.run",
        "warmup_ratio": "--warmup_proportion",
        "warmup_steps": "--warmup_proportion; --num_warmup_steps of pretraining.run",
        "lr_scheduler_type": "leave it out: the rate decays linearly",
        "optim": "--optimizer",
        "adam_epsilon": "leave it out: it is 1e-6, as in Google's code",
        "adam_beta1": "leave it out: it is 0.9",
        "adam_beta2": "leave it out: it is 0.999",
        "max_grad_norm": "leave it out: it is 1.0",
        "eval_strategy": "--eval_each_epoch or --eval_every_steps",
        "evaluation_strategy": "--eval_each_epoch or --eval_every_steps",
        "eval_steps": "--eval_every_steps",
        "evaluate_during_training": "--eval_every_steps",
        "load_best_model_at_end": "leave it out: with --eval_each_epoch the best is used",
        "metric_for_best_model": "--metric_for_best",
        "save_strategy": "--save_checkpoints_steps",
        "save_steps": "--save_checkpoints_steps",
        "save_total_limit": "--keep_checkpoint_max",
        "overwrite_output_dir": "leave it out: another run needs another --output_dir",
        "resume_from_checkpoint": "leave it out: the same command resumes",
        "overwrite_cache": "leave it out: prepared examples are never stale",
        "logging_dir": _NO_LOGS,
        "logging_steps": _NO_LOGS,
        "logging_strategy": _NO_LOGS,
        "report_to": _NO_LOGS,
        "bf16": "--precision=bfloat16",
        "fp16_opt_level": _FLOAT16,
        "gradient_checkpointing": "--recompute_layers",
        "torch_compile": "--xla",
        "use_cpu": _CPU,
        "ddp_backend": "--all_reduce",
        "dataloader_num_workers": "leave it out: texts are tokenized once",
        "push_to_hub": "leave it out; --from_tensorflow of encoder.convert makes the folder",
    }),
    Program("Several projects", "any script", "run_classifier", {
        "gpus": _WHICH_CARDS,
        "gpu_ids": _WHICH_CARDS,
        "gpu_id": _WHICH_CARDS,
        "gpu": _WHICH_CARDS,
        "n_gpu": "--num_gpus",
        "device": _WHICH_CARDS,
    }),
    Program("Google and NVIDIA", "`run_squad.py`", "run_squad", {
        **dict.fromkeys(
            ("predict_file", "doc_stride", "max_query_length", "n_best_size", "max_answer_length",
             "version_2_with_negative", "null_score_diff_threshold"), "the same, of run_squad.py"),
        "eval_script": "leave it out: eval_results.txt has the figures of the official scripts",
        **dict.fromkeys(
            ("num_eval_iterations", "export_triton", "triton_model_name", "triton_model_version",
             "triton_server_url", "triton_model_overwrite", "triton_max_batch_size",
             "triton_dyn_batching_delay", "triton_engine_count"), _NO_TRITON),
    }),
    Program("Google", "all scripts", "run_classifier", dict.fromkeys(
        ("use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores",
         "iterations_per_loop"), "leave it out: this command runs on GPUs and CPUs")),
    Program("LaserTagger", "all scripts", "rewriting.run",
            dict.fromkeys(
                ("training_file", "eval_file", "label_map_file", "model_config_file",
                 "num_train_examples", "num_eval_examples", "eval_all_checkpoints",
                 "eval_timeout", "export_path", "output_tfrecord", "enable_swap_tag",
                 "output_arbitrary_targets_for_infeasible_examples", "vocabulary_size",
                 "max_input_examples", "num_extra_statistics", "saved_model", "prediction_file",
                 "case_insensitive"), _NO_TAGGER)),
)


def explain(argv: Sequence[str], known: Container[str]) -> str:
    """What to type in place of other projects' flags; "" if the command line has none of them.

    Args:
        argv: the command line; its first element is the path of the command.
        known: the names of the command's own flags.
    """
    named: Dict[str, List[str]] = {}  # flags by what is to be said of them
    for name in _unknown(argv, known):
        answer = _answer(argv[0], name, known)
        if answer:
            named.setdefault(answer, []).append(f"--{name}")
    said = [f"{', '.join(names)} ({answer})" for answer, names in named.items()]
    return f"not flags of this command: {'; '.join(said)}" if said else ""


def _unknown(argv: Sequence[str], known: Container[str]) -> Iterable[str]:
    names = (found.group(1) for found in map(_FLAG.match, argv[1:]) if found)
    return dict.fromkeys(name for name in names if name not in known)


def _answer(path: str, name: str, known: Container[str]) -> Optional[str]:
    own_name = name.replace("-", "_")
    program = _program_with(path, own_name)
    if program:
        return _here(program, program.flags[own_name], known)
    if own_name.startswith("no") and _program_with(path, own_name[2:]):
        return "leave it out: it is off by default"
    return None


def _program_with(path: str, name: str) -> Optional[Program]:
    """The program with this flag that is replaced by the command at `path`, or else the first."""
    command = os.path.splitext(path)[0].replace(os.sep, ".")
    programs = [program for program in PROGRAMS if name in program.flags]
    same = [program for program in programs
            if f".{command}".endswith(f".{program.command}")]
    return next(iter(same + programs), None)


def _here(program: Program, answer: str, known: Container[str]) -> str:
    """The answer, with the command that has the flag if it is not this one."""
    if not answer.startswith("--"):
        return answer
    flag = re.match(r"--(\w+)", answer).group(1)
    return f"here: {answer}" + ("" if flag in known else f", of {program.command}")
