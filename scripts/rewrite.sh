#!/usr/bin/env bash
# Learns to rewrite texts: cuts slots into them, pretrains on the slots if asked to, fine-tunes a
# model that scores phrases, measures it on held-out texts, and rewrites ten of these.
#
#   TEXTS=reviews.tsv MODEL=bert scripts/rewrite.sh [flags of rewriting.run]
#
#   TEXTS=...           files of texts, separated by spaces: a text per line (.txt), or a column
#   MODEL=...           any model folder: an unpacked release of Google's, what a command here has
#                       written, or a Hugging Face folder
#   OUTPUT_DIR=...      folder for everything that is written, by default rewriting-results/
#   NEGATIVES=...       how wrong phrases are chosen, by default bm25,random
#   PRETRAIN_STEPS=...  steps of span pretraining on the slots' texts, by default 0
#   POOL=...            file of phrases to rewrite with, by default the train set's clauses
#   MAX_SEQ_LENGTH=...  tokens of a phrase, its slot and the context, by default 64
#   PYTHON=...          the Python to use, see environment.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/inputs.sh"

work=${OUTPUT_DIR:-$repository/rewriting-results}
max_seq_length=${MAX_SEQ_LENGTH:-64}

main() {
  [[ -n ${TEXTS:-} && -n ${MODEL:-} ]] ||
    fail "TEXTS and MODEL are required: files of texts, and the folder of a model"
  inputs=()
  for text in $TEXTS; do
    [[ -f $text ]] || fail "TEXTS: there is no file $text"
    inputs+=("--input_file=$(realpath "$text")")
  done
  check_inputs
  use_environment
  cd "$repository"
  find_model
  look_at_model_and_cards "$@"
  "$python" -m rewriting.create_data "${inputs[@]}" --output_dir="$work/slots" \
    --negatives="${NEGATIVES:-bm25,random}"
  if [[ ${PRETRAIN_STEPS:-0} != 0 ]]; then pretrain; fi
  "$python" -m rewriting.run --data_dir="$work/slots" --do_train --do_eval --do_test \
    --do_lower_case="$lower_case" --max_seq_length="$max_seq_length" \
    --init_checkpoint="$model" --output_dir="$work/scorer" \
    ${replicas[@]+"${replicas[@]}"} "$@"
  report
}

# pretrain: pretrains on masked spans of the slots' texts; sets $model to the result.
pretrain() {
  "$python" -m pretraining.create_data --objective=span \
    --input_file="$work/slots/pairs.tsv" --output_file="$work/pairs.tfrecord" \
    --vocab_file="$vocab_file" --do_lower_case="$lower_case" \
    --max_seq_length="$max_seq_length" --dupe_factor=1
  "$python" -m pretraining.run --input_file="$work/pairs.tfrecord" --do_train \
    --init_checkpoint="$model" --max_seq_length="$max_seq_length" \
    --num_train_steps="$PRETRAIN_STEPS" --num_warmup_steps="$((PRETRAIN_STEPS / 10))" \
    --output_dir="$work/pretrained" ${replicas[@]+"${replicas[@]}"}
  model=$work/pretrained
}

# report: prints the metrics on the held-out texts, and ten of them rewritten.
report() {
  printf '\nMetrics of the fine-tuned model on the test set:\n'
  grep -E '^(mean_reciprocal_rank|pair_accuracy|recall_at_[0-9]+)_test' \
    "$work/scorer/eval_results.txt" | print_metrics
  printf '\nTexts of the test set, rewritten:\n'
  "$python" -c "import json, sys
rows = map(json.loads, open(sys.argv[1], encoding='utf-8'))
texts = dict.fromkeys(row['before'] + row['clause'] + row['after'] for row in rows)
print(*[text for text in texts if len(text.splitlines()) == 1 and '\t' not in text][:10], sep='\n')
" \
    "$work/slots/test.jsonl" >"$work/ten.txt"
  "$python" -m rewriting.rewrite --output_dir="$work/scorer" --input_file="$work/ten.txt" \
    --pool_file="${POOL:-$work/slots/pool.txt}" --top_k=1 --output_file="$work/ten.tsv" \
    ${replicas[@]+"${replicas[@]}"}
  tail -n +2 "$work/ten.tsv" | awk -F '\t' '{ print "  " $2 ": " $3 " -> " $4; print "    " $5 }'
  printf '\nAll results: %s\n' "$work"
}

main "$@"
