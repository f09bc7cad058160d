"""The command `pack`: builds the image of a UAI job from a code path and a main file, tests it, pushes it, and prints the
command of the job. It replaces `tf_tool.py pack` and has its flags.

The order: check all flags and paths; log in; build; run the local test; tag; push; print. A step that fails ends the
command, so an image whose test fails is neither tagged nor pushed. The image that is tested is the one that is pushed:
carole runs on CPUs and GPUs, so there is no second image for the local test as in the original.
"""

import os
import re
import shlex
import shutil
import stat
import sys
import tempfile

from engines import Engine, Interrupted, PackError, Raw, SECRET_VARIABLE, raise_on_signals, say

USAGE, DISK, CONFIGURATION = 64, 74, 78
MEANINGS = {0: "done", USAGE: "wrong usage", 65: "bad data", 69: "a rank or a device is gone", 70: "a bug; please report it",
            DISK: "disk problem", 75: "the test was stopped", CONFIGURATION: "bad configuration"}
ENGINES = ("podman", "docker", "buildah")
PUBLIC_HOST, INTERNAL_HOST = "uhub.ucloud.cn", "uhub.service.ucloud.cn"
COMMAND_FILE = "uaitrain_cmd.txt"
CONTAINERFILE = "ARG BASE\nFROM ${BASE}\nCOPY ./ /data/\n"

NO_API = "pack does not call the API of the platform; the base image is --base_image"
NO_FRAMEWORK = "the image has carole instead of TensorFlow; --base_image names another one"

# Flag -> (default, help). The default None makes a flag required. All of them are flags of the original, up to acc_type.
FLAGS = {
    "code_path": (None, "folder that is copied to /data of the image"),
    "mainfile_path": (None, "main file of the job, relative to --code_path"),
    "train_params": ("", "flags of the main file"),
    "test_data_path": (None, "data of the local test; it is read-only there"),
    "test_output_path": (None, "folder for what the local test writes; it is made if it is missing"),
    "uhub_username": ("", "user of the registry"),
    "uhub_registry": (None, "the registry's name on the platform, the first part of the image name"),
    "uhub_imagename": (None, "name of the image"),
    "uhub_imagetag": ("uaitrain", "tag of the image"),
    "internal_uhub": ("false", f"true: {INTERNAL_HOST}, false: {PUBLIC_HOST}"),
    "acc_type": ("gpu", "gpu or cpu: the default of --base_image is carole-cuda or carole"),
    "uhub_password_file": ("", f"file with the password of --uhub_username; without it, the variable {SECRET_VARIABLE}"),
    "uhub_host": ("", "HOST[:PORT] of another registry than the platform's"),
    "base_image": ("", "image of launch/uai/Containerfile, or one that was made from it"),
    "engine": ("auto", f"{', '.join(ENGINES)}; auto: the first of them that works"),
    "test_params": ("--max_number_of_steps=10", "flags that are added in the local test, so that it ends soon"),
    "tls_verify": ("true", "false: the registry needs no valid certificate, and may speak HTTP"),
    "push": ("true", "false: build and test only"),
}
IGNORED = {
    "public_key": NO_API, "project_id": NO_API, "region": NO_API, "zone": NO_API,
    "ai_arch_v": NO_FRAMEWORK, "os": NO_FRAMEWORK, "python_version": NO_FRAMEWORK,
}
# All users of a machine see the command lines of its processes, so these flags of the original are refused.
REFUSED = {
    "private_key": "pack does not need it; leave it out",
    "uhub_password": f"use --uhub_password_file=FILE or the variable {SECRET_VARIABLE}",
}
CHOICES = {"internal_uhub": ("true", "false"), "acc_type": ("gpu", "cpu"), "engine": ("auto", *ENGINES),
           "tls_verify": ("true", "false"), "push": ("true", "false")}

NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
FORMS = {
    "uhub_registry": (rf"{NAME}(?:/{NAME})*", "lower-case letters and digits, separated by '.', '_', '-' or '/'"),
    "uhub_imagename": (NAME, "lower-case letters and digits, separated by '.', '_' or '-'"),
    "uhub_imagetag": (r"\w[\w.-]{0,127}", "at most 128 letters, digits, '.', '_' and '-', without '.' or '-' at the start"),
    "uhub_host": (r"(?:[A-Za-z0-9.-]+(?::\d{1,5})?)?", "HOST or HOST:PORT"),
    "uhub_username": (r"[^\s:][^\n:]*|", "a name without ':'"),
}


def fail(code, text):
    raise PackError(code, text)


def help_text():
    lines = ["usage: launch/uai/pack --code_path=DIR --mainfile_path=FILE --test_data_path=DIR --test_output_path=DIR",
             "         --uhub_registry=NAME --uhub_imagename=NAME [FLAGS]", "",
             "Builds the image of a UAI job, tests it on this machine, pushes it, and prints the command of the job.",
             "The flags are those of tf_tool.py pack:", ""]
    for name, (default, text) in FLAGS.items():
        lines.append(f"  --{name:<20}{text}{f' [{default}]' if default else ''}{' (required)' if default is None else ''}")
    lines += ["", f"accepted without effect: {', '.join('--' + name for name in IGNORED)}",
              f"refused, since other users can read command lines: {', '.join('--' + name for name in REFUSED)}"]
    return "\n".join(lines)


def find_flag(name):
    """Returns the flag with this name, which may be shortened. Messages never show the value of a flag: it can be a
    password."""
    known = [*FLAGS, *IGNORED, *REFUSED]
    short = name.replace("-", "_")
    found = [short] if short in known else [flag for flag in known if short and flag.startswith(short)]
    if not found:
        fail(USAGE, f"--{name}: unknown flag; pack --help lists the flags")
    if len(found) > 1:
        fail(USAGE, f"--{name}: is short for several flags: {', '.join('--' + flag for flag in found)}; write one of them")
    return found[0]


def parse(words):
    """Returns flag -> value for all of FLAGS, and says which given flags have no effect."""
    given = {}
    words = list(words[1:] if words[:1] == ["pack"] else words)  # as in `tf_tool.py pack`
    count = len(words)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            fail(USAGE, f"word {count - len(words)} of the flags: got a word that is no flag, want --FLAG=VALUE; quote values "
                        "with spaces")
        name, equals, value = word[2:].partition("=")
        flag = find_flag(name)
        if flag in REFUSED:
            fail(USAGE, f"--{flag}: secrets are not accepted on the command line, which all users can see; {REFUSED[flag]}")
        if not equals and not words:
            fail(USAGE, f"--{flag}: has no value; write --{flag}=VALUE")
        given[flag] = value if equals else words.pop(0)
    for flag in given.keys() & IGNORED.keys():
        say(f"--{flag}: has no effect: {IGNORED[flag]}")
    values = {flag: given.get(flag, default) for flag, (default, _) in FLAGS.items()}
    for flag, value in values.items():
        if not value and FLAGS[flag][0] is None:
            fail(USAGE, f"--{flag}: missing: got nothing, want {FLAGS[flag][1]}")
    check_values(values)
    return values


def check_values(values):
    for flag, choices in CHOICES.items():
        if values[flag] not in choices:
            fail(USAGE, f"--{flag}: unknown value: got {values[flag]!r}, want {' or '.join(choices)}")
    for flag, (form, want) in FORMS.items():
        if not re.fullmatch(form, values[flag], re.ASCII):
            fail(USAGE, f"--{flag}: not a valid name: got {values[flag]!r}, want {want}")
    for flag in ("train_params", "test_params"):
        try:
            shlex.split(values[flag])
        except ValueError as error:
            fail(USAGE, f"--{flag}: {error}: got {values[flag]!r}, want flags as a shell reads them; close the quotes")


def is_inside(path, folder):
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([path, folder]) == folder


def check_folder(flag, path):
    """Returns the absolute path of an existing folder. A container mounts it, or its files are copied."""
    if not os.path.isdir(path):
        fail(CONFIGURATION, f"--{flag}: no such folder: got {path}, want an existing folder; correct the path")
    if not os.access(path, os.R_OK | os.X_OK):
        fail(CONFIGURATION, f"--{flag}: cannot be read: got {path}; change its permissions")
    path = os.path.abspath(path)
    if ":" in path and flag != "code_path":
        fail(CONFIGURATION, f"--{flag}: engines cannot mount a path with ':': got {path}; rename the folder")
    return path


def check_main_file(code, path):
    """Returns the path of the main file relative to the code path, whose files are copied to /data."""
    full = os.path.normpath(os.path.join(code, path))
    for name in (full, os.path.realpath(full)):
        if not is_inside(name, code):
            fail(CONFIGURATION, f"--mainfile_path: lies outside of the code path: got {path}, want a file in {code}; move the "
                                "file, or change --code_path")
    if not os.path.isfile(full):
        fail(CONFIGURATION, f"--mainfile_path: no such file: got {path}, want a file in {code}; correct the path")
    return os.path.relpath(full, code)


def caller():
    """Returns user id and group id of the person that started pack, with sudo or without."""
    if os.getuid() == 0 and "SUDO_UID" in os.environ and "SUDO_GID" in os.environ:
        return os.environ["SUDO_UID"], os.environ["SUDO_GID"]
    return str(os.getuid()), str(os.getgid())


def make_output_folder(path):
    """Creates the folder for the output of the local test, which then belongs to the caller."""
    try:
        if not os.path.isdir(path):
            os.makedirs(path)
            os.chown(path, *map(int, caller()))
    except OSError as error:
        fail(DISK, f"--test_output_path: cannot be created: {path}: {error.strerror}; choose another folder")
    check_folder("test_output_path", path)
    if os.listdir(path):
        say(f"--test_output_path: {path} is not empty; the local test may resume from a checkpoint there")


def read_password(values):
    """Returns the password, or None: then the engine uses the login that it has stored."""
    path = values["uhub_password_file"]
    source = "--uhub_password_file" if path else SECRET_VARIABLE
    password = os.environ.get(SECRET_VARIABLE)
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                password = file.read().rstrip("\r\n")
                mode = os.fstat(file.fileno()).st_mode
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "is not a text file"
            fail(CONFIGURATION, f"--uhub_password_file: cannot be read: {path}: {reason}; correct the path")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            say(f"--uhub_password_file: other users may read {path}; run chmod 600")
        if is_inside(path, values["code_path"]):
            fail(CONFIGURATION, f"--uhub_password_file: lies in --code_path, whose files become part of the image: got {path}; "
                                "move the file")
    if password is None:
        return None
    if not password or "\n" in password or "\0" in password:
        fail(CONFIGURATION, f"{source}: is no password: got {'several lines' if password else 'nothing'}, want one line")
    if not values["uhub_username"]:
        fail(USAGE, f"--uhub_username: missing: got nothing, want the user whose password is in {source}")
    return password


def choose_engine(values):
    names = ENGINES if values["engine"] == "auto" else (values["engine"],)
    problems = []
    for name in names:
        engine = Engine(name, tls_verify=values["tls_verify"] == "true")
        problem = engine.problem()
        if problem is None:
            break
        problems.append(f"{name}: {problem}")
    else:
        fail(CONFIGURATION, f"--engine: no container engine works: got {'; '.join(problems)}; install podman, docker or buildah, "
                            "or start the daemon of docker")
    if engine.name == "docker" and not engine.tls_verify:
        fail(USAGE, "--tls_verify: docker has no such option: got false; list the registry in insecure-registries of its daemon")
    return engine


def check_base(engine, values):
    """Returns the base image. One without the name of a registry must be on this machine: engines would search a public
    registry for it, where anybody can choose its content."""
    base = values["base_image"] or ("carole" if values["acc_type"] == "cpu" else "carole-cuda")
    if not re.match(r"[^/]*[.:][^/]*/", base) and not engine.has_image(base):
        fail(CONFIGURATION, f"--base_image: {engine.name} has no such image: got {base}; build it from launch/uai/Containerfile, "
                            "or choose another one with --base_image or --acc_type=cpu")
    return base


class Job:
    """What the flags say: the commands and folders of the job."""

    def __init__(self, values):
        self.values = values
        self.code = check_folder("code_path", values["code_path"])
        self.main_file = check_main_file(self.code, values["mainfile_path"])
        self.data = check_folder("test_data_path", values["test_data_path"])
        self.password = read_password(values)
        self.output = os.path.abspath(values["test_output_path"])
        for flag, path in (("test_data_path", self.data), ("test_output_path", self.output)):
            if is_inside(path, self.code):
                say(f"--{flag}: lies in --code_path, so its files become part of the image")
        if not os.access(".", os.W_OK):
            fail(DISK, f"{COMMAND_FILE}: cannot be written to this folder; change to another one")
        self.host = values["uhub_host"] or (INTERNAL_HOST if values["internal_uhub"] == "true" else PUBLIC_HOST)
        self.image = f"{values['uhub_imagename']}:{values['uhub_imagetag']}"
        self.name = f"{self.host}/{values['uhub_registry']}/{self.image}"
        self.volumes = {self.data: "/data/data:ro", self.output: "/data/output"}

    def command(self, *flags):
        """Returns what runs in the container, with these flags in addition to --train_params."""
        return ["/usr/bin/python", *self.deployed(), *flags, "--work_dir=/data", "--data_dir=/data/data",
                "--output_dir=/data/output", "--log_dir=/data/output"]

    def deployed(self):
        return [f"/data/{self.main_file}", *shlex.split(self.values["train_params"])]


def test(engine, job):
    """Runs the local test as the caller, so that its output belongs to the caller. Returns the exit code."""
    user, group = caller()
    command = job.command(*shlex.split(job.values["test_params"]))
    say(f"local test: {shlex.join(command)}")
    return engine.run(job.image, command, job.volumes, {"LOCAL_USER_ID": user, "LOCAL_GROUP_ID": group})


def command_lines(engine, job):
    """Returns the lines that the original prints."""
    ids = {"LOCAL_USER_ID": Raw("$(id -u)"), "LOCAL_GROUP_ID": Raw("$(id -g)")}
    lines = [f"CMD Used for deploying: {shlex.join(job.deployed())}",
             f"CMD for CPU local test: {engine.shell_line(job.image, job.command(), job.volumes, ids)}"]
    if job.values["acc_type"] == "gpu":
        line = engine.shell_line(job.image, job.command("--num_gpus=1"), job.volumes, ids, gpu=True)
        lines.append(f"CMD for GPU local test: {line or 'none: buildah gives no GPU to a container; use podman or docker'}")
    return lines


def write_commands(lines):
    """Writes the file of the commands, with its old content or its new one at any time."""
    temporary = f".{COMMAND_FILE}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(temporary, COMMAND_FILE)
    except OSError as error:
        fail(DISK, f"{COMMAND_FILE}: cannot be written: {error.strerror}; the commands are above")


def pack(words, folder):
    """folder: a private folder for files that are removed afterwards. Returns the exit code."""
    values = parse(words)
    job = Job(values)
    engine = choose_engine(values)
    base = check_base(engine, values)
    make_output_folder(job.output)
    push = values["push"] == "true"
    if push and job.password is not None:
        say(f"logging in to {job.host} as {values['uhub_username']}")
        engine.log_in(job.host, values["uhub_username"], job.password, folder)
    say(f"building {job.image} from {base} and {job.code} with {engine.name}")
    containerfile = os.path.join(folder, "Containerfile")
    with open(containerfile, "w", encoding="utf-8") as file:
        file.write(CONTAINERFILE)
    engine.build(job.image, base, containerfile, job.code)
    code = test(engine, job)
    if code != 0:
        say(f"local test: failed: got exit code {code}, want 0; nothing was pushed; the messages of the test are above")
        return code
    if push:
        engine.tag(job.image, job.name)
        say(f"pushing {job.name}")
        engine.push(job.name)
    lines = command_lines(engine, job)
    print("\n".join(lines))
    write_commands(lines)
    print(f"You can check these cmd later in file: {COMMAND_FILE}", flush=True)
    return 0


def main(words):
    if not words or any(word in ("-h", "--help") for word in words):
        print(help_text())
        return 0 if words else USAGE
    folder = None
    try:
        raise_on_signals()
        memory = os.environ.get("XDG_RUNTIME_DIR", "")  # a folder in memory, if this user has one
        folder = tempfile.mkdtemp(prefix="carole-pack-", dir=memory if os.access(memory, os.W_OK) else None)
        code = pack(words, folder)
    except PackError as error:
        say(str(error))
        code = error.code
    except OSError as error:
        say(str(error))
        code = DISK
    except Interrupted as signal:
        say("interrupted; the image may be built, but is not pushed")
        code = 128 + signal.number
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"pack: exit {code} ({MEANINGS.get(code, 'stopped' if code >= 128 else 'the test failed')})", file=sys.stderr)
    return code
