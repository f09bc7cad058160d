#!/bin/sh
# Checks on a GPU all that needs one, and writes a report in Markdown to standard output; fails when a check failed.
#
#   launch/gpu_check.sh PLACE OUT     PLACE: a build folder, or an unpacked bundle; OUT: a folder for what it makes
#
# `./run gpu-check` builds and calls this; a bundle holds it. PyTorch's figures are there where `python3`
# has PyTorch for the GPU.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
place=$1
out=$2
report=$out/report.md
mkdir -p "$out"

# section TITLE COMMAND...: a section with the end of what the command says. None begins when the 8 minutes are over.
section() {
  title=$1
  shift
  start=$(date +%s)
  if [ "$start" -ge "$deadline" ]; then
    printf '\n## %s: skipped: the 8 minutes are over\n' "$title"
    return
  fi
  verdict=passed
  "$@" >"$out/section.txt" 2>&1 || verdict=FAILED
  printf '\n## %s: %s in %d s\n\n    $ %s\n' "$title" "$verdict" $(($(date +%s) - start)) "$*"
  tail -n 25 "$out/section.txt" | sed 's/^/    /'
}

# lenet PRECISION: five epochs.
lenet() {
  "$place/carole" train --backend=cuda --precision="$1" --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --train_dir="$out/train_$1" --model_name=lenet --batch_size=64 --max_number_of_steps=4690 --optimizer=adam \
    --opt_epsilon=1e-8 --learning_rate=0.0015 --learning_rate_decay_type=exponential \
    --learning_rate_decay_factor=0.5 --num_epochs_per_decay=1 --log_every_n_steps=500
}

# accuracy PRECISION: at least 0.91.
accuracy() {
  "$place/carole" eval --backend=cuda --precision="$1" --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --dataset_split_name=test --checkpoint_path="$out/train_$1" --model_name=lenet --batch_size=100 --json \
    >"$out/eval.json"
  sed -n 's/.*"accuracy":\([0-9.]*\),"recall_5".*/\1/p' "$out/eval.json" |
    awk '{ print "accuracy " $1 ", want 0.91"; good = $1 >= 0.91 } END { exit !good }'
}

# One of two ranks has no GPU: an error that says so, and its exit code.
too_many_ranks() {
  "$mpirun" -np "$(($(nvidia-smi --list-gpus | wc -l) + 1))" "$place/carole" bench train --backend=cuda \
    --model_name=lenet --batch_size=8 --steps=2
  code=$?
  echo "exit code $code, want 78"
  [ "$code" -eq 78 ]
}

# Both see one GPU. NCCL 2.30 and newer let them, if told to; an older one is a line that says so, and no failure.
two_ranks_on_one_gpu() {
  CUDA_VISIBLE_DEVICES=0 NCCL_MULTI_RANK_GPU_ENABLE=1 "$mpirun" -np 2 "$place/carole" bench train --backend=cuda \
    --model_name=lenet --batch_size=64 --steps=50 && return
  echo "exit code $?"
  "$place/carole" doctor | grep -q 'NCCL.* 2\.[12][0-9]\.' && echo "skipped: this NCCL has no setting for it"
}

# The best images per second among lines of JSON.
best() {
  sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' "$1" | sort -n | tail -n 1
}

# speed NET PRECISION BATCHES PEER_BATCHES [--eager]: ours, PyTorch's in the same run, and the ratio of the best ones.
speed() {
  net=$1 precision=$2 batches=$3 peer_batches=$4
  shift 4
  : >"$out/ours.json"
  : >"$out/peer.json"
  for batch in $batches; do
    "$place/carole" bench train --backend=cuda --model_name="$net" --precision="$precision" --batch_size="$batch" \
      --json >>"$out/ours.json" || return 1
  done
  for peer in "$here/gpu_torch.py" "$here/../tests/bench/gpu_torch.py"; do
    [ -f "$peer" ] || continue
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || continue
    PYTHONPATH=$(dirname "$peer") timeout 120 python3 "$peer" --model_name="$net" --precision="$precision" \
      --batch_size="$peer_batches" "$@" >>"$out/peer.json"
    break
  done
  cat "$out/ours.json" "$out/peer.json"
  [ -s "$out/peer.json" ] || {
    echo "no PyTorch for this GPU here"
    return 0
  }
  echo "$(best "$out/ours.json") $(best "$out/peer.json")" | awk '{ printf "carole/PyTorch: %.2f\n", $1 / $2 }'
}

sections() {
  printf '# carole on %s, %s\n\n' "$(hostname)" "$(date -u +%Y-%m-%dT%H:%MZ)"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 | sed 's/^/    /'
  section "Doctor" "$place/carole" doctor
  section "Kernels against the reference" "$place/tests/carole_backend_tests" --gtest_filter='*/cuda*' --gtest_brief=1
  section "Nets against their golden values" "$place/tests/carole_golden_tests" --gtest_filter='*_cuda' --gtest_brief=1
  section "Fashion-MNIST" "$place/carole" dataset build --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --raw_dir="$raw"
  for precision in fp32 bf16; do
    section "LeNet, 5 epochs, $precision" lenet "$precision"
    section "Its accuracy on the test images" accuracy "$precision"
  done
  [ -z "$mpirun" ] || section "More ranks than GPUs" too_many_ranks
  [ -z "$mpirun" ] || section "Two ranks on one GPU" two_ranks_on_one_gpu
  section "ResNet-50, bf16, beside PyTorch compiled" speed resnet_v1_50 bf16 "64 128 256 512" 256,512
  section "ResNet-50, bf16, by kernel" "$place/carole" bench train --backend=cuda --model_name=resnet_v1_50 \
    --precision=bf16 --batch_size=256 --steps=5 --profile
  # To compile takes PyTorch a minute: it is done for one precision.
  for precision in fp16 tf32 fp32; do
    section "ResNet-50, $precision, beside PyTorch uncompiled" speed resnet_v1_50 "$precision" "64 256 512" \
      64,256,512 --eager
  done
  if command -v compute-sanitizer >/dev/null; then
    section "Kernels under compute-sanitizer" compute-sanitizer --error-exitcode=1 \
      "$place/tests/carole_backend_tests" --gtest_filter='*/cuda*' --gtest_brief=1
  else
    printf '\n## Kernels under compute-sanitizer: skipped: no compute-sanitizer here\n'
  fi
}

if [ ! -e /proc/driver/nvidia/version ] && [ ! -e /dev/dxg ]; then
  echo "no GPU: this machine has no driver of NVIDIA's; nothing was checked"
  exit 0
fi
mpirun=$(command -v "$place/mpirun" || command -v mpirun)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
raw=$place/share/fashion-mnist
[ -d "$raw" ] || raw=/usr/share/datasets/fashion-mnist
rm -rf "$out/data" "$out"/train_*
deadline=$(($(date +%s) + 480))
sections | tee "$report"
! grep -q FAILED "$report"
