#!/usr/bin/env python3
"""Trains lenet on Fashion-MNIST with TF-Slim's defaults in carole and in TensorFlow, from the same weights.

    ./run compare-tensorflow                          every optimizer, two epochs: losses and accuracies in a table
    ./run compare-tensorflow --steps=50 adam rmsprop  these two, so many steps
    ./run compare-tensorflow --golden                 writes what the tests compare carole with anew

Both are run as people run them, carole on its default backend and TensorFlow with its own oneDNN. TensorFlow's part
uses its 1.x optimizers and schedule in graph mode. It gets its first weights from carole; order of images and dropout
are computed anew (philox.py), and pictures are read from the distributed files.

The first losses lie around 10, and at TF-Slim's rate each step takes what differs up to ten times further apart. Of
a million ReLUs and pools some lie so near to a tie that the last bit of a weight decides, and one of them is
enough: where each first weight is one bit aside, TensorFlow's own first ten losses part by 1 to 8 % with sgd, momentum,
rmsprop, adagrad and adadelta, in jumps, on the same few ways for some of these neighbors and not for others. So the
table shows how far carole is from TensorFlow, how far from the nearest of TensorFlow and its neighbors, and how far
these are from each other. The second must be within 1 %, or where the third is larger, within that. After two epochs
both must have learned alike.
"""

import argparse
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import philox

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RAW = "/usr/share/datasets/fashion-mnist"
GOLDEN = os.path.join(ROOT, "tests", "data", "fashion_mnist_losses.json")
OPTIMIZERS = ("adadelta", "adagrad", "adam", "ftrl", "momentum", "rmsprop", "sgd")
SEED, BATCH, HIDDEN, KEEP = 1, 32, 1024, 0.5
COMPARED = 10  # first losses
LOSS_TOLERANCE = 0.01  # of them, relative
NEIGHBORS = 8  # runs of TensorFlow from weights one bit aside
ACCURACY_TOLERANCE = 0.02  # at the end: roundings part the weights long before
GOLDEN_IMAGES, GOLDEN_RATES = 320, (0.001, 0.01)


class Carole:
    """Its data, and its runs, lie in `folder`."""

    def __init__(self, program, folder, images):
        self.program, self.folder = program, folder
        self.call("dataset", "build", f"--raw_dir={RAW}", f"--max_images={images}")

    def call(self, command, *words):
        if not command.startswith("checkpoint"):
            words += ("--dataset_name=fashion_mnist", f"--dataset_dir={self.folder}/data")
        done = subprocess.run([self.program, *command.split(), *words], capture_output=True, text=True)
        if done.returncode != 0 and "has diverged" not in done.stderr:
            sys.exit(f"[compare] {' '.join(done.args)}:\n{done.stderr}")
        return done

    def train(self, name, *words):
        """The losses of a run's steps; a run that diverges has fewer."""
        log = self.call("train", f"--train_dir={self.folder}/{name}", "--model_name=lenet", "--log_every_n_steps=1",
                        f"--seed={SEED}", *words).stderr  # fmt: skip
        return [float(loss) for loss in re.findall(r"global step \d+: loss = (\S+)", log)]

    def accuracy(self, name):
        done = self.call("eval", "--dataset_split_name=test", "--model_name=lenet", "--json", "--eval_dir=",
                         f"--checkpoint_path={self.folder}/{name}")  # fmt: skip
        return json.loads(done.stdout)["accuracy"]

    def first_weights(self):
        """Name -> array: a step with rate 0 leaves them as they are."""
        import tensorflow as tf

        self.train("first", "--optimizer=sgd", "--learning_rate=0", "--max_number_of_steps=1")
        path = f"{self.folder}/first.ckpt"
        self.call("checkpoint convert", f"{self.folder}/first", path)
        reader = tf.train.load_checkpoint(path)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if "LeNet" in name}


def read_idx(stem, count):
    """Images in TF-Slim's scale, and labels; all for count 0."""
    with gzip.open(f"{RAW}/{stem}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(f"{RAW}/{stem}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images[: count or None].astype(np.float32) / 128 - 1, labels[: count or None].astype(np.int32)


def make_optimizer(train, name, rate):
    """As TF-Slim's trainer does for its default flags."""
    return {
        "adadelta": lambda: train.AdadeltaOptimizer(rate, rho=0.95, epsilon=1.0),
        "adagrad": lambda: train.AdagradOptimizer(rate, initial_accumulator_value=0.1),
        "adam": lambda: train.AdamOptimizer(rate, beta1=0.9, beta2=0.999, epsilon=1.0),
        "ftrl": lambda: train.FtrlOptimizer(rate, learning_rate_power=-0.5, initial_accumulator_value=0.1),
        "momentum": lambda: train.MomentumOptimizer(rate, momentum=0.9, name="Momentum"),
        "rmsprop": lambda: train.RMSPropOptimizer(rate, decay=0.9, momentum=0.9, epsilon=1.0),
        "sgd": lambda: train.GradientDescentOptimizer(rate),
    }[name]()


class TensorFlow:
    """One training in a graph of its own."""

    def __init__(self, weights, optimizer, num_images, rate=0.01):
        import tensorflow as tf

        tf1 = tf.compat.v1
        tf1.logging.set_verbosity(tf1.logging.ERROR)
        graph = tf.Graph()
        with graph.as_default():
            self.images = tf1.placeholder(tf.float32, [None, 28, 28, 1])
            self.labels = tf1.placeholder(tf.int32, [None])
            self.mask = tf1.placeholder(tf.float32, [None, HIDDEN])
            v = {name: tf1.Variable(value, name=name, use_resource=True) for name, value in weights.items()}
            self.logits = self.build(tf, v)
            entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=self.logits)
            decay = tf.add_n([4e-5 * tf.nn.l2_loss(w) for name, w in v.items() if name.endswith("weights")])
            self.loss = tf.reduce_mean(entropies) + decay
            step = tf1.train.get_or_create_global_step()
            rate = tf1.train.exponential_decay(rate, step, int(num_images / BATCH * 2.0), 0.94, staircase=True)
            self.update = make_optimizer(tf1.train, optimizer, rate).minimize(self.loss, global_step=step)
            start = tf1.global_variables_initializer()
        self.session = tf1.Session(graph=graph)
        self.session.run(start)

    def build(self, tf, v):
        def weigh(scope, function, x):
            return tf.nn.bias_add(function(x, v[f"LeNet/{scope}/weights"]), v[f"LeNet/{scope}/biases"])

        def conv(x, w):
            return tf.nn.conv2d(x, w, 1, "SAME")

        x = tf.nn.max_pool2d(tf.nn.relu(weigh("conv1", conv, self.images)), 2, 2, "VALID")
        x = tf.nn.max_pool2d(tf.nn.relu(weigh("conv2", conv, x)), 2, 2, "VALID")
        x = tf.nn.relu(weigh("fc3", tf.matmul, tf.reshape(x, [-1, 7 * 7 * 64])))
        return weigh("fc4", tf.matmul, x * self.mask)

    def train(self, images, labels, steps):
        losses, epoch, position = [], 0, 0
        order = philox.epoch_order(SEED, epoch, len(images))
        for step in range(steps):
            rows = order[position : position + BATCH]
            mask = philox.dropout_mask(SEED, step, 0, position, (len(rows), HIDDEN), KEEP)
            feed = {self.images: images[rows], self.labels: labels[rows], self.mask: mask}
            losses.append(float(self.session.run([self.loss, self.update], feed)[0]))
            if not np.isfinite(losses[-1]):
                return losses[:-1]
            position += BATCH
            if position >= len(images):
                epoch, position = epoch + 1, 0
                order = philox.epoch_order(SEED, epoch, len(images))
        return losses

    def accuracy(self, images, labels):
        found = [self.session.run(self.logits, {self.images: part, self.mask: np.ones((len(part), HIDDEN))}).argmax(1)
                 for part in np.array_split(images, 20)]  # fmt: skip
        return float((np.concatenate(found) == labels).mean())


def first_difference(carole, peer):
    """The largest relative one of the first losses; infinite when one run ended before."""
    a, b = np.array(carole[:COMPARED]), np.array(peer[:COMPARED])
    return float("inf") if len(a) != len(b) else float(np.max(np.abs(a - b) / np.abs(b)))


def one_bit_aside(weights, seed):
    random = np.random.default_rng(seed)

    def move(values):
        return np.nextafter(values, random.choice(np.array([-np.inf, np.inf], values.dtype), values.shape))

    return {name: move(values) for name, values in weights.items()}


def neighbors(weights, optimizer, num_images, train, *rate):
    """TensorFlow's first losses where it begins one bit aside."""
    return [TensorFlow(one_bit_aside(weights, seed), optimizer, num_images, *rate).train(*train, COMPARED)
            for seed in range(NEIGHBORS)]  # fmt: skip


def compare(carole, optimizer, weights, steps, train, test):
    """Trains both; one row of the table, and whether they do alike."""
    ours = carole.train(optimizer, f"--optimizer={optimizer}", f"--max_number_of_steps={steps}")
    peer = TensorFlow(weights, optimizer, len(train[0]))
    theirs = peer.train(*train, steps)
    beside = neighbors(weights, optimizer, len(train[0]), train)
    own = max(first_difference(losses, theirs) for losses in beside)
    first = first_difference(ours, theirs)
    nearest = min(first, *(first_difference(ours, losses) for losses in beside))
    if len(ours) < steps or len(theirs) < steps:
        alike = (len(ours) < steps) == (len(theirs) < steps)
        ends = f"ended after {len(ours)} and {len(theirs)} steps"
    else:
        accuracies = carole.accuracy(optimizer), peer.accuracy(*test)
        last = [float(np.mean(losses[-100:])) for losses in (ours, theirs)]
        alike = abs(accuracies[0] - accuracies[1]) < ACCURACY_TOLERANCE
        ends = f"{last[0]:.4f} | {last[1]:.4f} | {accuracies[0]:.4f} | {accuracies[1]:.4f}"
    good = nearest <= max(LOSS_TOLERANCE, own) and alike
    print(f"| {optimizer} | {ours[0]:.4f} | {first:.1e} | {nearest:.1e} | {own:.1e} | {ends} | "
          f"{'yes' if good else 'NO'} |", flush=True)  # fmt: skip
    return good


def write_golden(weights, train):
    """At TF-Slim's rate, and at one that lets roundings fade."""
    runs = []
    for rate, name in itertools.product(GOLDEN_RATES, OPTIMIZERS):
        losses = TensorFlow(weights, name, GOLDEN_IMAGES, rate).train(*train, COMPARED)
        own = max(first_difference(beside, losses)
                  for beside in neighbors(weights, name, GOLDEN_IMAGES, train, rate))  # fmt: skip
        runs.append({"optimizer": name, "learning_rate": rate, "losses": [round(loss, 5) for loss in losses],
                     "own_difference": float(f"{own:.1e}")})  # fmt: skip
    with open(GOLDEN, "w") as file:
        json.dump({"images": GOLDEN_IMAGES, "runs": runs}, file, indent=1)
        file.write("\n")
    print(GOLDEN)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("optimizers", nargs="*", metavar="OPTIMIZER", default=OPTIMIZERS, help=", ".join(OPTIMIZERS))
    parser.add_argument("--steps", type=int, default=3750, help="of 32 images: two epochs")
    parser.add_argument("--carole", default=f"{ROOT}/build/carole", help="the program")
    parser.add_argument("--golden", action="store_true", help=f"writes {os.path.basename(GOLDEN)}")
    options = parser.parse_args()
    if unknown := set(options.optimizers) - set(OPTIMIZERS):
        parser.error(f"no such optimizer: {', '.join(sorted(unknown))}")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    images = GOLDEN_IMAGES if options.golden else 0
    train, test = read_idx("train", images), read_idx("t10k", 0)
    with tempfile.TemporaryDirectory() as folder:
        carole = Carole(options.carole, folder, images)
        weights = carole.first_weights()
        if options.golden:
            write_golden(weights, train)
            return
        print("| optimizer | first loss | first ten off by | from the nearest | TensorFlow's own | last 100 losses: "
              "carole | TensorFlow | top-1: carole | TensorFlow | alike |\n|" + "---|" * 10, flush=True)  # fmt: skip
        good = [compare(carole, name, weights, options.steps, train, test) for name in options.optimizers]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
