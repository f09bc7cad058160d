#!/usr/bin/env python3
"""Checks what the Markdown pages refer to, without running it.

    check_pages.py ROOT CAROLE     ROOT is the repository, CAROLE the built program

The check fails if
  - a link or an anchor leads nowhere,
  - a page names a file of the repository that does not exist,
  - a command line of carole has an unknown command, flag or value, also in blocks that no test runs,
  - a page names a flag that no command of carole has (FOREIGN and FOREIGN_FILES list those of other programs),
  - a page names a command that ./run does not have.
"""

import os
import re
import shlex
import subprocess
import sys

import pages

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../src/packaging"))
import help_pages

# Flags of other programs.
FOREIGN = {
    "mpirun": "allow-run-as-root bind-to display-map host hostfile map-by mca oversubscribe quiet report-bindings",
    "Slurm": "batch dependency export gpu-bind gpus-per-node kill-on-bad-exit mpi ntasks-per-node open-mode signal",
    "CMake": "build component fresh install preset prefix target test-dir",
    "containers": "build-arg shm-size user",
    "launch/uai/pack": "acc_type ai_arch_v base_image code_path engine internal_uhub mainfile_path os private_key project_id public_key push "
                       "python_version region test_data_path test_output_path test_params train_params uhub_host uhub_imagename "
                       "uhub_password uhub_password_file uhub_registry uhub_username zone",
    "PyTorch": "nnodes nproc_per_node rdzv_endpoint",
    "tests/bench": "beside link nets photos rounds turns",
    "others": "all arrows logdir minutes preserve-status sections",
    "examples of how flags are written": "batch flag flag-name flag_name lr model_dir name noflag noname train-b",
}
FOREIGN = {flag for flags in FOREIGN.values() for flag in flags.split()}

# Files of other programs, which pages name.
FOREIGN_FILES = {"build_imagenet_data.py", "download_and_convert_data.py", "eval_image_classifier.py", "export_inference_graph.py", "train.py"}

VENDORS = ("mpi.h", "nccl.h", "cudnn.h")
SBATCH = {"train_cpu.sbatch": "train", "train_gpu.sbatch": "train", "sweep.sbatch": "train", "eval.sbatch": "eval"}
FOLDERS = r"(?:\.ci|collectives|io|launch|nets|slurm|src|tests)"
PATH_SPAN = re.compile(FOLDERS + r"(?:/[\w.+-]+)+/?|[\w./+-]*\w\.(?:cpp|cu|h|md|py|sh|sbatch|cmake|yaml)")


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def read_commands(carole):
    """Command line words -> (flag without dashes -> allowed values, or None for any), for all commands of the program."""
    return {command.name: command.allowed_values() for command in help_pages.read_commands(carole)}


def split_words(text):
    """The simple commands of a shell text, as lists of words. Here-documents and comments are left out."""
    text = re.sub(r"<<-?\s*['\"]?(\w+)['\"]?(.*?)\n.*?\n\1\n?", r"\2\n", text + "\n", flags=re.DOTALL)
    text = re.sub(r"\\\n", " ", text)
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = []
        try:
            for word in lexer:
                if re.fullmatch(r"[|&;()]+", word):
                    yield words
                    words = []
                else:
                    words.append(word)
        except ValueError:
            words = line.split()
        yield words


class Checker:
    def __init__(self, root, carole):
        self.root = root
        self.commands = read_commands(carole)
        self.all_flags = {flag for flags in self.commands.values() for flag in flags}
        self.files = list(pages.files_of(root))
        self.names = {os.path.basename(path) for path in self.files}
        usage = output_of("sh", os.path.join(root, "run"), "help")
        self.run_commands = {match[1] for match in re.finditer(r"^  ([a-z-]+)", usage, re.MULTILINE)}
        self.pages = pages.read_pages(root)
        self.anchors = {page.path: page.anchors for page in self.pages}

    def check_flags(self, command, words):
        """Yields a line for each word that is no flag of the command."""
        known = self.commands[command]
        for i, word in enumerate(words):
            if word == "--":
                if command == "launch" and i + 1 < len(words):
                    yield from self.check_flags(words[i + 1], words[i + 2 :])
                return
            match = re.match(r"--?([A-Za-z][\w-]*)(?:=(.*))?$", word, re.DOTALL)
            if not match or word == "-h":
                continue
            name, value = match[1].replace("-", "_"), match[2]
            if name not in known:
                yield f"carole {command} has no flag --{name}"
            elif known[name] and value and not re.search(r"[A-Z$|]", value) and value not in known[name]:
                yield f"carole {command} --{name}: got {value}, want one of {', '.join(known[name])}"

    def check_words(self, words):
        """Yields a line for each mistake in a simple command."""
        for i, word in enumerate(words):
            base = os.path.basename(word)
            if base == "carole" and (i == 0 or words[i - 1] not in ("-t", "-f", "image", "build", "install")):
                rest = words[i + 1 :]
                two = " ".join(rest[:2])
                if not rest or rest[0] in ("help", "--help", "--version", "COMMAND"):
                    return
                name = two if two in self.commands else rest[0]
                if name in self.commands:
                    yield from self.check_flags(name, rest[len(name.split()) :])
                elif not any(c.startswith(rest[0] + " ") for c in self.commands):
                    yield f"carole has no command {rest[0]}"
                return
            if base in SBATCH:
                yield from self.check_flags(SBATCH[base], words[i + 1 :])
                return
            if word == "./run":
                if i + 1 < len(words) and re.match(r"[a-z]", words[i + 1]) and words[i + 1] not in self.run_commands:
                    yield f"./run has no command {words[i + 1]}"
                return
            if re.match(FOLDERS + r"/", word) and not re.search(r"[*$<>]|[A-Z]{2}", word):
                if not os.path.exists(os.path.join(self.root, word)):
                    yield f"{word}: no such file"

    def check_span(self, page, text):
        """Yields a line for each mistake in a code span."""
        if re.match(r"(carole|mpirun|sbatch|\./run|python3) ", text):
            for words in split_words(text):
                yield from self.check_words(words)
        elif text.startswith("--"):
            name = re.match(r"--(?:\[no\])?([\w-]*)", text)[1]
            if name not in FOREIGN and name.replace("-", "_") not in self.all_flags:
                yield f"no command of carole has a flag --{name}"
        elif PATH_SPAN.fullmatch(text) and not re.search(r"^/|[A-Z]{4}(?!S)", text.removesuffix(".md")) and text not in VENDORS \
                and text not in FOREIGN_FILES:
            folder = os.path.join(self.root, os.path.dirname(page.path))
            places = [os.path.join(place, text) for place in (self.root, folder, os.path.dirname(folder))]
            if not any(map(os.path.exists, places)) and ("/" in text or text not in self.names):
                yield f"{text}: no such file"

    def check_link(self, page, target):
        if re.match(r"[a-z]+:", target):
            return
        path, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(page.path), path)) if path else page.path
        if full.startswith(".."):
            yield f"{target}: leads out of the repository"
        elif path and not os.path.exists(os.path.join(self.root, full)):
            yield f"{target}: no such file"
        elif anchor and anchor not in (self.anchors[full] if path else page.anchors):
            yield f"{target}: {full} has no such heading"

    def check_page(self, page):
        """Yields (line, error)."""
        for line, target in page.links:
            yield from ((line, error) for error in self.check_link(page, target))
        for line, text in page.spans:
            yield from ((line, error) for error in self.check_span(page, text))
        for block in page.blocks:
            if block.language in pages.COMMAND_LANGUAGES:
                for command, _ in block.commands():
                    for words in split_words(command):
                        yield from ((block.line, error) for error in self.check_words(words))
            elif not block.language and any(re.match(r"\s*(\$ |carole |\./run |mpirun )", line) for line in block.lines):
                yield block.line, "a block with commands: mark it as sh or console"

    def find_errors(self):
        return [f"{page.path}:{line}: {error}" for page in self.pages for line, error in self.check_page(page)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    checker = Checker(sys.argv[1], os.path.abspath(sys.argv[2]))
    errors = checker.find_errors()
    links = sum(len(page.links) for page in checker.pages)
    print("\n".join(errors) if errors else f"{len(checker.pages)} pages, {links} links, {len(checker.all_flags)} flags: all exist")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
