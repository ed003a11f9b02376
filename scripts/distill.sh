#!/usr/bin/env bash
# Distils a big teacher into a small student: augments the training set if MASKED_LM is given,
# fine-tunes the teacher, distils in two stages, evaluates and exports the student, and prints the
# metrics of both. Steps that are done are not repeated: the same command resumes where it was
# interrupted.
#
#   scripts/distill.sh [flags of a training, for all three of them]
#
#   DATA_DIR=... TASK=...  your data, by default a demonstration: scrambled sentence or not?
#   MODEL=...              model folder of the BERT to fine-tune as the teacher, by default a small
#                          encoder: an unpacked release of Google's, what a command here has
#                          written, or a Hugging Face folder
#   STUDENT=...            the student's shape, layers,hidden,heads,intermediate, or the folder of
#                          a model; by default a third of the small encoder's layers
#   MASKED_LM=... GLOVE=...  folder of a BERT with a masked-LM head, and a text file of word
#                          vectors, for augmenting the training set
#   TEACHER_EPOCHS=... INTERMEDIATE_EPOCHS=... PREDICTION_EPOCHS=...
#                          by default 3, and the paper's (5 and 3 for the demonstration)
#   OUTPUT_DIR=...         folder for everything that is written, by default distilled/
#   PYTHON=...             the Python to use, see environment.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/inputs.sh"

work=${OUTPUT_DIR:-$repository/distilled}

main() {
  check_inputs
  use_environment
  cd "$repository"
  find_model
  find_data
  student=${STUDENT:-2,384,12,1536}
  if [[ -z ${DATA_DIR:-} ]]; then INTERMEDIATE_EPOCHS=${INTERMEDIATE_EPOCHS:-5}; fi
  results=$work/results-$task-$(fingerprint "$data_dir" "$model" "$student" "${MASKED_LM:-}" \
    "${GLOVE:-}" "${TEACHER_EPOCHS:-}" "${INTERMEDIATE_EPOCHS:-}" "${PREDICTION_EPOCHS:-}" "$@")
  mkdir -p "$results"
  look_at_model_and_cards "$@"
  training_data=$data_dir
  if [[ -n ${MASKED_LM:-} ]]; then # first, as it says at once whether the model can do it
    training_data=$results/augmented
    once augmented augment
  fi
  once teacher fine_tune "$results/teacher" --num_train_epochs="${TEACHER_EPOCHS:-3}" "$@"
  once intermediate distil intermediate intermediate "$student" \
    ${INTERMEDIATE_EPOCHS:+--num_train_epochs="$INTERMEDIATE_EPOCHS"} "$@"
  once student distil student prediction "$results/intermediate" --do_eval --eval_each_epoch \
    ${PREDICTION_EPOCHS:+--num_train_epochs="$PREDICTION_EPOCHS"} "$@"
  once export "$python" run_classifier.py --do_export --output_dir="$results/student"
  report
}

# once NAME COMMAND...: runs the command, unless it has finished before; keeps the metrics of its evaluation.
once() {
  if [[ -f $results/$1.finished ]]; then return; fi
  say "--- $1"
  "${@:2}"
  if [[ -f $results/$1/eval_results.txt ]]; then cp "$results/$1/eval_results.txt" "$results/$1.metrics"; fi
  touch "$results/$1.finished"
}

augment() {
  "$python" -m augmentation.run --task_name="$task" --data_dir="$data_dir" \
    --init_checkpoint="$MASKED_LM" ${GLOVE:+--glove_embs="$GLOVE"} \
    --do_lower_case="$lower_case_masked_lm" --output_dir="$training_data"
  # With files of your own, the command above writes only the training set.
  if [[ $task == file ]]; then cp "$data_dir"/dev.* "$training_data"; fi
}

# distil NAME STAGE STUDENT [FLAG...]
distil() {
  "$python" -m distillation.run --stage="$2" --task_name="$task" \
    --data_dir="$training_data" --teacher="$results/teacher" --student="$3" --do_train \
    --store_dir="$results/store" --output_dir="$results/$1" "${on_all_replicas[@]}" "${@:4}"
}

report() {
  for name in teacher student; do
    printf '\nMetrics of the %s on the dev set:\n' "$name"
    print_metrics <"$results/$name.metrics"
  done
  printf '\nThe student: %s, for other programs %s\n' "$results/student" "$results/student/export"
}

main "$@"
