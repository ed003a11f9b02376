#!/usr/bin/env bash
# Makes an environment, downloads a small pretrained encoder, fine-tunes it on all GPUs (or on two
# replicas on the CPU), and prints the evaluation and three predictions. A second run skips what is
# done.
#
#   scripts/quickstart.sh [flags of run_classifier.py; with TASK=squad of run_squad.py, with
#                          TASK=tagging of tagging.run]
#
#   DATA_DIR=... TASK=...  your data, by default a demonstration: scrambled sentence or not?
#                          TASK=squad: train*.json and dev*.json, to answer questions
#                          TASK=tagging: train.*, dev.* and, if there is one, test.*, to find entities
#   MODEL=...              any model folder, by default the small encoder: an unpacked release of
#                          Google's, what a command here has written, or a Hugging Face folder
#   OUTPUT_DIR=...         folder for everything that is written, by default quickstart/
#   PYTHON=...             the Python to use, see environment.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/inputs.sh"

work=${OUTPUT_DIR:-$repository/quickstart}

main() {
  local model vocab_file lower_case data_dir task results
  check_inputs
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

# fine_tune [FLAG...]
fine_tune() {
  local -a command
  case $task in
    squad) find_command_for_questions ;;
    tagging) find_command_for_tags ;;
    *) find_command_for_classes ;;
  esac
  find_replicas "$@"
  "$python" "${command[@]}" --do_train=true --do_eval=true --init_checkpoint="$model" \
    --do_lower_case="$lower_case" --output_dir="$results" "${on_all_replicas[@]}" "$@"
}

# find_command_for_...: set the array $command, what fine-tunes on the task's files.
find_command_for_classes() {
  command=(run_classifier.py --task_name="$task" --data_dir="$data_dir")
  if has_test_set; then command+=(--do_predict=true); fi
}

find_command_for_questions() {
  local train dev
  train=$(file_of_questions train) && dev=$(file_of_questions dev) || exit
  command=(run_squad.py --train_file="$train" --predict_file="$dev" --do_predict=true)
}

# file_of_questions NAME: prints the only NAME*.json of the data.
file_of_questions() {
  local -a found=("$data_dir/$1"*.json)
  [[ ${#found[@]} == 1 && -f ${found[0]} ]] ||
    fail "DATA_DIR=$data_dir must hold one $1*.json, with questions in SQuAD's format"
  printf '%s\n' "${found[0]}"
}

find_command_for_tags() {
  command=(-m tagging.run --data_dir="$data_dir")
  if compgen -G "$data_dir/test.*" >/dev/null; then command+=(--do_predict=true); fi
}

has_test_set() { compgen -G "$data_dir/*test*.tsv" >/dev/null; }

report() {
  printf '\nEvaluation:\n'
  print_metrics <"$results/eval_results.txt"
  if [[ $task == squad ]]; then
    printf '\nThe first answers:\n'
    sed -n '2,4s/^ */  /p' "$results/predictions.json"
  elif [[ $task == tagging ]]; then
    if compgen -G "$results/predict.*" >/dev/null; then
      printf '\nThe first lines of the test set, with tags:\n'
      head -n 12 "$results"/predict.* | sed 's/^/  /'
    fi
  elif has_test_set; then
    printf '\nThe first rows of the test set, with their predictions:\n'
    show_predictions "$results/predict.txt" "$data_dir"/*test*.tsv
  fi
  printf '\nAll results: %s\n' "$results"
}

# show_predictions FILE TEST_SET...: prints three predictions beside the rows, which may have a header.
show_predictions() {
  paste "$1" <(tail -n "$(wc -l <"$1")" "$2") | sed -n '1,3s/^/  /p'
}

main "$@"
