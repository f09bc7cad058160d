"""Tests of the style checks: each forbidden case is reported, and allowed cases are not."""

import os
import unittest

import fault_table
import include_edges
import prose
import tidy
import words

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
NETS = "carole_room(\n  PUBLIC carole::nets_layers\n  PRIVATE carole::core_text)\n"

FORBIDDEN = (  # path, line, part of the error
    ("nets/lenet.cpp", '#include "src/train/loop/trainer.h"', "nets/CMakeLists.txt does not name carole::train_loop"),
    ("nets/lenet.cpp", '  #  include "io/image/image.h"', "nets/CMakeLists.txt does not name carole::io_image"),
    ("src/graph/graph.cpp", "#include <dnnl.hpp>", "only src/backend/onednn may see it"),
    ("src/main.cpp", "#include <mpi.h>", "only collectives/mpi may see it"),
    ("src/train/step.cpp", '#include "oneapi/dnnl/dnnl.hpp"', "only src/backend/onednn may see it"),
    ("collectives/local/communicator.cpp", "#include <cuda_runtime.h>", "only src/backend/cuda, collectives/nccl may see it"),
    ("collectives/nccl/communicator.cpp", "#include <cudnn.h>", "only src/backend/cuda may see it"),
    ("src/backend/cuda/conv.cu", "#include <nccl.h>", "only collectives/nccl may see it"),
    ("launch/main.cpp", "#include <hdf5.h>", "only io/checkpoint may see it"),
    ("src/commands/predict.cpp", "#include <jpeglib.h>", "only io/image may see it"),
)

ALLOWED = (
    ("nets/lenet.cpp", '#include "nets/layers/layers.h"\n#include "src/core/text/join_names.h"'),
    ("src/main.cpp", '#include "nets/nets.h"'),
    ("src/commands/train.cpp", '#include "src/train/loop/trainer.h"'),
    ("src/optim/sgd.cpp", '#include "src/core/error.h"'),
    ("src/backend/onednn/kernels/conv.cpp", "#include <dnnl.hpp>"),
    ("collectives/mpi/communicator.cpp", "#include <mpi.h>"),
    ("collectives/nccl/communicator.cpp", "#include <cuda_runtime.h>"),
    ("io/image/jpeg.cpp", "#include <jpeglib.h>"),
    ("io/image/image.cpp", "#include <vector>"),
    ("src/graph/graph.cpp", '// #include "nets/nets.h"'),
)


class IncludeEdges(unittest.TestCase):
    def test_rejects_each_forbidden_include(self):
        for path, line, reason in FORBIDDEN:
            with self.subTest(path=path, line=line):
                nets = {"nets/nets.cpp": '#include "nets/layers/layers.h"\n#include "src/core/text/join_names.h"'}
                errors = include_edges.find_errors({**nets, path: "// text\n" + line + "\n"}, {"nets": NETS})
                self.assertEqual(len(errors), 1, errors)
                self.assertTrue(errors[0].startswith(f"{path}:2: may not include"), errors[0])
                self.assertIn(reason, errors[0])

    def test_accepts_allowed_includes(self):
        for path, lines in ALLOWED:
            with self.subTest(path=path, lines=lines):
                self.assertEqual(include_edges.find_errors({path: lines}, {"nets": NETS}), [])

    def test_rejects_a_named_room_that_is_not_included(self):
        errors = include_edges.find_errors({"nets/nets.cpp": '#include "nets/layers/layers.h"'}, {"nets": NETS})
        self.assertEqual(errors, ["nets/CMakeLists.txt: names carole::core_text, which no file of the room includes; remove it"])

    def test_rejects_a_circle(self):
        files = {"io/a/a.h": '#include "io/b/b.h"', "io/b/b.h": '#include "io/c/c.h"', "io/c/c.h": '#include "io/a/a.h"'}
        rooms = {"io/a": "carole_room(PUBLIC carole::io_b)", "io/b": "carole_room(PUBLIC carole::io_c)",
                 "io/c": "carole_room(PUBLIC carole::io_a)"}
        errors = include_edges.find_errors(files, rooms)
        self.assertEqual(errors, ["rooms include each other in a circle: io/a -> io/b -> io/c -> io/a"])

    def test_rejects_a_crowded_folder(self):
        files = {f"nets/net{i}.cpp": "" for i in range(include_edges.MAX_FILES + 1)}
        self.assertEqual(len(include_edges.find_errors(files, {})), 1)

    def test_rejects_a_header_that_reaches_a_vendor(self):
        files = {
            "io/checkpoint/hdf5_internal.h": "#include <hdf5.h>",
            "io/checkpoint/checkpoint.h": '#include "io/checkpoint/hdf5_internal.h"',
            "io/checkpoint/checkpoint.cpp": '#include "io/checkpoint/checkpoint.h"',
            "src/commands/eval.cpp": '#include "io/checkpoint/checkpoint.h"',
        }
        errors = include_edges.find_errors(files, {})
        self.assertEqual([e.split(":")[0] for e in errors], ["src/commands/eval.cpp"])
        self.assertIn("which includes <hdf5.h>", errors[0])

    def test_rejects_flags_in_libraries(self):
        for line in ('Fail("use --batch_size=8");', "// The flag --recipe.", 'Format("--{}={}", name, value);'):
            errors = include_edges.find_errors({"io/a.cpp": "int x;\n" + line + "\n"}, {})
            self.assertEqual([e.split(":")[:2] for e in errors], [["io/a.cpp", "2"]], line)
            self.assertEqual(include_edges.find_errors({"src/commands/a.cpp": line, "src/main.cpp": line}, {}), [])
        for line in ("for (int i = 9; i > 0; --i) --count;", 'Run({"mpirun", "--bind-to", "none"});', "// a -- b, and carole -- train"):
            self.assertEqual(include_edges.find_errors({"io/a.cpp": line}, {}), [], line)


class Prose(unittest.TestCase):
    def test_finds(self):
        long = " ".join(["word"] * (prose.MAX_WORDS + 1))
        cases = {
            "American spelling": ("a.h", "int x;  // its colour\n"),
            "want at most": ("a.cpp", f"// {long}.\n"),
            "without a subject": ("a.h", "// Of the step in progress, in device memory.\nint x;\n"),
            "in flight": ("a.py", '"""Steps under way."""\n'),
            '"image"': ("a.cpp", 'f("the picture cannot be decoded at all, sorry");\n'),
            '"forever"': ("README.md", "It waits for ever.\n"),
            "this many": ("CMakeLists.txt", "# so many threads\n"),
        }
        for reason, (path, text) in cases.items():
            with self.subTest(reason=reason):
                findings = prose.check(path, text)
                self.assertEqual(len(findings), 1, findings)
                self.assertIn(reason, findings[0])

    def test_lets_plain_text_pass(self):
        row = '{"one two three four five six", "seven eight nine ten eleven"},\n'
        for path, text in (
            ("a.h", "// Returns the number of ranks. Throws CommError if a rank is gone.\n"),
            ("a.cpp", "const char* const kRows[] = {" + row * 9 + "};\n"),
            ("a.cpp", '#include "io/image/image.h"\n' * 20),
            ("a.md", "```\nso many words in a code block are not prose\n```\n"),
        ):
            with self.subTest(path=path, text=text):
                self.assertEqual(prose.check(path, text), [])


class Tidy(unittest.TestCase):
    def test_ten_runs_in_a_row_check_every_file(self):
        sources = {f"src/file{i}.cpp" for i in range(500)}
        for first in (0, 7, 1234):
            seen = set()
            for number in range(first, first + tidy.SHARES):
                share = {path for path in sources if tidy.share_of(path) == number % tidy.SHARES}
                self.assertLess(len(share), 100)
                seen |= share
            self.assertEqual(seen, sources)

    def test_checks_gpu_code_with_emulated_headers(self):
        real = {"file": "/r/src/backend/cuda/a.cu", "command": "nvcc a.cu"}
        emulated = {"file": "/r/src/backend/cuda/a.cu", "command": "c++ -I/r/tests/support/cuda_emulation/ a.cu"}
        host = {"file": "/r/src/core/b.cpp", "command": "c++ b.cpp"}
        test = {"file": "/r/tests/core/b_test.cpp", "command": "c++ b_test.cpp"}
        for entries in ([real, emulated, host, test], [emulated, test, host, real]):
            self.assertEqual(tidy.choose_entries("/r", entries), {"src/backend/cuda/a.cu": emulated, "src/core/b.cpp": host})


class Words(unittest.TestCase):
    def test_rejects_each_forbidden_text(self):
        cases = {
            "a path of one machine": ("a.md", b"see /ro" + b"ot/x"),
            "a registry's host": ("a.md", b"https://deb.deb" + b"ian.org/x"),
            "unfinished work": ("a.h", b"// TO" + b"DO: more"),
            "a merge conflict": ("a.h", b"<<<<" + b"<<< HEAD\n"),
            "a generated file": ("src/x.o", b""),
            "want at most": ("data.bin", b"\0" * (words.MAX_BYTES + 1)),
        }
        for reason, (path, content) in cases.items():
            with self.subTest(reason=reason):
                errors = words.find_errors(path, content)
                self.assertEqual(len(errors), 1)
                self.assertIn(reason, errors[0])

    def test_accepts_ordinary_text(self):
        self.assertEqual(words.find_errors("a.cpp", b"// TO" + b"DO(#12): x\nsrc/network/a /usr/share/x ${d}/work/\n"), [])


class FaultTable(unittest.TestCase):
    GTESTS = {"cli.StopTest.AtAnyMoment"}

    def errors_of(self, *cells, folders=frozenset({"mpi"})):
        row = "| " + " | ".join(cells) + " |\n"
        return fault_table.find_errors(row * fault_table.MIN_ROWS, ROOT, self.GTESTS, {"mpi.kill_0.3"}, folders)

    def test_accepts_tests_that_exist(self):
        for test in ("`cli.StopTest.AtAnyMoment`", "`mpi.kill_0.3`"):
            self.assertEqual(self.errors_of("kill", "ends", test, "3"), [])
        self.assertEqual(self.errors_of("kill", "ends", "no test", ""), [])
        self.assertEqual(self.errors_of("kill", "ends", "`mpi.kill_9.3`", "3", folders=frozenset()), [])

    def test_rejects_others(self):
        for test in ("`cli.StopTest.Never`", "`mpi.kill_9.3`", "cli.StopTest.AtAnyMoment", "", "`./run nothing`",
                     "`tests/none_test.py::test_none`"):  # fmt: skip
            self.assertNotEqual(self.errors_of("kill", "ends", test, "3"), [], test)
        self.assertNotEqual(self.errors_of("kill", "ends", "`mpi.kill_0.3`", ""), [])
        self.assertNotEqual(self.errors_of("kill", "`mpi.kill_0.3`", "3"), [])

    def test_takes_seconds_from_the_log(self):
        end = "-" * 10 + "\n"
        log = (f"1/2 Testing: x\n1/2 Test: cli.Phases/FaultTest.Ends/saving_kill\nTest time =   9.04 sec\n{end}Test Passed.\n{end}\n"
               f"2/2 Testing: y\n2/2 Test: mpi.kill_0.3\nTest time =   2.00 sec\n{end}Test Failed.\n"
               "__main__.LinksTest.test_cut_link: ok, 7.1 s\n")  # fmt: skip
        seconds = fault_table.read_seconds(log)
        self.assertEqual(seconds, {"cli.FaultTest.Ends": 9.04, "::test_cut_link": 7.1})
        page = fault_table.write_seconds("| kill | ends | `cli.FaultTest.Ends` | not measured |\n", seconds)
        self.assertEqual(page, "| kill | ends | `cli.FaultTest.Ends` | 9.0 |\n")
        page = fault_table.write_seconds("| cut | ends | `tests/links_test.py::test_cut_link` | not measured |\n", seconds)
        self.assertEqual(page, "| cut | ends | `tests/links_test.py::test_cut_link` | 7.1 |\n")


if __name__ == "__main__":
    unittest.main()
