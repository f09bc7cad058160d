#!/usr/bin/env python3
"""Tests `carole launch` on emulated hosts (tests/support/hosts.py).

    launch_test.py CAROLE [options of unittest]
"""

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
# All hosts share the cores of this machine, so waiting ranks must not spin.
ENV = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive"}
PORT = 2222
LONG = 400  # seconds, enough for a busy machine
PARALLEL = 3  # number of tests that run at the same time


def train_flags(train_dir, steps, *more):
    return ["--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", f"--train_dir={train_dir}", "--model_name=lenet",
            "--batch_size=8", "--optimizer=momentum", "--learning_rate=0.01", "--learning_rate_decay_type=fixed",
            f"--max_number_of_steps={steps}", "--log_every_n_steps=1", "--threads=1", "--num_preprocessing_threads=1",
            "--all_reduce=ring", "--bucket_plan=fixed", *more]


def digest(train_dir):
    """Returns the digest of weights, optimizer slots and position in the newest checkpoint."""
    result = subprocess.run([CAROLE, "checkpoint", "inspect", "--json", train_dir], capture_output=True, text=True,
                            check=True)
    return json.loads(result.stdout)["state_digest"]


def evaluate(train_dir):
    """Evaluates the newest checkpoint with one rank, on the split that is not trained on."""
    words = [CAROLE, "eval", "--dataset_name=fashion_mnist", f"--dataset_dir={DATA}", "--dataset_split_name=test",
             f"--checkpoint_path={train_dir}", "--model_name=lenet", "--json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@functools.cache
def mpirun_digest(ranks, steps):
    """Returns the digest after the same training with all ranks on one host."""
    with tempfile.TemporaryDirectory(prefix="carole-launch-test-") as train_dir:
        return run_with_mpirun(train_dir, ranks, steps)


def run_with_mpirun(train_dir, ranks, steps):
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), CAROLE,
             "train", *train_flags(train_dir, steps)]
    result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **ENV}, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return digest(train_dir)


def process_of_rank(rank, train_dir):
    """Returns the process of a rank that trains in this folder, on whatever host it is."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().decode().split("\0")
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if words[0] == CAROLE and f"--train_dir={train_dir}" in words and f"OMPI_COMM_WORLD_RANK={rank}" in variables:
            return int(name)
    raise RuntimeError(f"no rank {rank}")


class LaunchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host_groups = queue.Queue()
        cls.all_host_groups = [Hosts(3, index) for index in range(PARALLEL)]
        for group in cls.all_host_groups:
            cls.host_groups.put(group.__enter__())

    @classmethod
    def tearDownClass(cls):
        for group in cls.all_host_groups:
            group.__exit__()

    def setUp(self):
        self.hosts = self.host_groups.get()
        self.addCleanup(self.host_groups.put, self.hosts)
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
        """Starts one task of a job as its container would, on host number `host`."""
        config = {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}
        name = f"{kind}{index}"
        command = [*wrap, CAROLE, "launch", "--start_timeout=90", *flags, "--", "train", *training]
        env = {**ENV, "TF_CONFIG": json.dumps(config)}
        if kind not in ("chief", "master"):
            env["TMPDIR"] = self.work_dir  # a host that is powered off leaves its temporary files here
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

    def wait_for_step(self, step):
        wait_until(lambda: f"global step {step}:" in self.log("chief0"), LONG, self.logs)

    def wait_for_checkpoint(self):
        """Waits until the second checkpoint is begun, so the first one is complete."""
        wait_until(lambda: self.log("chief0").count("Saving checkpoint") >= 2, LONG, self.logs)

    # The chief's host and the host of worker 0 have a parameter server each.
    def test_master_ps_and_workers_on_shared_hosts(self):
        cluster = {"master": [self.at(0)], "ps": [self.at(0, 2223), self.at(1, 2223)],
                   "worker": [self.at(1), self.at(2)]}
        tasks = [(1, "worker", 0), (2, "worker", 1), (0, "ps", 0), (1, "ps", 1), (0, "master", 0)]
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 8))
        self.expect_ends(ps0=0, ps1=0, master0=0, worker0=0, worker1=0)
        self.assertIn("3 ranks on 3 hosts", self.log("master0"))
        self.assertIn("nothing to do", self.log("ps0"))
        self.assertEqual(os.stat(f"{self.work_dir}/.carole-launch/id_ed25519").st_mode & 0o777, 0o600)
        self.assertEqual(digest(self.train_dir), mpirun_digest(3, 8))

    # The chief does not wait for a second task of a host. A short training is over before the task starts.
    def test_second_task_of_the_chiefs_host_comes_late(self):
        cluster = {"chief": [self.at(0)], "worker": [self.at(0, 2223)]}
        flags, training = [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 1)
        self.start(0, cluster, "chief", 0, flags, training)
        wait_until(lambda: "Starting Session" in self.log("chief0"), LONG, self.logs)
        self.start(0, cluster, "worker", 0, flags, training)
        self.expect_ends(chief0=0, worker0=0)

    # The job lists hosts by name and mounts its key; a parameter server idles; one host has two workers.
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
        self.assertIn("3 ranks on 2 hosts", self.log("chief0"))
        self.assertIn("ended with exit code 0", self.log("ps0"))
        self.assertEqual(digest(self.train_dir), mpirun_digest(3, 8))
        # Hosts with one and with two ranks share a batch differently. Still each image counts once.
        expected = evaluate(self.train_dir)
        accuracy = float(re.search(r"eval/Accuracy ([0-9.]+)", self.log("chief0"))[1])
        self.assertAlmostEqual(accuracy, expected["accuracy"], delta=5e-4)  # kernels depend on the batch size
        self.assertIn(f"({expected['samples']} samples)", self.log("chief0"))

    def three_hosts(self):
        cluster = {"chief": [self.at(0)], "worker": [self.at(1), self.at(2)]}
        return cluster, [(0, "chief", 0), (1, "worker", 0), (2, "worker", 1)]

    # The platform starts the host and its task again. The result is the same as without the loss.
    def test_lost_host_comes_back(self):
        cluster, tasks = self.three_hosts()
        training = train_flags(self.train_dir, 300, "--save_interval_secs=0.5")
        flags = [f"--work_dir={self.work_dir}"]
        self.start_job(cluster, tasks, flags, training)
        self.wait_for_checkpoint()
        self.hosts.power_off(2)
        self.hosts.power_on(2)
        self.processes.pop("worker1").wait(LONG)
        self.start(2, cluster, "worker", 1, flags, training)
        self.expect_ends(chief0=0, worker0=0, worker1=0)
        self.assertIn("restart 1 of 3", self.log("chief0"))
        self.assertIn("resuming from", self.log("chief0"))
        self.assertEqual(digest(self.train_dir), mpirun_digest(3, 300))

    def test_lost_host_stays_away(self):
        cluster, tasks = self.three_hosts()
        training = train_flags(self.train_dir, 300, "--save_interval_secs=0.5")
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}", "--min_hosts=2", "--restart_timeout=20"],
                       training)
        self.wait_for_checkpoint()
        self.hosts.power_off(1)  # the host in the middle, so the rank on host 2 changes
        self.addCleanup(self.hosts.power_on, 1)
        self.processes.pop("worker0").wait(LONG)
        self.expect_ends(chief0=0, worker1=0)
        self.assertRegex(self.log("chief0"), "continuing with 2 of 3 hosts, without worker-0")
        self.assertIn("2 ranks on 2 hosts", self.log("chief0"))
        self.assertIn("global step 300:", self.log("chief0"))

    # The job goes on without the lost host, from the step that the survivors saved, and takes the host back when it
    # starts again for another reason. With --reproducible the final weights are those of one rank without a loss.
    def test_job_continues_with_one_host_fewer_and_takes_it_back(self):
        cluster, tasks = {"chief": [self.at(0)], "worker": [self.at(1)]}, [(0, "chief", 0), (1, "worker", 0)]
        steps = 120
        flags = [f"--work_dir={self.work_dir}", "--restart_timeout=20"]
        training = train_flags(self.train_dir, steps, "--reproducible", "--all_reduce=auto")
        self.start_job(cluster, tasks, flags, training)
        self.wait_for_step(20)
        self.hosts.power_off(1)
        self.processes.pop("worker0").wait(LONG)
        log = functools.partial(self.log, "chief0")
        wait_until(lambda: "1 ranks on 1 hosts" in log() and "resuming from" in log(), LONG, self.logs)
        rank = process_of_rank(0, self.train_dir)
        os.kill(rank, signal.SIGSTOP)  # it must not finish before the host is back
        lost = [int(step) for step in re.findall(r"global step (\d+):", log().split("restart 1 of 3")[0])][-1]
        resumed = int(re.search(r"resuming from .* at step (\d+)", log())[1])
        self.assertIn(resumed, (lost, lost + 1), self.logs())  # the line of the last step may be lost
        self.assertRegex(log(), rf"the ranks go on from .*model.ckpt-{resumed}\.h5")
        self.hosts.power_on(1)
        self.start(1, cluster, "worker", 0, flags, training)
        wait_until(lambda: self.log("worker0").count("serving sshd") == 2, LONG, self.logs)
        os.kill(rank, signal.SIGKILL)
        self.expect_ends(chief0=0, worker0=0)
        self.assertIn("2 ranks on 2 hosts", log().split("restart 2 of 3")[1])
        alone = os.path.join(self.work_dir, "alone")
        subprocess.run([CAROLE, "train", *train_flags(alone, steps, "--reproducible", "--batch_size=16")],
                       capture_output=True, check=True)
        self.assertEqual(digest(self.train_dir), digest(alone))

    # mpirun of Open MPI 5 may exit with 0 after a host was lost.
    def test_mpirun_exits_with_0_without_success_of_the_ranks(self):
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

    def test_termination_saves_and_all_exit_with_75(self):
        cluster, tasks = self.three_hosts()
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}", f"--grace_seconds={LONG}"],
                       train_flags(self.train_dir, 100000))  # fmt: skip
        self.wait_for_step(3)
        self.hosts.signal(self.processes["chief0"], signal.SIGTERM)
        self.expect_ends(chief0=75, worker0=75, worker1=75)
        self.assertIn("saving at step", self.log("chief0"))

    # Platforms may stop all hosts at once. A worker that exited at once would end its ranks before they save.
    def test_termination_of_all_hosts_saves_too(self):
        cluster, tasks = self.three_hosts()
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}", f"--grace_seconds={LONG}"],
                       train_flags(self.train_dir, 100000))  # fmt: skip
        self.wait_for_step(3)
        for task in ("worker0", "worker1", "chief0"):
            self.hosts.signal(self.processes[task], signal.SIGTERM)
        self.expect_ends(chief0=75, worker0=75, worker1=75)
        self.assertIn("saving at step", self.log("chief0"))

    def start_evaluator(self, cluster, training):
        self.start(2, cluster, "evaluator", 0, [], training)
        wait_until(lambda: "waiting for checkpoints" in self.log("evaluator0"), LONG, self.logs)

    # The evaluator is a process on another host. It shares only the folder of checkpoints with the job.
    def test_evaluator_ends_with_the_last_step(self):
        cluster, tasks = {"chief": [self.at(0)], "worker": [self.at(1)]}, [(0, "chief", 0), (1, "worker", 0)]
        training = train_flags(self.train_dir, 40, "--save_interval_secs=0.5")
        self.start_evaluator(cluster, training)
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"], training)
        self.expect_ends(chief0=0, worker0=0, evaluator0=0)
        self.assertIn("model.ckpt-40.h5, step 40", self.log("evaluator0"))
        self.assertIn("Ankle boot", self.log("evaluator0"))
        self.assertIn("done; not waiting for more checkpoints", self.log("evaluator0"))
        self.assertTrue(any("tfevents" in name for name in os.listdir(f"{self.train_dir}/eval")))

    # The training is stopped early. The job-end marker of the chief ends the evaluator, after it has evaluated the last
    # checkpoint.
    def test_evaluator_ends_with_the_job(self):
        cluster, tasks = {"chief": [self.at(0)], "worker": [self.at(1)]}, [(0, "chief", 0), (1, "worker", 0)]
        training = train_flags(self.train_dir, 100000)
        self.start_evaluator(cluster, training)
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"], training)
        self.wait_for_step(3)
        self.hosts.signal(self.processes["chief0"], signal.SIGTERM)
        self.expect_ends(chief0=75, worker0=75, evaluator0=0)
        saved = re.search(r"saving at step (\d+)", self.log("chief0")).group(1)
        self.assertIn(f"model.ckpt-{saved}.h5, step {saved}", self.log("evaluator0"))

    # Starts a job with two ranks on the chief's host and one on another host.
    def start_unequal(self, training):
        cluster = {"chief": [self.at(0)], "worker": [self.at(0, 2223), self.at(1)]}
        self.start_job(cluster, [(0, "chief", 0), (0, "worker", 0), (1, "worker", 1)], [f"--work_dir={self.work_dir}"],
                       training)

    # The local batches are 25 and 50 here. If each rank computed its share from its own batch size, some images would
    # be seen twice and others never.
    def test_evaluation_on_hosts_with_unequal_numbers_of_ranks(self):
        self.start_unequal(train_flags(self.train_dir, 4, "--eval_every=4", "--eval_batch_size=50"))
        self.expect_ends(chief0=0, worker0=0, worker1=0)
        self.assertIn(f"eval/Accuracy {evaluate(self.train_dir)['accuracy']:.4f}", self.log("chief0"))

    def test_hosts_with_different_local_batches_are_refused(self):
        training = train_flags(self.train_dir, 4)
        self.start_unequal([flag.replace("--batch_size", "--train_batch_size") for flag in training])
        self.expect_ends(chief0=78, worker0=78, worker1=78)
        self.assertIn("local batches differ: rank 2 has 8, rank 0 has 4; start equally many ranks on every host",
                      self.log("chief0"))

    def test_exit_code_of_failed_training_reaches_all(self):
        cluster, tasks = self.three_hosts()
        self.start_job(cluster, tasks, [f"--work_dir={self.work_dir}"],
                       train_flags(self.train_dir, 8, "--dataset_dir=/nowhere"))
        self.expect_ends(chief0=65, worker0=65, worker1=65)

    def test_host_that_does_not_connect(self):
        cluster, _ = self.three_hosts()
        flags = [f"--work_dir={self.work_dir}", "--start_timeout=20"]
        training = train_flags(self.train_dir, 8)
        self.start(0, cluster, "chief", 0, flags, training)
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(chief0=69, worker0=69)
        self.assertRegex(self.log("chief0"),
                         r"\[launch\] job: hosts did not connect within 20 s: got 2 of 3, without worker-1 "
                         r"\([0-9.]+ port 2222: .*Connection refused")

    def test_worker_without_a_chief_exits(self):
        cluster, _ = self.three_hosts()
        self.start(1, cluster, "worker", 0, [f"--work_dir={self.work_dir}", "--start_timeout=2"],
                   train_flags(self.train_dir, 8))
        self.expect_ends(worker0=69)
        self.assertRegex(self.log("worker0"),
                         r"the chief has not created the job's key within 2 s; check that --work_dir is a folder")

    def test_termination_before_the_chief_connects(self):
        cluster, _ = self.three_hosts()
        self.start(1, cluster, "worker", 0, [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 8))
        worker = self.processes["worker0"]
        wait_until(lambda: self.hosts.blocks(worker, signal.SIGTERM), LONG, self.logs)  # waits for it from then on
        self.hosts.signal(worker, signal.SIGTERM)
        self.expect_ends(worker0=128 + signal.SIGTERM)

    # A key of another user, and a port that is in use.
    def test_unusable_keys_and_ports(self):
        cluster, _ = self.three_hosts()
        key = f"{self.work_dir}/.carole-launch/id_ed25519"
        os.makedirs(os.path.dirname(key), mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        flags, training = [f"--work_dir={self.work_dir}"], train_flags(self.train_dir, 8)
        os.chmod(key, 0o644)
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(worker0=78)
        self.assertRegex(self.log("worker0"), "id_ed25519: other users can read the key: got mode 644, want 600")
        os.chmod(key, 0o600)
        os.chown(key, 12345, 0)
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(worker0=78)
        self.assertRegex(self.log("worker0"), "id_ed25519: the key belongs to another user: got owner 12345, want 0")
        os.chown(key, 0, 0)
        taken = self.hosts.start(1, ["/usr/bin/python3", "-c", "import socket, time; s = socket.socket(); "
                                     "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
                                     f"s.bind(('', {PORT})); s.listen(); print('bound', flush=True); time.sleep(600)"],
                                 self.log_name("taken"))
        self.addCleanup(taken.kill)
        wait_until(lambda: "bound" in self.log("taken"), LONG, "the port is not in use")
        self.start(1, cluster, "worker", 0, flags, training)
        self.expect_ends(worker0=78)
        self.assertRegex(self.log("worker0"), r"\[launch\] sshd: cannot serve worker-0 on port 2222: .*Bind to port 2222")

    # The chief starts only mpirun, ssh and ranks, never a shell. So characters with a meaning for shells have none.
    def test_no_shell_is_started(self):
        if not os.path.exists("/usr/bin/strace"):
            self.skipTest("strace is not installed")
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
        parallel.main(LaunchTest, PARALLEL, slow=("test_lost_host_comes_back", "test_lost_host_stays_away"))


if __name__ == "__main__":
    main()
