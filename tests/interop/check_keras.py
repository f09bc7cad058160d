"""Keras 3 rebuilds nets from carole's checkpoints and predicts the same probabilities.

usage: check_keras.py KERAS_NETS [NET [IMAGE_SIZE [CLASSES]]]
"""
import os
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import keras
import numpy as np

TOLERANCE = 1e-4  # of a probability
# Net, image size, classes. Small images: time goes into what Keras compiles for each shape.
NETS = [("lenet", 28, 10), ("mnist_keras_dist", 28, 10), ("mobilenet_v1_025", 64, 20),
        ("mobilenet_v3_small", 64, 20), ("resnet_v1_50", 64, 20), ("inception_v2", 64, 20)]


# First values come from the file in the end; compiling the random ones for each shape takes ten seconds a net.
keras.initializers.GlorotUniform.__call__ = lambda self, shape, dtype=None: np.zeros(shape, "float32")


def read(path, *shape):
    return np.fromfile(path, "<f4").reshape(shape)


def check(program, folder, net, size, classes):
    subprocess.run([program, "write", folder, net, str(size), str(classes)], check=True)
    start = time.monotonic()
    model = keras.models.load_model(f"{folder}/{net}.h5", compile=False)
    _, height, width, channels = model.input_shape
    images = read(f"{folder}/{net}.images", -1, height, width, channels)
    want = read(f"{folder}/{net}.probabilities", len(images), -1)
    got = model.predict(images, verbose=0)  # compiled as a whole: the quicker way
    assert got.shape == want.shape == (2, classes), (got.shape, want.shape)
    spread = np.ptp(want)
    error = np.abs(got - want).max()
    print(f"{net}: {model.count_params()} parameters, probabilities spread over {spread:.3g}, "
          f"off by at most {error:.2g}, {time.monotonic() - start:.1f} s", flush=True)
    assert spread > 20 * TOLERANCE, "the net says the same whatever it sees"
    assert error < TOLERANCE, f"{net}: off by {error}"


def main():
    program, *net = sys.argv[1:]
    nets = [(net[0], *map(int, net[1:] or (224,)), *([20] if len(net) < 3 else []))] if net else NETS
    for row in nets:
        with tempfile.TemporaryDirectory() as folder:
            check(program, folder, *row)
    print("Keras", keras.__version__, "on", keras.backend.backend(), "rebuilds the nets")


main()
