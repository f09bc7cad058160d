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

# section TITLE COMMAND...: a section with the end of what the command says.
section() {
  title=$1
  shift
  start=$(date +%s)
  verdict=passed
  "$@" >"$out/section.txt" 2>&1 || verdict=FAILED
  printf '\n## %s: %s in %d s\n\n    $ %s\n' "$title" "$verdict" $(($(date +%s) - start)) "$*"
  tail -n 25 "$out/section.txt" | sed 's/^/    /'
}

# At least 0.91.
accuracy() {
  "$place/carole" eval --backend=cuda --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --dataset_split_name=test --checkpoint_path="$out/train" --model_name=lenet --batch_size=100 --json >"$out/eval.json"
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

# speed NET PRECISION BATCH: ours, and PyTorch's in the same run.
speed() {
  echo "carole"
  "$place/carole" bench train --backend=cuda --model_name="$1" --precision="$2" --batch_size="$3" --json || return 1
  for peer in "$here/gpu_torch.py" "$here/../tests/bench/gpu_torch.py"; do
    [ -f "$peer" ] || continue
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || continue
    PYTHONPATH=$(dirname "$peer") python3 "$peer" --model_name="$1" --precision="$2" --batch_size="$3"
  done
}

sections() {
  printf '# carole on %s, %s\n\n' "$(hostname)" "$(date -u +%Y-%m-%dT%H:%MZ)"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 | sed 's/^/    /'
  section "Doctor" "$place/carole" doctor
  section "Kernels against the reference" "$place/tests/carole_backend_tests" --gtest_filter='*cuda*' --gtest_brief=1
  section "Nets against their golden values" "$place/tests/carole_golden_tests" --gtest_filter='*_cuda' --gtest_brief=1
  section "Fashion-MNIST" "$place/carole" dataset build --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --raw_dir="$raw"
  section "LeNet, 5 epochs" "$place/carole" train --backend=cuda --dataset_name=fashion_mnist \
    --dataset_dir="$out/data" --train_dir="$out/train" --model_name=lenet --batch_size=64 --max_number_of_steps=4690 \
    --optimizer=adam --opt_epsilon=1e-8 --learning_rate=0.0015 --learning_rate_decay_type=exponential \
    --learning_rate_decay_factor=0.5 --num_epochs_per_decay=1 --log_every_n_steps=500
  section "Its accuracy on the test images" accuracy
  [ -z "$mpirun" ] || section "More ranks than GPUs" too_many_ranks
  for precision in fp32 tf32; do
    for batch in 64 256; do
      section "ResNet-50, $precision, batch $batch" speed resnet_v1_50 "$precision" "$batch"
    done
  done
  if command -v compute-sanitizer >/dev/null; then
    section "Kernels under compute-sanitizer" compute-sanitizer --error-exitcode=1 \
      "$place/tests/carole_backend_tests" --gtest_filter='*cuda*' --gtest_brief=1
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
rm -rf "$out/data" "$out/train"
sections | tee "$report"
! grep -q FAILED "$report"
