#!/bin/sh
# Checks on a GPU all that needs one, in 8 minutes, the most important first; writes a report in Markdown to standard
# output and OUT/report.md, and fails when a check failed. Speeds are compared with what is wanted, and fail nothing.
#
#   launch/gpu_check.sh PLACE OUT                    PLACE: a build folder, or an unpacked bundle; OUT: what it makes
#   launch/gpu_check.sh PLACE OUT CHECK [WORD...]    one check alone, e.g. speed vgg_16 bf16 64,128 128 1.2
#
# `./run gpu-check` builds and calls this; a bundle holds it. PyTorch's figures are there where `python3` has PyTorch
# for the GPU.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
place=$1
out=$2
report=$out/report.md
mkdir -p "$out"

# --- checks: each may be called by its name -----------------------------------------------------------------------

# wanted WHAT NUMBER at_least|at_most BOUND: a line that the report's last table is made of.
wanted() {
  awk -v what="$1" -v got="$2" -v how="$3" -v bound="$4" 'BEGIN {
    good = how == "at_least" ? got + 0 >= bound + 0 : got + 0 <= bound + 0
    sub("_", " ", how)
    printf "wanted: %s | %.5g | %s %s | %s\n", what, got, how, bound, got == "" ? "not measured" : good ? "yes" : "NO"
  }'
}

doctor() { "$place/carole" doctor; }

kernels() { "$place/tests/carole_backend_tests" --gtest_filter='*/cuda*' --gtest_brief=1; }

# Each kernel's GB/s beside a copy's.
kernel_speed() { "$place/tests/carole_backend_tests" --gtest_filter='KernelSpeed.BesideACopy' --gtest_brief=1; }

# All nets in fp32 and bf16; some in fp16 and TF32 too.
goldens() {
  "$place/tests/carole_golden_tests" --gtest_brief=1 \
    --gtest_filter='*_cuda:*_cuda_bf16:*.lenet_cuda_*:*.resnet_v1_50_cuda_*:*.mobilenet_v3_small_cuda_*'
}

data() {
  "$place/carole" dataset build --dataset_name=fashion_mnist --dataset_dir="$out/data" --raw_dir="$raw" &&
    "$place/carole" dataset build --dataset_name=synthetic --dataset_dir="$out/jpegs" --num_images=4096 \
      --num_classes=1000 --image_width=500
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
  "$mpirun" -np $((gpus + 1)) "$place/carole" bench train --backend=cuda --model_name=lenet --batch_size=8 --steps=2
  code=$?
  echo "exit code $code, want 78"
  [ "$code" -eq 78 ]
}

# Each on a GPU of its own.
a_rank_on_each_gpu() {
  "$mpirun" -np "$gpus" "$place/carole" bench train --backend=cuda --model_name=resnet_v1_50 --precision=bf16 \
    --batch_size=256 --steps=20
}

# Both see one GPU, and sum on it and by way of the host. NCCL 2.30 and newer let them, if told to; an older one is a
# line that says so, and no failure.
two_ranks_on_one_gpu() {
  for way in --reduction=sum --reduction=adasum --reproducible; do
    CUDA_VISIBLE_DEVICES=0 NCCL_MULTI_RANK_GPU_ENABLE=1 "$mpirun" -np 2 "$place/carole" bench train --backend=cuda \
      --model_name=lenet --batch_size=64 --steps=50 "$way" && continue
    echo "$way: exit code $?"
    "$place/carole" doctor | grep -q 'NCCL.* 2\.[12][0-9]\.' && echo "skipped: this NCCL has no setting for it"
    return
  done
}

# Our own kernels, as far as a minute goes: those of libraries are their makers' business.
sanitizer() {
  timeout 40 compute-sanitizer --error-exitcode=1 "$place/tests/carole_backend_tests" --gtest_brief=1 \
    --gtest_filter='*/cuda*-*/cuda_conv2d*:*/cuda_linear*' >"$out/sanitizer.txt" 2>&1
  code=$?
  tail -n 20 "$out/sanitizer.txt"
  [ "$code" -eq 124 ] || return "$code"
  echo "stopped after 40 s"
  ! grep -qE '^=+ (Invalid|Program hit|Error|Race|Uninitialized)' "$out/sanitizer.txt"
}

# train NET PRECISION BATCH [FLAG...]: a line of JSON.
train() {
  net=$1 precision=$2 batch=$3
  shift 3
  "$place/carole" bench train --backend=cuda --model_name="$net" --precision="$precision" --batch_size="$batch" --json "$@"
}

# bench FILE NET PRECISION BATCHES [FLAG...]: a line of JSON for each batch size (given with commas) that fits into the
# GPU, into FILE too; fails where none does. What fails on the GPU is tried once more without a CUDA graph.
bench() {
  file=$1 net=$2 precision=$3
  batches=$(echo "$4" | tr , ' ')
  shift 4
  : >"$file"
  for batch in $batches; do
    train "$net" "$precision" "$batch" "$@" >>"$file"
    code=$?
    if [ $code -eq 69 ]; then
      wanted "$net, $precision, batch $batch: steps as CUDA graphs" 0 at_least 1
      train "$net" "$precision" "$batch" "$@" --nocuda_graph >>"$file"
      code=$?
    fi
    [ $code -eq 0 ] || [ $code -eq 78 ] || break
  done
  cat "$file"
  { [ "$code" -eq 0 ] || [ "$code" -eq 78 ]; } && [ -s "$file" ]
}

# torch NET PRECISION BATCHES [FLAG...]: PyTorch's.
torch() {
  net=$1 precision=$2 batches=$3
  shift 3
  for script in "$here/gpu_torch.py" "$here/../tests/bench/gpu_torch.py"; do
    [ -f "$script" ] || continue
    TORCHINDUCTOR_CACHE_DIR=$out/inductor python3 "$script" --model_name="$net" --precision="$precision" \
      --batch_size="$batches" "$@"
    return
  done
}

# The best images per second among lines of JSON.
best() { sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' "$1" | sort -n | tail -n 1; }

# ratio FILE OTHER: of their best ones; nothing where one has none.
ratio() { echo "$(best "$1") $(best "$2")" | awk 'NF == 2 { print $1 / $2 }'; }

# speed NET PRECISION BATCHES PEER_BATCHES RATIO [--eager]: ours, PyTorch's in the same run, and the ratio of the best
# ones beside what is wanted (0: anything).
speed() {
  net=$1 precision=$2 batches=$3 peer_batches=$4 bound=$5
  shift 5
  bench "$out/ours.json" "$net" "$precision" "$batches" || return
  [ "$net $precision" != "resnet_v1_50 bf16" ] || case $(nvidia-smi --query-gpu=name --format=csv,noheader) in
    *H200*) wanted "$net, $precision, images/s (80 % of MLPerf 4.0's best)" "$(best "$out/ours.json")" at_least 6356 ;;
  esac
  if [ "$CAROLE_HAS_TORCH" = no ]; then
    echo "no PyTorch for this GPU here"
    return 0
  fi
  torch "$net" "$precision" "$peer_batches" "$@" >"$out/peer.json"
  cat "$out/peer.json"
  wanted "$net, $precision, carole / PyTorch" "$(ratio "$out/ours.json" "$out/peer.json")" at_least "$bound"
}

# By kernel as the GPU itself saw them, and the share of time in which it had none.
idle() {
  times=$place/libcarole_gpu_times.so
  [ -f "$times" ] || times=$place/lib/libcarole_gpu_times.so
  CUDA_INJECTION64_PATH=$times bench "$out/ours.json" resnet_v1_50 bf16 256 --steps=60 2>"$out/times.txt"
  code=$?
  cat "$out/times.txt"
  [ $code -eq 0 ] || return $code
  grep -q '^GPU idle' "$out/times.txt" || # no CUPTI here: each operation is waited for
    "$place/carole" bench train --backend=cuda --model_name=resnet_v1_50 --precision=bf16 --batch_size=256 --steps=5 \
      --profile
  wanted "GPU idle inside a step, %" "$(sed -n 's/^GPU idle: *\([0-9.]*\) %.*/\1/p' "$out/times.txt")" at_most 2
}

# Pictures from a disk beside those that are there already.
jpegs() {
  bench "$out/tensors.json" resnet_v1_50 bf16 256 --steps=40 || return
  for decoder in cpu nvjpeg; do
    if ! bench "$out/ours.json" resnet_v1_50 bf16 256 --steps=40 --dataset_name=synthetic --dataset_dir="$out/jpegs" \
      --labels_offset=1 --num_preprocessing_threads="$(nproc)" --jpeg_decoder=$decoder; then
      [ "$code" -eq 78 ] && [ $decoder = nvjpeg ] || return 1
      echo "skipped: nvJPEG is not here"
      continue
    fi
    wanted "JPEGs decoded by $decoder / tensors" "$(ratio "$out/ours.json" "$out/tensors.json")" at_least 0.97
  done
  "$place/carole" bench input --dataset_name=synthetic --dataset_dir="$out/jpegs" --labels_offset=1 --batch_size=256 \
    --steps=10 --rounds=1 --threads="$(nproc)" --json
}

# --- the report ---------------------------------------------------------------------------------------------------

# section SECONDS TITLE CHECK [WORD...]: what the check says in the end. It is ended when its seconds, or those of the
# whole, are over; none begins then.
section() {
  limit=$1 title=$2
  shift 2
  start=$(date +%s)
  left=$((deadline - start))
  if [ "$left" -le 0 ]; then
    printf '\n## %s: skipped: the time is over\n' "$title"
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  verdict=passed
  timeout -k 5 "$limit" sh "$0" "$place" "$out" "$@" >"$out/section.txt" 2>&1
  code=$?
  [ $code -eq 0 ] || verdict=FAILED
  printf '\n## %s: %s in %d s\n\n    $ %s\n' "$title" "$verdict" $(($(date +%s) - start)) "$*"
  tail -n 40 "$out/section.txt" | sed 's/^/    /'
  [ $code -ne 124 ] && [ $code -ne 137 ] || printf '    ended after %d s\n' "$limit"
  grep '^wanted: ' "$out/section.txt" >>"$out/wanted.txt"
}

skipped() { printf '\n## %s: skipped: %s\n' "$1" "$2"; }

# What PyTorch compiles is compiled while others look whether results are right, and kept in a cache; where the GPU has
# memory for all at once.
compile_torch() {
  [ "$CAROLE_HAS_TORCH" = yes ] || return 0
  [ "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)" -ge 100000 ] || return 0
  for words in "resnet_v1_50 bf16 256,512" "vgg_16 bf16 128" "inception_v3 bf16 256" "mobilenet_v2 bf16 512"; do
    # shellcheck disable=SC2086
    timeout 150 sh "$0" "$place" "$out" torch $words --steps=5 --warmup_steps=2 >"$out/compile.txt" 2>&1 &
  done
}

sections() {
  printf '# carole on %s, %s\n\n' "$(hostname)" "$(date -u +%Y-%m-%dT%H:%MZ)"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 | sed 's/^/    /'
  compile_torch
  section 20 "Doctor" doctor
  section 60 "Kernels against the reference" kernels
  section 90 "Nets against their golden values" goldens
  section 40 "Data: Fashion-MNIST, drawn JPEGs" data
  section 40 "LeNet, 5 epochs, fp32: accuracy" lenet fp32
  wait # for compile_torch
  section 110 "ResNet-50, bf16, beside PyTorch compiled" speed resnet_v1_50 bf16 64,128,256,512 256,512 1.2
  if command -v compute-sanitizer >/dev/null; then
    section 50 "Our kernels under compute-sanitizer" sanitizer
  else
    skipped "Our kernels under compute-sanitizer" "no compute-sanitizer here"
  fi
  section 40 "ResNet-50, bf16, by kernel; idle time" idle
  section 30 "Our kernels beside a copy" kernel_speed
  section 60 "ResNet-50, bf16, from JPEGs" jpegs
  if [ -n "$mpirun" ]; then
    section 30 "More ranks than GPUs" too_many_ranks
    section 40 "Two ranks on one GPU" two_ranks_on_one_gpu
    [ "$gpus" -le 1 ] || section 60 "A rank on each GPU" a_rank_on_each_gpu
  else
    skipped "Several ranks" "no mpirun here"
  fi
  section 60 "VGG-16, bf16, beside PyTorch compiled" speed vgg_16 bf16 64,128 128 1.2
  section 60 "Inception v3, bf16, beside PyTorch compiled" speed inception_v3 bf16 128,256 256 1.2
  section 60 "MobileNet v2, bf16, beside PyTorch compiled" speed mobilenet_v2 bf16 256,512 512 1.2
  section 40 "LeNet, 5 epochs, bf16: accuracy" lenet bf16
  for precision in tf32 fp16 fp32; do
    section 50 "ResNet-50, $precision, beside PyTorch uncompiled" speed resnet_v1_50 $precision 64,256,512 256 0 --eager
  done
  printf '\n## What was wanted\n\n| what | measured | wanted | reached |\n|---|---|---|---|\n'
  sed 's/^wanted: \(.*\)/| \1 |/' "$out/wanted.txt"
}

mpirun=$(command -v "$place/mpirun" || command -v mpirun)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
raw=$place/share/fashion-mnist
[ -d "$raw" ] || raw=/usr/share/datasets/fashion-mnist
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
if [ "$gpus" -eq 0 ]; then
  echo "no GPU: nvidia-smi names none; nothing was checked"
  exit 0
fi
if [ -z "${CAROLE_HAS_TORCH:-}" ]; then
  CAROLE_HAS_TORCH=yes
  python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || CAROLE_HAS_TORCH=no
  export CAROLE_HAS_TORCH
fi
if [ $# -gt 2 ]; then
  shift 2
  "$@"
  exit
fi
rm -rf "$out/data" "$out/jpegs" "$out"/train_*
: >"$out/wanted.txt"
deadline=$(($(date +%s) + ${CAROLE_GPU_CHECK_SECONDS:-480}))
sections | tee "$report"
! grep -q FAILED "$report"
