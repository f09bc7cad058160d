#!/usr/bin/env python3
"""Fetches NCCL from PyPI for machines with one kind of GPU, and makes it small enough for a bundle.

    tests/gpu/nccl_wheel.py OUT                                    writes OUT/libnccl.so.2 for H100 and H200 (sm_90)
    tests/gpu/nccl_wheel.py OUT --version=2.30.7 --architecture=100
    tests/gpu/nccl_wheel.py OUT --wheel=FILE.whl                   takes a wheel that was fetched before

NCCL 2.30 and newer lets two ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1), which older versions refuse. The wheel
holds device code for seven architectures and debug information. This script drops the debug information and the device
code of other architectures.

Device code lies in the sections .nv_fatbin and __nv_relfatbin. Each is a sequence of containers: a header with a magic
number and the size of what follows, and entries. The header of an entry says its kind (PTX or machine code), the size of
its code and its architecture (90 for sm_90). The driver takes the entry that fits the GPU. Here each container keeps its
place, because pointers lead to it, but only some of its entries. The rest of it becomes zeros, which compress to nothing.

At the end the script loads the library, asks for its version, and prints all sizes.
"""

import argparse
import collections
import ctypes
import glob
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

VERSION = "2.32.3"
MEMBER = "nvidia/nccl/lib/libnccl.so.2"
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
MACHINE_CODE = 2  # a kind of entry; 1 is PTX, of the newest architecture
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, -, bytes of this header, bytes of code, -, -, -, -, architecture


class Malformed(Exception):
    """The file is not what this script knows."""


def sections(elf):
    """Returns the sections of a 64-bit ELF file, as name -> (offset, size)."""
    if elf[:5] != b"\x7fELF\x02":
        raise Malformed("not a 64-bit ELF file")
    table = struct.unpack_from("<Q", elf, 40)[0]
    entry_bytes, count, names_index = struct.unpack_from("<HHH", elf, 58)
    rows = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_bytes) for i in range(count)]
    names = rows[names_index][4]

    def name(row):
        begin = names + row[0]
        return bytes(elf[begin : elf.index(b"\0", begin)]).decode()

    return {name(row): (row[4], row[5]) for row in rows}


def containers(data, begin, end):
    """Yields the containers between two offsets: offset of its entries and offset of its end."""
    while begin + CONTAINER.size <= end:
        magic, _, header_bytes, size = CONTAINER.unpack_from(data, begin)
        if magic != MAGIC:
            if any(data[begin : begin + 8]):
                raise Malformed(f"offset {begin}: got magic {magic:#x}, want {MAGIC:#x} or padding")
            begin += 8
            continue
        first, begin = begin + header_bytes, begin + header_bytes + size
        if header_bytes != CONTAINER.size or begin > end:
            raise Malformed(f"offset {first}: a container has an unknown header or ends after its section")
        yield first, begin


def entries(data, begin, end):
    """Yields the entries of a container: kind, architecture and bytes."""
    while begin < end:
        kind, _, header_bytes, code, _, _, _, _, architecture = ENTRY.unpack_from(data, begin)
        size = header_bytes + code
        if header_bytes < ENTRY.size or begin + size > end:
            raise Malformed(f"offset {begin}: an entry ends after its container")
        yield kind, architecture, bytes(data[begin : begin + size])
        begin += size


def keep_architecture(elf, architecture):
    """Drops the device code of other architectures. Returns the bytes of each architecture that were there."""
    found = collections.Counter()
    places = sections(elf)
    for offset, size in (places[name] for name in SECTIONS if name in places):
        for begin, end in list(containers(elf, offset, offset + size)):
            kept = b""
            for kind, arch, entry in entries(elf, begin, end):
                found[arch] += len(entry)
                if kind == MACHINE_CODE and arch == architecture:
                    kept += entry
            elf[begin:end] = kept + bytes(end - begin - len(kept))
            CONTAINER.pack_into(elf, begin - CONTAINER.size, MAGIC, 1, CONTAINER.size, len(kept))
    if not found[architecture]:
        raise Malformed(f"no device code for sm_{architecture}: got {sorted(found)}")
    return found


def version_of(path):
    """Loads the library and returns its version, such as 2.32.3."""
    number = ctypes.c_int()
    library = ctypes.CDLL(path)
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        raise Malformed("ncclGetVersion: failed")
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


def fetch(version, folder):
    """Downloads the wheel of a version and returns its path."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", f"--dest={folder}", f"nvidia-nccl-cu13=={version}"], check=True)  # fmt: skip
    return glob.glob(f"{folder}/nvidia_nccl_cu13-*.whl")[0]


def xz_bytes(data):
    """Returns the size after compression, as in a bundle."""
    compressor = lzma.LZMACompressor(preset=6)
    return len(compressor.compress(data)) + len(compressor.flush())


def mib(size):
    return f"{size / 2**20:.1f} MiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="folder for libnccl.so.2")
    parser.add_argument("--version", default=VERSION, help=f"version of nvidia-nccl-cu13 (default {VERSION})")
    parser.add_argument("--architecture", type=int, default=90, help="architecture that is kept (default 90)")
    parser.add_argument("--wheel", help="a wheel that was fetched before")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, "libnccl.so.2")
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or fetch(options.version, folder)
        wheel_bytes = os.path.getsize(wheel)
        with zipfile.ZipFile(wheel) as archive:
            elf = bytearray(archive.read(MEMBER))
    library_bytes = len(elf)
    found = keep_architecture(elf, options.architecture)
    with open(path, "wb") as file:
        file.write(elf)
    subprocess.run(["strip", "--strip-unneeded", path], check=True)
    os.chmod(path, 0o755)
    with open(path, "rb") as file:
        kept = file.read()
    print(f"{path}: NCCL {version_of(os.path.abspath(path))}")
    print(f"wheel {mib(wheel_bytes)}, library {mib(library_bytes)}, without debug information {mib(len(kept))}")
    print("device code: " + ", ".join(f"sm_{arch} {mib(size)}" for arch, size in sorted(found.items())))
    print(f"compressed by xz, with device code for sm_{options.architecture} only: {mib(xz_bytes(kept))}")


if __name__ == "__main__":
    try:
        main()
    except (Malformed, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"[nccl] {error}")
