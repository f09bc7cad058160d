"""Tests of the checks in this folder: each mistake in a page is reported, and correct pages pass."""

import os
import tempfile
import unittest
from unittest import mock

import check_pages
import pages
import run_pages

HELP = """Trains.

Usage: carole train [FLAGS]

Data:
  --dataset_dir,--data_dir PATH     (required) Folder.
  --[no]report                      Write it. [default: true]
  --backend TEXT                    Library. One of: auto, cuda, onednn. [default:
                                    auto]
"""


def page(text):
    return pages.parse("docs/page.md", text)


class Parsing(unittest.TestCase):
    def test_finds_blocks_and_their_comments(self):
        found = page("<!-- given: DATA RUN -->\n\n<!-- not run: needs four hosts -->\n```sh\na\nb\n```\n\n```console\n$ c \\\n  d\ne\n$ f\n```\n")
        self.assertEqual(found.given, ["DATA", "RUN"])
        self.assertEqual([block.not_run for block in found.blocks], ["needs four hosts", ""])
        self.assertEqual(found.blocks[0].commands(), [("a\nb", [])])
        self.assertEqual(found.blocks[1].commands(), [("c \\\n  d", ["e"]), ("f", [])])

    def test_refuses_a_comment_without_a_block(self):
        with self.assertRaisesRegex(ValueError, "docs/page.md:3: .*right before a code block"):
            page("<!-- not run: x -->\n\ntext\n")

    def test_finds_links_spans_and_headings(self):
        found = page("# A `b` c, d\n\nsee [the\nguide](x.md#e) and [`f`](g.h), ![i](i.png)\n")
        self.assertEqual(found.links, [(3, "x.md#e"), (4, "g.h"), (4, "i.png")])
        self.assertEqual([span for _, span in found.spans], ["b", "f"])
        self.assertEqual(found.anchors, {"a-b-c-d"})


class Output(unittest.TestCase):
    def check(self, expected, actual):
        return run_pages.find_difference(expected.splitlines(), actual.splitlines())

    def test_numbers_and_dots_match_anything(self):
        self.assertIsNone(self.check("I 03:12:35.818 loss = 0.4321 (...)\n...\nend", "I 11:22:33.444 loss = 10.5 (1 s)\nb\nc\nend"))
        self.assertIsNone(self.check("a\n...", "a\nb"))
        self.assertIsNone(self.check("state 73ce8536c122cb22", "state f8871e35b3e0f56c"))

    def test_other_text_must_be_equal(self):
        self.assertEqual(self.check("exit code 75", "exit code 64"), "exit code 75")
        self.assertEqual(self.check("a\nc", "a\nb\nc"), "c")
        self.assertEqual(self.check("a", "a\nb"), "(the end of the output)")
        self.assertEqual(self.check("a\n...\nb\nd", "a\nb\nc\nd"), "d")


class References(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.makedirs(os.path.join(self.folder.name, "src/room"))
        for name in ("src/room/x.h", "README.md"):
            open(os.path.join(self.folder.name, name), "w", encoding="ascii").close()
        commands = {"train": check_pages.help_pages.Command("train", "", HELP).allowed_values(), "model list": {}}
        with mock.patch.object(check_pages, "output_of", lambda *_: "  demo   run it\n"), \
             mock.patch.object(check_pages, "read_commands", lambda _: commands):  # fmt: skip
            self.checker = check_pages.Checker(self.folder.name, "carole")

    def errors(self, text):
        return [error for _, error in self.checker.check_page(pages.parse("src/page.md", text))]

    def test_accepts_what_exists(self):
        text = ("[a](room/x.h) [b](#title) `src/room/x.h` `x.h` `build_imagenet_data.py` `--dataset_dir` `--noreport`\n# Title\n"
                "<!-- not run: x -->\n```sh\nmpirun -np 2 carole train --data_dir=D --backend=cuda --noreport | tee log\n./run demo\n```\n")
        self.assertEqual(self.errors(text), [])

    def test_rejects_each_mistake(self):
        for text, error in (
            ("[a](room/y.h)", "room/y.h: no such file"),
            ("[a](#other)\n# Title", "#other: src/page.md has no such heading"),
            ("`src/room/y.h`", "src/room/y.h: no such file"),
            ("`--report_dir`", "no command of carole has a flag --report_dir"),
            ("`carole train --report_dir=x`", "carole train has no flag --report_dir"),
            ("<!-- not run: x -->\n```sh\ncarole train --dir=x \\\n  --noreport\n```", "carole train has no flag --dir"),
            ("```console\n$ carole train --backend=gpu\n```", "carole train --backend: got gpu, want one of auto, cuda, onednn"),
            ("```sh\ncarole sing\n```", "carole has no command sing"),
            ("```sh\n./run dance\n```", "./run has no command dance"),
            ("```\ncarole train\n```", "a block with commands: mark it as sh or console"),
        ):
            with self.subTest(text=text):
                self.assertEqual(self.errors(text), [error])


if __name__ == "__main__":
    unittest.main()
