"""Checks that Keras computes the probabilities that `carole predict` prints, from a checkpoint of a real run. Also checks
that a run can start from the model that Keras then saves.

usage: check_predict.py CAROLE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import keras
import numpy as np
from PIL import Image

from sample_run import SampleRun

TOLERANCE = 1e-4
STEPS = 12
NUM_IMAGES = 3


def write_noise(folder):
    """Writes gray images of noise. Returns their pixels (N,H,W,1)."""
    pixels = np.random.default_rng(5).integers(0, 256, (NUM_IMAGES, 28, 28), np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{i}.png")
    return pixels[..., None]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = SampleRun(sys.argv[1], folder)
        run.train(STEPS)
        (folder / "images").mkdir()
        pixels = write_noise(folder / "images")
        printed = subprocess.run([sys.argv[1], "predict", f"--checkpoint_path={run.train_dir}", "--json",
                                  "--top=10", folder / "images"], check=True, capture_output=True, text=True).stdout
        model = keras.models.load_model(run.train_dir / f"model.ckpt-{STEPS}.h5", compile=False)
        want = model.predict((pixels.astype("f") - 128) / 128, verbose=0)
        got = np.zeros_like(want)
        for i, line in enumerate(printed.splitlines()):
            for row in json.loads(line)["predictions"]:
                got[i, row["class"]] = row["probability"]
        error = np.abs(got - want).max()
        assert len(printed.splitlines()) == NUM_IMAGES and np.ptp(want) > 20 * TOLERANCE, printed
        assert error < TOLERANCE, f"off by {error}"
        model.save(folder / "saved.h5")
        run.train_dir = folder / "tuned"
        log = run.train(1, f"--checkpoint_path={folder / 'saved.h5'}")
        assert "saved.h5: 8 variables restored" in log, log
    print(f"Keras and carole predict agree, off by at most {error:.2g}")


main()
