"""A short training run of the real program on generated images, for checks of the files that it writes."""
import pathlib
import struct
import subprocess

import numpy as np


def write_idx(path, values):
    """Writes MNIST's file format: a magic number, the dimensions, the bytes."""
    header = struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


def write_digits(folder, stem, count):
    """Writes images with a bright square, whose position depends on the class."""
    labels = np.arange(count) % 10
    images = np.random.default_rng(count).integers(0, 40, (count, 28, 28))
    for image, label in zip(images, labels):
        row, column = 6 * (label // 4) + 3, 6 * (label % 4) + 2
        image[row:row + 5, column:column + 5] = 230
    write_idx(folder / f"{stem}-images-idx3-ubyte", images)
    write_idx(folder / f"{stem}-labels-idx1-ubyte", labels)


class SampleRun:
    """Runs carole with data and train_dir in `folder`."""

    def __init__(self, carole, folder):
        self.carole = carole
        self.folder = pathlib.Path(folder)
        self.train_dir = self.folder / "run"
        (self.folder / "raw").mkdir()
        write_digits(self.folder / "raw", "train", 300)
        write_digits(self.folder / "raw", "t10k", 100)
        self.call("dataset", "build", f"--raw_dir={self.folder}/raw")

    def call(self, *words):
        done = subprocess.run([self.carole, *words, "--dataset_name=mnist",
                               f"--dataset_dir={self.folder}/data"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def train(self, steps, *words):
        return self.call("train", f"--train_dir={self.train_dir}", "--model_name=lenet",
                         "--optimizer=momentum", "--learning_rate=0.01", "--batch_size=16",
                         "--threads=1", "--num_preprocessing_threads=1",
                         f"--max_number_of_steps={steps}", *words)
