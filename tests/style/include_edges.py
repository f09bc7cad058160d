#!/usr/bin/env python3
"""Fails on an #include that the layout forbids.

    include_edges.py ROOT        reads src, collectives, nets, io and launch under ROOT

A folder may include itself, the folders in its row of ALLOWED, and single headers named there. A vendor's header may
be included only in the folders of its row of VENDORS, and no header that reaches one may be seen from elsewhere.
"""

import os
import re
import sys

FOLDERS = ("src", "collectives", "nets", "io", "launch")
ROOT_OF_COMPOSITION = ("src/main.cpp", "src/commands/")  # may include all that is ours

TENSOR = ("src/tensor", "src/core")
BACKEND = ("src/backend", *TENSOR)
GRAPH = ("src/graph", *BACKEND)
OPS = ("src/ops", *GRAPH)
TRAIN = (*GRAPH, "src/optim", "collectives", "io/dataset.h", "io/checkpoint.h",
         "io/checkpoint_folder.h", "io/checkpoint_writer.h", "io/disk.h", "io/run_lock.h",
         "io/weights_reader.h", "io/weights_mapping.h", "io/keras_layout.h")
ALLOWED = {
    "src/core": (),
    "src/tensor": ("src/core",),
    "src/backend": TENSOR,
    "src/graph": BACKEND,
    "src/ops": GRAPH,
    "src/optim": BACKEND,
    "src/train": TRAIN,
    "src/watch": ("src/train", "src/core", "collectives", "io/disk.h", "io/event_writer.h", "io/histogram.h",
                  "io/image.h", "io/preprocessing.h"),
    "collectives": (*TENSOR, "launch/environment.h"),
    "io": ("src/core",),
    "launch": ("src/core",),
    "nets": OPS,
}

VENDORS = (  # pattern of the header, folders that may include it
    (re.compile(r"dnnl|oneapi/dnnl"), ("src/backend/onednn",)),
    (re.compile(r"cuda_runtime|cuda_fp16|cuda_bf16|cuda\.h"), ("src/backend/cuda", "collectives/nccl")),
    (re.compile(r"cuda|cudnn|cublas|nvToolsExt|nvtx"), ("src/backend/cuda",)),
    (re.compile(r"nccl"), ("collectives/nccl",)),
    (re.compile(r"mpi\.h|mpi-ext\.h"), ("collectives/mpi",)),
    (re.compile(r"hdf5|H5"), ("io",)),
    (re.compile(r"jpeglib|jerror|turbojpeg|png\.h"), ("io",)),
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def within(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def module_of(path):
    """The row of ALLOWED that holds for a file, or None."""
    return next((m for m in ALLOWED if within(path, m)), None)


def vendor_folders(header):
    """The folders that may include this vendor header; None when it is no such header."""
    return next((folders for pattern, folders in VENDORS if pattern.match(header)), None)


def headers_reaching_vendors(includes):
    """Own headers that include a vendor header, directly or through others -> the vendor header."""
    reaching = {}
    changed = True
    while changed:
        changed = False
        for path, lines in includes.items():
            for _, own, target in lines:
                vendor = reaching.get(target) if own else target if vendor_folders(target) else None
                if vendor and path.endswith((".h", ".hpp", ".cuh")) and path not in reaching:
                    reaching[path] = vendor
                    changed = True
    return reaching


def refuse_own(path, target, reaching):
    """Why `path` may not include our header `target`, or None."""
    if not path.startswith(ROOT_OF_COMPOSITION):
        module = module_of(path)
        if module is None:
            return "the file lies in no folder of the layout"
        if not any(within(target, folder) for folder in (module, *ALLOWED[module])):
            return f"{module} may include only {', '.join((module, *ALLOWED[module]))}"
    if target in reaching:
        folders = vendor_folders(reaching[target])
        if not any(within(path, folder) for folder in folders):
            return f"it reaches <{reaching[target]}>, which only {', '.join(folders)} may see"
    return None


def refuse_vendor(path, target):
    folders = vendor_folders(target)
    if folders is None or any(within(path, folder) for folder in folders):
        return None
    return f"only {', '.join(folders)} may include it"


def read_includes(text):
    """Yields (line number, whether it names a file of ours, target)."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            quote, target = match.groups()
            yield number, quote == '"' and vendor_folders(target) is None, target


def find_errors(files):
    """files: path -> text. Returns one line for each forbidden edge."""
    includes = {path: list(read_includes(text)) for path, text in files.items()}
    reaching = headers_reaching_vendors(includes)
    errors = []
    for path in sorted(includes):
        for number, own, target in includes[path]:
            reason = refuse_own(path, target, reaching) if own else refuse_vendor(path, target)
            if reason:
                errors.append(f"{path}:{number}: may not include {target}: {reason}")
    return errors


def read_files(root):
    """All C++ sources of the layout's folders, path relative to root -> text."""
    files = {}
    for folder in FOLDERS:
        for place, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith((".h", ".hpp", ".cpp", ".cu", ".cuh")):
                    path = os.path.join(place, name)
                    with open(path, encoding="utf-8") as file:
                        files[os.path.relpath(path, root)] = file.read()
    return files


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    files = read_files(sys.argv[1])
    if not files:
        sys.exit(f"[style] {sys.argv[1]}: no sources there")
    errors = find_errors(files)
    print("\n".join(errors) if errors else f"{len(files)} files, all edges allowed")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
