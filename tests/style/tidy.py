#!/usr/bin/env python3
"""Runs clang-tidy on the files that were changed and on a tenth of all other files, or on all files.

    tidy.py ROOT BUILD [--all] [--minutes N]     BUILD contains compile_commands.json; the time limit is 20 minutes

A file counts as changed if it differs from the commit at which this branch left main, or from the previous commit on
main itself. If a header was changed, one source file that includes it is checked. The tenth of all other files depends
on the number of commits, or on CAROLE_RUN_NUMBER if that is set. Ten numbers in a row cover all files.

GPU code is checked as the tests compile it, with the emulated CUDA headers of tests/support/cuda_emulation.

Fails if clang-tidy has findings. Prints how many files were left out because of the time limit.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
import zlib

FOLDERS = ("src/", "collectives/", "nets/", "io/", "launch/")
SOURCES = (".cpp", ".cu")
SHARES = 10


def git(root, *words):
    """Returns the lines that git prints, or none if it fails."""
    done = subprocess.run(["git", "-C", root, *words], text=True, capture_output=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def choose_entries(root, entries):
    """Returns one entry of the compilation database for each of our sources: path relative to ROOT -> entry."""
    chosen = {}
    for entry in entries:
        path = os.path.relpath(entry["file"], root)
        is_emulated = "/cuda_emulation/" in entry["command"]
        if not path.startswith(FOLDERS) or not path.endswith(SOURCES) or (path.endswith(".cu") and not is_emulated):
            continue
        if path not in chosen or is_emulated:
            chosen[path] = entry
    return chosen


def changed_files(root):
    """Paths of this branch's changes, committed or not."""
    head = git(root, "rev-parse", "HEAD")
    bases = [base for main in ("origin/main", "main") for base in git(root, "merge-base", "HEAD", main)]
    base = next((base for base in bases if [base] != head), "HEAD~1")
    paths = set(git(root, "diff", "--name-only", base)) | set(git(root, "ls-files", "--others", "--exclude-standard"))
    return {path for path in paths if path.startswith(FOLDERS)}


def checking_source(root, header, sources):
    """A source file through which clang-tidy sees the header: one with its name, else one that includes it."""
    own = os.path.splitext(header)[0]
    for ending in SOURCES:
        if own + ending in sources:
            return own + ending
    for path in sorted(sources):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            if f'#include "{header}"' in file.read():
                return path
    return None


def run_number(root):
    number = os.environ.get("CAROLE_RUN_NUMBER") or "".join(git(root, "rev-list", "--count", "--first-parent", "HEAD"))
    return int(number or 0)


def share_of(path):
    """The share, 0 to SHARES - 1, that a file belongs to. Other files do not influence it."""
    return zlib.crc32(path.encode()) % SHARES


def select(root, sources, number):
    """The files to check: changed ones first, then this run's share."""
    changed = set()
    for path in changed_files(root):
        changed.add(path if path in sources else checking_source(root, path, sources) if path.endswith(".h") else None)
    changed.discard(None)
    share = {path for path in sources if share_of(path) == number % SHARES}
    return sorted(changed), sorted(share - changed)


def tidy(root, database, path):
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", database, "--extra-arg=-Wno-unknown-warning-option", os.path.join(root, path)],
        text=True, capture_output=True)  # fmt: skip
    return path, done.returncode, done.stdout + (done.stderr if "error:" in done.stderr else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("--all", action="store_true", help="check all files")
    parser.add_argument("--minutes", type=float, default=20, help="time limit")
    arguments = parser.parse_args()
    root, build = os.path.realpath(arguments.root), os.path.realpath(arguments.build)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        chosen = choose_entries(root, json.load(file))
    database = os.path.join(build, "tidy")
    os.makedirs(database, exist_ok=True)
    with open(os.path.join(database, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(list(chosen.values()), file)

    if arguments.all:
        files, what = sorted(chosen), "all files"
    else:
        number = run_number(root)
        changed, share = select(root, set(chosen), number)
        files, what = changed + share, f"{len(changed)} changed files and share {number % SHARES} of {SHARES}"
    print(f"clang-tidy: checks {len(files)} of {len(chosen)} files: {what}", flush=True)
    deadline = time.monotonic() + 60 * arguments.minutes
    checked, failed = 0, 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        work = lambda path: tidy(root, database, path) if time.monotonic() < deadline else (path, None, "")
        for path, code, output in pool.map(work, files):
            checked += code is not None
            print(f"[{checked}/{len(files)}] {path}", flush=True)
            if code:
                failed += 1
                print(output, flush=True)
    print(f"clang-tidy: {failed} of {checked} files with findings; {len(files) - checked} files left out because of the time limit")
    sys.exit(1 if failed or (files and not checked) else 0)


if __name__ == "__main__":
    main()
