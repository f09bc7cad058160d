#!/usr/bin/env python3
"""Fails if the repository contains what it must not contain: paths of one machine, large or generated files, unfinished work.

    words.py ROOT        checks the files of ROOT that git tracks or would add
"""

import os
import re
import sys

from tracked_files import tracked_files

MAX_BYTES = 1 << 20
GENERATED = re.compile(
    r"(\.o|\.a|\.so|\.pyc|\.h5|\.whl|\.log|\.orig|\.rej|\.swp|\.tfrecord)$|events\.out\.tfevents|"
    r"(^|/)(CMakeCache\.txt|CMakeFiles|__pycache__|compile_commands\.json)(/|$)"
)
# The words are split, so that this file passes its own check.
FORBIDDEN = [
    (re.compile(r"(?<![\w.$}])/" + r"(work|root|home/\w+)/"), "a path of one machine"),
    (re.compile(r"https?://(?!www\.)\S*(" + "debian" + r"\.org|py" + r"pi\.org|pythonhosted" + r"\.org)"), "a registry's host"),
    (re.compile(r"\b(TO" + r"DO(?!\(#\d+\))|FIX" + r"ME|XX" + r"X)\b"), "unfinished work"),
    (re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE), "a merge conflict"),
]


def find_errors(path, content):
    """path: relative to the root; content: bytes. Returns one line for each finding."""
    errors = []
    if GENERATED.search(path):
        errors.append(f"{path}: a generated file")
    if len(content) > MAX_BYTES:
        errors.append(f"{path}: got {len(content)} bytes, want at most {MAX_BYTES}")
    if b"\0" in content[:8000]:
        return errors
    text = content.decode("utf-8", errors="replace")
    for pattern, what in FORBIDDEN:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            errors.append(f"{path}:{line}: {what}: {match.group().strip()}")
    return errors


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = sys.argv[1]
    paths = tracked_files(root)
    errors = []
    for path in paths:
        with open(os.path.join(root, path), "rb") as file:
            errors += find_errors(path, file.read())
    print("\n".join(errors) if errors else f"{len(paths)} files, nothing forbidden")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
