#!/usr/bin/env python3
"""The scripts of slurm/ on a real Slurm: slurm_test.py CAROLE [unittest's options]."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from hosts import Unavailable, wait_until  # noqa: E402
from slurm import Slurm  # noqa: E402

CAROLE = ""
DATA = ""
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def digest(train_dir):
    """Of weights, slots and place in the newest checkpoint."""
    result = subprocess.run([CAROLE, "checkpoint", "inspect", "--json", train_dir], capture_output=True, text=True,
                            check=True)
    return json.loads(result.stdout)["state_digest"]


class SlurmTest(unittest.TestCase):
    slurm = None

    def setUp(self):
        keeper = tempfile.TemporaryDirectory(prefix="carole-slurm-test-", ignore_cleanup_errors=True)
        self.addCleanup(keeper.cleanup)
        self.folder = keeper.name
        self.train_dir = os.path.join(self.folder, "run")
        self.jobs = []
        self.addCleanup(self.cancel_all)

    def cancel_all(self):
        for job in self.jobs:
            subprocess.run(["scancel", "--full", "--signal=KILL", job], env=self.slurm.env, capture_output=True,
                           check=False)
            subprocess.run(["scancel", job], env=self.slurm.env, capture_output=True, check=False)

    def train_flags(self, steps, *more):
        return ["--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", f"--train_dir={self.train_dir}",
                "--model_name=lenet", "--batch_size=8", "--optimizer=momentum", "--learning_rate=0.01",
                "--learning_rate_decay_type=fixed", f"--max_number_of_steps={steps}", "--log_every_n_steps=1",
                "--threads=1", "--num_preprocessing_threads=1", "--all_reduce=ring", "--bucket_plan=fixed", *more]

    def submit(self, script, options, flags, **settings):
        env = {"CAROLE": CAROLE, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMP_WAIT_POLICY": "passive", **settings}
        job = self.slurm.submit(f"--chdir={self.folder}", "--output=%x.log", "--job-name", self._testMethodName,
                                *options, os.path.join(ROOT, "slurm", script), *flags, env=env)
        self.jobs.append(job)
        return job

    def log(self):
        try:
            with open(os.path.join(self.folder, f"{self._testMethodName}.log"), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def await_step(self, step):
        wait_until(lambda: f"global step {step}:" in self.log(), 60, self.log)

    def expect_completed(self, job, restarts=0, seconds=90):
        ended = self.slurm.wait(job, seconds, self.log)
        self.assertEqual((ended["state"], ended["restarts"]), ("COMPLETED", restarts), self.log())

    def whole_digest(self, ranks, steps):
        """What uninterrupted training with so many ranks gives."""
        folder = os.path.join(self.folder, "whole")
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), CAROLE,
                 "train", *self.train_flags(steps), f"--train_dir={folder}"]
        env = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive"}
        subprocess.run(words, capture_output=True, env=env, check=True)
        return digest(folder)

    def test_four_nodes_with_mpirun(self):
        job = self.submit("train_cpu.sbatch", ["-N4"], self.train_flags(6))
        self.expect_completed(job)
        self.assertIn("8 local, 32 global", self.log())
        self.assertEqual(digest(self.train_dir), self.whole_digest(4, 6))
        self.jobs.append(self.submit("eval.sbatch", ["-N2"], [
            "--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", f"--train_dir={self.train_dir}",
            "--model_name=lenet"], CAROLE_START="srun"))
        self.expect_completed(self.jobs[-1])
        self.assertIn("Ankle boot", self.log())

    # The steps get the signal: under mpirun only the ranks of other nodes than the script's.
    def save_requeue_and_resume(self, start):
        steps = 150
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(steps), CAROLE_START=start)
        self.await_step(4)
        self.slurm.do("scancel", "--signal=USR1", job)
        self.expect_completed(job, restarts=1)
        self.assertRegex(self.log(), r"(?s)saving at step.*ended with code 75 after 0 restarts.*resuming from")
        self.assertIn("ended with code 0 after 1 restarts", self.log())
        self.assertEqual(digest(self.train_dir), self.whole_digest(2, steps))

    def test_usr1_under_mpirun(self):
        self.save_requeue_and_resume("mpirun")

    def test_usr1_under_srun(self):
        self.save_requeue_and_resume("srun")

    # What --signal=B:USR1@120 brings two minutes before the limit, brought at once.
    def test_time_limit(self):
        steps = 150
        job = self.submit("train_cpu.sbatch", ["-N2", "--time=3", "--signal=B:USR1@170"], self.train_flags(100000),
                          MAX_RESTARTS="0")
        ended = self.slurm.wait(job, 100, self.log)
        self.assertEqual((ended["state"], ended["code"]), ("FAILED", 75), self.log())
        self.assertRegex(self.log(), r"(?s)saving at step.*ended with code 75")
        last = int(re.search(r"saving at step (\d+)", self.log()).group(1))
        self.assertTrue(os.path.exists(f"{self.train_dir}/model.ckpt-{last}.h5"), steps)

    def kill_rank(self, start):
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(100000), CAROLE_START=start)
        self.await_step(3)
        node = self.slurm.do("scontrol", "show", "hostnames", self.slurm.job(job)["nodes"]).split()[-1]
        ranks = self.slurm.processes_on(node, os.path.basename(CAROLE))
        self.assertTrue(ranks, "no rank found")
        os.kill(ranks[0], signal.SIGKILL)
        ended = self.slurm.wait(job, 40, self.log)
        self.assertEqual((ended["state"], ended["restarts"]), ("FAILED", 0), self.log())

    def test_killed_rank_under_mpirun(self):
        self.kill_rank("mpirun")

    def test_killed_rank_under_srun(self):
        self.kill_rank("srun")

    # All that runs on the node dies, as when it loses power.
    def test_lost_node(self):
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(400, "--save_interval_secs=0.5"))
        wait_until(lambda: self.log().count("Saving checkpoint") >= 2, 60, self.log)
        node = self.slurm.do("scontrol", "show", "hostnames", self.slurm.job(job)["nodes"]).split()[-1]
        for name in ("orted", os.path.basename(CAROLE)):
            for number in self.slurm.processes_on(node, name):
                os.kill(number, signal.SIGKILL)
        self.expect_completed(job, restarts=1)
        self.assertRegex(self.log(), r"(?s)ended with code (205|69) after 0 restarts.*resuming from")

    def test_sweep(self):
        flags = [f"--train_dir={self.folder}/runs", *[f for f in self.train_flags(4) if "train_dir" not in f]]
        job = self.submit("sweep.sbatch", ["--array=0-1"], flags, SWEEP="learning_rate 0.02 0.01")
        ended = self.slurm.wait(job, 60, self.log)
        self.assertEqual(set(ended["states"]), {"COMPLETED"}, self.log())
        for value in ("0.02", "0.01"):
            self.assertTrue(os.path.exists(f"{self.folder}/runs/learning_rate={value}/model.ckpt-4.h5"), self.log())

    def test_bad_settings(self):
        job = self.submit("train_cpu.sbatch", ["-N1"], [], CAROLE_START="sh")
        self.assertEqual(self.slurm.wait(job, 30)["code"], 64)
        self.assertIn("CAROLE_START: got sh, want mpirun or srun", self.log())
        job = self.submit("sweep.sbatch", ["--array=3"], [], SWEEP="learning_rate 0.1")
        self.slurm.wait(job, 30)
        self.assertIn("SWEEP: got 'learning_rate 0.1' for task 3, want FLAG and a value", self.log())


def main():
    global CAROLE, DATA
    CAROLE = os.path.abspath(sys.argv.pop(1))
    try:
        with Slurm(4) as SlurmTest.slurm, tempfile.TemporaryDirectory(prefix="carole-fashion-") as DATA:
            subprocess.run([CAROLE, "dataset", "build", "--dataset_name=fashion_mnist", f"--raw_dir={FASHION_MNIST}",
                            f"--dataset_dir={DATA}", "--max_images=600"], check=True, stdout=subprocess.DEVNULL)
            unittest.main()
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)


if __name__ == "__main__":
    main()
