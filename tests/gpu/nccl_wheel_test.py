#!/usr/bin/env python3
"""Tests tests/gpu/nccl_wheel.py with small libraries that the C compiler makes. Needs no network."""

import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import nccl_wheel  # noqa: E402

PTX = 1
SOURCE = r"""
__attribute__((section(".nv_fatbin"), aligned(8))) const unsigned char linked[] = {%s};
__attribute__((section("__nv_relfatbin"), aligned(8))) const unsigned char relocatable[] = {%s};
int ncclGetVersion(int* version) { *version = 23203; return linked[0] == 0x50 ? 0 : 1; }
"""


def entry(kind, architecture, code):
    code += bytes(-len(code) % 8)
    head = nccl_wheel.ENTRY.pack(kind, 0x101, 64, len(code), 0, 0, 0, 0, architecture)
    return head + bytes(64 - len(head)) + code


def container(*parts):
    body = b"".join(parts)
    return nccl_wheel.CONTAINER.pack(nccl_wheel.MAGIC, 1, 16, len(body)) + body


def fat_binary():
    return container(
        entry(2, 75, b"old"), entry(2, 90, b"hopper code"), entry(PTX, 90, b"text"), entry(2, 100, os.urandom(5000))
    )


class NcclWheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make_wheel(self, linked, relocatable):
        """Writes a wheel with a library that has these two sections, and returns its path."""
        library, wheel = f"{self.folder}/library.so", f"{self.folder}/nccl.whl"
        numbers = (",".join(str(byte) for byte in data) for data in (linked, relocatable))
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=SOURCE % tuple(numbers), text=True,
                       check=True)  # fmt: skip
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(library, nccl_wheel.MEMBER)
        return wheel

    def run_script(self, wheel, *words):
        return subprocess.run([sys.executable, f"{FOLDER}/nccl_wheel.py", f"{self.folder}/out", f"--wheel={wheel}", *words],
                              text=True, capture_output=True)  # fmt: skip

    def test_keeps_the_code_of_one_architecture_in_each_container(self):
        first, second = fat_binary() + bytes(8) + fat_binary(), fat_binary()
        wheel = self.make_wheel(first, second)
        done = self.run_script(wheel)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("libnccl.so.2: NCCL 2.32.3\n", done.stdout)
        self.assertRegex(done.stdout, r"device code: sm_75 .*, sm_90 .*, sm_100 ")
        with open(f"{self.folder}/out/libnccl.so.2", "rb") as file:
            elf = file.read()
        places = nccl_wheel.sections(elf)
        kept = []
        for name, length in ((".nv_fatbin", len(first)), ("__nv_relfatbin", len(second))):
            offset, size = places[name]
            self.assertGreaterEqual(size, length)
            for begin, end in nccl_wheel.containers(elf, offset, offset + size):
                kept.append([(arch, data[64:75]) for _, arch, data in nccl_wheel.entries(elf, begin, end)])
        self.assertEqual(kept, [[(90, b"hopper code")]] * 3)
        # The second container is where it was: pointers lead to it.
        offset = places[".nv_fatbin"][0] + len(fat_binary()) + 8
        self.assertEqual(struct.unpack_from("<I", elf, offset)[0], nccl_wheel.MAGIC)

    def test_names_what_is_missing(self):
        done = self.run_script(self.make_wheel(fat_binary(), fat_binary()), "--architecture=103")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "[nccl] no device code for sm_103: got [75, 90, 100]\n")

    def test_refuses_what_it_does_not_know(self):
        good = fat_binary()
        for bad, words in (
            (b"\x51" + good[1:], r"got magic 0xba55ed51, want 0xba55ed50"),
            (good[:8] + struct.pack("<Q", len(good)) + good[16:], "ends after its section"),
            (good[:24] + struct.pack("<Q", 1 << 40) + good[32:], "an entry ends after its container"),
        ):
            done = self.run_script(self.make_wheel(bad, b"\0" * 8))
            self.assertEqual(done.returncode, 1)
            self.assertTrue(re.search(words, done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
