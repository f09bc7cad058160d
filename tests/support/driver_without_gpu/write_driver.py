#!/usr/bin/env python3
"""Writes the C source of a libcuda.so.1 that has every function of the toolkit's stub library, and no GPU.

cuDNN looks for this library. With it, cuDNN compiles and "loads" kernels for a GPU that is described to it. Functions
that load something return success and a dummy handle. Functions for devices and contexts report that there is no
device.

    write_driver.py STUB SOURCE.c
"""

import subprocess
import sys

NO_DEVICE, NOT_FOUND = 100, 500
LOADS = {
    "cuLibraryLoadData",
    "cuLibraryGetKernel",
    "cuLibraryGetModule",
    "cuLibraryGetGlobal",
    "cuKernelGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
}


def body_of(name):
    if name in LOADS:
        return "(void** handle) { *handle = nothing; return 0; }"
    if name.startswith("cuGetProcAddress"):
        return f"(void) {{ return {NOT_FOUND}; }}"
    code = NO_DEVICE if name == "cuInit" or name.startswith(("cuCtx", "cuDevice")) else 0
    return f"(void) {{ return {code}; }}"


def main():
    stub, source = sys.argv[1:]
    listed = subprocess.run(["nm", "-D", "--defined-only", stub], check=True, capture_output=True, text=True).stdout
    names = sorted({line.split()[-1].split("@")[0] for line in listed.splitlines()})
    functions = [name for name in names if name.startswith("cu")]
    with open(source, "w", encoding="utf-8") as file:
        file.write("static char nothing[4096];\n")
        file.writelines(f"int {name}{body_of(name)}\n" for name in functions)


if __name__ == "__main__":
    main()
