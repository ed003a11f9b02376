#!/usr/bin/env bash
# Makes an environment, downloads a small pretrained encoder, fine-tunes it on all GPUs (or on two
# replicas on the CPU), and prints the evaluation, three predictions and the command that serves the
# model. A second run skips what is done.
#
#   scripts/quickstart.sh [flags of run_classifier.py]
#
#   DATA_DIR=... TASK=...  your data, by default a demonstration: scrambled sentence or not?
#   MODEL=...              any model folder, by default the small encoder: an unpacked release of
#                          Google's, what a command here has written, or a Hugging Face folder
#   OUTPUT_DIR=...         folder for everything that is written, by default quickstart/
#   PYTHON=...             the Python to use, see environment.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/inputs.sh"

work=${OUTPUT_DIR:-$repository/quickstart}

main() {
  check_inputs
  use_environment
  cd "$repository"
  find_model
  find_data
  results=$work/results-$task-$(fingerprint "$data_dir" "$model" "$@")
  if [[ ! -f $results/finished ]]; then
    look_at_model_and_cards "$@"
    if has_test_set; then set -- --do_predict "$@"; fi
    fine_tune "$results" "$@"
    cp "$results/eval_results.txt" "$results/finished" # of this evaluation
  else # a training has just printed it
    printf '\nEvaluation:\n'
    print_metrics <"$results/finished"
  fi
  report
}

has_test_set() { compgen -G "$data_dir/*test*.tsv" >/dev/null; }

report() {
  if has_test_set; then
    printf '\nThe first rows of the test set, with their predictions'
    [[ -n ${DATA_DIR:-} ]] || printf ' (1: a sentence, 0: its words are scrambled)'
    printf ':\n'
    show_predictions "$results/predict.txt" "$data_dir"/*test*.tsv
  fi
  printf '\nAll results: %s\n' "$results"
  if [[ -n $environment ]]; then install "$environment" -r "$repository/serving/requirements.txt"; fi
  printf '\nTo try the model on a page, http://127.0.0.1:8501, and answer with it over HTTP:\n'
  printf '  cd %q && %q -m serving.run --model=%q\n' "$repository" "$python" "$results"
}

# show_predictions FILE TEST_SET...: prints three predictions beside the rows, below the columns' names.
show_predictions() {
  local count names=row
  count=$(wc -l <"$1")
  if (($(wc -l <"$2") > count)); then names=$(head -n 1 "$2"); fi
  paste <(echo prediction && cat "$1") <(echo "$names" && tail -n "$count" "$2") | sed -n '1,4s/^/  /p'
}

main "$@"
