#!/usr/bin/env python3
"""Tests which arguments each program of launch/uai passes to carole when the platform calls it.

    entry_test.py [options of unittest]
"""

import os
import subprocess
import sys
import unittest

UAI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "launch", "uai")
CALL = ["--data_dir=/data/data", "--output_dir=/data/output", "--work_dir=/data", "--log_dir=/data/output",
        "--num_gpus=2"]
DEFAULTS = {
    "slim_imagenet/train_image_classifier.py": ["--recipe=train_image_classifier"],
    "resnet_tf1/imagenet_main.py": ["--recipe=imagenet_main"],
    "resnet_tf2/imagenet_main.py": ["--recipe=imagenet_main"],
    "vgg416/train_image_classifier.py": ["--recipe=vgg416"],
    "mnist/mnist.py": ["--recipe=mnist"],
    "mnist/mnist_dist.py": ["--recipe=mnist_dist"],
    "mnist/mnist_multi.py": ["--recipe=mnist_dist"],
}


def arguments_of_carole(program, *flags, env=None):
    """Returns the arguments that carole gets, as a list."""
    env = {**os.environ, "PYTHONPATH": UAI, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    # The program runs unchanged up to the point where carole would replace it.
    source = "import entry, os, runpy, sys; sys.argv = sys.argv[1:]; entry.name_user = lambda: None; " \
             "os.execv = lambda path, words: print('\\n'.join(words[1:])) or sys.exit(0); runpy.run_path(sys.argv[0])"
    result = subprocess.run([sys.executable, "-c", source, os.path.join(UAI, program), *flags], env=env,
                            capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


class EntryTest(unittest.TestCase):
    def test_all_programs_are_tested(self):
        found = {f"{folder}/{name}" for folder in os.listdir(UAI) if os.path.isdir(os.path.join(UAI, folder))
                 for name in os.listdir(os.path.join(UAI, folder)) if name.endswith(".py")}
        self.assertEqual(found, set(DEFAULTS))

    def test_platforms_call(self):
        for program, defaults in DEFAULTS.items():
            with self.subTest(program):
                self.assertEqual(arguments_of_carole(program, *CALL, "--max_step=3"),
                                 ["launch", "--work_dir=/data/output", "--", "train", *defaults, *CALL, "--max_step=3"])

    def test_no_output_folder(self):
        self.assertEqual(arguments_of_carole("mnist/mnist.py"), ["launch", "--", "train", "--recipe=mnist"])

    # A platform that starts Python as the entry point ignores that of the image.
    def test_user_of_the_caller(self):
        self.assertEqual(arguments_of_carole("mnist/mnist.py", env={"LOCAL_USER_ID": "1000"}),
                         ["/usr/local/bin/carole", "launch", "--", "train", "--recipe=mnist"])
        self.assertTrue(os.access(os.path.join(UAI, "entrypoint.sh"), os.X_OK))


if __name__ == "__main__":
    unittest.main()
