#!/usr/bin/env python3
"""Runs the commands of the Markdown pages and compares what they print with the page.

    run_pages.py ROOT CAROLE PYTHON [PAGE ...]     PYTHON: an interpreter with tests/interop/requirements.txt, if it exists

Each page is run in a folder of its own, in which `carole`, `mpirun` and `python3` are found. pages.py explains the comments that
steer this. A `sh` block must succeed. In a `console` block the lines after a command are what it prints, standard error included:

    ...                          as a line stands for any lines, within a line for any text
    0.4321, 12:34:56.789         a number with a point, a time or a digest stands for any other one
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pages

TIMEOUT_SECONDS = 300
HERE = os.path.dirname(os.path.abspath(__file__))

# The names that a page may use in a comment <!-- given: NAME -->, and the commands that make these folders.
TRAIN = "carole train --dataset_name=folder --dataset_dir=DATA --model_name=lenet --batch_size=18 --log_every_n_steps=0 " \
        "--learning_rate_decay_type=fixed --max_number_of_steps=3 --train_dir=RUN"
GIVEN = {
    "PHOTOS": "python3 tests/docs/draw_photos.py PHOTOS 20 crosses disks stripes",
    "DATA": "carole dataset build --dataset_name=folder --raw_dir=PHOTOS --dataset_dir=DATA",
    "RUN": TRAIN,
}
NEEDED_BY = {"DATA": ["PHOTOS"], "RUN": ["PHOTOS", "DATA"]}

MPIRUN = """#!/bin/sh
export OMPI_MCA_btl_base_warn_component_unused=0  # mpirun allows an option --mca only once
exec {mpirun} --allow-run-as-root --oversubscribe "$@"
"""

PYTHON3 = """#!/bin/sh
exec {python} "$@"
"""


def pattern_of(line):
    """The regular expression for an expected line."""
    text = re.escape(line.rstrip())
    text = text.replace(r"\.\.\.", ".*")
    text = re.sub(r"\d\d:\d\d:\d\d\\\.\d\d\d", lambda _: r"\d\d:\d\d:\d\d\.\d\d\d", text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "[0-9a-f]{16}", text)
    return re.sub(r"(?<![\d.])\d+\\\.\d+(?!\d|\\\.\d)", lambda _: r"\d+\.\d+", text)


def find_difference(expected, actual):
    """Returns the first expected line that is not in `actual` where it should be; None if all are."""
    position, anywhere = 0, False
    for line in expected:
        if line.strip() == "...":
            anywhere = True
            continue
        pattern = re.compile(pattern_of(line))
        last = len(actual) if anywhere else min(position + 1, len(actual))
        found = next((i for i in range(position, last) if pattern.fullmatch(actual[i])), None)
        if found is None:
            return line
        position, anywhere = found + 1, False
    return None if anywhere or position == len(actual) else "(the end of the output)"


class Runner:
    def __init__(self, root, carole, python, folder):
        self.root, self.folder = root, folder
        self.has_keras = os.access(python, os.X_OK)
        programs = os.path.join(folder, "bin")
        os.mkdir(programs)
        os.symlink(carole, os.path.join(programs, "carole"))
        # A link would not do: an interpreter finds the packages of its environment by the path it is called by.
        self.write_program("python3", PYTHON3.format(python=python if self.has_keras else sys.executable))
        mpirun = shutil.which("mpirun")
        if mpirun:
            self.write_program("mpirun", MPIRUN.format(mpirun=mpirun))
        os.mkdir(os.path.join(folder, "home"))
        self.environment = {
            **os.environ, "PATH": programs + ":" + os.environ["PATH"], "HOME": os.path.join(folder, "home"),
            "XDG_CACHE_HOME": os.path.join(folder, "home/.cache"), "OMP_WAIT_POLICY": "passive", "KERAS_BACKEND": "jax",
            "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
        self.environment.pop("OMP_NUM_THREADS", None)  # the log would mention it
        self.given = os.path.join(folder, "given")
        self.make_folder(self.given)

    def write_program(self, name, text):
        with open(os.path.join(self.folder, "bin", name), "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(file.name, 0o755)

    def make_folder(self, folder):
        os.mkdir(folder)
        for name in ("tests", "slurm", "launch"):
            os.symlink(os.path.join(self.root, name), os.path.join(folder, name))

    def run(self, command, folder):
        """Runs a shell command. Returns (exit code, lines of output)."""
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=self.environment, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS)
        return done.returncode, [line.rstrip() for line in done.stdout.decode(errors="replace").rstrip().splitlines()]

    def give(self, name, folder):
        for needed in NEEDED_BY.get(name, []):
            self.give(needed, self.given)
        made = os.path.join(self.given, name)
        if not os.path.exists(made):
            code, lines = self.run(GIVEN[name], self.given)
            if code != 0:
                raise RuntimeError(f"{GIVEN[name]}: exit code {code}\n" + "\n".join(lines))
        if folder != self.given:
            shutil.copytree(made, os.path.join(folder, name))

    def run_block(self, block, folder):
        """Returns the error of the first command that fails, or ""."""
        for command, expected in block.commands():
            try:
                code, lines = self.run(command, folder)
            except subprocess.TimeoutExpired:
                return f"still runs after {TIMEOUT_SECONDS} s: {command}"
            if code != 0:
                return f"exit code {code}: {command}\n" + "\n".join(lines[-30:])
            missing = find_difference(expected, lines) if block.language == "console" else None
            if missing is not None:
                return f"the page has the line: {missing}\nbut {command}\nprints:\n" + "\n".join(lines)
        return ""

    def run_page(self, page, not_run):
        """Runs the blocks of a page in order. Returns (number of blocks, errors). Appends to not_run."""
        blocks, errors = 0, []
        folder = os.path.join(self.folder, page.path.replace("/", "_"))
        self.make_folder(folder)
        for name in page.given:
            self.give(name, folder)
        for block in page.blocks:
            if block.language not in pages.COMMAND_LANGUAGES:
                continue
            reason = block.not_run or (f"needs {block.needs}, which is not installed" if block.needs and not self.has_keras else "")
            if reason:
                not_run.append(f"{block.name}: not run: {reason}")
                continue
            start = time.monotonic()
            error = self.run_block(block, folder)
            blocks += 1
            print(f"{block.name}: {time.monotonic() - start:.1f} s", flush=True)
            if error:
                errors.append(f"{block.name}: {error}")
                break  # the next blocks build on this one
        shutil.rmtree(folder)
        return blocks, errors


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    root, carole, python = map(os.path.abspath, sys.argv[1:4])
    blocks, errors, not_run = 0, [], []
    with tempfile.TemporaryDirectory(prefix="carole-docs-") as folder:
        runner = Runner(root, carole, python, folder)
        for page in pages.read_pages(root):
            if not sys.argv[4:] or page.path in sys.argv[4:]:
                count, found = runner.run_page(page, not_run)
                blocks += count
                errors += found
    print("\n".join(not_run + errors))
    print(f"{blocks} blocks run, {len(not_run)} not run, {len(errors)} failed")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
