#!/usr/bin/env python3
"""Runs clang-tidy on our sources until the time is up. Files that were changed last come first.

    tidy.py ROOT BUILD [MINUTES]     BUILD contains compile_commands.json; MINUTES is 20 if left out

Fails if clang-tidy has findings. Prints how many files were left out because of the time limit.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import time

FOLDERS = ("src/", "collectives/", "nets/", "io/", "launch/")


def our_sources(root, build):
    """Returns the sources in the compilation database that belong to the program (not to tests), relative to root."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        paths = {os.path.relpath(entry["file"], root) for entry in json.load(file)}
    return {path for path in paths if path.startswith(FOLDERS) and path.endswith(".cpp")}


def latest_first(root, sources):
    """Sorts sources by their last change, newest first. Files that git does not know come first."""
    log = subprocess.run(["git", "-C", root, "log", "--name-only", "--format="], text=True, capture_output=True,
                         check=True).stdout  # fmt: skip
    rank = {}
    for path in log.split("\n"):
        rank.setdefault(path, len(rank) + 1)
    return sorted(sources, key=lambda path: (rank.get(path, 0), path))


def tidy(root, build, path):
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", build, "--extra-arg=-Wno-unknown-warning-option", os.path.join(root, path)],
        text=True, capture_output=True)  # fmt: skip
    return path, done.returncode, done.stdout + (done.stderr if "error:" in done.stderr else "")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    root, build = map(os.path.realpath, sys.argv[1:3])
    deadline = time.monotonic() + 60 * float(sys.argv[3] if len(sys.argv) == 4 else 20)
    sources = latest_first(root, our_sources(root, build))
    checked, failed = 0, 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        work = lambda path: tidy(root, build, path) if time.monotonic() < deadline else (path, None, "")
        for path, code, output in pool.map(work, sources):
            checked += code is not None
            if code:
                failed += 1
                print(output, flush=True)
    print(f"clang-tidy: {failed} of {checked} files with findings; {len(sources) - checked} files left out because of the time limit")
    sys.exit(1 if failed or not checked else 0)


if __name__ == "__main__":
    main()
