#!/usr/bin/env python3
"""Tests launch/uai/pack with engines that only note how they are called, and with buildah and a registry of our own.

    pack_test.py [options of unittest]
"""

import base64
import gzip
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from fake_registry import FakeRegistry  # noqa: E402
from hosts import wait_until  # noqa: E402

PACK = os.path.join(ROOT, "launch", "uai", "pack")
PASSWORD = "Pa$$ word:1"
ENCODED = base64.b64encode(f"me@example.com:{PASSWORD}".encode()).decode()
ENTRY_POINT = ["/usr/local/lib/carole/entrypoint.sh"]
BUILDAH = shutil.which("buildah")

# Notes its arguments, input and environment, and then fails, waits or succeeds as $FAKE_FAIL and $FAKE_WAIT say.
FAKE = f"""#!{sys.executable} -ES
import json, os, signal, sys
words = sys.argv[1:]
name, step = os.path.basename(sys.argv[0]), words[0]
login = next((words[i + 1] for i, word in enumerate(words) if word == "--authfile"), "")
login = os.path.dirname(login) or os.environ.get("DOCKER_CONFIG", "")
note = {{"name": name, "words": words, "input": sys.stdin.read(), "env": dict(os.environ), "login": login,
        "mode": os.stat(login).st_mode & 0o777 if os.path.isdir(login) else None}}
if "-f" in words:
    note["file"] = open(words[words.index("-f") + 1]).read()
with open(os.environ["FAKE_NOTES"], "a") as file:
    file.write(json.dumps(note) + "\\n")
if step == os.environ.get("FAKE_WAIT"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    signal.alarm(300)  # if nobody stops it
    open(os.environ["FAKE_NOTES"] + ".waits", "w").close()
    signal.pause()
for failure in os.environ.get("FAKE_FAIL", "").split():
    where, code = failure.split("=")
    if where in (step, name + ":" + step):
        print("no: " + note["input"], file=sys.stderr)
        sys.exit(int(code))
if step == "from":
    print("container-1")
if step == "inspect":
    print(json.dumps({{"OCIv1": {{"config": {{"Entrypoint": {json.dumps(ENTRY_POINT)}}}}}}}))
"""


class PackTest(unittest.TestCase):
    def setUp(self):
        keeper = tempfile.TemporaryDirectory(prefix="carole-pack-test-")
        self.addCleanup(keeper.cleanup)
        self.folder = keeper.name
        self.code, self.data, self.output = (os.path.join(self.folder, name) for name in ("code", "data", "output"))
        self.runtime, self.programs = os.path.join(self.folder, "runtime"), os.path.join(self.folder, "bin")
        for path in (self.code, self.data, self.runtime, self.programs):
            os.mkdir(path)
        self.write("code/mnist.py", "print()\n")
        self.password_file = self.write("secret", PASSWORD + "\n", 0o600)
        self.notes_file = os.path.join(self.folder, "notes")
        self.env = {"PATH": self.programs, "HOME": self.folder, "FAKE_NOTES": self.notes_file,
                    "XDG_RUNTIME_DIR": self.runtime}

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def engines(self, *names):
        for name in names:
            self.write(f"bin/{name}", FAKE, 0o755)

    def words(self, *flags, **changed):
        """Returns the command line of a job that works. A changed flag that is None is left out."""
        values = {"code_path": self.code, "mainfile_path": "mnist.py", "test_data_path": self.data,
                  "test_output_path": self.output, "uhub_registry": "team", "uhub_imagename": "mnist",
                  "uhub_username": "me@example.com", "uhub_password_file": self.password_file, **changed}
        return [sys.executable, PACK, *(f"--{flag}={value}" for flag, value in values.items() if value is not None), *flags]

    def pack(self, *flags, env=None, **changed):
        """Runs pack, and checks that no password was shown or kept."""
        result = subprocess.run(self.words(*flags, **changed), env={**self.env, **(env or {})}, cwd=self.folder,
                                capture_output=True, text=True, timeout=300, check=False)
        self.check_secrets(result.stdout + result.stderr)
        self.assertRegex(result.stderr, rf"pack: exit {result.returncode} \(.+\)\n\Z")
        return result

    def check_secrets(self, output):
        self.assertNotIn(PASSWORD, output)
        self.assertNotIn(ENCODED, output)
        self.assertEqual(os.listdir(self.runtime), [])
        for note in self.notes():
            self.assertNotIn(PASSWORD, json.dumps([note["words"], note["env"], note.get("file")]))
            self.assertEqual(note["input"], PASSWORD if note["words"][0] == "login" else "")

    def notes(self):
        if not os.path.exists(self.notes_file):
            return []
        with open(self.notes_file, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def steps(self):
        return [note["words"][0] for note in self.notes()]

    def expect(self, result, code, *texts):
        self.assertEqual(result.returncode, code, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()


class FlowTest(PackTest):
    def test_podman(self):
        self.engines("podman")
        result = self.pack("--train_params=--max_step=2000 --name='a b'", "--ai_arch_v=tensorflow-1.1.0")
        self.expect(result, 0, "--ai_arch_v: has no effect")
        notes = {note["words"][0]: note for note in self.notes()}
        self.assertEqual(self.steps(), ["version", "image", "login", "build", "run", "tag", "push"])
        self.assertEqual(notes["login"]["words"], ["login", "--authfile", notes["login"]["login"] + "/auth.json", "--username",
                                                   "me@example.com", "--password-stdin", "uhub.ucloud.cn"])
        self.assertEqual(notes["login"]["mode"], 0o700)
        build = notes["build"]["words"]
        self.assertEqual([*build[:3], *build[-3:]],
                         ["build", "--build-arg", "BASE=carole-cuda", "-t", "mnist:uaitrain", self.code])
        self.assertIn("COPY ./ /data/\n", notes["build"]["file"])
        command = ["/usr/bin/python", "/data/mnist.py", "--max_step=2000", "--name=a b", "--max_number_of_steps=10",
                   "--work_dir=/data", "--data_dir=/data/data", "--output_dir=/data/output", "--log_dir=/data/output"]
        self.assertEqual(notes["run"]["words"],
                         ["run", "--rm", "--shm-size=2g", "--security-opt", "label=disable", "-e",
                          f"LOCAL_USER_ID={os.getuid()}", "-e", f"LOCAL_GROUP_ID={os.getgid()}", "-v",
                          f"{self.data}:/data/data:ro", "-v", f"{self.output}:/data/output", "-w", "/data", "mnist:uaitrain",
                          *command])
        name = "uhub.ucloud.cn/team/mnist:uaitrain"
        self.assertEqual(notes["tag"]["words"], ["tag", "mnist:uaitrain", name])
        self.assertEqual(notes["push"]["words"], ["push", "--authfile", notes["login"]["login"] + "/auth.json", name])

    def test_printed_commands(self):
        self.engines("docker")
        result = self.pack("--train_params=--max_step=2000 --name='a b'")
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], "CMD Used for deploying: /data/mnist.py --max_step=2000 '--name=a b'")
        tail = f"-v {self.data}:/data/data:ro -v {self.output}:/data/output -w /data mnist:uaitrain /usr/bin/python " \
            "/data/mnist.py --max_step=2000 '--name=a b'"
        platform = "--work_dir=/data --data_dir=/data/data --output_dir=/data/output --log_dir=/data/output"
        head = "docker run --rm --shm-size=2g --security-opt label=disable -it"
        ids = "-e LOCAL_USER_ID=$(id -u) -e LOCAL_GROUP_ID=$(id -g)"
        self.assertEqual(lines[1], f"CMD for CPU local test: {head} {ids} {tail} {platform}")
        self.assertEqual(lines[2], f"CMD for GPU local test: {head} --gpus all {ids} {tail} --num_gpus=1 {platform}")
        self.assertEqual(self.read("uaitrain_cmd.txt").splitlines(), lines[:3])
        lines = self.pack("--engine=docker", "--acc_type=cpu").stdout.splitlines()
        self.assertEqual([line.split(":")[0] for line in lines[:2]], ["CMD Used for deploying", "CMD for CPU local test"])
        self.assertNotIn("GPU", "".join(lines))

    def test_docker_keeps_no_login(self):
        self.engines("docker")
        os.makedirs(os.path.join(self.folder, ".docker", "contexts"))
        self.write(".docker/config.json", '{"auths": {"a": {}}, "currentContext": "far"}')
        self.expect(self.pack(), 0)
        self.assertEqual(self.read(".docker/config.json"), '{"auths": {"a": {}}, "currentContext": "far"}')
        logins = {note["words"][0]: note["login"] for note in self.notes()}
        self.assertTrue(logins["login"].startswith(self.runtime))
        self.assertEqual(logins["push"], logins["login"])

    def test_buildah(self):
        self.engines("buildah")
        result = self.pack("--engine=buildah", "--acc_type=cpu")
        self.expect(result, 0)
        self.assertEqual(self.steps(), ["version", "inspect", "login", "bud", "from", "inspect", "run", "rm", "tag", "push",
                                        "inspect"])
        run = self.notes()[6]["words"]
        at = run.index("container-1")
        self.assertEqual(run[at + 1:at + 4], ["--", *ENTRY_POINT, "/usr/bin/python"])
        self.assertEqual(run[at - 2:at], ["--workingdir", "/data"])
        self.assertIn('buildah rm "$container"', result.stdout)

    # The original was called in this way. Flags may be shortened, and dashes and underscores are the same.
    def test_spellings(self):
        self.engines("podman")
        words = [sys.executable, PACK, "pack", "--code-path", self.code, "--mainfile", "./mnist.py", "--test_data", self.data,
                 "--test_output", self.output, "--uhub_reg", "team/deep", "--uhub_imagen=mnist", "--uhub_imagetag=v1.0",
                 "--internal_uhub=true"]
        result = subprocess.run(words, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False)
        self.expect(result, 0)
        self.assertEqual(self.notes()[-1]["words"], ["push", "uhub.service.ucloud.cn/team/deep/mnist:v1.0"])

    def test_names_with_spaces(self):
        self.engines("podman")
        code, data, output = (os.path.join(self.folder, name) for name in ("my code", "my data", "new folder/my output"))
        os.mkdir(code)
        os.mkdir(data)
        self.write("my code/my main.py", "")
        result = self.pack(code_path=code, mainfile_path="my main.py", test_data_path=data, test_output_path=output)
        self.expect(result, 0)
        self.assertEqual(result.stdout.splitlines()[0], "CMD Used for deploying: '/data/my main.py'")
        run = next(note["words"] for note in self.notes() if note["words"][0] == "run")
        self.assertIn(f"{data}:/data/data:ro", run)
        self.assertIn("/data/my main.py", run)
        self.assertTrue(os.path.isdir(output))

    # Without a password, the login that the engine has stored counts.
    def test_stored_login(self):
        self.engines("podman")
        self.expect(self.pack(uhub_password_file=None), 0)
        self.assertEqual(self.notes()[-1]["words"], ["push", "uhub.ucloud.cn/team/mnist:uaitrain"])
        self.assertNotIn("login", self.steps())

    def test_password_in_the_environment(self):
        self.engines("podman")
        self.expect(self.pack(uhub_password_file=None, env={"UHUB_PASSWORD": PASSWORD}), 0)
        self.assertIn("login", self.steps())

    def test_no_push(self):
        self.engines("podman")
        self.expect(self.pack("--push=false"), 0)
        self.assertEqual(self.steps(), ["version", "image", "build", "run"])

    def test_sudo(self):
        if os.getuid() != 0:
            self.skipTest("not root")
        self.engines("podman")
        result = self.pack(env={"SUDO_UID": "4321", "SUDO_GID": "4322"})
        self.expect(result, 0)
        run = next(note["words"] for note in self.notes() if note["words"][0] == "run")
        self.assertIn("LOCAL_USER_ID=4321", run)
        self.assertIn("LOCAL_GROUP_ID=4322", run)
        self.assertEqual((os.stat(self.output).st_uid, os.stat(self.output).st_gid), (4321, 4322))
        self.assertIn("CMD for CPU local test: sudo podman run", result.stdout)


class FailureTest(PackTest):
    def fail_at(self, step, code, expected, *texts):
        self.engines("podman")
        result = self.pack(env={"FAKE_FAIL": f"{step}={code}"})
        self.expect(result, expected, *texts)
        self.assertEqual(self.steps()[-1], step)
        self.assertEqual(result.stdout, "")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "uaitrain_cmd.txt")))

    def test_failed_test_is_not_pushed(self):
        self.fail_at("run", 65, 65, "[pack] local test: failed: got exit code 65, want 0; nothing was pushed")

    def test_failed_build(self):
        self.fail_at("build", 125, 78, "[pack] podman build: failed: got exit code 125, want 0")

    # The engine prints the password. pack does not.
    def test_refused_login(self):
        self.fail_at("login", 125, 69, "no: ***", "[pack] registry uhub.ucloud.cn: the login failed: got exit code 125 of podman")

    def test_refused_push(self):
        self.fail_at("push", 1, 69, "[pack] registry: cannot push uhub.ucloud.cn/team/mnist:uaitrain: got exit code 1")

    def test_engines(self):
        self.expect(self.pack(), 78, "podman: not installed; docker: not installed; buildah: not installed; install")
        self.engines("docker", "buildah")
        result = self.pack(env={"FAKE_FAIL": "docker:version=1"})
        self.expect(result, 0)
        self.assertEqual(self.notes()[-1]["name"], "buildah")
        result = self.pack("--engine=docker", env={"FAKE_FAIL": "docker:version=1"})
        self.expect(result, 78, "no container engine works: got docker: exit code 1: no:")
        self.expect(self.pack("--engine=podman"), 78, "got podman: not installed")

    def test_missing_base_image(self):
        self.engines("podman")
        result = self.pack(env={"FAKE_FAIL": "image=1"})
        self.expect(result, 78, "--base_image: podman has no such image: got carole-cuda; build it from")
        self.assertFalse(os.path.exists(self.output))
        # An image of a named registry is pulled.
        self.expect(self.pack("--base_image=hub.example.com/carole:1", env={"FAKE_FAIL": "image=1"}), 0)
        self.expect(self.pack("--base_image=someone/carole", env={"FAKE_FAIL": "image=1"}), 78)

    def test_interrupted(self):
        self.engines("podman")
        process = subprocess.Popen(self.words(), env={**self.env, "FAKE_WAIT": "run"}, cwd=self.folder, stderr=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        wait_until(lambda: os.path.exists(self.notes_file + ".waits"), 120, lambda: "the test did not start")
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 143, log)
        self.assertIn("[pack] interrupted", log)
        self.assertEqual((output, self.steps()[-1]), ("", "run"))
        self.check_secrets(log)

    def test_wrong_flags(self):
        self.engines("podman", "docker")
        cases = {
            (f"--uhub_password={PASSWORD}",): "--uhub_password: secrets are not accepted on the command line",
            ("--uhub_password", PASSWORD): "--uhub_password: secrets are not accepted",
            (f"--private_key={PASSWORD}",): "--private_key: secrets are not accepted",
            (f"--uhub_passwort={PASSWORD}",): "--uhub_passwort: unknown flag",
            (f"--uhub_pass={PASSWORD}",): "--uhub_pass: is short for several flags: --uhub_password_file, --uhub_password",
            (PASSWORD,): "word 9 of the flags: got a word that is no flag",
            ("--uhub_imagetag",): "--uhub_imagetag: has no value",
            ("--uhub_imagename=Mnist",): "--uhub_imagename: not a valid name: got 'Mnist', want lower-case letters",
            ("--uhub_imagename=my mnist",): "--uhub_imagename: not a valid name",
            ("--uhub_registry=a//b",): "--uhub_registry: not a valid name",
            ("--uhub_imagetag=-x",): "--uhub_imagetag: not a valid name",
            ("--uhub_host=https://x",): "--uhub_host: not a valid name: got 'https://x', want HOST or HOST:PORT",
            ("--code_path=",): "--code_path: missing: got nothing, want folder",
            ("--acc_type=tpu",): "--acc_type: unknown value: got 'tpu', want gpu or cpu",
            ("--engine=lxc",): "--engine: unknown value",
            ("--train_params=--name='x",): "--train_params: No closing quotation",
            ("--uhub_username=",): "--uhub_username: missing: got nothing, want the user whose password is in",
            ("--engine=docker", "--tls_verify=false"): "--tls_verify: docker has no such option",
        }
        for flags, text in cases.items():
            with self.subTest(flags):
                self.expect(self.pack(*flags), 64, text)
        self.assertTrue(set(self.steps()) <= {"version"})

    def test_wrong_paths(self):
        self.engines("podman")
        self.write("outside.py", "")
        os.mkdir(os.path.join(self.folder, "a:b"))
        os.mkdir(os.path.join(self.code, "package"))
        os.symlink("../outside.py", os.path.join(self.code, "link.py"))
        self.write("code/secret", PASSWORD)
        cases = [
            (78, {"code_path": "missing"}, "--code_path: no such folder: got missing, want an existing folder"),
            (78, {"test_data_path": "missing"}, "--test_data_path: no such folder: got missing"),
            (78, {"mainfile_path": "missing.py"}, "--mainfile_path: no such file: got missing.py, want a file in"),
            (78, {"mainfile_path": "package"}, "--mainfile_path: no such file"),
            (78, {"mainfile_path": "../outside.py"}, "--mainfile_path: lies outside of the code path: got ../outside.py"),
            (78, {"mainfile_path": "/etc/hostname"}, "--mainfile_path: lies outside of the code path"),
            (78, {"mainfile_path": "link.py"}, "--mainfile_path: lies outside of the code path: got link.py"),
            (78, {"test_data_path": os.path.join(self.folder, "a:b")}, "--test_data_path: engines cannot mount a path with ':'"),
            (74, {"test_output_path": self.password_file}, "--test_output_path: cannot be created"),
            (78, {"uhub_password_file": "missing"}, "--uhub_password_file: cannot be read: missing: No such file"),
            (78, {"uhub_password_file": os.devnull}, "--uhub_password_file: is no password: got nothing, want one line"),
            (78, {"uhub_password_file": "code/secret"}, "--uhub_password_file: lies in --code_path"),
        ]
        for code, changed, text in cases:
            with self.subTest(changed):
                self.expect(self.pack(**changed), code, text)
        self.assertTrue(set(self.steps()) <= {"version", "image"})
        os.chmod(self.password_file, stat.S_IRUSR | stat.S_IROTH)
        self.expect(self.pack(), 0, "--uhub_password_file: other users may read")


@unittest.skipUnless(BUILDAH and os.getuid() == 0, "needs buildah and root")
class RegistryTest(PackTest):
    """Everything but the container of the local test is real: buildah builds, logs in to a registry and pushes."""

    def setUp(self):
        super().setUp()
        self.write("bin/buildah", f'#!/bin/sh\n[ "$1" != run ] || exit 0\nPATH=$REAL_PATH exec {BUILDAH} "$@"\n', 0o755)
        self.env.update(BUILDAH_ISOLATION="chroot", REAL_PATH=os.environ["PATH"],
                        CONTAINERS_STORAGE_CONF=self.write("storage.conf", f"""
[storage]
driver = "vfs"
graphroot = "{self.folder}/store"
runroot = "{self.folder}/run"
"""))
        base = self.buildah("from", "scratch")
        self.buildah("copy", base, self.write("base", "base\n"), "/base")
        self.buildah("config", "--entrypoint", json.dumps(ENTRY_POINT), base)
        self.buildah("commit", "--rm", base, "carole")

    def tearDown(self):
        self.buildah("rmi", "--all", "--force")

    def buildah(self, *words):
        env = {**os.environ, **{name: self.env[name] for name in ("CONTAINERS_STORAGE_CONF", "BUILDAH_ISOLATION")}}
        return subprocess.run([BUILDAH, *words], env=env, capture_output=True, text=True, check=True).stdout.strip()

    def push_to(self, registry, *flags):
        return self.pack(f"--uhub_host={registry.host}", "--tls_verify=false", "--engine=buildah", "--acc_type=cpu", *flags)

    def test_push(self):
        with FakeRegistry("me@example.com", PASSWORD) as registry:
            self.expect(self.push_to(registry), 0)
            self.assertEqual(list(registry.manifests), ["team/mnist:uaitrain"])
            layers = [gzip.decompress(registry.blobs[layer["digest"]])
                      for layer in json.loads(registry.manifests["team/mnist:uaitrain"])["layers"]]
            self.assertTrue(any(b"data/mnist.py" in layer for layer in layers))
            for content in (*layers, *registry.blobs.values()):
                self.assertNotIn(PASSWORD.encode(), content)

    def test_refusals(self):
        with FakeRegistry("me@example.com", "another password") as registry:
            self.expect(self.push_to(registry), 69, f"[pack] registry {registry.host}: the login failed")
            self.assertGreater(registry.refused, 0)
        with FakeRegistry("me@example.com", PASSWORD, writable=False) as registry:
            self.expect(self.push_to(registry), 69, f"[pack] registry: cannot push {registry.host}/team/mnist:uaitrain")
            self.assertEqual(registry.manifests, {})


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason of a skipped test
