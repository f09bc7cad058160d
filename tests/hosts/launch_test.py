#!/usr/bin/env python3
"""`carole launch` on machines of its own: launch_test.py CAROLE [unittest's options]."""

import functools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import parallel  # noqa: E402
from hosts import Hosts, Unavailable, require, wait_until  # noqa: E402

CAROLE = ""
DATA = ""
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
# Hosts share the machine's cores: ranks that wait must not spin in each other's way.
ENV = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive"}
PORT = 2222
LONG = 400  # seconds: machines may be busy
PARALLEL = 3


def train_flags(train_dir, steps, *more):
    return ["--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", f"--train_dir={train_dir}", "--model_name=lenet",
            "--batch_size=8", "--optimizer=momentum", "--learning_rate=0.01", "--learning_rate_decay_type=fixed",
            f"--max_number_of_steps={steps}", "--log_every_n_steps=1", "--threads=1", "--num_preprocessing_threads=1",
            "--all_reduce=ring", "--bucket_plan=fixed", *more]


def digest(train_dir):
    """Of weights, slots and place in the newest checkpoint."""
    result = subprocess.run([CAROLE, "checkpoint", "inspect", "--json", train_dir], capture_output=True, text=True,
                            check=True)
    return json.loads(result.stdout)["state_digest"]


def evaluate(train_dir):
    """The newest checkpoint on the split that is not trained on, by one rank."""
    words = [CAROLE, "eval", "--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", "--dataset_split_name=test",
             f"--checkpoint_path={train_dir}", "--model_name=lenet", "--json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@functools.cache
def mpirun_digest(ranks, steps):
    """What the same training gives as ranks of one machine."""
    with tempfile.TemporaryDirectory(prefix="carole-launch-test-") as train_dir:
        return run_with_mpirun(train_dir, ranks, steps)


def run_with_mpirun(train_dir, ranks, steps):
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), CAROLE,
             "train", *train_flags(train_dir, steps)]
    result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **ENV}, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return digest(train_dir)


class LaunchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.beds = queue.Queue()
        cls.all_beds = [Hosts(3, index) for index in range(PARALLEL)]
        for bed in cls.all_beds:
            cls.beds.put(bed.__enter__())

    @classmethod
    def tearDownClass(cls):
        for bed in cls.all_beds:
            bed.__exit__()

    def setUp(self):
        self.hosts = self.beds.get()
        self.addCleanup(self.beds.put, self.hosts)
        keeper = tempfile.TemporaryDirectory(prefix="carole-launch-test-")
        self.addCleanup(keeper.cleanup)
        self.work_dir = keeper.name
        self.train_dir = os.path.join(keeper.name, "run")
        self.processes = {}
        self.addCleanup(self.stop_all)

    def stop_all(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            process.wait(LONG)

    def at(self, host, port=PORT):
        return f"{self.hosts.address(host)}:{port}"

    def log_name(self, name):
        return f"{self._testMethodName}.{name}.log"

    def log(self, name):
        return self.hosts.log(self.log_name(name))

    def logs(self):
        return "\n".join(f"--- {name}\n{self.log(name)}" for name in self.processes)

    def start(self, host, cluster, kind, index, flags, training, wrap=()):
        """Starts one task of a job as its container would."""
        config = {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}
        name = f"{kind}{index}"
        command = [*wrap, CAROLE, "launch", "--start_timeout=90", *flags, "--", "train", *training]
        env = {**ENV, "TF_CONFIG": json.dumps(config)}
        if kind not in ("chief", "master"):
            env["TMPDIR"] = self.work_dir  # where a machine that loses power leaves its files
        self.processes[name] = self.hosts.start(host, command, self.log_name(name), env)
        return self.processes[name]

    def start_job(self, cluster, tasks, flags, training):
        for host, kind, index in tasks:
            self.start(host, cluster, kind, index, flags, training)

    def expect_ends(self, **codes):
        end = time.monotonic() + LONG
        for name, code in codes.items():
            try:
                got = self.processes[name].wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"{name} has not ended:\n{self.logs()}")
            self.assertEqual(got, code, f"{name}:\n{self.logs()}")

    def await_step(self, step):
        wait_until(lambda: f"global step {step}:" in self.log("chief0"), LONG, self.logs)

    def await_saved(self):
        """The first checkpoint is whole when the second is begun."""
        wait_until(lambda: self.log("chief0").count("Saving checkpoint") >= 2, LONG, self.logs)

    # The chief's machine has a parameter server, too; another has the second worker and one.
    def test_master_ps_and_workers_on_shared_machines(self):
        cluster = {"master": [self.at(0)], "ps": [self.at(0, 2223), self.at(1, 2223)],
                   "worker": [self.at(1), self.at(2)]}
        tasks = [(1, "worker", 0), (2, "worker", 1), (0, "ps", 0), (1, "ps", 1), (0, "master", 0)]
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 8))
        self.expect_ends(ps0=0, ps1=0, master0=0, worker0=0, worker1=0)
        self.assertIn("3 ranks on 3 machines", self.log("master0"))
        self.assertIn("nothing to do", self.log("ps0"))
        self.assertEqual(os.stat(f"{self.work_dir}/.carole-launch/id_ed25519").st_mode & 0o777, 0o600)
        self.assertEqual(digest(self.train_dir), mpirun_digest(3, 8))

    # Nobody waits for it before training, and a short one is over when it comes.
    def test_second_task_of_the_chiefs_machine_comes_late(self):
        cluster = {"chief": [self.at(0)], "worker": [self.at(0, 2223)]}
        flags, training = [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 1)
        self.start(0, cluster, "chief", 0, flags, training)
        wait_until(lambda: "Starting Session" in self.log("chief0"), LONG, self.logs)
        self.start(0, cluster, "worker", 0, flags, training)
        self.expect_ends(chief0=0, worker0=0)

    # By name, with a mounted key; a parameter server idles; both ranks of a machine are in one container.
    def test_chief_and_worker_with_a_mounted_key(self):
        key = f"{self.work_dir}/secret"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        name = self.hosts.name(1).upper() + "."
        cluster = {"chief": [self.at(0)], "worker": [f"{name}:{PORT}", f"{name}:2224"],
                   "ps": [f"{self.hosts.name(2)}:{PORT}"]}
        tasks = [(0, "chief", 0), (2, "ps", 0), (1, "worker", 1), (1, "worker", 0)]
        self.start_job(cluster, tasks, [f"--ssh_key={key}", "--ps=idle", "--network=eth0", "--ports=41000-41099"],
                       train_flags(self.train_dir, 8, "--eval_every=8"))
        self.expect_ends(chief0=0, worker0=0, worker1=0, ps0=0)
        self.assertIn("3 ranks on 2 machines", self.log("chief0"))
        self.assertIn("ended with exit code 0", self.log("ps0"))
        self.assertEqual(digest(self.train_dir), mpirun_digest(3, 8))
        # Machines with one rank and with two have other shares of a batch: each image counts once all the same.
        alone = evaluate(self.train_dir)
        accuracy = float(re.search(r"eval/Accuracy ([0-9.]+)", self.log("chief0"))[1])
        self.assertAlmostEqual(accuracy, alone["accuracy"], delta=5e-4)  # kernels differ with the batch
        self.assertIn(f"({alone['samples']} samples)", self.log("chief0"))

    def three(self):
        cluster = {"chief": [self.at(0)], "worker": [self.at(1), self.at(2)]}
        return cluster, [(0, "chief", 0), (1, "worker", 0), (2, "worker", 1)]

    # The platform starts the machine and its task again: training is as if nothing had happened.
    def test_machine_that_comes_back(self):
        cluster, tasks = self.three()
        training = train_flags(self.train_dir, 300, "--save_interval_secs=0.5")
        flags = [f"--work_dir={self.work_dir}"]
        self.start_job(cluster, tasks, flags, training)
        self.await_saved()
        self.hosts.power_off(2)
        self.hosts.power_on(2)
        self.processes.pop("worker1").wait(LONG)
        self.start(2, cluster, "worker", 1, flags, training)
        self.expect_ends(chief0=0, worker0=0, worker1=0)
        self.assertIn("restart 1 of 3", self.log("chief0"))
        self.assertIn("resuming from", self.log("chief0"))
        self.assertEqual(digest(self.train_dir), mpirun_digest(3, 300))

    def test_machine_that_stays_away(self):
        cluster, tasks = self.three()
        training = train_flags(self.train_dir, 300, "--save_interval_secs=0.5")
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}", "--min_hosts=2", "--restart_timeout=20"],
                       training)
        self.await_saved()
        self.hosts.power_off(1)  # between the others: their ranks are counted anew
        self.addCleanup(self.hosts.power_on, 1)
        self.processes.pop("worker0").wait(LONG)
        self.expect_ends(chief0=0, worker1=0)
        self.assertRegex(self.log("chief0"), "going on with 2 of 3 machines, without worker-0")
        self.assertIn("2 ranks on 2 machines", self.log("chief0"))
        self.assertIn("global step 300:", self.log("chief0"))

    # As Open MPI 5's does.
    def test_mpirun_that_ends_well_without_the_ranks(self):
        mpirun = os.path.join(self.work_dir, "mpirun")
        with open(mpirun, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(mpirun, 0o755)
        cluster, flags = {"chief": [self.at(0)], "worker": [self.at(1)]}, [f"--work_dir={self.work_dir}"]
        training = train_flags(self.train_dir, 8)
        self.start(1, cluster, "worker", 0, flags, training)
        self.start(0, cluster, "chief", 0, [*flags, "--max_restarts=1"], training,
                   wrap=("env", f"PATH={self.work_dir}:{os.environ['PATH']}"))
        self.expect_ends(chief0=69, worker0=69)

    def test_termination_saves_and_all_leave_with_75(self):
        cluster, tasks = self.three()
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}", f"--grace_seconds={LONG}"],
                       train_flags(self.train_dir, 100000))  # fmt: skip
        self.await_step(3)
        self.hosts.signal(self.processes["chief0"], signal.SIGTERM)
        self.expect_ends(chief0=75, worker0=75, worker1=75)
        self.assertIn("saving at step", self.log("chief0"))

    # As platforms do when they take all machines away. A worker that left at once would take its ranks along.
    def test_termination_of_all_machines_saves_too(self):
        cluster, tasks = self.three()
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}", f"--grace_seconds={LONG}"],
                       train_flags(self.train_dir, 100000))  # fmt: skip
        self.await_step(3)
        for task in ("worker0", "worker1", "chief0"):
            self.hosts.signal(self.processes[task], signal.SIGTERM)
        self.expect_ends(chief0=75, worker0=75, worker1=75)
        self.assertIn("saving at step", self.log("chief0"))

    def start_evaluator(self, cluster, training):
        self.start(2, cluster, "evaluator", 0, [], training)
        wait_until(lambda: "waiting for checkpoints" in self.log("evaluator0"), LONG, self.logs)

    # A process of its own, on a machine of its own; only the folder of checkpoints is common.
    def test_evaluator_ends_with_the_last_step(self):
        cluster, tasks = {"chief": [self.at(0)], "worker": [self.at(1)]}, [(0, "chief", 0), (1, "worker", 0)]
        training = train_flags(self.train_dir, 40, "--save_interval_secs=0.5")
        self.start_evaluator(cluster, training)
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"], training)
        self.expect_ends(chief0=0, worker0=0, evaluator0=0)
        self.assertIn("model.ckpt-40.h5, step 40", self.log("evaluator0"))
        self.assertIn("Ankle boot", self.log("evaluator0"))
        self.assertIn("no more checkpoints are waited for", self.log("evaluator0"))
        self.assertTrue(any("tfevents" in name for name in os.listdir(f"{self.train_dir}/eval")))

    # Training is stopped half way: the chief's note ends the evaluator, after the checkpoint that was saved then.
    def test_evaluator_ends_with_the_job(self):
        cluster, tasks = {"chief": [self.at(0)], "worker": [self.at(1)]}, [(0, "chief", 0), (1, "worker", 0)]
        training = train_flags(self.train_dir, 100000)
        self.start_evaluator(cluster, training)
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"], training)
        self.await_step(3)
        self.hosts.signal(self.processes["chief0"], signal.SIGTERM)
        self.expect_ends(chief0=75, worker0=75, evaluator0=0)
        saved = re.search(r"saving at step (\d+)", self.log("chief0")).group(1)
        self.assertIn(f"model.ckpt-{saved}.h5, step {saved}", self.log("evaluator0"))

    # Two ranks on the chief's machine, one on another.
    def start_unequal(self, training):
        cluster = {"chief": [self.at(0)], "worker": [self.at(0, 2223), self.at(1)]}
        self.start_job(cluster, [(0, "chief", 0), (0, "worker", 0), (1, "worker", 1)], [f"--work_dir={self.work_dir}"],
                       training)

    # Shares of a machine's batch are 25 and 50 there: ranks that took turns by both would see images twice, or never.
    def test_evaluation_by_machines_with_unequal_numbers_of_ranks(self):
        self.start_unequal(train_flags(self.train_dir, 4, "--eval_every=4", "--eval_batch_size=50"))
        self.expect_ends(chief0=0, worker0=0, worker1=0)
        self.assertIn(f"eval/Accuracy {evaluate(self.train_dir)['accuracy']:.4f}", self.log("chief0"))

    def test_machines_that_cannot_share_the_batch_alike(self):
        training = train_flags(self.train_dir, 4)
        self.start_unequal([flag.replace("--batch_size", "--train_batch_size") for flag in training])
        self.expect_ends(chief0=78, worker0=78, worker1=78)
        self.assertIn("rank 2 has a batch of 8, rank 0 of 4; start as many ranks on every machine", self.log("chief0"))

    def test_code_of_failed_training_reaches_all(self):
        cluster, tasks = self.three()
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"],
                       train_flags(self.train_dir, 8, "--dataset_dir=/nowhere"))
        self.expect_ends(chief0=65, worker0=65, worker1=65)

    def test_machine_that_does_not_come(self):
        cluster, _ = self.three()
        flags = [f"--work_dir={self.work_dir}", "--start_timeout=20"]
        training = train_flags(self.train_dir, 8)
        self.start(0, cluster, "chief", 0, flags, training)
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(chief0=69, worker0=69)
        self.assertRegex(self.log("chief0"),
                         r"\[launch\] job: machines have not come in 20 s: got 2 of 3, without worker-1 "
                         r"\([0-9.]+ port 2222: .*Connection refused")

    def test_tasks_without_a_chief_leave(self):
        cluster, _ = self.three()
        self.start(1, cluster, "worker", 0, [f"--work_dir={self.work_dir}", "--start_timeout=2"],
                   train_flags(self.train_dir, 8))
        self.expect_ends(worker0=69)
        self.assertRegex(self.log("worker0"), r"the chief has not made the job's key in 2 s; is --work_dir one folder")

    def test_termination_before_the_chief_comes(self):
        cluster, _ = self.three()
        self.start(1, cluster, "worker", 0, [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 8))
        time.sleep(2)
        self.hosts.signal(self.processes["worker0"], signal.SIGTERM)
        self.expect_ends(worker0=128 + signal.SIGTERM)

    # A key of somebody else's, and a port that is taken.
    def test_unusable_keys_and_ports(self):
        cluster, _ = self.three()
        key = f"{self.work_dir}/.carole-launch/id_ed25519"
        os.makedirs(os.path.dirname(key), mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        flags, training = [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 8)
        os.chmod(key, 0o644)
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(worker0=78)
        self.assertRegex(self.log("worker0"), "id_ed25519: others can read the key: got mode 644, want 600")
        os.chmod(key, 0o600)
        os.chown(key, 12345, 0)
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(worker0=78)
        self.assertRegex(self.log("worker0"), "id_ed25519: somebody else's key: got owner 12345, want 0")
        os.chown(key, 0, 0)
        taken = self.hosts.start(1, ["/usr/bin/python3", "-c", "import socket, time; s = socket.socket(); "
                                     "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
                                     f"s.bind(('', {PORT})); s.listen(); print('bound', flush=True); time.sleep(600)"],
                                 self.log_name("taken"))
        self.addCleanup(taken.kill)
        wait_until(lambda: "bound" in self.log("taken"), LONG, "port not taken")
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(worker0=78)
        self.assertRegex(self.log("worker0"), r"\[launch\] sshd: cannot serve worker-0 on port 2222: .*Bind to port 2222")

    # Every program that the chief's side starts: mpirun, ssh and ranks, never a shell. Nor do words for one mean anything.
    def test_no_shell_is_started(self):
        if not os.path.exists("/usr/bin/strace"):
            self.skipTest("no strace")
        cluster = {"chief": [self.at(0)], "worker": [self.at(1)]}
        log_dir = f"{self.work_dir}/$(touch x);touch y"
        flags, training = [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 2, f"--log_dir={log_dir}")
        trace = f"{self.work_dir}/trace"
        self.start(0, cluster, "chief", 0, flags, training,
                   wrap=["/usr/bin/strace", "-f", "-qq", "-e", "trace=execve", "-s", "200", "-o", trace])
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(chief0=0, worker0=0)
        with open(trace, encoding="utf-8") as file:
            programs = {os.path.basename(m) for m in re.findall(r'execve\("([^"]+)".* = 0', file.read())}
        self.assertEqual(programs, {"carole", "mpirun", "orterun", "prterun", "ssh", "ssh-keygen"} & programs, programs)
        self.assertTrue({"carole", "ssh", "ssh-keygen"} <= programs, programs)
        self.assertTrue(any("tfevents" in name for name in os.listdir(log_dir)))


def main():
    global CAROLE, DATA
    CAROLE = os.path.abspath(sys.argv.pop(1))
    try:
        require("ip", "sshd", "ssh-keygen", "mpirun")
        with Hosts(1):
            pass
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="carole-fashion-") as DATA:
        subprocess.run([CAROLE, "dataset", "build", "--dataset_name=fashion_mnist", f"--raw_dir={FASHION_MNIST}",
                        f"--dataset_dir={DATA}", "--max_images=600"], check=True, stdout=subprocess.DEVNULL)
        parallel.main(LaunchTest, PARALLEL, slow=("test_machine_that_comes_back", "test_machine_that_stays_away"))


if __name__ == "__main__":
    main()
