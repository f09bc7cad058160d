#!/usr/bin/env python3
"""Compares src/backend/nvjpeg/nvjpeg_abi.h with NVIDIA's headers and library.

usage: check_nvjpeg.py COMPILER SOURCE_ROOT [FOLDER...]

The wheel nvidia-nvjpeg holds the header and the library. cuda.h is searched in the folders. No GPU is needed, because no
function is called.
"""

import ctypes
import glob
import os
import re
import subprocess
import sys
import tempfile

# The parts of included headers that nvjpeg.h uses.
STANDINS = {
    "cuda_runtime_api.h": "typedef struct CUstream_st* cudaStream_t;\n",
    "library_types.h": "typedef enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;\n",
}


def find_in_wheels(pattern):
    found = [path for folder in sys.path for path in glob.glob(os.path.join(folder, "nvidia", "*", pattern))]
    if not found:
        sys.exit(f"[check] {pattern}: not in this environment; tests/interop/requirements.txt names nvidia-nvjpeg")
    return found[0]


def check_header(compiler, root, folders):
    header = find_in_wheels("include/nvjpeg.h")
    with tempfile.TemporaryDirectory() as standins:
        for name, text in STANDINS.items():
            with open(os.path.join(standins, name), "w", encoding="utf-8") as file:
                file.write(text)
        includes = [f"-I{folder}" for folder in (root, standins, *folders)]
        subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *includes, "-isystem", os.path.dirname(header),
                        os.path.join(root, "tests/interop/nvjpeg_abi.cpp")], check=True)  # fmt: skip


def check_symbols(root):
    """Checks that the library has every function that nvjpeg.cpp looks up by name."""
    library = ctypes.CDLL(find_in_wheels("lib/libnvjpeg.so.1[23]"))
    with open(os.path.join(root, "src/backend/nvjpeg/nvjpeg.cpp"), encoding="utf-8") as file:
        names = re.findall(r'LoadSymbol\(library, "(nvjpeg\w+)"', file.read())
    missing = [name for name in names if not hasattr(library, name)]
    if missing or len(names) < 6:
        sys.exit(f"[check] nvjpeg: looked for {names}, missing {missing}")


def main():
    compiler, root, *folders = sys.argv[1:]
    check_header(compiler, root, folders)
    check_symbols(root)


if __name__ == "__main__":
    main()
