"""The style checks refuse what they must refuse and let pass what they must let pass."""

import unittest

import include_edges
import words

FORBIDDEN_EDGES = (
    ("src/core/log.h", '#include "src/tensor/tensor.h"'),
    ("src/tensor/tensor.cpp", '#include "io/bytes.h"'),
    ("src/backend/onednn/conv.cpp", '#include "src/graph/graph.h"'),
    ("src/graph/graph.cpp", '#include "src/ops/ops.h"'),
    ("src/ops/conv2d.cpp", '#include "src/optim/sgd.h"'),
    ("src/optim/sgd.cpp", '#include "src/graph/graph.h"'),
    ("src/train/trainer.cpp", '#include "nets/nets.h"'),
    ("src/train/trainer.cpp", '#include "io/jpeg.h"'),
    ("collectives/ring.cpp", '#include "src/graph/graph.h"'),
    ("io/dataset.h", '#include "src/tensor/tensor.h"'),
    ("launch/cluster.h", '#include "collectives/communicator.h"'),
    ("nets/layers/conv.cpp", '#include "src/train/trainer.h"'),
    ("src/other/new.cpp", '#include "src/core/log.h"'),
    ("nets/lenet.cpp", '#include "layers.h"'),
    ("src/graph/graph.cpp", "#include <dnnl.hpp>"),
    ("src/main.cpp", "#include <mpi.h>"),
    ("src/train/step.cpp", '  #  include "oneapi/dnnl/dnnl.hpp"'),
    ("collectives/local/communicator.cpp", "#include <cuda_runtime.h>"),
    ("collectives/nccl/communicator.cpp", "#include <cudnn.h>"),
    ("src/backend/cuda/conv.cu", "#include <nccl.h>"),
    ("launch/main.cpp", "#include <hdf5.h>"),
    ("src/commands/predict.cpp", "#include <jpeglib.h>"),
)

ALLOWED_EDGES = (
    ("src/main.cpp", '#include "nets/nets.h"'),
    ("src/commands/train.cpp", '#include "src/train/trainer.h"'),
    ("src/train/trainer.cpp", '#include "io/dataset.h"'),
    ("src/train/trainer.cpp", '#include "collectives/communicator.h"'),
    ("nets/layers/conv.cpp", '#include "src/ops/ops.h"'),
    ("src/backend/onednn/conv.cpp", "#include <dnnl.hpp>"),
    ("collectives/mpi/communicator.cpp", "#include <mpi.h>"),
    ("collectives/nccl/communicator.cpp", "#include <cuda_runtime.h>"),
    ("io/jpeg.cpp", "#include <jpeglib.h>"),
    ("io/bytes.cpp", "#include <vector>"),
    ("src/graph/graph.cpp", '// #include "nets/nets.h"'),
)


class IncludeEdges(unittest.TestCase):
    def test_refuses_each_forbidden_edge(self):
        for path, line in FORBIDDEN_EDGES:
            with self.subTest(path=path, line=line):
                errors = include_edges.find_errors({path: "// text\n" + line + "\n"})
                self.assertEqual(len(errors), 1)
                self.assertTrue(errors[0].startswith(f"{path}:2: may not include"), errors[0])

    def test_lets_allowed_edges_pass(self):
        for path, line in ALLOWED_EDGES:
            with self.subTest(path=path, line=line):
                self.assertEqual(include_edges.find_errors({path: line}), [])

    def test_refuses_a_header_that_reaches_a_vendor(self):
        files = {
            "io/hdf5_internal.h": "#include <hdf5.h>",
            "io/checkpoint.h": '#include "io/hdf5_internal.h"',
            "io/checkpoint.cpp": '#include "io/checkpoint.h"',
            "src/train/trainer.cpp": '#include "io/checkpoint.h"',
            "src/commands/eval.cpp": '#include "io/checkpoint.h"',
        }
        errors = include_edges.find_errors(files)
        self.assertEqual([e.split(":")[0] for e in errors], ["src/commands/eval.cpp", "src/train/trainer.cpp"])
        self.assertIn("it reaches <hdf5.h>", errors[0])


class Words(unittest.TestCase):
    def test_refuses(self):
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

    def test_lets_ordinary_text_pass(self):
        self.assertEqual(words.find_errors("a.cpp", b"// TO" + b"DO(#12): x\nsrc/network/a /usr/share/x ${d}/work/\n"), [])


if __name__ == "__main__":
    unittest.main()
