#!/usr/bin/env python3
"""Tests the scripts of slurm/ on a real Slurm.

    slurm_test.py CAROLE [options of unittest]
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import parallel  # noqa: E402
from hosts import Unavailable, wait_until  # noqa: E402
from slurm import Slurm  # noqa: E402

CAROLE = ""
DATA = ""
LONG = 600  # seconds, enough for a busy machine and for jobs that wait for nodes
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def digest(train_dir):
    """Returns the digest of weights, optimizer slots and position in the newest checkpoint."""
    result = subprocess.run([CAROLE, "checkpoint", "inspect", "--json", train_dir], capture_output=True, text=True,
                            check=True)
    return json.loads(result.stdout)["state_digest"]


def process_status(process, field):
    """Returns a field of /proc/PROCESS/status."""
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return re.search(rf"^{field}:\s+(.*)$", file.read(), re.MULTILINE)[1]


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

    def wait_for_step(self, step):
        wait_until(lambda: f"global step {step}:" in self.log(), LONG, self.log)

    def processes_on_last_node(self, job, *names):
        """Returns the ids of the job's processes with these names on its last node."""
        node = self.slurm.do("scontrol", "show", "hostnames", self.slurm.job(job)["nodes"]).split()[-1]
        return [number for name in names for number in self.slurm.processes_on(node, name)]

    def expect_completed(self, job, restarts=0):
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual((ended["state"], ended["restarts"]), ("COMPLETED", restarts), self.log())

    def uninterrupted_digest(self, ranks, steps):
        """Returns the digest after an uninterrupted training with this many ranks."""
        folder = os.path.join(self.folder, "uninterrupted")
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), CAROLE,
                 "train", *self.train_flags(steps), f"--train_dir={folder}"]
        env = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive"}
        subprocess.run(words, capture_output=True, env=env, check=True)
        return digest(folder)

    def test_four_nodes_with_mpirun(self):
        job = self.submit("train_cpu.sbatch", ["-N4"], self.train_flags(6))
        self.expect_completed(job)
        self.assertIn("8 local, 32 global", self.log())
        self.assertEqual(digest(self.train_dir), self.uninterrupted_digest(4, 6))
        self.jobs.append(self.submit("eval.sbatch", ["-N2"], [
            "--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", f"--train_dir={self.train_dir}",
            "--model_name=lenet"], CAROLE_START="srun"))
        self.expect_completed(self.jobs[-1])
        self.assertIn("Ankle boot", self.log())

    # Without --batch, scancel signals the steps. Under mpirun these are only the ranks on other nodes than that of the
    # script. One of those is stopped until it has got the signal, so the training cannot end before.
    def save_requeue_and_resume(self, start, *options):
        steps = 40
        program = os.path.join(self.folder, "carole_with_fault")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {shlex.quote(CAROLE)} drill --inject=1:20:input:freeze -- "$@"\n')
        os.chmod(program, 0o755)
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(steps, "--collective_timeout=600"),
                          CAROLE_START=start, CAROLE=program)
        self.wait_for_step(20)
        (rank,) = self.processes_on_last_node(job, os.path.basename(CAROLE))
        wait_until(lambda: process_status(rank, "State").startswith("T"), LONG, self.log)
        self.slurm.do("scancel", *options, "--signal=USR1", job)
        wait_until(lambda: int(process_status(rank, "ShdPnd"), 16) >> (signal.SIGUSR1 - 1) & 1, LONG, self.log)
        os.kill(rank, signal.SIGCONT)
        self.expect_completed(job, restarts=1)
        self.assertRegex(self.log(), r"(?s)saving at step.*ended with code 75 after 0 restarts.*resuming from")
        self.assertIn("ended with code 0 after 1 restarts", self.log())
        self.assertEqual(digest(self.train_dir), self.uninterrupted_digest(2, steps))

    def test_usr1_under_mpirun(self):
        self.save_requeue_and_resume("mpirun")

    def test_usr1_to_the_script_under_mpirun(self):
        self.save_requeue_and_resume("mpirun", "--batch")

    def test_usr1_to_the_script_under_srun(self):
        self.save_requeue_and_resume("srun", "--batch")

    def test_usr1_under_srun(self):
        self.save_requeue_and_resume("srun")

    # After scancel the ranks save, but the job is not requeued.
    def test_scancel_under_srun(self):
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(100000), CAROLE_START="srun")
        self.wait_for_step(3)
        self.slurm.do("scancel", job)
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual((ended["state"], ended["restarts"]), ("CANCELLED", 0), self.log())
        self.assertIn("ended with code 75", self.log())

    # The time limit is lowered while training runs. Slurm checks limits every 30 s.
    def test_time_limit(self):
        job = self.submit("train_cpu.sbatch", ["-N2", "--time=60", "--signal=B:USR1@110"], self.train_flags(100000),
                          MAX_RESTARTS="0")
        self.wait_for_step(3)
        self.slurm.do("scontrol", "update", f"JobId={job}", "TimeLimit=2")
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual((ended["state"], ended["code"]), ("FAILED", 75), self.log())
        self.assertRegex(self.log(), r"(?s)saving at step.*ended with code 75")
        last = int(re.search(r"saving at step (\d+)", self.log()).group(1))
        self.assertIn(f"model.ckpt-{last}.h5", os.listdir(self.train_dir))

    def kill_rank(self, start):
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(100000), CAROLE_START=start)
        self.wait_for_step(3)
        ranks = self.processes_on_last_node(job, os.path.basename(CAROLE))
        self.assertTrue(ranks, "no rank found")
        os.kill(ranks[0], signal.SIGKILL)
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual((ended["state"], ended["restarts"]), ("FAILED", 0), self.log())

    def test_killed_rank_under_mpirun(self):
        self.kill_rank("mpirun")

    def test_killed_rank_under_srun(self):
        self.kill_rank("srun")

    # All processes on the node are killed, as if it lost power.
    def test_lost_node(self):
        job = self.submit("train_cpu.sbatch", ["-N2"], self.train_flags(1000, "--save_interval_secs=0.5"))
        wait_until(lambda: self.log().count("Saving checkpoint") >= 2, LONG, self.log)
        for number in self.processes_on_last_node(job, "orted", os.path.basename(CAROLE)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.expect_completed(job, restarts=1)
        self.assertRegex(self.log(), r"(?s)ended with code (205|69) after 0 restarts.*resuming from")

    def test_sweep(self):
        flags = [f"--train_dir={self.folder}/runs", *[f for f in self.train_flags(4) if "train_dir" not in f]]
        job = self.submit("sweep.sbatch", ["--array=0-1"], flags, SWEEP="learning_rate 0.02 0.01")
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual(set(ended["states"]), {"COMPLETED"}, self.log())
        for value in ("0.02", "0.01"):
            self.assertTrue(os.path.exists(f"{self.folder}/runs/learning_rate={value}/model.ckpt-4.h5"), self.log())

    # Runs doctor as ranks of srun on two nodes.
    def test_doctor(self):
        job = self.slurm.submit("-N2", f"--chdir={self.folder}", f"--output={self._testMethodName}.log", "--wrap",
                                f"srun --mpi=pmix --cpu-bind=none {CAROLE} doctor --train_dir={self.train_dir}")
        self.jobs.append(job)
        self.expect_completed(job)
        for text in (r"ok +PMIx +library \S+, started by PMIx \S+; srun has pmix", r"ok +ranks +2 started",
                     r"bandwidth +[0-9.]+ GB/s", "no problem found"):
            self.assertRegex(self.log(), text)

    # The batch script itself runs as one rank. hostfile prints the whole allocation.
    def test_batch_script_without_srun(self):
        job = self.slurm.submit("-N2", "--ntasks-per-node=2", f"--chdir={self.folder}",
                                f"--output={self._testMethodName}.log", "--wrap",
                                f"{CAROLE} hostfile && {CAROLE} bench allreduce --sizes=4096; "
                                "scontrol show hostnames")
        self.jobs.append(job)
        self.expect_completed(job)
        self.assertIn("one rank runs, but Slurm gives this job 4 tasks", self.log())
        nodes = re.findall(r"^(\S+) slots=2$", self.log(), re.MULTILINE)
        self.assertEqual(len(nodes), 2, self.log())
        self.assertTrue(self.log().endswith("\n".join(nodes) + "\n"), self.log())

    def test_bad_settings(self):
        job = self.submit("train_cpu.sbatch", ["-N1"], [], CAROLE_START="sh")
        self.assertEqual(self.slurm.wait(job, LONG)["code"], 64)
        self.assertIn("CAROLE_START: got sh, want mpirun or srun", self.log())
        job = self.submit("sweep.sbatch", ["--array=3"], [], SWEEP="learning_rate 0.1")
        self.slurm.wait(job, LONG)
        self.assertIn("SWEEP: got 'learning_rate 0.1' for task 3, want FLAG and a value", self.log())

    def write_probe(self, *lines):
        """Writes a script that stands in for carole: it prints its rank, node and GPUs, then runs these lines."""
        path = os.path.join(self.folder, "probe")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join([
                "#!/bin/sh",
                'echo "rank ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID} local ${OMPI_COMM_WORLD_LOCAL_RANK:-$SLURM_LOCALID}"'
                ' "on $(hostname) sees $CUDA_VISIBLE_DEVICES: $*"', *lines, ""]))
        os.chmod(path, 0o755)
        return path

    def gpu_options(self, *more):
        return ["-N2", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1", *more]

    # Ranks fill the nodes in order. Each sees all GPUs of its node.
    def check_gpu_ranks(self, start, options, devices):
        job = self.submit("train_gpu.sbatch", options, ["--model_name=lenet"], CAROLE=self.write_probe(),
                          CAROLE_START=start)
        self.expect_completed(job)
        found = re.findall(r"rank (\d) local (\d) on (\S+) sees (\S*): train --backend=cuda --model_name=lenet",
                           self.log())
        nodes = self.slurm.do("scontrol", "show", "hostnames", self.slurm.job(job)["nodes"]).split()
        self.assertEqual(sorted(found), [(str(rank), str(rank % 2), nodes[rank // 2], devices[rank % 2])
                                         for rank in range(4)], self.log())

    def test_gpu_ranks_under_mpirun(self):
        self.check_gpu_ranks("mpirun", self.gpu_options(), ["0,1", "0,1"])

    def test_gpu_ranks_under_srun(self):
        self.check_gpu_ranks("srun", self.gpu_options(), ["0,1", "0,1"])

    # A node without a working GPU is not a reason to requeue.
    def test_gpu_that_does_not_work(self):
        job = self.submit("train_gpu.sbatch", self.gpu_options("-N1"), self.train_flags(4))
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual((ended["state"], ended["code"], ended["restarts"]), ("FAILED", 78, 0), self.log())
        self.assertIn("[cuda] --backend=cuda: no GPU", self.log())

    # Exit codes 75 (saved), 69 (lost peer) and 205 (lost node) requeue the job, at most MAX_RESTARTS times.
    def test_gpu_job_is_requeued(self):
        probe = self.write_probe('[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exit 75', "exit 69")
        job = self.submit("train_gpu.sbatch", self.gpu_options("-N1"), [], CAROLE=probe, CAROLE_START="srun",
                          MAX_RESTARTS="1")
        ended = self.slurm.wait(job, LONG, self.log)
        self.assertEqual((ended["state"], ended["code"], ended["restarts"]), ("FAILED", 69, 1), self.log())
        self.assertRegex(self.log(), "(?s)ended with code 75 after 0 restarts.*ended with code 69 after 1 restarts")


def main():
    global CAROLE, DATA
    CAROLE = os.path.abspath(sys.argv.pop(1))
    try:
        with Slurm(4, gpus=2) as SlurmTest.slurm, tempfile.TemporaryDirectory(prefix="carole-fashion-") as DATA:
            subprocess.run([CAROLE, "dataset", "build", "--dataset_name=fashion_mnist", f"--raw_dir={FASHION_MNIST}",
                            f"--dataset_dir={DATA}", "--max_images=600"], check=True, stdout=subprocess.DEVNULL)
            parallel.main(SlurmTest, threads=4, slow=("test_time_limit", "test_lost_node", "test_four_nodes_with_mpirun"))
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)


if __name__ == "__main__":
    main()
