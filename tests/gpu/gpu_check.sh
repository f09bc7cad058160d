#!/bin/sh
# Checks on a GPU all that needs one, in 8 minutes, the most important first; writes a report in Markdown to standard
# output and OUT/report.md, and fails when a check failed. Speeds are compared with what is wanted, and fail nothing.
#
#   tests/gpu/gpu_check.sh PLACE OUT                        PLACE: a build folder, or an unpacked bundle; OUT: what it makes
#   tests/gpu/gpu_check.sh PLACE OUT --sections=GROUP,...   some groups only, beside what OUT has of others already: kernels,
#                                                        goldens, training, ranks; speed, jpegs; nets; precisions; more.
#                                                        Those up to a semicolon fit into 8 minutes together
#   tests/gpu/gpu_check.sh PLACE OUT CHECK [WORD...]        one check alone, e.g. ours vgg_16 bf16 256,128
#
# `./run gpu-check` builds and calls this; a bundle holds it. PyTorch's figures are there where `python3` has PyTorch
# for the GPU. CAROLE_GPU_CHECK_SECONDS: 480 if not given. On SIGTERM the running check ends, and the report is closed.
began=$(date +%s)
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
mkdir -p "$2"
place=$(CDPATH='' cd -- "$1" && pwd -P) || exit 64
out=$(CDPATH='' cd -- "$2" && pwd -P) || exit 64
report=$out/report.md
export XDG_CACHE_HOME="$out/cache" # cuDNN's plans: they come home with what else is in OUT
groups="kernels goldens training ranks speed jpegs nets precisions more"
skip=77 # a check's exit code: it cannot be done here, and has said why
# shellcheck source=tests/gpu/gpu_report.sh
. "$here/gpu_report.sh"

# --- checks: each may be called by its name -----------------------------------------------------------------------

doctor() { "$place/carole" doctor; }

# in_shards FIRST TOTAL FILTER COMMAND...: starts so many processes that share the tests; their pids are in $pids, what
# they say in OUT/shard.N.txt, which tally() reads.
in_shards() {
  shard=$1 total=$2 filter=$3
  shift 3
  for index in $(seq 0 $((total - 1))); do
    GTEST_TOTAL_SHARDS=$total GTEST_SHARD_INDEX=$index "$@" --gtest_filter="$filter" >"$out/shard.$shard.txt" 2>&1 &
    pids="${pids:-} $!"
    shard=$((shard + 1))
  done
}

# So many that nearly all cores are busy.
processes() { nproc | awk '{ n = int($1 / 2); print (n < 2 ? 2 : n > 8 ? 8 : n) }'; }

# Whether all of $pids ended well.
wait_for_all() {
  problem=0
  for pid in $pids; do wait "$pid" || problem=1; done
  return "$problem"
}

kernels() {
  in_shards 1 "$(processes)" '*/cuda*' "$place/tests/carole_backend_tests"
  wait_for_all
}

# Each kernel's GB/s beside a copy's.
kernel_speed() { "$place/tests/carole_backend_tests" --gtest_filter='KernelSpeed.BesideACopy' --gtest_brief=1; }

# Alone: the tests on a stand-in load that.
nvjpeg() {
  in_shards 1 1 'NvJpegOnGpu.*' "$place/tests/carole_io_tests"
  wait_for_all || return 1
  ! grep -h '^skipped: ' "$out/shard.1.txt" || {
    rm "$out/shard.1.txt"
    return "$skip"
  }
}

# All nets that have a golden file, in fp32 and bf16; some in fp16 and TF32 too.
goldens() {
  for folder in "${CAROLE_GOLDENS:-}" "$place/tests/data/goldens/more" "$place/tests/data/goldens" \
    "$here/../tests/data/goldens"; do
    [ ! -d "$folder" ] || break
  done
  export CAROLE_GOLDENS="$folder"
  in_shards 1 "$(processes)" '*_cuda:*_cuda_bf16:*.lenet_cuda_*:*.resnet_v1_50_cuda_*:*.mobilenet_v3_small_cuda_*' \
    "$place/tests/carole_golden_tests"
  wait_for_all
}

sanitizer_findings() { grep -E '^=+ (Invalid|Program hit|Error:|Race|Uninitialized)' "$1" | head -n 10; }

# Our own kernels (those of libraries are their makers' business): three quarters of the processes take what is neither
# a convolution nor a product, the last our depthwise convolutions and those of images, and what we copy for cuDNN's. In
# the bundle a script starts the tests.
sanitizer() {
  set -- compute-sanitizer --target-processes all --report-api-errors no --error-exitcode=1 \
    "$place/tests/carole_backend_tests"
  command -v "$1" >/dev/null || {
    echo "skipped: no compute-sanitizer here"
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
      problem=1
    }
  done
  return "$problem"
}

fashion_mnist() {
  "$place/carole" dataset build --dataset_name=fashion_mnist --dataset_dir="$out/data" --raw_dir="$raw"
}

drawn_jpegs() {
  "$place/carole" dataset build --dataset_name=synthetic --dataset_dir="$out/jpegs" --num_images=2048 \
    --num_classes=1000 --image_width=500
}

# losses BACKEND NAME FLAG...: 20 steps of LeNet; the loss of each into OUT/steps_NAME_BACKEND.txt. Many at once: what
# they would find out of plans' speed holds for nobody.
losses() {
  backend=$1 name=$2
  shift 2
  "$place/carole" train --backend="$backend" --threads=1 --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --train_dir="$out/train_${name}_$backend" --model_name=lenet --batch_size=64 --max_number_of_steps=20 \
    --log_every_n_steps=1 --noautotune "$@" >"$out/log_${name}_$backend.txt" 2>&1
  sed -n -e 's/.*global step [0-9]*: loss = \([-+.0-9a-z]*\) .*/\1/p' -e 's/.*\(after step [0-9]*: not finite\).*/\1/p' \
    "$out/log_${name}_$backend.txt" >"$out/steps_${name}_$backend.txt"
}

# Each optimizer's steps on the GPU and on the cores: losses may differ by 1 % of how far they fell or rose, and by
# their fourth digit. And steps that diverge: they must be found out at the same one.
optimizers() {
  optimizers=$("$place/carole" train --help | sed -n 's/^ *--optimizer [^ ]* *//p' | tr -d ,)
  for backend in cuda onednn; do
    for optimizer in $optimizers; do
      losses $backend "$optimizer" --optimizer="$optimizer" --learning_rate=0.02 --clip_gradient_norm=1 &
    done
    losses $backend diverging --optimizer=sgd --learning_rate=1e30 &
  done
  wait
  problem=0
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
        printf "%-10s %2d steps, %.4f to %.4f, at most %.4f beside the cores%s%s\n", name, steps, first, last, farthest,
          ended ? "; " ended : "", good ? "" : ": DIFFERS"
        exit !good
      }' && continue
    problem=1
    tail -q -n 1 "$out/log_${name}_cuda.txt" "$out/log_${name}_onednn.txt"
  done
  return "$problem"
}

# Micro-batches, moving averages and 16 bits together: recorded steps beside those of kernels one by one, the same losses.
recorded_steps() {
  for way in cuda_graph nocuda_graph; do
    losses cuda "$way" "--$way" --precision=bf16 --accumulation_steps=2 --moving_average_decay=0.9 --optimizer=adam \
      --learning_rate=0.001 &
  done
  wait
  echo "20 losses of each: $(tail -n 1 "$out/steps_cuda_graph_cuda.txt") recorded, $(tail -n 1 "$out/steps_nocuda_graph_cuda.txt") not, at the end"
  [ "$(wc -l <"$out/steps_cuda_graph_cuda.txt")" -eq 20 ] && diff "$out/steps_cuda_graph_cuda.txt" "$out/steps_nocuda_graph_cuda.txt"
}

# lenet PRECISION: five epochs, then at least 0.91 of the test images right.
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

# One rank more than GPUs: an error that says so, and its exit code.
too_many_ranks() {
  "$mpirun" -np $((CAROLE_GPUS + 1)) "$place/carole" bench train --backend=cuda --model_name=lenet --batch_size=8 --steps=2
  code=$?
  echo "exit code $code, want 78"
  [ "$code" -eq 78 ]
}

# Each on a GPU of its own: NCCL's bandwidth, then two nets beside one rank alone, which also finds the plans.
a_rank_on_each_gpu() {
  "$mpirun" -np "$CAROLE_GPUS" "$place/carole" bench allreduce --backend=cuda --sizes=65536,1048576,27262976,268435456 || return 1
  for row in resnet_v1_50:256 vgg_16:128; do
    for ranks in 1 "$CAROLE_GPUS"; do
      "$mpirun" -np "$ranks" "$place/carole" bench train --backend=cuda --model_name="${row%:*}" --precision=bf16 \
        --input_dtype=uint8 --batch_size="${row#*:}" --steps=30 --json >"$out/ranks.$ranks.json" || return 1
    done
    sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' "$out/ranks.1.json" "$out/ranks.$CAROLE_GPUS.json" |
      awk -v net="${row%:*}" -v ranks="$CAROLE_GPUS" 'NR == 1 { one = $1 } END {
        printf "%s: %.0f images/s on %d GPUs, %.0f on one: %.3f of as many times that, want 0.95\n", net, $1, ranks, one,
          $1 / one / ranks; exit $1 / one / ranks < 0.95 }' || return 1
  done
}

# Both see one GPU, and sum on it and by way of the host. NCCL 2.30 and newer let them, if told to; an older one is a
# line that says so, and no failure.
two_ranks_on_one_gpu() {
  for way in --reduction=sum --reduction=adasum --reproducible; do
    CUDA_VISIBLE_DEVICES=0 NCCL_MULTI_RANK_GPU_ENABLE=1 "$mpirun" -np 2 "$place/carole" bench train --backend=cuda \
      --model_name=lenet --batch_size=64 --steps=50 "$way" && continue
    echo "$way: exit code $?"
    case $("$place/carole" doctor | grep 'NCCL') in
      *" 2."[12][0-9].*) echo "skipped: this NCCL has no setting for it" ;;
      *[0-9].[0-9]*) return 1 ;;
      *) echo "skipped: no NCCL here" ;;
    esac
    return "$skip"
  done
}

# train NET PRECISION BATCH [FLAG...]: a line of JSON into OUT/row.json, messages into OUT/row.txt too. Pixels come from
# the host's memory in each step, as uint8.
train() {
  net=$1 precision=$2 batch=$3
  shift 3
  "$place/carole" bench train --backend=cuda --model_name="$net" --precision="$precision" --batch_size="$batch" \
    --input_dtype=uint8 --json "$@" >"$out/row.json" 2>"$out/row.txt"
  code=$?
  cat "$out/row.txt" >&2
}

# Whether that was why the last one failed: found out before the GPU is asked, or by the GPU.
does_not_fit() { [ "$code" -eq 78 ] || grep -q 'GPU memory: not enough' "$out/row.txt"; }

# bench PREFIX NET PRECISION BATCHES [FLAG...]: a line of JSON for each batch size (given with commas) that fits into the
# GPU, at once, also into PREFIX.NET.PRECISION.BATCH.json; fails where none does, or one fails otherwise. What fails on
# the GPU is tried once more without a CUDA graph.
bench() {
  prefix=$1 net=$2 precision=$3
  batches=$(echo "$4" | tr , ' ')
  shift 4
  problem=0 measured=0
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
      problem=1
    fi
  done
  [ "$problem" -eq 0 ] && [ "$measured" -eq 1 ]
}

# ours NET PRECISION BATCHES
ours() { bench "$out/ours" "$1" "$2" "$3" --steps=50; }

# torch SECONDS NET PRECISION BATCHES [FLAG...]: PyTorch's lines. Without a process group of its own, so that what ends
# a check ends this.
torch() {
  seconds=$1 net=$2 precision=$3 batches=$4
  shift 4
  script=$here/gpu_torch.py
  [ -f "$script" ] || script=$here/../tests/bench/gpu_torch.py
  TORCHINDUCTOR_CACHE_DIR=$out/inductor timeout --foreground -k 5 "$seconds" \
    python3 "$script" --model_name="$net" --precision="$precision" --batch_size="$batches" "$@"
}

# ahead NET PRECISION BATCH: PyTorch compiles that beside other checks, and measures once `measured_ahead` asks for it.
# What it says is in OUT/ahead.NET.PRECISION.BATCH.json; .ready and .gone tell how far it is.
ahead() {
  name=$out/ahead.$1.$2.$3
  torch 470 "$1" "$2" "$3" --when="$name" >"$name.json"
  : >"$name.gone"
}

measured_ahead() {
  name=$out/ahead.$1.$2.$3
  [ -e "$name.ready" ] || return 0
  : >"$name"
  while [ ! -s "$name.json" ] && [ ! -e "$name.gone" ]; do sleep 0.1; done
  cat "$name.json"
}

# peer NET PRECISION BATCHES [--eager]: PyTorch's, its images on the GPU: of those that were compiled ahead, else compiled
# now; uncompiled where compiling fails, or leaves of the section's seconds no more than that needs.
peer() {
  [ "$CAROLE_HAS_TORCH" = yes ] || {
    echo "skipped: no PyTorch for this GPU here"
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
    # No pipe: what it leaves running would keep it open.
    [ "$seconds" -le 0 ] || torch "$seconds" "$1" "$2" "${left#,}" >>"$file"
    [ -s "$file" ] || {
      tail -n 5 "$out/compile.txt" 2>/dev/null
      echo "no figures: once more, uncompiled"
    }
  fi
  [ -s "$file" ] || torch "${CAROLE_SECTION_SECONDS:-60}" "$1" "$2" "$3" --eager >"$file"
  cat "$file"
  [ -s "$file" ]
}

# By kernel as the GPU itself saw them, and the share of time in which it had none: of the last two seconds. So many steps
# that those hold nothing else on the fastest GPU.
idle() {
  times=$place/libcarole_gpu_times.so
  [ -f "$times" ] || times=$place/lib/libcarole_gpu_times.so
  CUDA_INJECTION64_PATH=$times bench "$out/idle" resnet_v1_50 bf16 256 --steps=150 2>"$out/times.txt"
  code=$?
  cat "$out/times.txt"
  [ "$code" -eq 0 ] || return "$code"
  ! grep -q '^GPU idle' "$out/times.txt" || return 0
  echo "no CUPTI here: each operation is waited for"
  "$place/carole" bench train --backend=cuda --model_name=resnet_v1_50 --precision=bf16 --batch_size=256 --steps=5 \
    --profile
}

# Pictures from a disk beside those that are there already, both as uint8. So many steps that what was decoded ahead is
# soon used up.
jpegs() {
  set -- resnet_v1_50 bf16 256 --warmup_steps=20 --steps=200
  bench "$out/jpegs_tensors" "$@" || return
  for decoder in cpu nvjpeg; do
    bench "$out/jpegs_$decoder" "$@" --dataset_name=synthetic --dataset_dir="$out/jpegs" --labels_offset=1 \
      --jpeg_decoder="$decoder" && continue
    [ "$code" -eq 78 ] && [ "$decoder" = nvjpeg ] || return 1
    echo "skipped: nvJPEG is not here"
  done
  "$place/carole" bench input --dataset_name=synthetic --dataset_dir="$out/jpegs" --labels_offset=1 --batch_size=256 \
    --steps=10 --rounds=1 --json
}

# --- sections -----------------------------------------------------------------------------------------------------

# chosen GROUP: whether its sections are to be run.
chosen() { case " $sections " in *" $1 "*) ;; *) false ;; esac }

# Of what `timeout` led, all that is left.
end_group() { kill -s KILL -- "-$1" 2>/dev/null; }

# section GROUP SECONDS TITLE CHECK [WORD...]: what the check says in the end. It is ended when its seconds, or those of
# the whole, are over; none begins then.
section() {
  group=$1 limit=$2 title=$3
  shift 3
  chosen "$group" || return 0
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
  if [ "$deadline" -eq 0 ]; then # a signal ended that
    wait "$running" 2>/dev/null
    code=$?
  fi
  seconds=$(($(date +%s) - start))
  # The carole of a shell that was ended notes SIGTERM only between steps; a hung one must not keep the GPU.
  case $code in 124 | 137 | 143) sleep 2 ;; esac
  end_group "$running"
  running=
  mkdir -p "$out/logs" # whole, since the report has the end only
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
    case $code in 124 | 137 | 143) echo "ended after $seconds s" >>"$out/tally.txt" ;; *) rm -f "$out/row.txt" ;; esac
    cat "$out/section.txt" "$out/row.txt" "$out/tally.txt" 2>/dev/null | tail -n 60 | sed 's/^/    /'
  } | publish
}

# What PyTorch compiles takes longer than its sections have. It is begun while others look whether results are right, all
# at once, if the GPU has the memory; or for later calls, one after the other, into a cache that is where it is.
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
  ! chosen nets || chosen speed || { # else there is neither memory nor time for them
    begin ahead mobilenet_v2 bf16 256
    begin ahead inception_v3 bf16 256
  }
}

# begin ahead NET PRECISION BATCH | begin compile_all WORDS...: in the background; $compilers are their pids and names.
begin() {
  TORCHINDUCTOR_COMPILE_THREADS=4 timeout -k 5 480 sh "$0" "$place" "$out" "$@" >>"$out/compile.txt" 2>&1 &
  name=$1
  [ "$name" = compile_all ] || name=$1.$2.$3.$4
  compilers="$compilers $!:$out/$name"
}

# Until they disturb no longer: until they are ready, or gone. Ends those that take too long.
wait_for_compilers() {
  for compiler in $compilers; do
    name=${compiler#*:}
    while [ ! -e "$name.ready" ] && [ ! -e "$name.gone" ] && [ $(($(date +%s) - began)) -lt 210 ]; do sleep 0.2; done
    [ -e "$name.ready" ] || end_group "${compiler%%:*}"
  done
}

end_compilers() { for compiler in $compilers; do end_group "${compiler%%:*}"; done; }

# One after the other.
compile_all() {
  for words in "$@"; do
    # shellcheck disable=SC2086
    torch 120 $words --steps=5 --warmup_steps=2
  done
  : >"$out/compile_all.gone"
}

# How many of them there are, what they are called, and whether PyTorch can use them: asked once. Never for long.
look_at_gpus() {
  CAROLE_GPUS=$(timeout 20 nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
  CAROLE_GPU=$(timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  if [ "$CAROLE_GPUS" -eq 0 ]; then # ask those who know the driver itself
    finding=$(timeout 20 "$place/carole" doctor 2>/dev/null | sed -n 's/^ *[a-z]* *GPU  *//p')
    case $finding in
      *"no driver here"* | "") [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidia0 ] || return ;;
    esac
    CAROLE_GPUS=$(echo "$finding" | sed -n 's/^\([1-9][0-9]*\) GPUs.*/\1/p')
    CAROLE_GPUS=${CAROLE_GPUS:-1} # the checks will say what is wrong with it
  fi
  CAROLE_HAS_TORCH=yes
  name=$(timeout 60 python3 -c 'import torch; print(torch.cuda.get_device_name())' 2>"$out/torch.txt")
  case $? in 0 | 124) ;; *) CAROLE_HAS_TORCH=no ;; esac # 124: a first import may take long
  CAROLE_GPU=${CAROLE_GPU:-$name}
}

# Ends what runs; what is left is skipped.
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
    printf '\nOur pixels come from memory of the host in each step, as uint8; those of PyTorch lie on the GPU, as fp32.\n'
    [ "$CAROLE_HAS_TORCH" = yes ] || printf '\nNo PyTorch for this GPU: %s\n' "$(tail -n 1 "$out/torch.txt")"
  } | publish
  compile_ahead

  section kernels 15 "Doctor" doctor
  section kernels 50 "Kernels against the reference" kernels
  section goldens 110 "Nets against their golden values" goldens
  section training 20 "Data: Fashion-MNIST" fashion_mnist
  section training 30 "Optimizers, and steps that are not finite, beside those of the cores" optimizers
  section training 10 "Micro-batches and averages, recorded and not" recorded_steps
  section jpegs 40 "Data: drawn JPEGs" drawn_jpegs
  wait_for_compilers

  section kernels 30 "Our kernels beside a copy" kernel_speed
  # New cuDNN plans are looked for in up to 0.5 s for each of a net's convolutions (backend/cuda/plan_search.h): 38 s for
  # ResNet-50 at each batch size and precision, 26 s for VGG-16, 30 s for MobileNet v2, 67 s for Inception v3. On an H200
  # all of their first measurement took 9, 27, 6 and 14 s.
  section speed 80 "ResNet-50, bf16" ours resnet_v1_50 bf16 256
  section speed 70 "ResNet-50, bf16, batch 512" ours resnet_v1_50 bf16 512
  section speed 145 "ResNet-50, bf16, PyTorch compiled" peer resnet_v1_50 bf16 256,512
  section speed 30 "ResNet-50, bf16, by kernel; idle time" idle
  section training 40 "LeNet, 5 epochs, fp32: accuracy" lenet fp32
  if [ -n "$mpirun" ]; then
    section ranks 20 "More ranks than GPUs" too_many_ranks
    section ranks 40 "Two ranks on one GPU" two_ranks_on_one_gpu
    [ "$CAROLE_GPUS" -le 1 ] || section ranks 240 "A rank on each GPU" a_rank_on_each_gpu
  elif chosen ranks; then
    printf '\n## Several ranks: skipped: no mpirun here\n' | publish
  fi
  section nets 65 "VGG-16, bf16" ours vgg_16 bf16 128
  section nets 65 "VGG-16, bf16, PyTorch compiled" peer vgg_16 bf16 128
  section jpegs 10 "nvJPEG's pixels beside the CPU's" nvjpeg
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
  section precisions 60 "ResNet-50, fp16" ours resnet_v1_50 fp16 256
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
deadline=$((began + ${CAROLE_GPU_CHECK_SECONDS:-480})) compilers='' failed=0
if [ -z "${CAROLE_GPUS:-}" ]; then
  look_at_gpus
  if [ "$CAROLE_GPUS" -eq 0 ]; then
    echo "no GPU: neither nvidia-smi nor the driver names one; nothing was checked"
    exit 0
  fi
  export CAROLE_GPUS CAROLE_GPU CAROLE_HAS_TORCH
fi
case ${3:-} in
  '') sections=$groups ;;
  --sections=?*)
    sections=$(echo "${3#*=}" | tr , ' ')
    for name in $sections; do
      case " $groups " in *" $name "*) continue ;; esac
      echo "gpu-check: --sections: got $name, want some of $groups" >&2
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
ip link set lo up 2>/dev/null || : # mpirun wants an interface, be it this one
rm -rf "$out/data" "$out/jpegs" "$out"/train_* "$out/compile.txt" "$out"/ahead.* "$out/compile_all.gone"
if [ "$sections" = "$groups" ]; then
  rm -f "$report" "$out/times.txt" "$out"/ours.*.json "$out"/peer.*.json "$out"/idle.*.json "$out"/jpegs_*.json
fi
gpu_mib=$(timeout 20 nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
check_all
[ "$failed" -eq 0 ]
