#!/usr/bin/env python3
"""Runs `carole drill` in a job of a real Slurm, with one rank on each of two nodes.

    drill_test.py CAROLE [options of unittest]
"""

import os
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from hosts import Unavailable  # noqa: E402
from slurm import Slurm  # noqa: E402

CAROLE = ""
LONG = 1500  # seconds, enough for a busy machine


class SlurmDrillTest(unittest.TestCase):
    slurm = None

    def test_drill(self):
        with tempfile.TemporaryDirectory(prefix="carole-slurm-drill-", ignore_cleanup_errors=True) as folder:
            drill = (f"mpirun --allow-run-as-root --oversubscribe --bind-to none {CAROLE} drill --work_dir={folder}/drill "
                     "--faults=kill,sigusr1,lost_host --phases=start,backward")
            job = self.slurm.submit("-N2", "--ntasks-per-node=1", f"--chdir={folder}", "--output=drill.log", "--wrap", drill,
                                    env={"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive",
                                         "OMPI_MCA_rmaps_base_oversubscribe": "1"})  # fmt: skip

            def log():
                try:
                    with open(os.path.join(folder, "drill.log"), encoding="utf-8", errors="replace") as file:
                        return file.read()
                except FileNotFoundError:
                    return ""

            ended = self.slurm.wait(job, LONG, log)
            print(log())
            self.assertEqual(ended["state"], "COMPLETED", log())
            self.assertRegex(log(), r"2 ranks on \S+ \(1\), \S+ \(1\)")
            for row in (r"kill +start +1", r"kill +backward +1", r"sigusr1 +backward +1", r"lost_host +backward +1"):
                self.assertRegex(log(), row + r" .* pass .*same weights")
            self.assertTrue(os.path.exists(f"{folder}/drill/drill.html"))


def main():
    global CAROLE
    CAROLE = os.path.abspath(sys.argv.pop(1))
    try:
        with Slurm(2) as SlurmDrillTest.slurm:
            unittest.main()
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)


if __name__ == "__main__":
    main()
