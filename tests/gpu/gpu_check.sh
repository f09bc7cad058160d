#!/bin/sh
# Runs all checks that need a GPU, the most important ones first, within 8 minutes. Writes a report in Markdown to
# standard output and to OUT/report.md. Fails if a check failed. Speeds are compared with targets; a missed target is no
# failure.
#
#   tests/gpu/gpu_check.sh PLACE OUT                        all checks. PLACE: a build folder or an unpacked bundle;
#                                                           OUT: the folder for results
#   tests/gpu/gpu_check.sh PLACE OUT --sections=GROUP,...   some groups only; results of other groups in OUT are kept.
#                                                           kernels, goldens, training; ranks; speed, jpegs; nets;
#                                                           precisions; wire; more. The groups between two semicolons
#                                                           fit into 8 minutes together
#   tests/gpu/gpu_check.sh PLACE OUT --sections=call1       the first of two calls, for a machine that is lent for 15 minutes:
#                                                           several ranks and idle time. At most 8 minutes
#   tests/gpu/gpu_check.sh PLACE OUT --sections=call2       the second call: speed of other precisions and nets. At most
#                                                           4 minutes
#   tests/gpu/gpu_check.sh PLACE OUT CHECK [WORD...]        one check alone, for example: ours vgg_16 bf16 256,128
#
# `./run gpu-check` builds the program and calls this script; a bundle contains it. PyTorch is measured if `python3` has
# a PyTorch that can use the GPU, but not in call1 and call2. CAROLE_GPU_CHECK_SECONDS sets the time limit (default 480,
# with call2 240). On SIGTERM the running check is stopped and the report is completed.
began=$(date +%s)
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
mkdir -p "$2"
place=$(CDPATH='' cd -- "$1" && pwd -P) || exit 64
out=$(CDPATH='' cd -- "$2" && pwd -P) || exit 64
report=$out/report.md
export XDG_CACHE_HOME="$out/cache" # holds the cache of cuDNN's plans, so that it is part of the results
groups="kernels goldens training ranks speed jpegs nets precisions wire more"
calls="call1 call2" # groups that take sections from others; a call without --sections leaves them out
skip=77 # the exit code of a check that cannot run here; it has printed the reason
# shellcheck source=tests/gpu/gpu_report.sh
. "$here/gpu_report.sh"
# shellcheck source=tests/gpu/gpu_ranks.sh
. "$here/gpu_ranks.sh"

# --- checks: each can be called by its name -----------------------------------------------------------------------

doctor() { "$place/carole" doctor; }

# Prints what a result depends on: the versions of program, libraries and driver, and the clocks.
versions() {
  "$place/carole" --version
  "$place/carole" doctor
  timeout 8 nvidia-smi --format=csv \
    --query-gpu=name,driver_version,persistence_mode,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.limit,temperature.gpu ||
    echo "clocks: not recorded, since nvidia-smi did not answer"
}

# in_shards FIRST TOTAL FILTER COMMAND...: starts TOTAL processes that share the tests. Their pids are added to $pids,
# and their output goes to OUT/shard.N.txt (N from FIRST on), which tally() reads.
in_shards() {
  shard=$1 total=$2 filter=$3
  shift 3
  for index in $(seq 0 $((total - 1))); do
    GTEST_TOTAL_SHARDS=$total GTEST_SHARD_INDEX=$index "$@" --gtest_filter="$filter" >"$out/shard.$shard.txt" 2>&1 &
    pids="${pids:-} $!"
    shard=$((shard + 1))
  done
}

# Prints the number of test processes that keeps nearly all cores busy.
processes() { nproc | awk '{ n = int($1 / 2); print (n < 2 ? 2 : n > 8 ? 8 : n) }'; }

# Waits for all of $pids, and fails if one of them failed.
wait_for_all() {
  failure=0
  for pid in $pids; do wait "$pid" || failure=1; done
  return "$failure"
}

kernels() {
  in_shards 1 "$(processes)" '*/cuda*' "$place/tests/carole_backend_tests"
  wait_for_all
}

# Prints the GB/s of each kernel, compared with a copy.
kernel_speed() { "$place/tests/carole_backend_tests" --gtest_filter='KernelSpeed.ComparedWithACopy' --gtest_brief=1; }

# Checks all nets that have a golden file, in fp32 and bf16, and some also in fp16 and TF32.
goldens() {
  for folder in "${CAROLE_GOLDENS:-}" "$place/tests/data/goldens/more" "$place/tests/data/goldens" \
    "$here/../data/goldens"; do
    [ ! -d "$folder" ] || break
  done
  export CAROLE_GOLDENS="$folder"
  in_shards 1 "$(processes)" '*_cuda:*_cuda_bf16:*.lenet_cuda_*:*.resnet_v1_50_cuda_*:*.mobilenet_v3_small_cuda_*' \
    "$place/tests/carole_golden_tests"
  wait_for_all
}

sanitizer_findings() { grep -E '^=+ (Invalid|Program hit|Error:|Race|Uninitialized)' "$1" | head -n 10; }

# Runs our own kernels, but not those of the libraries, under compute-sanitizer. Three of the four processes test what
# is neither a convolution nor a matrix product. The last one tests our depthwise convolutions, those of images, and the
# copies that we make for cuDNN. (--target-processes all: in a bundle, a script starts the tests.)
sanitizer() {
  set -- compute-sanitizer --target-processes all --report-api-errors no --error-exitcode=1 \
    "$place/tests/carole_backend_tests"
  command -v "$1" >/dev/null || {
    echo "skipped: compute-sanitizer was not found"
    return "$skip"
  }
  in_shards 1 3 '*/cuda*-*/cuda_conv2d*:*/cuda_optional*:*/cuda_linear*' "$@"
  in_shards 4 1 '*/cuda_conv2d*depthwise*:*/cuda_conv2d_?x?*first*:*/cuda_conv2d_backward_filter_*first*:*/cuda_optional*_3x3_valid_relu' "$@"
  wait_for_all
  if grep -h 'Device not supported' "$out"/shard.*.txt; then
    rm "$out"/shard.*.txt
    echo "skipped: compute-sanitizer does not know this device"
    return "$skip"
  fi
  for shard in 1 2 3 4; do
    sanitizer_findings "$out/shard.$shard.txt"
    grep 'ERROR SUMMARY' "$out/shard.$shard.txt" || {
      echo "process $shard: no ERROR SUMMARY"
      failure=1
    }
  done
  return "$failure"
}

fashion_mnist() {
  "$place/carole" dataset build --dataset_name=fashion_mnist --dataset_dir="$out/data" --raw_dir="$raw"
}

synthetic_jpegs() {
  "$place/carole" dataset build --dataset_name=synthetic --dataset_dir="$out/jpegs" --num_images=2048 \
    --num_classes=1000 --image_width=500
}

# losses BACKEND NAME FLAG...: trains 20 steps of LeNet, and writes the loss of each to OUT/steps_NAME_BACKEND.txt.
# Plans are not timed (--noautotune), since many of these run at the same time.
losses() {
  backend=$1 name=$2
  shift 2
  "$place/carole" train --backend="$backend" --threads=1 --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --train_dir="$out/train_${name}_$backend" --model_name=lenet --batch_size=64 --max_number_of_steps=20 \
    --log_every_n_steps=1 --noautotune "$@" >"$out/log_${name}_$backend.txt" 2>&1
  losses_in "$out/log_${name}_$backend.txt" >"$out/steps_${name}_$backend.txt"
}

# Compares the steps of each optimizer on the GPU with those on the CPU. Losses may differ by 1 % of their change since
# the first step, plus 2 in their fourth digit. A diverging training must be detected at the same step on both.
optimizers() {
  optimizers=$("$place/carole" train --help | tr '\n' ' ' |
    sed -n 's/.* --optimizer TEXT [^[]*One of: \([^.]*\)\..*/\1/p' | tr -d ,)
  for backend in cuda onednn; do
    for optimizer in $optimizers; do
      losses $backend "$optimizer" --optimizer="$optimizer" --learning_rate=0.02 --clip_gradient_norm=1 &
    done
    losses $backend diverging --optimizer=sgd --learning_rate=1e30 &
  done
  wait
  failure=0
  for name in $optimizers diverging; do
    paste "$out/steps_${name}_cuda.txt" "$out/steps_${name}_onednn.txt" | awk -F '\t' -v name="$name" '
      NR == 1 { first = $2 }
      /after step/ { ended = $1; same = $1 == $2 }
      !/after step/ {
        ++steps
        off = $1 > $2 ? $1 - $2 : $2 - $1
        moved = $2 > first ? $2 - first : first - $2
        farthest = off > farthest ? off : farthest
        last = $2
        if ($1 == "" || $2 == "" || off > 0.01 * moved + 2e-4 * ($2 > 1 ? $2 : 1)) bad = 1
      }
      END {
        good = !bad && (name == "diverging" ? same : steps == 20 && !ended)
        printf "%-10s %2d steps, %.4f to %.4f, largest difference from the CPU %.4f%s%s\n", name, steps, first, last,
          farthest, ended ? "; " ended : "", good ? "" : ": DIFFERS"
        exit !good
      }' && continue
    failure=1
    tail -q -n 1 "$out/log_${name}_cuda.txt" "$out/log_${name}_onednn.txt"
  done
  return "$failure"
}

# Trains with micro-batches, moving averages and bf16, once with captured steps (CUDA graphs) and once with single
# launches. All losses must be equal.
captured_steps() {
  for way in cuda_graph nocuda_graph; do
    losses cuda "$way" "--$way" --precision=bf16 --accumulation_steps=2 --moving_average_decay=0.9 --optimizer=adam \
      --learning_rate=0.001 &
  done
  wait
  echo "last of 20 losses: $(tail -n 1 "$out/steps_cuda_graph_cuda.txt") captured, $(tail -n 1 "$out/steps_nocuda_graph_cuda.txt") not captured"
  [ "$(wc -l <"$out/steps_cuda_graph_cuda.txt")" -eq 20 ] && diff "$out/steps_cuda_graph_cuda.txt" "$out/steps_nocuda_graph_cuda.txt"
}

# lenet PRECISION: trains five epochs; then the accuracy on the test images must be at least 0.91.
lenet() {
  "$place/carole" train --backend=cuda --precision="$1" --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --train_dir="$out/train_$1" --model_name=lenet --batch_size=64 --max_number_of_steps=4690 --optimizer=adam \
    --opt_epsilon=1e-8 --learning_rate=0.0015 --learning_rate_decay_type=exponential \
    --learning_rate_decay_factor=0.5 --num_epochs_per_decay=1 --log_every_n_steps=500 || return
  "$place/carole" eval --backend=cuda --precision="$1" --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --dataset_split_name=test --checkpoint_path="$out/train_$1" --model_name=lenet --batch_size=100 --json \
    >"$out/eval.json" || return
  sed -n 's/.*"accuracy":\([0-9.]*\),"recall_5".*/\1/p' "$out/eval.json" |
    awk '{ print "accuracy " $1 ", want 0.91"; good = $1 >= 0.91 } END { exit !good }'
}

# train NET PRECISION BATCH [FLAG...]: measures a training. Writes a line of JSON to OUT/row.json, and messages also to
# OUT/row.txt. Pixels come from host memory in each step, as uint8.
train() {
  net=$1 precision=$2 batch=$3
  shift 3
  "$place/carole" bench train --backend=cuda --model_name="$net" --precision="$precision" --batch_size="$batch" \
    --input_dtype=uint8 --json "$@" >"$out/row.json" 2>"$out/row.txt"
  code=$?
  cat "$out/row.txt" >&2
}

# Whether the last train() failed because the batch did not fit into the GPU's memory. Either carole refused it
# beforehand, or an allocation failed.
does_not_fit() { [ "$code" -eq 78 ] || grep -q 'GPU memory: not enough' "$out/row.txt"; }

# bench PREFIX NET PRECISION BATCHES [FLAG...]: prints a line of JSON for each batch size (comma-separated) that fits
# into the GPU's memory, and writes it to PREFIX.NET.PRECISION.BATCH.json. Fails if none fits, or if one fails for
# another reason. A run that fails on the GPU is repeated once without CUDA graphs.
bench() {
  prefix=$1 net=$2 precision=$3
  batches=$(echo "$4" | tr , ' ')
  shift 4
  failure=0 measured=0
  for batch in $batches; do
    file=$prefix.$net.$precision.$batch.json graph=
    : >"$file"
    train "$net" "$precision" "$batch" "$@"
    if [ "$code" -eq 69 ] && ! does_not_fit; then
      graph=',"cuda_graph":false'
      train "$net" "$precision" "$batch" "$@" --nocuda_graph
    fi
    if [ "$code" -eq 0 ]; then
      sed -e 's/,"step_ends_s":\[[^]]*\]//' -e "s/}\$/$graph}/" "$out/row.json" | tee "$file"
      measured=1
    elif ! does_not_fit; then
      echo "batch $batch: exit code $code"
      failure=1
    fi
  done
  [ "$failure" -eq 0 ] && [ "$measured" -eq 1 ]
}

# ours NET PRECISION BATCHES
ours() { bench "$out/ours" "$1" "$2" "$3" --steps=50; }

# torch SECONDS NET PRECISION BATCHES [FLAG...]: measures PyTorch, and prints its lines of JSON. It stays in the process
# group of its check, so that it is stopped together with the check.
torch() {
  seconds=$1 net=$2 precision=$3 batches=$4
  shift 4
  script=$here/gpu_torch.py
  [ -f "$script" ] || script=$here/../bench/gpu_torch.py
  TORCHINDUCTOR_CACHE_DIR=$out/inductor timeout --foreground -k 5 "$seconds" \
    python3 "$script" --model_name="$net" --precision="$precision" --batch_size="$batches" "$@"
}

# ahead NET PRECISION BATCH: lets PyTorch compile a net while other checks run. It measures when `measured_ahead` asks
# for it. Its result is OUT/ahead.NET.PRECISION.BATCH.json. The file .ready exists once it has compiled, .gone once it
# has ended.
ahead() {
  name=$out/ahead.$1.$2.$3
  torch 470 "$1" "$2" "$3" --when="$name" >"$name.json"
  : >"$name.gone"
}

# measured_ahead NET PRECISION BATCH: lets PyTorch measure what it compiled ahead, and prints the result.
measured_ahead() {
  name=$out/ahead.$1.$2.$3
  [ -e "$name.ready" ] || return 0
  : >"$name"
  while [ ! -s "$name.json" ] && [ ! -e "$name.gone" ]; do sleep 0.1; done
  cat "$name.json"
}

# peer NET PRECISION BATCHES [--eager]: measures PyTorch, with its images on the GPU. Nets that were not compiled ahead
# are compiled now. PyTorch is measured uncompiled if compiling fails or leaves too little time.
peer() {
  [ "$CAROLE_HAS_TORCH" = yes ] || {
    echo "skipped: PyTorch cannot use this GPU"
    return "$skip"
  }
  file=$out/peer.$1.$2.json left=
  : >"$file"
  for batch in $(echo "$3" | tr , ' '); do
    measured_ahead "$1" "$2" "$batch" >"$out/ahead.txt"
    [ -s "$out/ahead.txt" ] || left=$left,$batch
    cat "$out/ahead.txt" >>"$file"
  done
  if [ -n "$left" ] && [ "${4:-}" != --eager ]; then
    seconds=$((${CAROLE_SECTION_SECONDS:-110} - 32))
    # Without a pipe, which processes that PyTorch leaves running would keep open.
    [ "$seconds" -le 0 ] || torch "$seconds" "$1" "$2" "${left#,}" >>"$file"
    [ -s "$file" ] || {
      tail -n 5 "$out/compile.txt" 2>/dev/null
      echo "PyTorch did not compile in time; measuring it uncompiled"
    }
  fi
  [ -s "$file" ] || torch "${CAROLE_SECTION_SECONDS:-60}" "$1" "$2" "$3" --eager >"$file"
  cat "$file"
  [ -s "$file" ]
}

# Prints the time of each kernel and the share of time without a kernel, both measured on the GPU over the last two
# seconds. There are enough steps that even the fastest GPU spends these seconds in them.
idle() {
  times=$place/libcarole_gpu_times.so
  [ -f "$times" ] || times=$place/lib/libcarole_gpu_times.so
  CUDA_INJECTION64_PATH=$times bench "$out/idle" resnet_v1_50 bf16 256 --steps=150 2>"$out/times.txt"
  code=$?
  cat "$out/times.txt"
  [ "$code" -eq 0 ] || return "$code"
  ! grep -q '^GPU idle' "$out/times.txt" || return 0
  echo "CUPTI was not found: profiling operations one by one"
  "$place/carole" bench train --backend=cuda --model_name=resnet_v1_50 --precision=bf16 --batch_size=256 --steps=5 \
    --profile
}

# Compares images that are decoded from JPEGs with images that are in memory already, both as uint8. There are enough
# steps that the images decoded ahead are soon used up.
jpegs() {
  set -- resnet_v1_50 bf16 256 --warmup_steps=20 --steps=200
  bench "$out/jpegs_tensors" "$@" || return
  bench "$out/jpegs_decoded" "$@" --dataset_name=synthetic --dataset_dir="$out/jpegs" --labels_offset=1 || return
  "$place/carole" bench input --dataset_name=synthetic --dataset_dir="$out/jpegs" --labels_offset=1 --batch_size=256 \
    --steps=10 --rounds=1 --json
}

# Compares the speed of a build that times up to 64 of cuDNN's plans for each convolution with that of this build, which
# times 16. Both start without a cache of plans. bundle.sh packs such a build if CAROLE_MORE_PLANS names it.
more_plans() {
  [ -x "$place/more_plans/carole" ] || {
    echo "skipped: there is no build with 64 plans; set CAROLE_MORE_PLANS when the bundle is made"
    return "$skip"
  }
  for folder in "$place" "$place/more_plans"; do
    rm -rf "$out/cold_cache"
    start=$(date +%s)
    XDG_CACHE_HOME=$out/cold_cache "$folder/carole" bench train --backend=cuda --model_name=resnet_v1_50 --precision=bf16 \
      --batch_size=256 --input_dtype=uint8 --steps=50 --json >"$out/row.json" || return 1
    sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' "$out/row.json" |
      awk -v plans="$([ "$folder" = "$place" ] && echo 16 || echo 64)" -v seconds=$(($(date +%s) - start)) '
        { printf "up to %d plans: %s images/s, %d s with the search\n", plans, $1, seconds }
        END { exit NR != 1 }' || return 1
  done
}

# Times fused forms of convolutions next to the plain form and the passes over memory that they save.
fused_forms() {
  [ -x "$place/carole_fused_forms" ] || {
    echo "skipped: carole_fused_forms was not built"
    return "$skip"
  }
  "$place/carole_fused_forms" 105 >"$out/fused_forms.txt"
  code=$?
  grep -E 'gains|layers were timed' "$out/fused_forms.txt" # the report has only the end
  echo "all times are in fused_forms.txt"
  [ "$code" -eq 0 ] && grep -q ' plain .* passes .* gain ' "$out/fused_forms.txt"
}

# --- sections -----------------------------------------------------------------------------------------------------

# chosen GROUP,...: whether the sections of one of these groups run.
chosen() {
  for group in $(echo "$1" | tr , ' '); do
    case " $sections " in *" $group "*) return 0 ;; esac
  done
  return 1
}

# end_group PID: kills all processes that are left in the process group of this `timeout`.
end_group() { kill -s KILL -- "-$1" 2>/dev/null; }

# section GROUP,... SECONDS TITLE CHECK [WORD...]: runs a check if one of the groups is chosen, and reports the end of its
# output. The check is stopped after its seconds, or when the total time is over. No section starts after that.
section() {
  chosen "$1" || return 0
  limit=$2 title=$3
  shift 3
  start=$(date +%s)
  left=$((deadline - start))
  if [ "$left" -le 0 ]; then
    printf '\n## %s: skipped: the time is over\n' "$title" | publish
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  rm -f "$out"/shard.*.txt "$out/row.txt"
  CAROLE_SECTION_SECONDS=$limit timeout -k 5 "$limit" sh "$0" "$place" "$out" "$@" >"$out/section.txt" 2>&1 &
  running=$!
  wait "$running" 2>/dev/null
  code=$?
  if [ "$deadline" -eq 0 ]; then # a signal interrupted that wait
    wait "$running" 2>/dev/null
    code=$?
  fi
  seconds=$(($(date +%s) - start))
  # carole reacts to SIGTERM only between steps. One that hangs must not keep the GPU.
  case $code in 124 | 137 | 143) sleep 2 ;; esac
  end_group "$running"
  running=
  mkdir -p "$out/logs" # complete logs, since the report has only their ends
  cat "$out/section.txt" "$out"/shard.*.txt 2>/dev/null | tail -c 500000 >"$out/logs/$(echo "$title" | tr -c 'A-Za-z0-9\n' _).txt"
  case $code in
    0) verdict=passed ;;
    "$skip") verdict=skipped ;;
    *) verdict=FAILED ;;
  esac
  : >"$out/tally.txt"
  if [ -f "$out/shard.1.txt" ]; then
    tally >"$out/tally.txt" || verdict=FAILED
  fi
  [ $verdict != FAILED ] || failed=1
  {
    printf '\n## %s: %s in %d s\n\n    $ %s\n' "$title" $verdict $seconds "$*"
    case $code in 124 | 137 | 143) echo "stopped after $seconds s" >>"$out/tally.txt" ;; *) rm -f "$out/row.txt" ;; esac
    cat "$out/section.txt" "$out/row.txt" "$out/tally.txt" 2>/dev/null | tail -n 60 | sed 's/^/    /'
  } | publish
}

# Starts PyTorch's compilations, which take longer than the sections that measure it. They run while other sections
# check results. If the GPU has enough memory, all run at the same time. In calls without the groups that measure
# PyTorch, they run one after the other and fill a cache for later calls.
compile_ahead() {
  [ "$CAROLE_HAS_TORCH" = yes ] || return 0
  if ! chosen speed && ! chosen nets; then
    ! chosen goldens || [ "${gpu_mib:-0}" -lt 70000 ] || begin compile_all "resnet_v1_50 bf16 256,512" \
      "inception_v3 bf16 256" "mobilenet_v2 bf16 256" "vgg_16 bf16 128"
    return
  fi
  [ "${gpu_mib:-0}" -ge 100000 ] || return 0
  ! chosen speed || for batch in 256 512; do begin ahead resnet_v1_50 bf16 "$batch"; done
  ! chosen nets || begin ahead vgg_16 bf16 128
  ! chosen nets || chosen speed || { # with both groups there is neither memory nor time for these
    begin ahead mobilenet_v2 bf16 256
    begin ahead inception_v3 bf16 256
  }
}

# begin ahead NET PRECISION BATCH, begin compile_all WORDS...: starts a compilation in the background. $compilers lists
# pids and names.
begin() {
  TORCHINDUCTOR_COMPILE_THREADS=4 timeout -k 5 480 sh "$0" "$place" "$out" "$@" >>"$out/compile.txt" 2>&1 &
  name=$1
  [ "$name" = compile_all ] || name=$1.$2.$3.$4
  compilers="$compilers $!:$out/$name"
}

# Waits until the compilations are ready or have ended, so that they do not disturb measurements. Stops those that take
# too long.
wait_for_compilers() {
  for compiler in $compilers; do
    name=${compiler#*:}
    while [ ! -e "$name.ready" ] && [ ! -e "$name.gone" ] && [ $(($(date +%s) - began)) -lt 210 ]; do sleep 0.2; done
    [ -e "$name.ready" ] || end_group "${compiler%%:*}"
  done
}

end_compilers() { for compiler in $compilers; do end_group "${compiler%%:*}"; done; }

# compile_all WORDS...: compiles nets one after the other.
compile_all() {
  for words in "$@"; do
    # shellcheck disable=SC2086
    torch 120 $words --steps=5 --warmup_steps=2
  done
  : >"$out/compile_all.gone"
}

# Finds the number of GPUs, their name, and whether PyTorch can use them. Each query has a time limit.
detect_gpus() {
  CAROLE_GPUS=$(timeout 20 nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
  CAROLE_GPU=$(timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  if [ "$CAROLE_GPUS" -eq 0 ]; then # there may be no nvidia-smi: ask `carole doctor`, which uses the driver
    finding=$(timeout 20 "$place/carole" doctor 2>/dev/null | sed -n 's/^ *[a-z]* *GPU  *//p')
    case $finding in
      *"no NVIDIA driver here"* | "") [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidia0 ] || return ;;
    esac
    CAROLE_GPUS=$(echo "$finding" | sed -n 's/^\([1-9][0-9]*\) GPUs.*/\1/p')
    CAROLE_GPUS=${CAROLE_GPUS:-1} # the checks will report what is wrong with it
  fi
  CAROLE_HAS_TORCH=no
  [ "$measures_torch" = yes ] || {
    echo "these sections do not measure it" >"$out/torch.txt"
    return
  }
  CAROLE_HAS_TORCH=yes
  name=$(timeout 60 python3 -c 'import torch; print(torch.cuda.get_device_name())' 2>"$out/torch.txt")
  case $? in 0 | 124) ;; *) CAROLE_HAS_TORCH=no ;; esac # 124: the first import may take too long
  CAROLE_GPU=${CAROLE_GPU:-$name}
}

# Stops the running check; the remaining sections are skipped.
end_early() {
  deadline=0
  # shellcheck disable=SC2086
  kill ${running:-} 2>/dev/null
  end_compilers
}

check_all() {
  {
    printf '# carole on %s, %s\n\n' "$(hostname)" "$(date -u +%Y-%m-%dT%H:%MZ)"
    timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 | sed 's/^/    /'
    printf '\ncarole copies its pixels from host memory in each step, as uint8. The pixels of PyTorch are on the GPU already, as fp32.\n'
    [ "$CAROLE_HAS_TORCH" = yes ] || printf '\nPyTorch is not measured: %s\n' "$(tail -n 1 "$out/torch.txt")"
  } | publish
  compile_ahead

  section call1 10 "Versions and clocks" versions
  section kernels 15 "Doctor" doctor
  section kernels 50 "Kernels against the reference" kernels
  section goldens 110 "Nets against their golden values" goldens
  section training,ranks,wire,call1 20 "Data: Fashion-MNIST" fashion_mnist
  section training 30 "Optimizers and non-finite steps, compared with the CPU" optimizers
  section training 10 "Micro-batches and moving averages, captured and not" captured_steps
  section jpegs 40 "Data: synthetic JPEGs" synthetic_jpegs
  wait_for_compilers

  section ranks,call1 30 "Two ranks: sums of all-reduces" all_reduce_of_ranks 65536,1048576,16777216,67108864
  section ranks,call1 60 "Two ranks: LeNet, captured, not captured and on CPUs" lenet_of_ranks 20
  section ranks,call1 45 "Two ranks: ResNet-50 with batch norm" batch_norm_of_ranks resnet_v1_50 64 12
  section ranks,call1 45 "Two ranks: ResNet-50 with batch norm over all ranks" \
    batch_norm_of_ranks resnet_v1_50 64 12 --sync_batch_norm
  section ranks,call1 40 "Two ranks: one is killed, one is frozen" end_of_ranks
  section ranks,call1 60 "Two ranks: 2000 captured steps next to copies" soak 2000
  section ranks 30 "Two ranks: Adasum, and sums in a fixed order" other_reductions 20
  [ -z "$mpirun" ] || section ranks 20 "More ranks than GPUs" too_many_ranks
  [ "$CAROLE_GPUS" -le 1 ] || section ranks 130 "A rank on each GPU" a_rank_on_each_gpu

  section kernels 30 "Speed of our kernels, compared with a copy" kernel_speed
  # The search for cuDNN plans may take 0.5 s for each convolution of a net (src/backend/cuda/plans/plan_search.h): 38 s for
  # ResNet-50 at each batch size and precision, 26 s for VGG-16, 30 s for MobileNet v2, 67 s for Inception v3. On an H200
  # the whole first measurement of these nets took 9, 27, 6 and 14 s.
  section speed 80 "ResNet-50, bf16" ours resnet_v1_50 bf16 256
  section speed 70 "ResNet-50, bf16, batch 512" ours resnet_v1_50 bf16 512
  section speed 145 "ResNet-50, bf16, PyTorch compiled" peer resnet_v1_50 bf16 256,512
  section speed 30 "ResNet-50, bf16, by kernel; idle time" idle
  section call1 45 "ResNet-50, bf16, by kernel; idle time" idle # it also searches plans
  section call1 120 "Convolutions with parts of batch norm" fused_forms
  section training 40 "LeNet, 5 epochs, fp32: accuracy" lenet fp32
  section nets 65 "VGG-16, bf16" ours vgg_16 bf16 128
  section nets 65 "VGG-16, bf16, PyTorch compiled" peer vgg_16 bf16 128
  section jpegs 105 "ResNet-50, bf16, from JPEGs" jpegs
  section kernels 75 "Our kernels under compute-sanitizer" sanitizer
  section nets 60 "MobileNet v2, bf16" ours mobilenet_v2 bf16 256
  section nets 85 "MobileNet v2, bf16, PyTorch compiled" peer mobilenet_v2 bf16 256
  section nets 100 "Inception v3, bf16" ours inception_v3 bf16 256
  section nets 105 "Inception v3, bf16, PyTorch compiled" peer inception_v3 bf16 256
  section precisions 65 "ResNet-50, TF32" ours resnet_v1_50 tf32 256
  section precisions 70 "ResNet-50, fp32" ours resnet_v1_50 fp32 256
  section precisions 45 "ResNet-50, TF32, PyTorch uncompiled" peer resnet_v1_50 tf32 256 --eager
  section precisions 55 "ResNet-50, fp32, PyTorch uncompiled" peer resnet_v1_50 fp32 256 --eager
  section training 40 "LeNet, 5 epochs, bf16: accuracy" lenet bf16
  section wire 90 "Two ranks: gradients that travel as bf16" gradients_as_bf16 65536,1048576,16777216,67108864 20
  [ "$CAROLE_GPUS" -le 1 ] || section wire 200 "ResNet-50 with other settings of NCCL" compare_reductions resnet_v1_50 256
  section precisions,call2 50 "ResNet-50, fp16" ours resnet_v1_50 fp16 256
  section call2 90 "ResNet-50 v1.5, bf16" ours resnet50 bf16 256
  section call2 60 "ResNet-50, bf16, 64 plans and 16" more_plans
  section more 35 "Two ranks: times by the clocks of GPUs" times_of_ranks resnet_v1_50 64 20
  section more 105 "ResNet-50, bf16, other batches" ours resnet_v1_50 bf16 128,64
  section more 160 "ResNet-50, TF32, other batches" ours resnet_v1_50 tf32 512,128,64
  section more 180 "ResNet-50, fp32, other batches" ours resnet_v1_50 fp32 512,128,64
  end_compilers
  summary | publish
}

mpirun=$(command -v "$place/mpirun" || command -v mpirun)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
raw=$place/share/fashion-mnist
[ -d "$raw" ] || raw=/usr/share/datasets/fashion-mnist
most_seconds=480 measures_torch=yes
case ${3:-} in
  --sections=call1) measures_torch=no ;;
  --sections=call2) most_seconds=240 measures_torch=no ;;
esac
deadline=$((began + ${CAROLE_GPU_CHECK_SECONDS:-$most_seconds})) compilers='' failed=0
if [ -z "${CAROLE_GPUS:-}" ]; then
  detect_gpus
  if [ "$CAROLE_GPUS" -eq 0 ]; then
    echo "no GPU: neither nvidia-smi nor the driver reports one; nothing was checked"
    exit 0
  fi
  export CAROLE_GPUS CAROLE_GPU CAROLE_HAS_TORCH
fi
case ${3:-} in
  '') sections=$groups ;;
  --sections=?*)
    sections=$(echo "${3#*=}" | tr , ' ')
    for name in $sections; do
      case " $groups $calls " in *" $name "*) continue ;; esac
      echo "gpu-check: --sections: got $name, want some of $groups, or one of $calls" >&2
      exit 64
    done
    ;;
  *)
    shift 2
    "$@"
    exit
    ;;
esac
trap end_early TERM INT HUP
ip link set lo up 2>/dev/null || : # mpirun needs a network interface; the loopback interface is enough
rm -rf "$out/data" "$out/tiny" "$out/jpegs" "$out"/train_* "$out/compile.txt" "$out"/ahead.* "$out/compile_all.gone"
if [ "$sections" = "$groups" ]; then
  rm -f "$report" "$out/times.txt" "$out"/ours.*.json "$out"/peer.*.json "$out"/idle.*.json "$out"/jpegs_*.json
fi
gpu_mib=$(timeout 20 nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
check_all
[ "$failed" -eq 0 ]
