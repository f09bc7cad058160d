#!/usr/bin/env python3
"""Fails on an #include, or a name of a flag, that the layout forbids.

    include_edges.py ROOT            checks src, collectives, nets, io and launch under ROOT
    include_edges.py ROOT --arrows   prints which room includes which

A room is a folder with C++ sources. A room's CMakeLists.txt names the rooms that it may include, in PUBLIC and PRIVATE
of carole_room(): carole::io_image stands for io/image, carole::core_files for src/core/files. Every room may include
src/core. The check fails if
  - a file includes a header of a room that its own room does not name,
  - a room names a room that it does not include,
  - rooms include each other in a circle,
  - a folder holds more than MAX_FILES source files,
  - a vendor's header is included outside of the folders of its row of VENDORS, or is seen through one of our headers,
  - a comment or string of a library names a flag. Libraries know options (Option() in src/core/error.h); only src/commands
    and src/main.cpp know flags. Flags of other programs are in FOREIGN_FLAGS.

src/main.cpp and the files directly in src/commands join all parts of the program and may include every room.
"""

import os
import re
import sys

from prose import CPP_TOKEN

FOLDERS = ("src", "collectives", "nets", "io", "launch")
COMPOSITION = ("src", "src/commands")  # these rooms may include all others
EVERYBODY = "src/core"  # every room may include this one
MAX_FILES = 26

VENDORS = (  # pattern of the header, folders that may include it
    (re.compile(r"dnnl|oneapi/dnnl"), ("src/backend/onednn",)),
    (re.compile(r"cuda_runtime|cuda_fp16|cuda_bf16|cuda\.h"), ("src/backend/cuda", "collectives/nccl")),
    (re.compile(r"nvtx3"), ("src/core/profiler",)),
    (re.compile(r"cuda|cudnn|cublas"), ("src/backend/cuda",)),
    (re.compile(r"nccl"), ("collectives/nccl",)),
    (re.compile(r"mpi\.h|mpi-ext\.h"), ("collectives/mpi",)),
    (re.compile(r"hdf5|H5"), ("io/checkpoint",)),
    (re.compile(r"snappy"), ("io/tensorflow",)),
    (re.compile(r"expat\.h|zip\.h"), ("io/archives",)),
    (re.compile(r"jpeglib|jerror|turbojpeg|png\.h"), ("io/image",)),
)

FLAG_ROOMS = ("src/commands",)
FLAG_FILES = ("src/main.cpp", "src/core/error.h")  # error.h explains how an option becomes a flag
FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]*|\{)")  # "--{}" would be a flag that is put together
FOREIGN_FLAGS = frozenset(
    "allow-run-as-root bind-to host hostfile map-by mca oversubscribe version "  # mpirun
    "cpu-bind cpus-per-task distribution gpus-per-node het-group kill-on-bad-exit mem mpi pty "  # srun and sbatch
    "device gpus shm-size ulimit "  # docker and podman
    "sparse".split()  # tar
)
CSS = "src/monitoring/report/report_style.h"  # --name is a variable there

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
ROOM_CALL = re.compile(r"^\s*carole(?:_cuda)?_room\(([^)]*)\)", re.MULTILINE)
HEADERS = (".h", ".hpp", ".cuh")
SOURCES = (".cpp", ".cu", *HEADERS)


def room_of(path):
    return os.path.dirname(path)


def target_of(room):
    """The name of a room's library: src/core/files -> carole::core_files."""
    return "carole::" + re.sub(r"^src/", "", room).replace("/", "_")


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def vendor_folders(header):
    """The folders that may include this vendor header; None if it is not one."""
    return next((folders for pattern, folders in VENDORS if pattern.match(header)), None)


def read_includes(text):
    """Yields (line number, whether it names one of our files, included name)."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            quote, target = match.groups()
            yield number, quote == '"' and vendor_folders(target) is None, target


def headers_reaching_vendors(includes):
    """Our headers that include a vendor's header, directly or through others -> the vendor's header."""
    reaching = {}
    changed = True
    while changed:
        changed = False
        for path, lines in includes.items():
            for _, own, target in lines:
                vendor = reaching.get(target) if own else target if vendor_folders(target) else None
                if vendor and path.endswith(HEADERS) and path not in reaching:
                    reaching[path] = vendor
                    changed = True
    return reaching


def declared_targets(cmake_lists):
    """The carole:: names in carole_room() of a CMakeLists.txt."""
    return {word for call in ROOM_CALL.findall(cmake_lists) for word in re.findall(r"carole::\w+", call)}


def room_graph(includes):
    """Room -> {included room -> the first place of it, as (file, line number, included name)}."""
    graph = {}
    for path in sorted(includes):
        arrows = graph.setdefault(room_of(path), {})
        for number, own, target in includes[path]:
            if own and "/" in target and room_of(target) != room_of(path):
                arrows.setdefault(room_of(target), (path, number, target))
    return graph


def find_circle(graph):
    """Rooms that include each other in a circle, the first one again at the end; None if there is none."""
    done, stack = set(), []

    def visit(room):
        if room in stack:
            return [*stack[stack.index(room) :], room]
        if room in done:
            return None
        stack.append(room)
        circle = next(filter(None, map(visit, graph.get(room, ()))), None)
        stack.pop()
        done.add(room)
        return circle

    return next(filter(None, map(visit, sorted(graph))), None)


def check_room(room, arrows, declared):
    """`declared`: target names in the room's CMakeLists.txt."""
    names = {target_of(other): other for other in arrows}
    for target in sorted(set(names) - declared - {target_of(EVERYBODY)}):
        path, number, header = arrows[names[target]]
        yield f"{path}:{number}: may not include {header}: {room}/CMakeLists.txt does not name {target}"
    for target in sorted(declared - set(names)):
        yield f"{room}/CMakeLists.txt: names {target}, which no file of the room includes; remove it"


def check_vendors(includes):
    reaching = headers_reaching_vendors(includes)
    for path in sorted(includes):
        for number, own, target in includes[path]:
            vendor = target if not own else reaching.get(target)
            folders = vendor_folders(vendor) if vendor else None
            if folders is None or any(within(path, folder) for folder in folders):
                continue
            through = "" if vendor == target else f", which includes <{vendor}>"
            yield f"{path}:{number}: may not include {target}{through}: only {', '.join(folders)} may see it"


def check_flags(path, text):
    if path in (*FLAG_FILES, CSS) or any(within(path, room) for room in FLAG_ROOMS):
        return
    for token in CPP_TOKEN.finditer(text):
        for flag in FLAG.finditer(token[0]):
            if flag[1] not in FOREIGN_FLAGS:
                line = text.count("\n", 0, token.start() + flag.start()) + 1
                yield f"{path}:{line}: names the flag {flag[0]}: libraries know no flags; use Option() of src/core/error.h"


def find_errors(files, cmake_lists):
    """files: path -> text; cmake_lists: room -> text of its CMakeLists.txt. Returns one line for each error."""
    includes = {path: list(read_includes(text)) for path, text in files.items()}
    graph = room_graph(includes)
    errors = []
    for room, arrows in sorted(graph.items()):
        if room not in COMPOSITION:
            errors += check_room(room, arrows, declared_targets(cmake_lists.get(room, "")))
        count = sum(room_of(path) == room for path in files)
        if count > MAX_FILES:
            errors.append(f"{room}: got {count} source files, want at most {MAX_FILES}; split the room")
    circle = find_circle(graph)
    if circle:
        errors.append("rooms include each other in a circle: " + " -> ".join(circle))
    errors += check_vendors(includes)
    for path, text in sorted(files.items()):
        errors += check_flags(path, text)
    return errors


def read_tree(root):
    """(path -> text of the C++ sources, room -> text of its CMakeLists.txt), paths relative to root."""
    files, cmake_lists = {}, {}
    for folder in FOLDERS:
        for place, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                path = os.path.relpath(os.path.join(place, name), root)
                if name.endswith(SOURCES) or name == "CMakeLists.txt":
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        text = file.read()
                    if name == "CMakeLists.txt":
                        cmake_lists[room_of(path)] = text
                    else:
                        files[path] = text
    return files, cmake_lists


def print_arrows(files):
    graph = room_graph({path: list(read_includes(text)) for path, text in files.items()})
    for room, arrows in sorted(graph.items()):
        print(f"{room} ->", " ".join(sorted(set(arrows) - {EVERYBODY})))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--arrows"]):
        sys.exit(__doc__)
    files, cmake_lists = read_tree(sys.argv[1])
    if not files:
        sys.exit(f"[style] {sys.argv[1]}: no sources there")
    if sys.argv[2:]:
        print_arrows(files)
        return
    errors = find_errors(files, cmake_lists)
    print("\n".join(errors) if errors else f"{len(files)} files, all includes allowed, no flags in libraries")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
