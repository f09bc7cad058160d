#!/usr/bin/env python3
"""Tests tests/gpu/gpu_check.sh with scripts in place of the GPU, the programs and PyTorch.

The tests check verdicts, ratios, time limits and exit codes.
"""

import contextlib
import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(ROOT, "tests", "gpu", "gpu_check.sh")

# The head of each fake program. If its command line matches a variable, it fails (FAIL), hangs (HANG), or hangs and
# ignores SIGTERM (STUBBORN).
HEAD = """#!/bin/sh
case "$(basename "$0") $*" in
  $FAIL) echo "${WORDS:-broken on purpose}" >&2; exit "${CODE:-1}" ;;
  $STUBBORN) trap "" TERM; echo "pid: $$" >&2; exec sleep 100 ;;
  $HANG) exec sleep 100 ;;
esac
"""
# Parses the flags of a benchmark, for the line of JSON that it prints.
ROW = """
for word in "$@"; do
  case $word in
    --model_name=*) net=${word#*=} ;;
    --precision=*) precision=${word#*=} ;;
    --batch_size=*) batches=${word#*=} ;;
    --eager) compiled=false ;;
    --when=*) when=${word#*=} ;;
  esac
done
"""
CAROLE = ROW + """
row() {
  echo '{"net":"'$net'","batch_size":'$batches',"precision":"'$precision'","images_per_second":'$1',"step_ms_median":30.5,' \
    '"exposed_communication_ms":'"${EXPOSED:-1.5}"',"step_ends_s":[1.5,2.5]}'
}
case "$*" in
  doctor*) echo "  ok NCCL ${NCCL-2.28.9}"; echo "  ok       GPU            ${DOCTOR:-built with CUDA 13.0, no NVIDIA driver here}" ;;
  eval*) echo '{"accuracy":'"${ACCURACY:-0.92}"',"recall_5":0.99}' ;;
  "checkpoint inspect"*) echo '{"state_digest": "'$(cat "$4/digest")'"}' ;;
  "bench allreduce"*--steps=1000000*) exec sleep "${COPIES:-100}" ;;
  "bench allreduce"*)
    echo "algorithm        ranks         bytes   median us    bus GB/s   copy GB/s"
    for bytes in ${SIZES:-65536 1048576 16777216 67108864}; do echo "nccl                 2 $bytes 17.2 1.5 3.4"; done
    exit "${SUMS:-0}"
    ;;
  "train --help") echo "  --optimizer TEXT  Update rule. One of: adam, sgd. [default: rmsprop]" ;;
  train*1e30*) echo "[I] global step 1: loss = 2.3 (0.1 sec/step)"; echo "[train] after step 1: not finite: rank 0: loss nan" ;;
  train*number_of_steps=*)
    steps=${*##*number_of_steps=} steps=${steps%% *} digest=0x12
    case "$*" in *log_every_n_steps=50*) steps=$((steps / 50)) ;; esac
    for step in $(seq "$steps"); do
      loss=2.$((90 - step))05
      case "$step $*" in 17\\ $OFF*) loss=2.7400 ;; 17\\ $NAN*) loss=nan ;; esac
      case "$step $*" in 18\\ $SHORT*) break ;; esac
      echo "[I] global step $step: loss = $loss (0.1 sec/step)"
    done
    case "$*" in *nocuda_graph* | $EAGER*) ;; *) echo "[I] step 4: captured as a CUDA graph" ;; esac
    case "$*" in $OTHER*) digest=0x34 ;; esac
    folder=${*##*train_dir=} folder=${folder%% *}
    mkdir -p "$folder" && echo $digest >"$folder/digest"
    trace=${*##*--trace=} trace=${trace%% *}
    case "$*" in *--trace=*) seq $((${TRACED:-2} * steps)) | sed 's/.*/{"ph":"X","name":"gradients 0","cat":"device"}/' >"$trace" ;; esac
    ;;
  train*collective_timeout*)
    for step in $(seq 10); do echo "[I] global step $step: loss = 2.5 (0.1 sec/step)"; done
    [ -z "$ENDS" ] || exit 70
    exec sleep 100
    ;;
  "bench train"*dataset_dir*) row 6860.0 ;;
  "bench train"*batch_size=512*) row 7500.0 ;;
  "bench train"*steps=150*) row 6930.7 ;; # slower, since it is traced
  "bench train"*) row 7000.0 ;;
esac
[ -z "${CUDA_INJECTION64_PATH:-}" ] || echo "GPU idle: 1.25 % of the last 2000 ms" >&2
"""
# Ranks can share a GPU if the environment says so. A rank that is frozen ends the job after LATE seconds.
MPIRUN = """
[ "$1 $2 $3" = "--bind-to none -np" ] || { echo "mpirun: not --bind-to none: $*" >&2; exit 64; }
[ "${CUDA_VISIBLE_DEVICES:-} ${NCCL_MULTI_RANK_GPU_ENABLE:-}" = "0 1" ] || exit 78
shift 4
OMPI_COMM_WORLD_RANK=1 "$@" &
rank=$!
while kill -0 $rank 2>/dev/null; do
  case "$(cut -d ' ' -f 3 /proc/$rank/stat)" in
    T)
      sleep "${LATE:-0}"
      echo "[E] ${SAYS:-[comm] deadline: ranks have not arrived after 8 s: rank 1 (host)}"
      [ -n "$LEFT" ] || kill -s KILL $rank
      exit "${FROZEN:-69}"
      ;;
    Z) break ;;
  esac
  sleep 0.05
done
wait $rank
"""
PYTHON = ROW + f"""
[ "$1" != -m ] || exec '{sys.executable}' "$@"
""" + """
[ "$1" != -c ] || { echo "ModuleNotFoundError: torch" >&2; exit "${NO_TORCH:-0}"; }
speed=5000
[ "${compiled:=true}" = true ] || speed=4000
for batch in $(echo "$batches" | tr , ' '); do
  [ "$batch" != "${LOST:-}" ] || exit 1
  [ -z "$when" ] || {
    touch "$when.ready"
    while [ ! -e "$when" ]; do sleep 0.1; done
    [ "$batch" != 512 ] || speed=6000
  }
  echo '{"program": "pytorch", "net": "'$net'", "precision": "'$precision'", "compiled": '$compiled', "batch_size": '$batch', "images_per_second": '$speed'}'
  speed=6000
done
"""
# Two tests in each process. The second one may hang (SLOW) or fail (WRONG).
TESTS = """
shard=${GTEST_SHARD_INDEX:-0}
echo "[==========] Running 2 tests from 1 test suite."
echo "[ RUN      ] Net.first_$shard"
echo "[       OK ] Net.first_$shard (5 ms)"
echo "[ RUN      ] Net.second_$shard"
case "$(basename "$0") $shard" in $SLOW) sleep 100 ;; esac
case "$(basename "$0") $shard" in
  $WRONG)
    echo "case.cpp:5: Failure"
    echo "Net.second_$shard: element 3: got 2, want 1"
    echo "[  FAILED  ] Net.second_$shard, where GetParam() = 7 (5 ms)"
    ;;
  *) echo "[       OK ] Net.second_$shard (5 ms)" ;;
esac
echo "net_$shard    cuda_bf16   123   1e-3  2e-3  3e-3  ${shard}e-3  5e-3"
echo "[==========] 2 tests from 1 test suite ran. (10 ms total)"
"""
SANITIZER = """
shift 5
[ -z "${INVALID:-}" ] || echo "========= Invalid __global__ write of size 4 bytes"
"$@"
echo "========= ERROR SUMMARY: ${ERRORS:-0} errors"
"""
MLPERF = "{}, bf16, images/s (80 % of MLPerf 4.0's best)"
NVIDIA_SMI = """
case "$*" in
  --list-gpus) echo "GPU 0: NVIDIA H200 (UUID: GPU-0)" ;;
  *memory.total*nounits*) echo 143771 ;;
  *noheader*) echo "NVIDIA H200" ;;
esac
"""


def write_script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD + text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place, self.out, self.bin = (os.path.join(folder.name, n) for n in ("place", "out", "bin"))
        write_script(f"{self.place}/carole", CAROLE)
        write_script(f"{self.place}/tests/carole_backend_tests", TESTS)
        write_script(f"{self.place}/tests/carole_golden_tests", TESTS)
        for name, text in (("nvidia-smi", NVIDIA_SMI), ("python3", PYTHON), ("mpirun", MPIRUN),
                           ("compute-sanitizer", SANITIZER), ("nproc", "echo 8")):  # fmt: skip
            write_script(f"{self.bin}/{name}", text)
        self.env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}")
        self.env |= dict.fromkeys(("FAIL", "HANG", "STUBBORN", "SLOW", "WRONG", "OFF", "NAN", "SHORT", "EAGER", "OTHER"), "none")

    def start(self, *words, **variables):
        return subprocess.Popen(["sh", SCRIPT, self.place, self.out, *words], env=self.env | variables, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

    def check(self, *words, **variables):
        """Returns the exit code and the output."""
        with self.start(*words, **variables) as process:
            text = process.communicate(timeout=200)[0]
            return process.returncode, text

    def targets(self, text):
        """Parses the last table: what -> (measured, target, reached)."""
        table = text.partition("## Targets")[2]
        rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \| (.*) \|$", table, re.MULTILINE)
        return {what: (got, want, reached) for what, got, want, reached in rows[1:]}

    def test_all_is_well(self):
        code, text = self.check()
        self.assertEqual(code, 0, text)
        self.assertNotIn("FAILED", text)
        self.assertNotIn("skipped: the time", text)
        self.assertIn("8 tests: 8 passed, 0 skipped, 0 failed, 0 not finished", text)
        self.assertIn("## Our kernels under compute-sanitizer: passed", text)
        self.assertIn("adam       20 steps, 2.8905 to 2.7005, largest difference from the CPU 0.0000\n", text)
        self.assertNotIn("step_ends_s", text)
        self.assertIn("| resnet_v1_50 | bf16 | 512 | 7500 | 6000 |\n", text)
        self.assertIn("| resnet_v1_50 | tf32 | 256 | 7000 | 4000 (uncompiled) |\n", text)
        self.assertRegex(text, "largest errors of .*\n *net_3 .*\n *net_2 .*\n *net_1 .*\n *8 tests: ")
        self.assertRegex(text, r"\| LeNet, 5 epochs, fp32: accuracy \| passed in \d+ s \|\n")
        targets = self.targets(text)
        self.assertEqual(targets["resnet_v1_50, bf16, carole / PyTorch"], ("1.25", "at least 1.2", "yes"))
        self.assertEqual(targets[MLPERF.format("resnet_v1_50, scaled by the GFLOP of v1.5")], ("7500", "at least 7461", "yes"))
        self.assertEqual(targets["vgg_16, bf16, carole / PyTorch"], ("1.4", "at least 1.2", "yes"))
        self.assertEqual(targets["resnet_v1_50, fp32, carole / PyTorch uncompiled"], ("1.75", "-", "-"))
        self.assertEqual(targets["resnet_v1_50, bf16, from JPEGs / from tensors"], ("0.98", "at least 0.97", "yes"))
        self.assertEqual(targets["GPU idle inside a step, %, traced by CUPTI, which delays kernels"], ("1.25", "-", "-"))
        self.assertEqual(targets["GPU idle inside a step, %"], ("0.2625", "at most 2", "yes"))
        self.assertIn("inception_v3, bf16, carole / PyTorch", targets)
        self.assertIn("mobilenet_v2, bf16, carole / PyTorch", targets)
        with open(f"{self.out}/report.md", encoding="utf-8") as file:
            self.assertEqual(file.read(), text)

    def test_groups_of_sections_fit_into_a_call(self):
        with open(SCRIPT, encoding="utf-8") as file:
            sections = re.findall(r"section ([\w,]+) (\d+) \"", file.read())
        self.assertGreater(len(sections), 40)
        limits = dict.fromkeys(("kernels goldens training", "ranks", "speed jpegs", "nets", "precisions", "wire", "more", "call1"), 480)
        for groups, limit in (limits | {"call2": 240}).items():
            chosen = [int(seconds) for group, seconds in sections if set(group.split(",")) & set(groups.split())]
            self.assertLessEqual(sum(chosen), limit, groups)
            self.assertGreater(sum(chosen), limit / 3, groups)

    def test_groups_may_be_chosen(self):
        code, text = self.check("--sections=goldens,ranks")
        self.assertEqual(code, 0, text)
        titles = re.findall(r"^## (.*?):?[ \n]", text, re.MULTILINE)
        self.assertEqual(list(dict.fromkeys(titles)), ["Nets", "Data", "Two", "More", "Checks", "Targets"])
        self.assertEqual(self.targets(text), {})
        text = self.check("--sections=speed")[1]
        self.assertIn("| More ranks than GPUs | passed", text)
        text = self.check("--sections=training")[1]
        self.assertEqual(self.targets(text)["resnet_v1_50, bf16, carole / PyTorch"], ("1.25", "at least 1.2", "yes"))
        with open(f"{self.out}/report.md", encoding="utf-8") as file:
            self.assertEqual(file.read().count("\n## Nets against their golden values: passed"), 1)
        code, text = self.check("--sections=goldens,all")
        self.assertEqual(code, 64)
        self.assertIn("--sections: got all, want some of kernels goldens", text)

    def test_one_failure_fails_the_whole_and_does_not_stop_the_others(self):
        for fail, title in (
            ("carole_backend_tests*", "Kernels against the reference"),
            ("carole train*bf16*", "LeNet, 5 epochs, bf16: accuracy"),
            ("carole*inception_v3*json*", "Inception v3, bf16"),
        ):
            code, text = self.check("--sections=kernels,training,nets", FAIL=fail)
            self.assertEqual(code, 1)
            self.assertRegex(text, f"## {title}: FAILED in .*\n\n.*\n.*broken on purpose")
            self.assertRegex(text, "## Inception v3, bf16, PyTorch compiled: passed")
            self.assertIn("## Targets", text)

    def test_batches_that_do_not_fit_are_left_out(self):
        words = ("ours", "vgg_16", "bf16", "512,64")
        code, text = self.check(*words, FAIL="*batch_size=512*", CODE="78")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("images_per_second"), 1)
        self.assertEqual(self.check(*words, FAIL="*batch_size=*", CODE="78")[0], 1)

    def test_batches_that_the_gpu_has_no_memory_for_are_left_out(self):
        text = "[cuda] GPU memory: not enough: got 1 MB free of 2 MB, want 3 MB"
        words = ("ours", "vgg_16", "bf16", "512,64")
        code, said = self.check(*words, FAIL="*batch_size=512*", CODE="69", WORDS=text)
        self.assertEqual(code, 0, said)
        self.assertEqual(said.count(text), 1)  # it is not tried again
        self.assertEqual(said.count("images_per_second"), 1)

    def test_a_batch_that_fails_does_not_stop_the_others(self):
        code, text = self.check("ours", "vgg_16", "bf16", "512,64", FAIL="*batch_size=512*", CODE="70")
        self.assertEqual(code, 1)
        self.assertRegex(text, 'batch 512: exit code 70\n.*"batch_size":64')

    def test_steps_that_fail_as_cuda_graphs_are_measured_without(self):
        words = ("ours", "vgg_16", "bf16", "64")
        code, text = self.check(*words, FAIL="carole bench train*--steps=50", CODE="69")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count('"images_per_second":7000.0'), 1)
        row = "| ours.vgg_16.bf16.64: steps as CUDA graphs | 0 | at least 1 | NO |\n"
        self.assertTrue(self.check("summary")[1].endswith(row))
        self.assertEqual(self.check(*words, FAIL="*batch_size=*", CODE="69")[0], 1)

    def test_results_of_a_check_that_is_stopped_count(self):
        """The program ignores SIGTERM: it is killed, and its messages are reported."""
        stubborn = "carole bench train*batch_size=512*"
        code, text = self.check("--sections=speed", STUBBORN=stubborn, CAROLE_GPU_CHECK_SECONDS="10")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"## ResNet-50, bf16, batch 512: FAILED in \d+ s\n(.*\n)*    pid: ")
        pid = re.search(r"^    pid: (\d+)\n    stopped after \d+ s$", text, re.MULTILINE)[1]
        status = ""
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/status", encoding="utf-8") as file:
            status = file.read()
        self.assertNotRegex(status, r"State:\s*[^Z\s]")  # Z: a zombie, whose parent has not waited for it yet
        self.assertIn("| resnet_v1_50 | bf16 | 256 | 7000 | - |\n", text)
        targets = self.targets(text)
        self.assertEqual(targets[MLPERF.format("resnet_v1_50, scaled by the GFLOP of v1.5")], ("7000", "at least 7461", "NO"))
        self.assertEqual(targets["resnet_v1_50, bf16, carole / PyTorch"], ("-", "at least 1.2", "not measured"))

    def test_a_batch_before_the_one_that_is_stopped_counts(self):
        stubborn = "carole bench train*batch_size=64*"
        code, text = self.check("--sections=more", STUBBORN=stubborn, CAROLE_GPU_CHECK_SECONDS="10")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"## ResNet-50, bf16, other batches: FAILED in \d+ s\n(.*\n)*.*\"batch_size\":128.*\n    pid: ")
        self.assertIn("| resnet_v1_50 | bf16 | 128 | 7000 | - |\n", text)

    def test_tests_that_passed_before_the_end_are_reported(self):
        code, text = self.check("--sections=goldens", SLOW="carole_golden_tests 2", CAROLE_GPU_CHECK_SECONDS="10")
        self.assertEqual(code, 1)
        self.assertIn("    not finished: Net.second_2\n    8 tests: 7 passed, 0 skipped, 0 failed, 1 not finished\n", text)
        code, text = self.check("--sections=goldens", WRONG="carole_golden_tests 1")
        self.assertEqual(code, 1)
        self.assertIn("    Net.second_1: element 3: got 2, want 1\n", text)
        self.assertIn("    FAILED Net.second_1\n    8 tests: 7 passed, 0 skipped, 1 failed, 0 not finished\n", text)

    def test_logs_of_all_checks_are_kept(self):
        self.check("--sections=kernels,goldens", WRONG="carole_golden_tests 1")
        with open(f"{self.out}/logs/Nets_against_their_golden_values.txt", encoding="utf-8") as file:
            self.assertIn("Net.second_1: element 3: got 2, want 1\n", file.read())
        self.assertTrue(os.path.exists(f"{self.out}/logs/Our_kernels_under_compute_sanitizer.txt"))

    def test_only_batches_that_both_have_measured_are_compared(self):
        text = self.check("--sections=speed", LOST="512")[1]
        self.assertIn("| resnet_v1_50 | bf16 | 512 | 7500 | - |\n", text)
        self.assertEqual(self.targets(text)["resnet_v1_50, bf16, carole / PyTorch"], ("1.4", "at least 1.2", "yes"))

    def test_pytorch_that_compiled_ahead_is_asked_to_measure(self):
        code, text = self.check("--sections=nets")
        self.assertEqual(code, 0, text)
        for net, batch in (("vgg_16", 128), ("mobilenet_v2", 256), ("inception_v3", 256)):
            with open(f"{self.out}/ahead.{net}.bf16.{batch}.json", encoding="utf-8") as file:
                self.assertIn('"compiled": true', file.read())
            self.assertIn(f"| {net} | bf16 | {batch} | 7000 | 5000 |\n", text)
        # A net whose compilation ahead fails is compiled in its section.
        text = self.check("--sections=nets", FAIL="python3 *vgg_16*--when=*")[1]
        self.assertIn("| vgg_16 | bf16 | 128 | 7000 | 5000 |\n", text)
        self.assertEqual(os.path.getsize(f"{self.out}/ahead.vgg_16.bf16.128.json"), 0)

    def test_a_batch_that_was_not_compiled_ahead_is_compiled_then(self):
        ahead = f"{self.out}/ahead.resnet_v1_50.bf16.256"
        os.makedirs(self.out, exist_ok=True)
        for path, text in ((f"{ahead}.ready", ""), (f"{ahead}.json", '{"batch_size": 256, "ahead": true}')):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        code, text = self.check("peer", "resnet_v1_50", "bf16", "256,512", CAROLE_HAS_TORCH="yes")
        self.assertEqual(code, 0, text)
        self.assertIn('"batch_size": 256, "ahead": true', text)
        self.assertIn('"batch_size": 512, "images_per_second": 5000', text)

    def test_pytorch_compiles_early_for_later_calls(self):
        self.check("--sections=goldens")
        with open(f"{self.out}/compile.txt", encoding="utf-8") as file:
            compiled = re.findall(r'"net": "(\w+)"', file.read())
        self.assertEqual(compiled, ["resnet_v1_50", "resnet_v1_50", "inception_v3", "mobilenet_v2", "vgg_16"])

    def test_sigterm_closes_the_report(self):
        with self.start(HANG="carole bench train*batch_size=512*") as process:
            while not os.path.exists(f"{self.out}/ours.resnet_v1_50.bf16.512.json"):  # batch 256 is finished
                self.assertIsNone(process.poll())
                time.sleep(0.1)
            process.terminate()
            said = process.stdout.read()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(said, r"## ResNet-50, bf16, batch 512: FAILED (.*\n)*    stopped after \d+ s")
        self.assertIn("## VGG-16, bf16: skipped: the time is over", said)
        self.assertEqual(self.targets(said)["resnet_v1_50, bf16, carole / PyTorch"][2], "not measured")
        with open(f"{self.out}/report.md", encoding="utf-8") as file:
            self.assertEqual(file.read(), said)

    def test_pytorch_that_does_not_compile_is_measured_uncompiled(self):
        self.assertEqual(self.check("ours", "vgg_16", "bf16", "128")[0], 0)
        for variables in ({"FAIL": "python3 *batch_size=128"}, {"HANG": "python3 *batch_size=128"}):
            code, text = self.check("peer", "vgg_16", "bf16", "128", CAROLE_SECTION_SECONDS="33", **variables)
            self.assertEqual(code, 0, text)
            self.assertIn('"compiled": false', text)
            text = self.check("summary")[1]
            self.assertIn("| vgg_16 | bf16 | 128 | 7000 | 4000 (uncompiled) |\n", text)
            self.assertEqual(self.targets(text), {"vgg_16, bf16, carole / PyTorch uncompiled": ("1.75", "-", "-")})

    def test_optimizers_must_match_those_of_the_cpu(self):
        self.assertEqual(self.check("fashion_mnist")[0], 0)
        code, text = self.check("optimizers", OFF="train --backend=cuda*--optimizer=sgd")
        self.assertEqual(code, 1)
        self.assertIn("adam       20 steps, 2.8905 to 2.7005, largest difference from the CPU 0.0000\n", text)
        self.assertIn("sgd        20 steps, 2.8905 to 2.7005, largest difference from the CPU 0.0095: DIFFERS\n", text)
        self.assertIn("diverging   1 steps, 2.3000 to 2.3000", text)
        self.assertEqual(self.check("optimizers", FAIL="carole train --backend=cuda*1e30*")[0], 1)

    def test_accuracy_must_be_reached(self):
        code, text = self.check("lenet", "fp32", ACCURACY="0.9099")
        self.assertEqual((code, text.splitlines()[-1]), (1, "accuracy 0.9099, want 0.91"))
        self.assertEqual(self.check("lenet", "fp32", ACCURACY="0.91")[0], 0)

    def test_a_program_that_hangs_is_stopped_in_time(self):
        code, text = self.check(HANG="carole doctor", CAROLE_GPU_CHECK_SECONDS="10")  # it would hang 100 s
        self.assertEqual(code, 1)
        stopped = re.search(r"## Doctor: FAILED in \d+ s\n\n.*\n    stopped after (\d+) s\n", text)
        self.assertLess(int(stopped[1]), 60, text)  # the limit of the section if there is enough time
        self.assertIn("## Nets against their golden values: skipped: the time is over", text)

    def test_sanitizer_reports_errors(self):
        self.assertEqual(self.check("sanitizer")[0], 0)
        for text, code, told in (
            ('echo "========= Invalid __global__ write"; echo "========= ERROR SUMMARY: 1 error"; exit 1', 1,
             "Invalid __global__ write"),
            ('echo "========= Target application terminated"', 1, "no ERROR SUMMARY"),
            ('echo "========= Error: Device not supported"; exit 1', 77, "skipped: compute-sanitizer does not know"),
        ):  # fmt: skip
            write_script(f"{self.bin}/compute-sanitizer", text)
            got, said = self.check("sanitizer")
            self.assertEqual(got, code)
            self.assertIn(told, said)
        self.assertIn("compute-sanitizer: skipped in", self.check("--sections=kernels")[1])

    def test_a_sanitizer_that_is_stopped_reports_what_it_found(self):
        environment = {"SLOW": "carole_backend_tests 1", "INVALID": "yes", "CAROLE_SECTION_SECONDS": "5"}
        shards = f"rm -f {self.out}/shard.*; timeout 3 sh '{SCRIPT}' {self.place} {self.out} sanitizer"
        os.makedirs(self.out)
        subprocess.run(["sh", "-c", shards], env=self.env | environment, check=False)
        self.assertIn("========= Invalid __global__ write of size 4 bytes\n", self.check("tally")[1])

    def on_two_ranks(self, *words, **variables):
        return self.check(*words, **({"NCCL": "2.32.3"} | variables))

    def test_ranks_that_cannot_share_a_gpu_are_skipped(self):
        self.assertEqual(self.check("too_many_ranks"), (0, "exit code 78, want 78\n"))
        checks = (
            "all_reduce_of_ranks", "lenet_of_ranks", "gradients_as_bf16", "end_of_ranks", "soak", "other_reductions",
            "times_of_ranks",
        )  # fmt: skip
        for check in checks:
            old = "skipped: NCCL 2.28.9 cannot share a GPU between two ranks: want 2.30.3 or newer\n"
            self.assertEqual(self.check(check, "20"), (77, old))
        code, text = self.check("lenet_of_ranks", "20", NCCL="libnccl.so.2: not found")
        self.assertEqual((code, text), (77, "skipped: NCCL was not found\n"))
        self.assertIn("## Two ranks: LeNet, captured, not captured and on CPUs: skipped", self.check("--sections=ranks")[1])

    def test_sums_of_ranks(self):
        words = "all_reduce_of_ranks", "65536,1048576,16777216,67108864"
        code, text = self.on_two_ranks(*words)
        self.assertEqual(code, 0, text)
        self.assertIn("exit code 0, 4 sizes with right sums, want 4\n", text)
        for wrong in ({"SUMS": "69"}, {"SIZES": "65536"}, {"FAIL": "carole bench allreduce*"}, {"NCCL": "2.30.3", "FAIL": "mpirun*"}):
            self.assertEqual(self.on_two_ranks(*words, **wrong)[0], 1, wrong)

    def test_losses_and_weights_of_ranks(self):
        code, text = self.on_two_ranks("lenet_of_ranks", "20")
        self.assertEqual(code, 0, text)
        self.assertIn("steps_ranks_lenet and steps_ranks_lenet_cpu: 20 steps, 2.8905 to 2.7005, largest difference 0.0000", text)
        wrong = {
            "the losses of GPUs": ({"OFF": "train --backend=cuda"}, "step 17: got loss 2.7400, want 2.7305"),
            "the losses of CPUs": ({"OFF": "train --backend=cpu"}, "step 17: got loss 2.7305, want 2.7400"),
            "the losses of captured steps": ({"OFF": "train --backend=cuda*--nocuda_graph"},
                                             "allowed 0 times the loss: DIFFERS: step 17: got loss 2.7305, want 2.7400"),
            "nan": ({"NAN": "train --backend=cuda"}, "step 17: got loss nan, want 2.7305"),
            "a run that ends early": ({"SHORT": "train --backend=cuda"}, "step 18: got loss none, want 2.7205"),
            "both runs end early": ({"SHORT": "train"}, "got 17 steps, want 20"),
            "weights": ({"OTHER": "train*--nocuda_graph"}, "weights: DIFFER"),
            "no graph": ({"EAGER": "train"}, "no step was captured"),
            "a run that fails": ({"FAIL": "carole train --backend=cuda*"}, "exit code 1; the end of its log:"),
        }  # fmt: skip
        for what, (variables, words) in wrong.items():
            code, text = self.on_two_ranks("lenet_of_ranks", "20", **variables)
            self.assertEqual(code, 1, f"{what}: {text}")
            self.assertIn(words, text, what)

    def test_gradients_as_bf16(self):
        words = "gradients_as_bf16", "65536,1048576,16777216,67108864", "20"
        code, text = self.on_two_ranks(*words)
        self.assertEqual(code, 0, text)
        self.assertIn("exit code 0, 4 sizes with right sums, want 4\n", text)
        self.assertIn("steps_ranks_bf16 and steps_ranks_bf16_cpu: 20 steps, 2.8905 to 2.7005", text)
        for wrong in ({"SUMS": "69"}, {"NAN": "train --backend=cuda"}, {"OTHER": "train*--nocuda_graph"}):
            self.assertEqual(self.on_two_ranks(*words, **wrong)[0], 1, wrong)

    def test_settings_of_nccl_are_compared(self):
        words = "compare_reductions", "resnet_v1_50", "256"
        code, text = self.on_two_ranks(*words)
        self.assertEqual((code, text.count(" 7000.0 images/s on 2 GPUs\n")), (0, 6), text)
        self.assertEqual(self.on_two_ranks(*words, FAIL="carole bench train*--wire_dtype=bf16*")[0], 1)
        speed = """case $1 in doctor) echo "ok NCCL 2.32.3" ;; *) echo '{"images_per_second": '"${NCCL_MAX_CTAS:-1}"'}' ;; esac"""
        write_script(f"{self.place}/carole", speed)
        text = self.on_two_ranks(*words)[1]
        self.assertIn("NCCL_MAX_CTAS=8: 8 images/s", text)
        self.assertIn("bf16: 1 images/s", text)

    def test_batch_norm_of_ranks(self):
        for flags in ((), ("--sync_batch_norm",)):
            words = ("batch_norm_of_ranks", "resnet_v1_50", "64", "20", *flags)
            code, text = self.on_two_ranks(*words)
            self.assertEqual(code, 0, text)
            self.assertEqual(self.on_two_ranks(*words, OFF="train --backend=cpu*model_name=resnet_v1_50")[0], 0, "0.35 %")
            code, text = self.on_two_ranks(*words, OFF="train --backend=cuda*--nocuda_graph")
            self.assertIn("allowed 0 times the loss: DIFFERS: step 17", text)
            code, text = self.on_two_ranks(*words, NAN=f"train --backend=cpu*model_name=resnet_v1_50*{''.join(flags)}")
            self.assertEqual(code, 1)

    def test_other_reductions(self):
        self.assertEqual(self.on_two_ranks("other_reductions", "20")[0], 0)
        code, text = self.on_two_ranks("other_reductions", "20", OTHER="train*ranks_one*")
        self.assertEqual(code, 1)
        self.assertIn("weights: DIFFER", text)
        for way in ("--reduction=adasum", "--reproducible"):
            code, text = self.on_two_ranks("other_reductions", "20", OFF=f"train --backend=cuda*{way}")
            self.assertEqual(code, 1)
            self.assertEqual(text.count("DIFFERS"), 1)

    def test_times_of_ranks(self):
        words = "times_of_ranks", "resnet_v1_50", "64", "20"
        code, text = self.on_two_ranks(*words)
        self.assertEqual(code, 0, text)
        self.assertIn("first reductions in the trace: got 40, want 40\nexposed communication: 1.5 ms of a step of 30.5 ms\n", text)
        for wrong in ({"TRACED": "1"}, {"EXPOSED": "null"}, {"EXPOSED": "0"}, {"EXPOSED": "31"}, {"FAIL": "carole bench train*"}):
            self.assertEqual(self.on_two_ranks(*words, **wrong)[0], 1, wrong)

    def test_differences_of_losses(self):
        os.makedirs(self.out)
        for want, got, tolerance, code in (
            ("2.0000", "2.0019", "1e-3", 0),
            ("2.0000", "2.0031", "1e-3", 1),
            ("2.0000", "1.9969", "1e-3", 1),
            ("-2.0000", "-2.0031", "1e-3", 1),
            ("2.0000", "2.0001", "0", 1),
            ("2.0000", "2.0000", "0", 0),
            ("0.0000", "0.0001", "1e-3", 0),
            ("0.0000", "0.0003", "1e-3", 1),
            ("2.0000", "inf", "1e-3", 1),
            ("nan", "nan", "1e-3", 1),
            ("", "", "1e-3", 1),
            ("2.0000", "2.5000", "1e-3,0.3", 0),
            ("2.0000", "2.6003", "1e-3,0.3", 1),
        ):
            for name, loss in (("want", want), ("got", got)):
                with open(f"{self.out}/{name}.txt", "w", encoding="utf-8") as file:
                    file.write(f"2.5000\n{loss}\n")
            found, text = self.check("compare_losses", tolerance, "2", f"{self.out}/want.txt", f"{self.out}/got.txt")
            self.assertEqual(found, code, f"{want} {got} {tolerance}: {text}")
            self.assertEqual("step 2: got loss" in text, code == 1, text)
        with open(f"{self.out}/got.txt", "w", encoding="utf-8") as file:
            file.write("2.6000\n2.0000\n")
        text = self.check("compare_losses", "1e-3,0.3", "2", f"{self.out}/want.txt", f"{self.out}/got.txt")[1]
        self.assertIn("step 1: got loss 2.6000, want 2.5000", text)

    def test_ranks_that_end(self):
        self.assertEqual(self.check("fashion_mnist")[0], 0)
        code, text = self.on_two_ranks("end_of_ranks")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"SIGKILL: exit code 137 after \d+ s, want 69 or 137 within 18 s\nSIGSTOP: exit code 69 after ")
        for variables, words in (
            ({"FROZEN": "137"}, "exit code 137"),
            ({"FROZEN": "0"}, "exit code 0"),
            ({"LATE": "20"}, r"exit code 69 after [2-9]\d s"),
            ({"SAYS": "rank 0 is unhappy"}, "the log does not name the reason"),
            ({"LEFT": "yes"}, r"process \d+ of rank 1 is still there"),
            ({"ENDS": "yes"}, "the training ended before it was disturbed"),
        ):
            code, text = self.on_two_ranks("end_of_rank", "STOP", **variables)
            self.assertEqual(code, 1, text)
            self.assertRegex(text, words)

    def test_soak(self):
        code, text = self.on_two_ranks("soak", "2000")
        self.assertEqual(code, 0, text)
        self.assertIn("steps_ranks_disturbed and steps_ranks_alone: 40 steps,", text)
        for variables, words in (
            ({"OFF": "train*ranks_disturbed"}, "DIFFERS: step 17"),
            ({"OTHER": "train*ranks_disturbed"}, "weights: DIFFER"),
            ({"COPIES": "0.01"}, "the copies ended early"),
            ({"FAIL": "carole train*ranks_disturbed*"}, "exit code 1"),
        ):
            code, text = self.on_two_ranks("soak", "2000", **variables)
            self.assertEqual(code, 1, text)
            self.assertIn(words, text)

    def test_the_two_calls_of_a_borrowed_gpu(self):
        code, text = self.on_two_ranks("--sections=call1")
        self.assertEqual(code, 0, text)
        titles = re.findall(r"^## (.*): passed in", text, re.MULTILINE)
        self.assertEqual(titles[0], "Versions and clocks")
        self.assertEqual(len([title for title in titles if title.startswith("Two ranks")]), 6, titles)
        self.assertEqual(titles[-1], "ResNet-50, bf16, by kernel; idle time")
        self.assertIn("skipped: carole_fused_forms was not built", text)
        row = "  forward, statistics   9 plans, 0.1 ms, plain 0.1 + passes 0.1: gain +0.1 ms"
        for output, code in ((row, 0), ("1 of 25 layers were timed", 1), (f"{row}'; exit 70; echo '", 1)):
            write_script(f"{self.place}/carole_fused_forms", f"echo '{output}'")
            self.assertEqual(self.check("fused_forms")[0], code, output)
        self.assertNotIn("PyTorch compiled", text)
        code, text = self.on_two_ranks("--sections=call2")
        self.assertEqual(code, 0, text)
        self.assertIn("## ResNet-50 v1.5, bf16: passed", text)
        self.assertEqual(self.targets(text)[MLPERF.format("resnet50 (v1.5)")], ("7000", "at least 6356", "yes"))
        self.assertIn("skipped: there is no build with 64 plans", text)
        shutil.copytree(self.place, f"{self.place}/more_plans")
        code, text = self.check("more_plans")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"up to 16 plans: 7000.0 images/s, \d+ s .*\nup to 64 plans: 7000.0 images/s")
        self.assertEqual(self.check("more_plans", FAIL="carole bench train*")[0], 1)

    def test_without_pytorch_only_our_speed(self):
        code, text = self.check("--sections=speed", NO_TORCH="1")
        self.assertEqual(code, 0)
        self.assertIn("| resnet_v1_50 | bf16 | 512 | 7500 | - |\n", text)
        self.assertIn("skipped: PyTorch cannot use this GPU", text)
        self.assertNotIn("carole / PyTorch", text)
        self.assertIn("PyTorch is not measured: ModuleNotFoundError: torch\n", text)
        code, text = self.check("--sections=speed", NO_TORCH="124")  # the first import took too long
        self.assertEqual(self.targets(text)["resnet_v1_50, bf16, carole / PyTorch"][0], "1.25")

    def test_idle_time_that_was_not_measured_is_reported(self):
        write_script(f"{self.place}/carole", """echo '{"images_per_second": 1}'""")
        self.assertEqual(self.check("idle")[1].count("images_per_second"), 2)  # the second run profiles operations
        self.assertIn("| - | at most 2 | not measured", self.check("summary")[1])

    def test_pytorch_builds_our_nets(self):
        """gpu_torch.py refuses a net that has not as many parameters as peer_nets.py says."""
        with open(os.path.join(ROOT, "nets", "nets.h"), encoding="utf-8") as file:
            ours = dict(re.findall(r'"(\w+)"[^}]*?num_parameters = ([\d\']+)', file.read()))
        peers = runpy.run_path(os.path.join(ROOT, "tests", "bench", "peer_nets.py"))["NETS"]
        self.assertGreaterEqual(len(peers), 5)
        for name, net in peers.items():
            self.assertEqual(net["parameters"], int(ours[name].replace("'", "")), name)

    @unittest.skipIf(os.path.exists("/dev/nvidia0") or os.path.exists("/proc/driver/nvidia"), "there is a GPU here")
    def test_without_a_gpu_nothing_is_checked(self):
        write_script(f"{self.bin}/nvidia-smi", "exit 9")
        code, text = self.check()
        message = "no GPU: neither nvidia-smi nor the driver reports one; nothing was checked\n"
        self.assertEqual((code, text), (0, message))

    def test_gpus_that_only_the_driver_knows_are_checked(self):
        write_script(f"{self.bin}/nvidia-smi", "exit 127")
        code, text = self.check("--sections=kernels,ranks", DOCTOR="2 GPUs for 1 ranks; driver 580.159.04")
        self.assertEqual(code, 1)  # the fake mpirun cannot start a rank on each of them
        self.assertIn("## Kernels against the reference: passed", text)
        self.assertIn("## A rank on each GPU: FAILED", text)

    def test_run_uses_a_bundle_if_there_is_no_build(self):
        root = os.path.dirname(self.place)
        os.makedirs(f"{root}/build")
        for name in ("run", "tests/gpu/gpu_check.sh", "tests/gpu/gpu_ranks.sh", "tests/gpu/gpu_report.sh"):
            os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), f"{root}/{name}")
        with tarfile.open(f"{root}/build/carole-bundle.tar.xz", "w:xz") as file:
            file.add(self.place, "carole-bundle")
        shutil.rmtree(self.place)
        write_script(f"{self.bin}/apt-get", "exit 100")
        for _ in ("with xz", "without"):
            done = subprocess.run([f"{root}/run", "gpu-check", "--sections=goldens"], env=self.env, text=True,
                                  timeout=200, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("## Nets against their golden values: passed", done.stdout)
            self.assertTrue(os.path.exists(f"{root}/build/gpu-check/report.md"))
            write_script(f"{self.bin}/tar", "exit 2")


if __name__ == "__main__":
    unittest.main()
