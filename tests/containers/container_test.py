#!/usr/bin/env python3
"""Builds the images of launch/uai and runs them as their users do.

    container_test.py CAROLE [options of unittest]

Makes the platform's call on one host and on two, as a user that is not root: that of the engine, or LOCAL_USER_ID.
launch/uai/pack builds, tests and pushes an image. Also starts pods as mpi-operator would, with the commands in
launch/kubernetes/mpijob.yaml.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from containers import Containers  # noqa: E402
from hosts import Hosts, Unavailable, require, wait_until  # noqa: E402

CAROLE = ""
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
UAI = os.path.join(ROOT, "launch", "uai")
EXAMPLES = ("slim_imagenet", "resnet_tf1", "resnet_tf2", "vgg416", "mnist")
CALL = ["--data_dir=/data/data", "--output_dir=/data/output", "--work_dir=/data", "--log_dir=/data/output"]
USER = 12345
QUIET = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive"}  # containers share the cores


def program_of(example):
    return next(name for name in sorted(os.listdir(os.path.join(UAI, example))) if name.endswith(".py"))


def build_data(folder, name, *flags):
    subprocess.run([CAROLE, "dataset", "build", f"--dataset_name={name}", f"--dataset_dir={folder}", *flags],
                   check=True, capture_output=True)


class ContainerTest(unittest.TestCase):
    containers = None

    @classmethod
    def setUpClass(cls):
        cls.keeper = tempfile.TemporaryDirectory(prefix="carole-container-data-")
        cls.mnist, cls.imagenet = f"{cls.keeper.name}/mnist", f"{cls.keeper.name}/imagenet"
        build_data(cls.mnist, "mnist", f"--raw_dir={FASHION_MNIST}", "--max_images=300")
        build_data(cls.imagenet, "synthetic", "--num_images=16", "--num_classes=4", "--image_width=96",
                   "--train_shards=1", "--validation_shards=1")
        os.chmod(cls.keeper.name, 0o755)
        cls.containers.build("carole", os.path.join(UAI, "Containerfile"), ROOT, cls.containers.base)
        for example in EXAMPLES:
            cls.containers.build(example, os.path.join(UAI, example, "Containerfile"), os.path.join(UAI, example),
                                 "carole")

    @classmethod
    def tearDownClass(cls):
        cls.keeper.cleanup()

    def setUp(self):
        keeper = tempfile.TemporaryDirectory(prefix="carole-container-test-")
        self.addCleanup(keeper.cleanup)
        self.folder = keeper.name
        os.chmod(self.folder, 0o755)
        self.output_dir = self.make_folder("output")

    def make_folder(self, name, user=USER):
        """Creates a folder that only this user may write."""
        path = os.path.join(self.folder, name)
        os.mkdir(path, 0o755)
        os.chown(path, user, user)
        return path

    def call(self, example, data, *flags, program=None, before=(), user=f"{USER}:{USER}", env=None):
        """Makes the platform's call in a container, expects success, and returns what it prints. before: words before
        the command."""
        words = self.containers.words(
            example, [*before, "/usr/bin/python", f"/data/{program or program_of(example)}", *CALL, *flags],
            user=user, env={**QUIET, **(env or {})}, volumes={data: "/data/data:ro", self.output_dir: "/data/output"})
        result = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def expect_checkpoint(self, step, user=USER):
        files = [name for name in os.listdir(self.output_dir) if not name.endswith(".log")]  # a shell writes the logs
        self.assertIn(f"model.ckpt-{step}.h5", files)
        self.assertTrue(any(name.startswith("events.out.tfevents") for name in files), files)
        owners = {os.stat(os.path.join(self.output_dir, name)).st_uid for name in files}
        self.assertEqual(owners, {user}, files)

    def test_mnist(self):
        log = self.call("mnist", self.mnist, "--num_gpus=0", "--train_epochs=1")
        self.assertIn("mnist_keras: 407050 parameters", log)
        self.expect_checkpoint(10)

    def test_mnist_under_its_other_names(self):
        for steps, program in ((2, "mnist_dist.py"), (3, "mnist_multi.py")):
            log = self.call("mnist", self.mnist, "--num_gpus=0", f"--max_step={steps}", program=program)
            self.assertIn("mnist_keras_dist", log)
            self.expect_checkpoint(steps)

    # buildah ignores the entry point of an image. The first call imitates other engines, the second a platform that
    # ignores it too.
    def test_local_user_id(self):
        config = json.loads(self.containers.do("inspect", "--type", "image", "mnist"))["OCIv1"]["config"]
        for steps, before in ((2, config["Entrypoint"]), (3, ())):
            self.call("mnist", self.mnist, "--num_gpus=0", f"--max_step={steps}", user="0:0", before=before,
                      env={"LOCAL_USER_ID": str(USER), "LOCAL_GROUP_ID": "0"})
            self.expect_checkpoint(steps)

    # The output belongs to the person who called pack, here with sudo. pack_test.py tests the push.
    def test_pack(self):
        programs, output = self.make_folder("bin"), os.path.join(self.folder, "output of pack")
        with open(f"{programs}/buildah", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nPATH=$REAL_PATH exec {shlex.join(self.containers.do_words())} "$@"\n')
        os.chmod(f"{programs}/buildah", 0o755)
        env = {"PATH": programs, "REAL_PATH": os.environ["PATH"], "BUILDAH_ISOLATION": "chroot", **QUIET,
               "SUDO_UID": str(USER), "SUDO_GID": str(USER)}
        words = [sys.executable, os.path.join(UAI, "pack"), f"--code_path={UAI}/mnist", "--mainfile_path=mnist.py",
                 f"--test_data_path={self.mnist}", f"--test_output_path={output}", "--uhub_registry=team",
                 "--uhub_imagename=digits", "--acc_type=cpu", "--train_params=--train_epochs=1",
                 "--test_params=--max_number_of_steps=3", "--push=false"]
        result = subprocess.run(words, env=env, cwd=self.folder, capture_output=True, text=True, timeout=400, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("CMD Used for deploying: /data/mnist.py --train_epochs=1\n", result.stdout)
        self.output_dir = output
        self.expect_checkpoint(3)
        modes = self.containers.words("digits:uaitrain", ["stat", "-c", "%a", "/data"])
        self.assertEqual(subprocess.run(modes, capture_output=True, text=True, check=True).stdout, "777\n")

    # --num_gpus is the number of ranks. One host needs neither ssh nor a user name.
    def test_resnet_tf1_with_two_ranks(self):
        log = self.call("resnet_tf1", self.imagenet, "--num_gpus=2", "--train-batch-size=4", "--resnet_size=18",
                        "--max_step=1", "--epochs_per_eval=0")
        self.assertIn("imagenet_resnet_v2_18: 11692329 parameters", log)
        self.assertIn("2 local, 4 global", log)
        self.expect_checkpoint(1)

    def test_slim_imagenet(self):
        log = self.call("slim_imagenet", self.imagenet, "--num_gpus=1", "--dataset_name=imagenet",
                        "--dataset_split_name=train", "--model_name=inception_v3", "--batch_size=2", "--max_step=1")
        self.assertIn("inception_v3: 27145970 parameters, images 299x299x3, 1001 classes", log)
        self.expect_checkpoint(1)

    # The net is too large to train in a test. Its error message shows that it is the program's default. The second call
    # shows that flags override the default.
    def test_vgg416(self):
        with self.assertRaisesRegex(AssertionError, "vgg_416: unsupported image size"):
            self.call("vgg416", self.imagenet, "--num_gpus=1", "--dataset_name=imagenet", "--train_image_size=64")
        log = self.call("vgg416", self.mnist, "--num_gpus=1", "--dataset_name=mnist", "--model_name=lenet",
                        "--max_step=2")
        self.assertIn("lenet: 3274634 parameters", log)
        self.expect_checkpoint(2)

    # The call is the same in each container. The user is in group 0, so the entry program can add its name, which ssh
    # needs.
    def test_distributed_resnet_tf2(self):
        self.run_distributed(f"{USER}:0", {})

    # The entry program becomes a user with a name.
    def test_distributed_with_local_user_id(self):
        self.run_distributed("0:0", {"LOCAL_USER_ID": str(USER)})

    def run_distributed(self, user, env):
        with Hosts(2) as hosts:
            cluster = {"master": [f"{hosts.address(0)}:2222"], "worker": [f"{hosts.address(1)}:2222"],
                       "ps": [f"{hosts.address(1)}:2223"]}
            processes = {}
            for host, kind in ((1, "worker"), (1, "ps"), (0, "master")):
                config = {"cluster": cluster, "task": {"type": kind, "index": 0}, "environment": "cloud"}
                # Output goes to a file: buildah may lose the last line of a container that exits at once, as ps does.
                words = self.containers.words(
                    "resnet_tf2", ["/bin/sh", "-c", f'exec "$@" >/data/output/{kind}.log 2>&1', "sh",
                                   "/usr/bin/python", "/data/imagenet_main.py", *CALL, "--num_gpus=1",
                                   "--train-batch-size=2", "--resnet_size=18", "--max_step=1",
                                   "--epochs_per_eval=0"],
                    user=user, env={**QUIET, **env, "TF_CONFIG": json.dumps(config)},
                    volumes={self.imagenet: "/data/data:ro", self.output_dir: "/data/output"})
                processes[kind] = hosts.start(host, words, f"{kind}.log")

            def log_of(kind):
                path = f"{self.output_dir}/{kind}.log"
                if not os.path.exists(path):  # the container did not start
                    return hosts.log(f"{kind}.log")
                with open(path, encoding="utf-8", errors="replace") as file:
                    return file.read()

            logs = lambda: "\n".join(log_of(kind) for kind in processes)  # noqa: E731
            wait_until(lambda: all(process.poll() is not None for process in processes.values()), 300, logs)
            self.assertEqual({process.poll() for process in processes.values()}, {0}, logs())
            self.assertIn("2 ranks on 2 hosts", log_of("master"))
            self.assertIn("nothing to do", log_of("ps"))
            self.assertIn("2 local, 4 global", log_of("master"))
        self.expect_checkpoint(1)
        self.assertEqual(os.stat(f"{self.output_dir}/.carole-launch/id_ed25519").st_mode & 0o777, 0o600)

    # ssh needs a user name, which only group 0 can add. One line of the log says so.
    def test_distributed_without_a_user_name(self):
        config = {"cluster": {"chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]},
                  "task": {"type": "chief", "index": 0}}
        words = self.containers.words("mnist", ["/usr/bin/python", "/data/mnist.py", *CALL], user=f"{USER}:{USER}",
                                      env={"TF_CONFIG": json.dumps(config)})
        result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(result.returncode, 78, result.stderr)
        self.assertIn(f"[launch] user: has no name: got user id {USER}", result.stderr)

    # Imitates the pods of mpi-operator: its type of key, which belongs to root and is readable by all, its hostfile and
    # its variables.
    def test_mpi_operator(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        with open(os.path.join(ROOT, "launch", "kubernetes", "mpijob.yaml"), encoding="utf-8") as file:
            spec = yaml.safe_load(file)["spec"]
        pods = {kind: spec["mpiReplicaSpecs"][kind]["template"]["spec"] for kind in ("Launcher", "Worker")}
        command = {kind: [*pod["containers"][0]["command"], *pod["containers"][0]["args"]]
                   for kind, pod in pods.items()}
        uid = pods["Worker"]["securityContext"]["runAsUser"]
        self.output_dir = self.make_folder("pods-output", uid)
        secret = os.path.join(self.folder, "secret")
        os.mkdir(secret, 0o755)
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f",
                        f"{secret}/id_rsa"], check=True)
        os.chmod(f"{secret}/id_rsa", 0o644)
        os.symlink("id_rsa.pub", f"{secret}/authorized_keys")
        training = command["Launcher"].index("train") + 1
        command["Launcher"][training:] = ["--dataset_name=mnist", "--dataset_dir=/data/data", "--model_name=lenet",
                                          "--train_dir=/data/output", "--max_number_of_steps=2"]
        volumes = {secret: f"{spec['sshAuthMountPath']}:ro", self.mnist: "/data/data:ro",
                   self.output_dir: "/data/output"}
        with Hosts(3) as hosts:
            with open(os.path.join(self.folder, "hostfile"), "w", encoding="ascii") as file:
                file.writelines(f"{hosts.name(host)} slots={spec['slotsPerWorker']}\n" for host in (1, 2))
            volumes[os.path.join(self.folder, "hostfile")] = "/etc/mpi/hostfile:ro"
            user = f"{uid}:{pods['Worker']['securityContext']['runAsGroup']}"
            workers = [hosts.start(host, self.containers.words("carole", command["Worker"], user=user, env=QUIET,
                                                               volumes=volumes), "worker.log") for host in (1, 2)]
            probe = ["bash", "-c", f"exec 3<>/dev/tcp/{hosts.address(2)}/2222"]
            wait_until(lambda: hosts.start(0, probe, "probe.log").wait() == 0, 120, lambda: hosts.log("worker.log"))
            launcher = hosts.start(0, self.containers.words(
                "carole", command["Launcher"], user=user, volumes=volumes,
                env={**QUIET, "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                     "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
                     "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": "1",
                     "NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}), "launcher.log")
            logs = lambda: hosts.log("launcher.log") + hosts.log("worker.log")  # noqa: E731
            self.assertEqual(launcher.wait(300), 0, logs())
            self.assertTrue(all(worker.poll() is None for worker in workers), logs())
            self.assertRegex(hosts.log("launcher.log"), re.compile(r"ranks +2 x"), logs())
        self.expect_checkpoint(2, uid)


def main():
    global CAROLE
    CAROLE = os.path.abspath(sys.argv.pop(1))
    try:
        require("ip", "ssh-keygen", "buildah", "mmdebstrap")
        if CAROLE != os.path.join(ROOT, "build", "carole"):
            raise Unavailable(f"images take build/carole, and this is {CAROLE}")
        with Hosts(1):
            pass
        with Containers() as ContainerTest.containers:
            unittest.main()
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)


if __name__ == "__main__":
    main()
