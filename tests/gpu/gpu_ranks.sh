# The checks of several ranks with GPUs. They compare sums with known values, and losses with those of ranks on CPUs.
# Captured steps must have the losses and weights of steps that are not captured. tests/gpu/gpu_check.sh sources this file.
# The functions use its variables ($place, $out, $mpirun, $skip).
# shellcheck shell=sh disable=SC2154

# The backend of the ranks whose results are compared with those of CPUs. `cpu` tries these checks on a machine without a GPU.
gpu_backend=${CAROLE_GPU_CHECK_BACKEND:-cuda}

# ready_for_two_ranks: on a machine with one GPU, lets two ranks share it. NCCL 2.30 and newer can do so if an environment
# variable is set. A bundle may bring such an NCCL along, in the folder nccl. Prints the reason and returns $skip if two
# ranks cannot run here.
ready_for_two_ranks() {
  [ -n "$mpirun" ] || {
    echo "skipped: mpirun was not found"
    return "$skip"
  }
  [ "$gpu_backend" = cuda ] && [ "$CAROLE_GPUS" -eq 1 ] || return 0
  export CUDA_VISIBLE_DEVICES=0 NCCL_MULTI_RANK_GPU_ENABLE=1
  [ ! -e "$place/nccl/libnccl.so.2" ] || export LD_LIBRARY_PATH="$place/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  nccl=$("$place/carole" doctor | sed -n 's/^ *[a-z]* *NCCL  *//p')
  case $nccl in
    2.[12][0-9].*) echo "skipped: NCCL $nccl cannot share a GPU between two ranks: want 2.30.3 or newer" ;;
    [0-9]*.[0-9]*) return 0 ;;
    *) echo "skipped: NCCL was not found" ;;
  esac
  return "$skip"
}

# on_ranks RANKS COMMAND [WORD...]: runs a command of carole with this many ranks. --bind-to none: without it, each of two
# ranks gets one core.
on_ranks() {
  ranks=$1
  shift
  "$mpirun" --bind-to none -np "$ranks" "$place/carole" "$@"
}

# losses_in LOG: prints the loss of each step, or where the training ended because a number was not finite.
losses_in() {
  sed -n -e 's/.*global step [0-9]*: loss = \([-+.0-9a-z]*\) .*/\1/p' -e 's/.*\(after step [0-9]*: not finite\).*/\1/p' "$1"
}

# digest_of NAME: prints the digest of weights and slots of a training.
digest_of() {
  "$place/carole" checkpoint inspect --json "$out/train_$1" | sed -n 's/.*"state_digest": *"\([^"]*\)".*/\1/p'
}

# same_weights NAME OTHER: whether two trainings ended with the same weights and slots.
same_weights() {
  got=$(digest_of "$1") want=$(digest_of "$2")
  echo "digest of weights and slots: $1 ${got:-none}, $2 ${want:-none}"
  if [ -z "$got" ] || [ "$got" != "$want" ]; then
    echo "weights: DIFFER"
    return 1
  fi
}

# compare_losses TOLERANCE[,LATER] STEPS WANT GOT: compares two files with a loss in each line. Fails unless both have STEPS
# losses, and each differs at most by TOLERANCE times the wanted loss. LATER is the tolerance from the second step on.
# Prints the largest difference, and the first step that is wrong.
compare_losses() {
  paste "$3" "$4" | awk -F '\t' -v tolerances="$1" -v steps="$2" -v name="$(basename "$4" .txt) and $(basename "$3" .txt)" '
    function is_number(text) { return text ~ /^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$/ }
    BEGIN { if (split(tolerances, tolerance, ",") == 1) tolerance[2] = tolerance[1] }
    {
      good = is_number($1) && is_number($2)
      off = good ? $1 - $2 : 0
      if (off < 0) off = -off
      size = $1 < 0 ? -$1 : $1
      if (off > farthest) farthest = off
      allowed = tolerance[NR == 1 ? 1 : 2]
      # Losses have four digits, so equal ones may differ by one in the last one, unless nothing may differ.
      if (!good || off > allowed * size + (allowed > 0 ? 1.01e-4 : 0)) {
        if (!wrong++) problem = sprintf("step %d: got loss %s, want %s", NR, $2 == "" ? "none" : $2, $1 == "" ? "none" : $1)
      }
      if (NR == 1) first = $2
      last = $2
    }
    END {
      if (NR != steps && problem == "") problem = sprintf("got %d steps, want %d", NR, steps)
      printf "%s: %d steps, %s to %s, largest difference %.4f, allowed %s times the loss%s\n", name, NR, first, last, farthest,
        tolerances, problem == "" ? "" : ": DIFFERS: " problem
      exit problem != ""
    }'
}

# train_on RANKS NAME BACKEND FLAG...: trains with this many ranks, which compare their weights in every step. Writes the log
# to OUT/log_NAME.txt and the losses to OUT/steps_NAME.txt. Plans are not timed (--noautotune), so that they are the same in
# all runs.
train_on() {
  np=$1 name=$2 backend=$3
  shift 3
  rm -rf "$out/train_$name"
  : >"$out/steps_$name.txt"
  on_ranks "$np" train --backend="$backend" --train_dir="$out/train_$name" --log_every_n_steps=1 --audit_every_n_steps=1 \
    --noautotune --optimizer=momentum --learning_rate_decay_type=fixed "$@" >"$out/log_$name.txt" 2>&1 || {
    echo "$name: exit code $?; the end of its log:"
    tail -n 6 "$out/log_$name.txt"
    return 1
  }
  losses_in "$out/log_$name.txt" >"$out/steps_$name.txt"
}

train_two() { train_on 2 "$@"; }

# same_as_cpu NAME TOLERANCE STEPS FLAG...: trains on GPUs and on CPUs, and compares the losses.
same_as_cpu() {
  title=$1 tolerance=$2 steps=$3
  shift 3
  train_two "$title" "$gpu_backend" --max_number_of_steps="$steps" "$@" || return 1
  train_two "${title}_cpu" cpu --max_number_of_steps="$steps" "$@" || return 1
  compare_losses "$tolerance" "$steps" "$out/steps_${title}_cpu.txt" "$out/steps_$title.txt"
}

# same_in_all_ways NAME TOLERANCE STEPS FLAG...: as same_as_cpu, with captured steps (CUDA graphs). Also trains without
# captured steps, which must have exactly the same losses and weights.
same_in_all_ways() {
  title=$1 steps=$3
  same_as_cpu "$@" || return 1
  shift 3
  train_two "${title}_eager" "$gpu_backend" --max_number_of_steps="$steps" --nocuda_graph "$@" || return 1
  compare_losses 0 "$steps" "$out/steps_${title}_eager.txt" "$out/steps_$title.txt" || return 1
  same_weights "$title" "${title}_eager" || return 1
  [ "$gpu_backend" != cuda ] || grep -q 'captured as a CUDA graph' "$out/log_$title.txt" || {
    echo "$title: no step was captured"
    return 1
  }
}

# all_reduce_of_ranks SIZES [FLAG...]: all-reduces of two ranks. The program compares each sum with a known value.
all_reduce_of_ranks() {
  ready_for_two_ranks || return
  sizes=$1
  shift
  on_ranks 2 bench allreduce --backend="$gpu_backend" --sizes="$sizes" "$@" >"$out/all_reduce.txt"
  code=$?
  cat "$out/all_reduce.txt"
  algorithm=nccl
  [ "$gpu_backend" = cuda ] || algorithm='[a-z_]+'
  want=$(echo "$sizes" | tr , '\n' | wc -l)
  got=$(grep -cE "^$algorithm +2 +[0-9]+ " "$out/all_reduce.txt")
  echo "exit code $code, $got sizes with right sums, want $want"
  [ "$code" -eq 0 ] && [ "$got" -eq "$want" ]
}

# lenet_of_ranks STEPS: dropout, fully connected layers, and one large bucket. At this learning rate the loss halves in 20
# steps, and CPUs with and without AVX-512 differ by 1e-5 of it.
lenet_of_ranks() {
  ready_for_two_ranks || return
  same_in_all_ways ranks_lenet 1e-3 "$1" --dataset_name=fashion_mnist --dataset_dir="$out/data" --model_name=lenet \
    --batch_size=64 --learning_rate=0.0001
}

# gradients_as_bf16 SIZES STEPS: sums and losses of gradients that travel as bf16 between GPUs. CPUs of one host do not round.
gradients_as_bf16() {
  all_reduce_of_ranks "$1" --wire_dtype=bf16 || return
  same_in_all_ways ranks_bf16 1e-2 "$2" --dataset_name=fashion_mnist --dataset_dir="$out/data" --model_name=lenet \
    --batch_size=64 --learning_rate=0.0001 --wire_dtype=bf16
}

# compare_reductions NET BATCH: the speed of a net on all GPUs with other settings of NCCL: without registered memory, with
# fewer multiprocessors, and with half the bytes. Fails only if a run fails.
compare_reductions() {
  ready_for_two_ranks || return
  ranks=2
  [ "$CAROLE_GPUS" -le 2 ] || ranks=$CAROLE_GPUS
  for setting in default NCCL_LOCAL_REGISTER=0,NCCL_GRAPH_REGISTER=0 NCCL_MAX_CTAS=4 NCCL_MAX_CTAS=8 NCCL_MAX_CTAS=16 \
    --wire_dtype=bf16; do
    (
      flag=--wire_dtype=fp32
      case $setting in
        --*) flag=$setting ;;
        *=*) for variable in $(echo "$setting" | tr , ' '); do export "${variable?}"; done ;;
      esac
      on_ranks "$ranks" bench train --backend=cuda --model_name="$1" --precision=bf16 --input_dtype=uint8 --batch_size="$2" \
        --steps=30 --json "$flag" >"$out/reductions.json"
    ) || return 1
    sed -n "s/.*\"images_per_second\": *\([0-9.]*\).*/$setting: \1 images\/s on $ranks GPUs/p" "$out/reductions.json"
  done
}

# other_reductions STEPS: Adasum, which goes through the host, and sums in a fixed order, which give the weights of one rank.
other_reductions() {
  ready_for_two_ranks || return
  failure=0
  steps=$1
  set -- --dataset_name=fashion_mnist --dataset_dir="$out/data" --model_name=lenet --learning_rate=0.0001
  for way in --reduction=adasum --reproducible; do
    same_as_cpu "ranks_${way##*[-=]}" 1e-3 "$steps" "$@" --batch_size=64 "$way" || failure=1
  done
  train_on 1 ranks_one "$gpu_backend" --max_number_of_steps="$steps" "$@" --batch_size=128 --reproducible &&
    same_weights ranks_reproducible ranks_one || failure=1
  return "$failure"
}

# times_of_ranks NET BATCH STEPS: what GPUs say by their own clocks about captured steps. The trace must have the first
# reduction of each step of both ranks. The time that a GPU waits for reductions must be a part of a step.
times_of_ranks() {
  ready_for_two_ranks || return
  [ -d "$out/data" ] || fashion_mnist || return 1
  train_two ranks_trace "$gpu_backend" --max_number_of_steps="$3" --dataset_name=fashion_mnist --dataset_dir="$out/data" \
    --model_name=lenet --batch_size=64 --learning_rate=0.0001 --trace="$out/trace.json" || return 1
  got=$(grep -c '"name":"gradients 0","cat":"device"' "$out/trace.json")
  echo "first reductions in the trace: got $got, want $((2 * $3))"
  [ "$got" -eq $((2 * $3)) ] || return 1
  on_ranks 2 bench train --backend="$gpu_backend" --model_name="$1" --batch_size="$2" --steps="$3" --noautotune --json \
    >"$out/times.json" || return 1
  sed -n 's/.*"step_ms_median": *\([0-9.]*\).*"exposed_communication_ms": *\([0-9.]*\).*/\1 \2/p' "$out/times.json" |
    awk '{ step = $1; exposed = $2 } END {
      printf "exposed communication: %s ms of a step of %s ms\n", exposed, step
      exit !(exposed > 0 && exposed < step) }'
}

# batch_norm_of_ranks NET IMAGE_SIZE STEPS [FLAG...]: a net with batch norm on 55 images, 16 in each step of two ranks. So
# each fourth step is a short one, of 4 and 3 images. With these small batches, batch norm makes losses of later steps very
# sensitive: CPUs with and without AVX-512 differ by up to 13 %. The first loss is exact. With --sync_batch_norm it already
# depends on reductions.
batch_norm_of_ranks() {
  ready_for_two_ranks || return
  net=$1 size=$2 steps=$3
  shift 3
  [ -d "$out/tiny" ] || "$place/carole" dataset build --dataset_name=fashion_mnist --dataset_dir="$out/tiny" --raw_dir="$raw" \
    --max_images=55 || return 1
  same_in_all_ways "ranks_$net${1:+_${1#--}}" 1e-3,0.3 "$steps" --dataset_name=fashion_mnist --dataset_dir="$out/tiny" \
    --model_name="$net" --train_image_size="$size" --batch_size=8 --learning_rate=0.0001 "$@"
}

# is_there PID: whether a process is there that has not ended.
is_there() { case "$(cut -d ' ' -f 3 "/proc/$1/stat" 2>/dev/null)" in '' | Z) false ;; esac }

# end_of_rank SIGNAL: sends a signal to rank 1 of an endless training. The job must end within the deadline, with exit code
# 69 (or that of a killed process, if mpirun sees it first), and name the rank.
end_of_rank() {
  ready_for_two_ranks || return
  timeout=8 name=ranks_$1 # seconds
  rm -rf "$out/pid" "$out/train_$name" "$out/log_$name.txt"
  # shellcheck disable=SC2016 # the words are expanded by each rank
  "$mpirun" --bind-to none -np 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || echo $$ >"$0"; exec "$@"' "$out/pid" \
    "$place/carole" train --backend="$gpu_backend" --train_dir="$out/train_$name" --dataset_name=fashion_mnist \
    --dataset_dir="$out/data" --model_name=lenet --batch_size=64 --log_every_n_steps=1 --noautotune --optimizer=sgd \
    --learning_rate=0.001 --save_interval_secs=1000 --collective_timeout=$timeout >"$out/log_$name.txt" 2>&1 &
  job=$!
  until grep -qs 'global step 10:' "$out/log_$name.txt" || ! is_there "$job"; do sleep 0.1; done
  victim=$(cat "$out/pid")
  start=$(date +%s)
  { is_there "$job" && kill -s "$1" "$victim"; } || {
    echo "the training ended before it was disturbed:"
    tail -n 5 "$out/log_$name.txt"
    return 1
  }
  wait "$job"
  code=$?
  seconds=$(($(date +%s) - start))
  echo "SIG$1: exit code $code after $seconds s, want 69$([ "$1" != KILL ] || echo " or 137") within $((timeout + 10)) s"
  grep -E 'rank 1 \(.*(is gone|deadline)|deadline.*rank 1' "$out/log_$name.txt" | head -n 2
  [ "$code" -eq 69 ] || { [ "$1" = KILL ] && [ "$code" -eq 137 ]; } || return 1
  [ "$seconds" -le $((timeout + 10)) ] || return 1
  ! is_there "$victim" || sleep 2
  ! is_there "$victim" || {
    echo "process $victim of rank 1 is still there"
    kill -s KILL "$victim"
    return 1
  }
  [ "$1" = KILL ] || grep -qE '(deadline.*rank 1)|(rank 1.*deadline)|not complete after' "$out/log_$name.txt" || {
    echo "the log does not name the reason:"
    tail -n 5 "$out/log_$name.txt"
    return 1
  }
}

# end_of_ranks: a rank that is killed, and one that is frozen.
end_of_ranks() {
  ready_for_two_ranks || return
  end_of_rank KILL && end_of_rank STOP
}

# soak STEPS: many small captured steps, first undisturbed and then next to a loop of copies on the same GPU. Short steps,
# which are not captured, are among them. Losses and weights must be equal.
soak() {
  ready_for_two_ranks || return
  set -- "$1" --dataset_name=fashion_mnist --dataset_dir="$out/data" --model_name=lenet --batch_size=64 \
    --learning_rate=0.001 --max_number_of_steps="$1" --log_every_n_steps=50 --audit_every_n_steps=50
  steps=$(($1 / 50))
  shift
  train_two ranks_alone "$gpu_backend" "$@" || return 1
  "$place/carole" bench allreduce --backend="$gpu_backend" --sizes=67108864 --steps=1000000 >"$out/log_copies.txt" 2>&1 &
  copies=$!
  train_two ranks_disturbed "$gpu_backend" "$@"
  code=$?
  kill -0 "$copies" 2>/dev/null || {
    echo "the copies ended early:"
    tail -n 5 "$out/log_copies.txt"
    return 1
  }
  kill -s KILL "$copies"
  wait "$copies" 2>/dev/null
  [ "$code" -eq 0 ] || return 1
  compare_losses 0 "$steps" "$out/steps_ranks_alone.txt" "$out/steps_ranks_disturbed.txt" || return 1
  same_weights ranks_disturbed ranks_alone
}

# Starts one rank more than there are GPUs, which must fail with the exit code for a wrong configuration.
too_many_ranks() {
  on_ranks $((CAROLE_GPUS + 1)) bench train --backend=cuda --model_name=lenet --batch_size=8 --steps=2
  code=$?
  echo "exit code $code, want 78"
  [ "$code" -eq 78 ]
}

# Starts one rank on each GPU: measures NCCL's bandwidth, then the speed of two nets compared with one rank, whose run
# also finds the plans.
a_rank_on_each_gpu() {
  on_ranks "$CAROLE_GPUS" bench allreduce --backend=cuda --sizes=65536,1048576,27262976,268435456 || return 1
  for row in resnet_v1_50:256 vgg_16:128; do
    for ranks in 1 "$CAROLE_GPUS"; do
      on_ranks "$ranks" bench train --backend=cuda --model_name="${row%:*}" --precision=bf16 \
        --input_dtype=uint8 --batch_size="${row#*:}" --steps=30 --json >"$out/ranks.$ranks.json" || return 1
    done
    sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' "$out/ranks.1.json" "$out/ranks.$CAROLE_GPUS.json" |
      awk -v net="${row%:*}" -v ranks="$CAROLE_GPUS" 'NR == 1 { one = $1 } END {
        printf "%s: %.0f images/s on %d GPUs, %.0f on one: efficiency %.3f, want 0.95\n", net, $1, ranks, one,
          $1 / one / ranks; exit $1 / one / ranks < 0.95 }' || return 1
  done
}
