"""The container engines podman, docker and buildah, as `pack` uses them.

Passwords reach an engine only on its standard input, and stay in a folder that is removed afterwards. The environment
of an engine holds no password either.
"""

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

SECRET_VARIABLE = "UHUB_PASSWORD"


class PackError(Exception):
    """A problem that ends `pack`: the exit code, and a text of the form `thing: problem: got X, want Y; do Z`."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Interrupted(BaseException):
    """A signal asked `pack` to stop."""

    def __init__(self, number, _=None):
        super().__init__(f"signal {number}")
        self.number = number


class Raw(str):
    """A word of a line for a shell that the shell expands."""


def raise_on_signals():
    def handle(number, frame):
        raise Interrupted(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # for example under nohup
            signal.signal(number, handle)


def say(text):
    print(f"[pack] {text}", file=sys.stderr, flush=True)


class Engine:
    """One engine. Its commands raise PackError if they fail."""

    def __init__(self, name, tls_verify=True):
        """name: podman, docker or buildah. tls_verify: whether the registry must have a valid certificate."""
        self.name = name
        self.tls_verify = tls_verify
        self.env = {key: value for key, value in os.environ.items() if key != SECRET_VARIABLE}
        self.login_flags = []
        self.secrets = []

    def words(self, *words):
        return [self.name, *words]

    def problem(self):
        """Returns why the engine does not work on this machine, or None."""
        if shutil.which(self.name) is None:
            return "not installed"
        try:
            result = subprocess.run(self.words("version"), env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                                    text=True, errors="replace", timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        return None if result.returncode == 0 else f"exit code {result.returncode}: {lines[-1]}"

    def has_image(self, image):
        words = {"podman": ["image", "exists", image], "docker": ["image", "inspect", image],
                 "buildah": ["inspect", "--type", "image", image]}[self.name]
        return self._probe(*words).returncode == 0

    def build(self, image, base, containerfile, context):
        self._do("build", "bud" if self.name == "buildah" else "build", "--build-arg", f"BASE={base}", "-f",
                 containerfile, "-t", image, context)

    def tag(self, image, name):
        self._do("tag", "tag", image, name)

    def run(self, image, command, volumes, variables):
        """Runs a command in a new container, in /data, with the entry point of the image. volumes maps folders of this
        machine to folders of the container. Returns the exit code."""
        if self.name != "buildah":
            return self._call(self.run_words(image, command, volumes, variables))
        container = self._output("from", image)
        try:
            return self._call(self.words(*self._buildah_run(image, command, volumes, variables, container)))
        finally:
            self._probe("rm", container)

    def run_words(self, image, command, volumes, variables, options=()):
        """Returns the command line of run(). Not for buildah."""
        words = ["run", "--rm", "--shm-size=2g", "--security-opt", "label=disable", *options]
        return self.words(*words, *_options(volumes, variables), "-w", "/data", image, *command)

    def shell_line(self, image, command, volumes, variables, gpu=False):
        """Returns run() as a line for a shell, or None if the engine cannot do that. Values of type Raw are not quoted.
        With gpu, the container has all GPUs."""
        sudo = ["sudo"] if "SUDO_UID" in os.environ else []
        if self.name != "buildah":
            gpus = {"docker": ["--gpus", "all"], "podman": ["--device", "nvidia.com/gpu=all"]}[self.name] if gpu else []
            return _quote([*sudo, *self.run_words(image, command, volumes, variables, options=["-it", *gpus])])
        if gpu:
            return None
        run = self.words(*self._buildah_run(image, command, volumes, variables, Raw('"$container"')))
        make, remove = self.words("from", image), self.words("rm", Raw('"$container"'))
        return f"container=$({_quote([*sudo, *make])}); {_quote([*sudo, *run])}; {_quote([*sudo, *remove])}"

    def log_in(self, host, username, password, folder):
        """Logs in to a registry. folder: a private folder for the login, which push() needs."""
        self.secrets = [password, base64.b64encode(f"{username}:{password}".encode()).decode()]
        if self.name == "docker":
            _copy_docker_config(folder)
            self.env = {**self.env, "DOCKER_CONFIG": folder}
        else:
            self.login_flags = ["--authfile", os.path.join(folder, "auth.json")]
        self._talk(f"registry {host}: the login failed", "check the user name, the password and the address of the registry",
                   self.words("login", *self._registry_flags(), "--username", username, "--password-stdin", host),
                   text=password)

    def push(self, name):
        self._talk(f"registry: cannot push {name}", "check that the registry exists and that the user may write to it",
                   self.words("push", *self._registry_flags(), name))

    def _registry_flags(self):
        insecure = ["--tls-verify=false"] if not self.tls_verify else []
        return [*self.login_flags, *insecure]

    def _buildah_run(self, image, command, volumes, variables, container):
        config = json.loads(self._output("inspect", "--type", "image", image))["OCIv1"].get("config") or {}
        words = ["run", *_options(volumes, variables), "--workingdir", "/data"]
        return [*words, container, "--", *(config.get("Entrypoint") or []), *command]  # buildah ignores the entry point

    def _probe(self, *words):
        return subprocess.run(self.words(*words), env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", check=False)

    def _output(self, *words):
        result = self._probe(*words)
        if result.returncode != 0:
            raise PackError(78, f"{self.name} {words[0]}: failed: got exit code {result.returncode}: {result.stderr.strip()}")
        return result.stdout.strip()

    def _do(self, what, *words):
        code = self._call(self.words(*words))
        if code != 0:
            raise PackError(78, f"{self.name} {what}: failed: got exit code {code}, want 0; its messages are above")

    def _call(self, words):
        """Runs a command with the output of `pack` and returns its exit code."""
        with _Process(words, env=self.env, stdin=subprocess.DEVNULL, stdout=sys.stderr) as process:
            return process.wait()

    def _talk(self, problem, advice, words, text=None):
        """Runs a command that may know secrets. Its output is printed without them. text is its standard input."""
        last = ""
        with _Process(words, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                process.stdin.write((text or "").encode())
                process.stdin.close()
            except BrokenPipeError:
                pass  # the exit code says why
            for line in process.stdout:
                last = self._without_secrets(line.decode(errors="replace").rstrip())
                print(last, file=sys.stderr, flush=True)
            code = process.wait()
        if code != 0:
            raise PackError(69, f"{problem}: got exit code {code} of {self.name} ({last}); {advice}")

    def _without_secrets(self, text):
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


class _Process(subprocess.Popen):
    """A process that gets time to end if `pack` is interrupted."""

    def __exit__(self, kind, error, trace):
        if self.poll() is None and kind is not None:
            self.terminate()
            try:
                self.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        return super().__exit__(kind, error, trace)


def _quote(words):
    return " ".join(word if isinstance(word, Raw) else shlex.quote(word) for word in words)


def _options(volumes, variables):
    words = []
    for name, value in variables.items():
        words += ["-e", type(value)(f"{name}={value}")]
    for outside, inside in volumes.items():
        words += ["-v", f"{outside}:{inside}"]
    return words


def _copy_docker_config(folder):
    """Copies docker's settings without its logins into a folder, which becomes DOCKER_CONFIG."""
    source = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    try:
        with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError):
        settings = {}
    for name in ("auths", "credsStore", "credHelpers"):
        settings.pop(name, None)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)
    if os.path.isdir(os.path.join(source, "contexts")):
        os.symlink(os.path.abspath(os.path.join(source, "contexts")), os.path.join(folder, "contexts"))
