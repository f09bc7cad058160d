"""Checks that Keras 3 rebuilds nets from carole's checkpoints and predicts the same probabilities. Also checks that carole
reads the weights that nets of keras.applications save.

usage: check_keras.py NET_SAMPLES [NET [IMAGE_SIZE [CLASSES]]]
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
# Net, image size, classes. Images are small, because Keras spends its time compiling for each shape. vgg_a is the smallest
# VGG, and 224 its smallest image.
NETS = [("lenet", 28, 10), ("mnist_keras", 28, 10), ("mnist_keras_dist", 28, 10),
        ("mobilenet_v1_025", 64, 20), ("mobilenet_v3_small", 64, 20), ("resnet_v1_50", 64, 20), ("resnet50", 64, 20),
        ("inception_v2", 64, 20), ("vgg_a", 224, 20)]


# Skips the random initialization, which Keras compiles for each shape: ten seconds per net. The file sets the weights later.
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
    got = model.predict(images, verbose=0)  # compiles the model as a whole, which is faster than calling it
    assert got.shape == want.shape == (2, classes), (got.shape, want.shape)
    spread = np.ptp(want)
    error = np.abs(got - want).max()
    print(f"{net}: {model.count_params()} parameters, probabilities spread over {spread:.3g}, "
          f"off by at most {error:.2g}, {time.monotonic() - start:.1f} s", flush=True)
    assert spread > 20 * TOLERANCE, "the net predicts the same for all images"
    assert error < TOLERANCE, f"{net}: off by {error}"


def check_training(program, folder):
    """Checks that a loaded model can evaluate and continue training at once."""
    subprocess.run([program, "write", folder, "mnist_keras", "28", "10"], check=True)
    model = keras.models.load_model(f"{folder}/mnist_keras.h5")
    assert [layer.name for layer in model.layers if layer.weights] == ["dense", "dense_1"]
    assert isinstance(model.optimizer, keras.optimizers.Adam), model.optimizer
    assert np.isclose(float(model.optimizer.learning_rate), 0.5) and model.optimizer.epsilon == 1e-7
    images = read(f"{folder}/mnist_keras.images", -1, *model.input_shape[1:])
    probabilities = read(f"{folder}/mnist_keras.probabilities", len(images), -1)
    labels = np.array([3, 4])
    loss, accuracy = model.evaluate(images, labels, verbose=0)
    assert np.isclose(loss, -np.log(probabilities[[0, 1], labels]).mean(), atol=1e-4), loss
    assert accuracy == np.mean(probabilities.argmax(1) == labels), accuracy
    before = model.get_weights()
    model.fit(images, labels, verbose=0)
    assert all(np.any(a != b) for a, b in zip(before, model.get_weights()))
    print(f"mnist_keras: loss {loss:.4f}, and trains on with {type(model.optimizer).__name__}", flush=True)


# Net of keras.applications and its options, carole's net, whether both compute the same, number of variables that the
# Keras net lacks.
APPLICATIONS = [
    (keras.applications.MobileNet, {"alpha": 0.25, "classes": 20}, "mobilenet_v1_025", True, 0),
    (keras.applications.ResNet50, {"classes": 20}, "resnet_v1_50", False, 0),
    (keras.applications.VGG16, {"include_top": False}, "vgg_16", False, 6),
]


def fill(model):
    """Sets random weights that keep activations bounded. All statistics get values other than their initial ones."""
    random = np.random.default_rng(1)
    for layer in model.layers:
        weights = []
        for weight in layer.weights:
            spread = np.sqrt(6 / np.prod(weight.shape[:-1])) if weight.name.endswith("kernel") else 0.1
            if layer.__class__.__name__ == "DepthwiseConv2D" and weight.name.endswith("kernel"):
                spread = np.sqrt(6 / 9)
            offset = 1 if weight.name in ("gamma", "moving_variance") else 0
            weights.append(offset + random.uniform(-spread, spread, weight.shape).astype("f"))
        layer.set_weights(weights)


def load(program, folder, net, size, file):
    return subprocess.run([program, "load", folder, net, str(size), "20", file], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def check_application(program, folder, make, options, net, same, num_missing):
    size = 224 if net.startswith("vgg") else 64
    model = make(input_shape=(size, size, 3), weights=None, **options)
    fill(model)
    model.save_weights(f"{folder}/a.weights.h5")
    model.save(f"{folder}/a.h5")
    files = ["a.weights.h5", "a.h5"]
    if same:  # also as a model inside of another model, as transfer learning makes it
        outer = keras.Sequential([keras.Input((size, size, 3)), model, keras.layers.Dense(3)])
        outer.save_weights(f"{folder}/outer.weights.h5")
        outer.save(f"{folder}/outer.h5")
        files += ["outer.weights.h5", "outer.h5"]
    for file in files:
        report = load(program, folder, net, size, f"{folder}/{file}")
        missing = [line for line in report.splitlines() if line.startswith("missing ")]
        assert "found under the names of keras.applications" in report, report
        assert len(missing) == num_missing, report
        if same:
            images = read(f"{folder}/{net}.images", -1, size, size, 3)
            want = model.predict(images, verbose=0)
            error = np.abs(read(f"{folder}/{net}.probabilities", *want.shape) - want).max()
            assert np.ptp(want) > 20 * TOLERANCE and error < TOLERANCE, (np.ptp(want), error)
        print(f"{net} from {make.__name__}'s {file}: {report.splitlines()[0]}", flush=True)


def main():
    program, *net = sys.argv[1:]
    nets = [(net[0], *map(int, net[1:] or (224,)), *([20] if len(net) < 3 else []))] if net else NETS
    for row in nets:
        with tempfile.TemporaryDirectory() as folder:
            check(program, folder, *row)
    if not net:
        with tempfile.TemporaryDirectory() as folder:
            check_training(program, folder)
        for row in APPLICATIONS:
            with tempfile.TemporaryDirectory() as folder:
                check_application(program, folder, *row)
    print("Keras", keras.__version__, "on", keras.backend.backend(), "rebuilds the nets")


main()
