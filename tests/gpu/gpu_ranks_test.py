#!/usr/bin/env python3
"""Runs the checks of several ranks (tests/gpu/gpu_ranks.sh) with the real program on two emulated GPUs.

    gpu_ranks_test.py PROGRAMS LIBRARIES [UNITTEST WORD...]     PROGRAMS: the folder with carole and the emulated modules;
                                                                LIBRARIES: folders for LD_LIBRARY_PATH

The checks must pass as they are, and fail if NCCL's emulation computes wrong sums. Few steps are made, since the
emulation runs kernels on CPUs.
"""

import os
import stat
import subprocess
import sys
import tempfile
import unittest

# The emulation waits busily in each all-reduce, which takes minutes if other programs use the cores.
CAROLE = """#!/bin/sh
case "$*" in
  *--collective_timeout*) ;;
  "train "*) set -- "$@" --collective_timeout=400 ;;
esac
exec '{}/carole' "$@"
"""
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_check.sh")
PROGRAMS, LIBRARIES = sys.argv[1:3]


class GpuRanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.place, cls.out = (os.path.join(cls.folder.name, name) for name in ("place", "out"))
        os.makedirs(cls.place)
        with open(f"{cls.place}/carole", "w", encoding="utf-8") as file:
            file.write(CAROLE.format(PROGRAMS))
        os.chmod(f"{cls.place}/carole", stat.S_IRWXU)
        libraries = ":".join(filter(None, (LIBRARIES, os.environ.get("LD_LIBRARY_PATH"))))
        cls.env = os.environ | {"CAROLE_GPUS": "2", "CAROLE_GPU": "emulated", "CAROLE_HAS_TORCH": "no", "LD_LIBRARY_PATH": libraries,
                                "CAROLE_EMULATED_GPUS": "2", "OMP_WAIT_POLICY": "passive"}  # fmt: skip

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, *words, **variables):
        """Returns the exit code of a check and its output."""
        done = subprocess.run(["sh", SCRIPT, self.place, self.out, *words], env=self.env | variables, text=True, timeout=1200,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        return done.returncode, done.stdout

    def passes(self, *words, **variables):
        code, text = self.check(*words, **variables)
        self.assertEqual(code, 0, text)
        return text

    def fails(self, *words, **variables):
        code, text = self.check(*words, **variables)
        self.assertEqual(code, 1, text)
        return text

    def test_sums(self):
        words = "all_reduce_of_ranks", "4096,65536"
        self.assertIn("exit code 0, 2 sizes with right sums, want 2", self.passes(*words))
        self.assertIn("exit code 69, 0 sizes with right sums, want 2", self.fails(*words, CAROLE_EMULATED_NCCL="wrong_sums"))

    def test_gradients_as_bf16(self):
        self.passes("fashion_mnist")
        words = "gradients_as_bf16", "4096", "5"
        self.assertIn("ranks_bf16_cpu: 5 steps", self.passes(*words))
        self.assertIn("0 sizes with right sums, want 1", self.fails(*words, CAROLE_EMULATED_NCCL="wrong_sums"))

    def test_losses(self):
        self.passes("fashion_mnist")
        words = "lenet_of_ranks", "5"
        text = self.passes(*words)
        self.assertEqual(text.count(": 5 steps"), 2, text)
        text = self.fails(*words, CAROLE_EMULATED_NCCL="wrong_sums")
        self.assertIn("DIFFERS: step ", text)

    def test_fixed_order_and_times(self):
        self.passes("fashion_mnist")
        self.assertIn("digest of weights and slots: ranks_reproducible", self.passes("other_reductions", "5"))
        self.assertIn("first reductions in the trace: got 10, want 10", self.passes("times_of_ranks", "lenet", "8", "5"))

    def test_ends_of_ranks_on_cpus(self):
        self.passes("fashion_mnist")
        text = self.passes("end_of_ranks", CAROLE_GPU_CHECK_BACKEND="cpu")
        self.assertRegex(text, r"SIGKILL: exit code (69|137) after")
        self.assertIn("SIGSTOP: exit code 69 after", text)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
