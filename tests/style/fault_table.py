#!/usr/bin/env python3
"""Fails if tests/FAULTS.md names a test that does not exist, or has a row without a test.

    fault_table.py ROOT [BUILD]             BUILD: a build folder, whose list of tests is used for names that CMake makes
    fault_table.py ROOT BUILD --write-seconds    fills the column of seconds from the last run of ctest in BUILD

A row names its test in one of these ways. "No test" is allowed, and counted.

- a gtest with its folder: cli.StopTest.AtAnyMoment
- another test of ctest: mpi.kill_1.3
- a function of a Python test: tests/hosts/links_test.py::test_lost_packets
- a command: ./run fuzz
"""

import os
import re
import sys

COLUMNS = 4
MIN_ROWS = 60
GTEST = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
ADD_TEST = re.compile(r"^add_test\((?:\[=*\[)?([^\s\]]+)", re.MULTILINE)
TIME = re.compile(r"^\d+/\d+ Test: (\S+)$.*?^Test time = +([\d.]+) sec$.*?^Test (Passed)\.$", re.MULTILINE | re.DOTALL)
NO_TEST = "no test"
# Folders whose tests are known only to CMake, and only in a build with MPI.
CMAKE_FOLDERS = ("drill", "durability", "mpi", "soak")


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def find_gtests(root):
    """Returns names such as "cli.StopTest.AtAnyMoment"."""
    names = set()
    for folder in sorted(os.listdir(os.path.join(root, "tests"))):
        for place, _, files in os.walk(os.path.join(root, "tests", folder)):
            for file in files:
                if file.endswith("_test.cpp"):
                    names |= {f"{folder}.{s}.{t}" for s, t in GTEST.findall(read(os.path.join(place, file)))}
    return names


def find_ctests(build):
    """Returns the names of tests that CMake lists, and the folders that have some. gtests are in other files."""
    names, folders = set(), set()
    for place, _, files in os.walk(os.path.join(build, "tests")):
        if "CTestTestfile.cmake" in files:
            found = set(ADD_TEST.findall(read(os.path.join(place, "CTestTestfile.cmake"))))
            names |= found
            if found:
                folders.add(os.path.relpath(place, os.path.join(build, "tests")))
    return names, folders


def rows_of(text):
    """Yields (line number, cells) of each row of the tables, without their heads."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|") or line.startswith("|---") or line.startswith("| fault |"):
            continue
        yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]


def problem_of(test, root, gtests, ctests, folders):
    """Returns "" if the test exists."""
    if test == NO_TEST:
        return ""
    if not (match := re.fullmatch(r"`([^`]+)`", test)):
        return f'got {test or "nothing"}, want one test between backquotes, or "{NO_TEST}"'
    name = match[1]
    if name.startswith("./run "):
        command = name.split()[1]
        return "" if re.search(rf"^\s*{command}\)", read(os.path.join(root, "run")), re.MULTILINE) else "no such command"
    if "::" in name:
        path, function = name.split("::")
        path = os.path.join(root, path)
        exists = os.path.exists(path) and re.search(rf"^\s*def {function}\(", read(path), re.MULTILINE)
        return "" if exists else "no such function"
    if name in gtests or name in ctests:
        return ""
    folder = name.split(".")[0]
    is_configured = folders is not None and folder in folders
    return "" if folder in CMAKE_FOLDERS and not is_configured else "no such test"


def find_errors(text, root, gtests, ctests, folders):
    errors, rows = [], 0
    for number, cells in rows_of(text):
        rows += 1
        if len(cells) != COLUMNS or not cells[0] or not cells[1]:
            errors.append(f"line {number}: got {len(cells)} columns, want fault, must happen, test, seconds")
            continue
        if problem := problem_of(cells[2], root, gtests, ctests, folders):
            errors.append(f"line {number}: {cells[2]}: {problem}")
        if cells[2] != NO_TEST and not cells[3]:
            errors.append(f'line {number}: seconds: got nothing, want a number or "not measured"')
    if rows < MIN_ROWS:
        errors.append(f"got {rows} rows, want at least {MIN_ROWS}")
    return errors


def read_seconds(log):
    """Returns the seconds of each test of ctest's log that passed. A parametrized test has those of its slowest case.

    A function of a Python test has the name "::FUNCTION".
    """
    seconds = {f"::{match[1]}": float(match[2]) for match in re.finditer(r"\.(test_\w+): ok, ([\d.]+) s$", log, re.MULTILINE)}
    for block in re.split(r"^-+\n\n(?=\d+/\d+ Testing)", log, flags=re.MULTILINE):
        if match := TIME.search(block):
            # cli.Phases/FaultTest.EndsTheJob/saving_kill -> cli.FaultTest.EndsTheJob
            folder, _, rest = match[1].partition(".")
            name = f"{folder}.{re.sub(r'^[^/.]*/(?=.*[.])', '', rest).split('/')[0]}"
            seconds[name] = max(seconds.get(name, 0), float(match[2]))
    return seconds


def write_seconds(text, seconds):
    """Returns the page with the seconds of the tests that were measured."""
    lines = text.splitlines()
    for number, cells in rows_of(text):
        name = cells[2].strip("`") if len(cells) == COLUMNS else ""
        name = re.sub("^.*::", "::", name)
        if name in seconds:
            lines[number - 1] = "| " + " | ".join([*cells[:3], f"{seconds[name]:.1f}"]) + " |"
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3, 4) or sys.argv[3:] not in ([], ["--write-seconds"]):
        sys.exit(__doc__)
    root = sys.argv[1]
    page = os.path.join(root, "tests", "FAULTS.md")
    text = read(page)
    if len(sys.argv) == 4:
        text = write_seconds(text, read_seconds(read(os.path.join(sys.argv[2], "Testing", "Temporary", "LastTest.log"))))
        with open(page, "w", encoding="utf-8") as file:
            file.write(text)
    ctests, folders = find_ctests(sys.argv[2]) if len(sys.argv) > 2 else (set(), None)
    errors = find_errors(text, root, find_gtests(root), ctests, folders)
    for error in errors:
        print(f"tests/FAULTS.md: {error}")
    rows = list(rows_of(text))
    without = sum(cells[2] == NO_TEST for _, cells in rows if len(cells) == COLUMNS)
    print(f"{len(rows)} faults, {without} of them without a test")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
