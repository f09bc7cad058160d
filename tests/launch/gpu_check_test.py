#!/usr/bin/env python3
"""launch/gpu_check.sh on a machine whose GPU, programs and PyTorch are scripts: verdicts, ratios, limits, exit code."""

import os
import re
import runpy
import stat
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(ROOT, "launch", "gpu_check.sh")

# Each fails, or hangs, where its command line matches a variable.
HEAD = """#!/bin/sh
case "$(basename "$0") $*" in
  $FAIL) echo "broken on purpose" >&2; exit "${CODE:-1}" ;;
  $HANG) sleep 100 ;;
esac
"""
CAROLE = """
case "$*" in
  doctor*) echo "ok NCCL 2.28.9" ;;
  eval*) echo '{"accuracy":'"${ACCURACY:-0.92}"',"recall_5":0.99}' ;;
  *jpeg_decoder=nvjpeg*) exit 78 ;;
  "bench train"*dataset_dir*) echo '{"images_per_second": 6860.0}' ;;
  "bench train"*batch_size=512*) echo '{"images_per_second": 7500.0}' ;;
  "bench train"*) echo '{"images_per_second":7000.0}' ;;
esac
[ -z "${CUDA_INJECTION64_PATH:-}" ] || echo "GPU idle: 1.25 % of the last 2000 ms" >&2
"""
MPIRUN = """
[ "${CUDA_VISIBLE_DEVICES:-}" != 0 ] || exit "${SHARING:-0}"
exit 78
"""
PYTHON = """
[ "$1" != -c ] || exit "${NO_TORCH:-0}"
echo '{"program": "pytorch", "images_per_second": 5000.0}'
echo '{"program": "pytorch", "images_per_second": 6000.0}'
"""
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
        write_script(f"{self.place}/tests/carole_backend_tests", "")
        write_script(f"{self.place}/tests/carole_golden_tests", "")
        for name, text in (("nvidia-smi", NVIDIA_SMI), ("python3", PYTHON), ("mpirun", MPIRUN),
                           ("compute-sanitizer", 'shift; "$@"')):  # fmt: skip
            write_script(f"{self.bin}/{name}", text)

    def check(self, *words, **variables):
        """Returns the exit code and what was said."""
        env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", FAIL="none", HANG="none") | variables
        done = subprocess.run(["sh", SCRIPT, self.place, self.out, *words], env=env, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # fmt: skip
        return done.returncode, done.stdout

    def wanted(self, text):
        """The last table: what -> (measured, wanted, reached)."""
        rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
        return {what: (got, want, reached) for what, got, want, reached in rows[1:]}

    def test_all_is_well(self):
        code, text = self.check()
        self.assertEqual(code, 0, text)
        self.assertNotIn("FAILED", text)
        self.assertNotIn("skipped: the time", text)
        self.assertIn("## Our kernels under compute-sanitizer: passed", text)
        self.assertIn("skipped: nvJPEG is not here", text)
        wanted = self.wanted(text)
        self.assertEqual(wanted["resnet_v1_50, bf16, carole / PyTorch"], ("1.25", "at least 1.2", "yes"))
        self.assertEqual(wanted["resnet_v1_50, bf16, images/s (80 % of MLPerf 4.0's best)"][2], "yes")
        self.assertEqual(wanted["vgg_16, bf16, carole / PyTorch"], ("1.1667", "at least 1.2", "NO"))
        self.assertEqual(wanted["JPEGs decoded by cpu / tensors"], ("0.98", "at least 0.97", "yes"))
        self.assertEqual(wanted["GPU idle inside a step, %"], ("1.25", "at most 2", "yes"))
        self.assertIn("inception_v3, bf16, carole / PyTorch", wanted)
        self.assertIn("mobilenet_v2, bf16, carole / PyTorch", wanted)
        with open(f"{self.out}/report.md", encoding="utf-8") as file:
            self.assertEqual(file.read(), text)

    def test_one_failure_fails_the_whole_and_stops_nothing(self):
        for fail, title in (
            ("carole_backend_tests*", "Kernels against the reference"),
            ("carole train*bf16*", "LeNet, 5 epochs, bf16: accuracy"),
            ("*inception_v3*json", "Inception v3, bf16, beside PyTorch compiled"),
        ):
            code, text = self.check(FAIL=fail)
            self.assertEqual(code, 1)
            self.assertRegex(text, f"## {title}: FAILED in .*\n\n.*\n.*broken on purpose")
            self.assertIn("## What was wanted", text)

    def test_batches_that_do_not_fit_are_left_out(self):
        words = ("speed", "vgg_16", "bf16", "64,512", "128", "1.2")
        code, text = self.check(*words, FAIL="*batch_size=512*", CODE="78")
        self.assertEqual(code, 0, text)
        self.assertIn("| 1.1667 | at least 1.2 | NO", text)
        self.assertEqual(self.check(*words, FAIL="*batch_size=*", CODE="78")[0], 1)

    def test_steps_that_fail_as_cuda_graphs_are_measured_without(self):
        words = ("speed", "vgg_16", "bf16", "64,512", "128", "1.2")
        code, text = self.check(*words, FAIL="carole bench train*batch_size=64 --json", CODE="69")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count('"images_per_second":7000.0'), 1)
        self.assertIn("vgg_16, bf16, batch 64: steps as CUDA graphs | 0 | at least 1 | NO", text)
        self.assertEqual(self.check(*words, FAIL="*batch_size=*", CODE="69")[0], 1)

    def test_accuracy_must_be_reached(self):
        code, text = self.check("lenet", "fp32", ACCURACY="0.9099")
        self.assertEqual((code, text), (1, "accuracy 0.9099, want 0.91\n"))
        self.assertEqual(self.check("lenet", "fp32", ACCURACY="0.91")[0], 0)

    def test_what_hangs_is_ended_and_the_time_is_kept(self):
        code, text = self.check(HANG="carole doctor", CAROLE_GPU_CHECK_SECONDS="5")  # it would hang 100 s, 60 are allowed
        self.assertEqual(code, 1)
        self.assertRegex(text, r"## Doctor: FAILED in \d+ s\n\n.*\n    ended after [1-5] s\n")
        self.assertIn("## Nets against their golden values: skipped: the time is over", text)

    def test_sanitizer_tells_errors(self):
        error = 'echo "========= Invalid __global__ write of size 4 bytes"; exit 1'
        write_script(f"{self.bin}/compute-sanitizer", error)
        code, text = self.check("sanitizer")
        self.assertEqual(code, 1)
        self.assertIn("Invalid __global__ write", text)

    def test_ranks(self):
        self.assertEqual(self.check("too_many_ranks"), (0, "exit code 78, want 78\n"))
        self.assertEqual(self.check("two_ranks_on_one_gpu")[0], 0)
        code, text = self.check("two_ranks_on_one_gpu", SHARING="78")
        skipped = "skipped: this NCCL has no setting for it\n"
        self.assertEqual((code, text), (0, "--reduction=sum: exit code 78\n" + skipped))
        for way in ("--reduction=adasum", "--reproducible"):
            code, text = self.check("two_ranks_on_one_gpu", FAIL=f"mpirun*{way}")
            self.assertIn(f"{way}: exit code 1\n", text)

    def test_without_pytorch_only_our_speed(self):
        code, text = self.check("speed", "vgg_16", "bf16", "64,128", "128", "1.2", NO_TORCH="1")
        self.assertEqual(code, 0)
        self.assertEqual(text.count("images_per_second"), 2)
        self.assertIn("no PyTorch for this GPU here", text)

    def test_idle_time_that_nobody_measured_is_said(self):
        write_script(f"{self.place}/carole", """echo '{"images_per_second": 1}'""")
        text = self.check("idle")[1]
        self.assertIn("| 0 | at most 2 | not measured", text)
        self.assertEqual(text.count("images_per_second"), 2)  # and once more, by operation

    def test_pytorch_builds_our_nets(self):
        """gpu_torch.py refuses a net whose parameters are not as many as peer_nets.py says."""
        with open(os.path.join(ROOT, "nets", "nets.h"), encoding="utf-8") as file:
            ours = dict(re.findall(r'"(\w+)"[^}]*?num_parameters = ([\d\']+)', file.read()))
        peers = runpy.run_path(os.path.join(ROOT, "tests", "bench", "peer_nets.py"))["GPU_NETS"]
        self.assertGreaterEqual(len(peers), 5)
        for name, net in peers.items():
            self.assertEqual(net["parameters"], int(ours[name].replace("'", "")), name)

    def test_without_a_gpu_nothing_is_checked(self):
        write_script(f"{self.bin}/nvidia-smi", "exit 9")
        code, text = self.check()
        self.assertEqual((code, text), (0, "no GPU: nvidia-smi names none; nothing was checked\n"))


if __name__ == "__main__":
    unittest.main()
