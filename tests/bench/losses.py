#!/usr/bin/env python3
"""Trains lenet on Fashion-MNIST with TF-Slim's defaults, in carole and in TensorFlow, from the same weights.

    ./run compare-tensorflow                          every optimizer, two epochs: losses and accuracies in a table
    ./run compare-tensorflow --steps=50 adam rmsprop  only these two, 50 steps
    ./run compare-tensorflow --golden                 rewrites the values that the tests compare carole with

Both programs run as users run them: carole on its default backend, TensorFlow with its own oneDNN. The TensorFlow part
uses TensorFlow's 1.x optimizers and learning-rate schedule in graph mode. It gets its initial weights from carole. It
computes the order of images and the dropout masks independently (philox.py), and reads the images from the distributed
files.

Why a simple tolerance is not enough. The first losses are around 10. At TF-Slim's learning rate, each step multiplies a
difference by up to ten. Among a million ReLUs and pooling windows, some are so close to a tie that the last bit of a
weight decides, and one of them is enough. If each initial weight is changed by one bit (a "neighbor"), TensorFlow's own
first ten losses differ by 1 to 8 % with sgd, momentum, rmsprop, adagrad and adadelta. They differ in jumps: some
neighbors follow one of a few trajectories, others another.

So the table shows three differences of the first losses: carole to TensorFlow, carole to the nearest of TensorFlow and
its neighbors, and the neighbors to TensorFlow. The second must be within 1 %, or within the third if that is larger.
After two epochs, both programs must have learned equally well.
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
COMPARED = 10  # the number of first losses that are compared
LOSS_TOLERANCE = 0.01  # relative, for these losses
NEIGHBORS = 8  # runs of TensorFlow from weights that differ by one bit
ACCURACY_TOLERANCE = 0.02  # at the end; rounding makes the weights differ long before
GOLDEN_IMAGES, GOLDEN_RATES = 320, (0.001, 0.01)


class Carole:
    """Runs carole. Its data and its trainings are in `folder`."""

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
        """Trains, and returns the losses of all steps. A run that diverges has fewer."""
        log = self.call("train", f"--train_dir={self.folder}/{name}", "--model_name=lenet", "--log_every_n_steps=1",
                        f"--seed={SEED}", *words).stderr  # fmt: skip
        return [float(loss) for loss in re.findall(r"global step \d+: loss = (\S+)", log)]

    def accuracy(self, name):
        done = self.call("eval", "--dataset_split_name=test", "--model_name=lenet", "--json", "--eval_dir=",
                         f"--checkpoint_path={self.folder}/{name}")  # fmt: skip
        return json.loads(done.stdout)["accuracy"]

    def first_weights(self):
        """Returns the initial weights, as name -> array. A step with learning rate 0 leaves them unchanged."""
        import tensorflow as tf

        self.train("first", "--optimizer=sgd", "--learning_rate=0", "--max_number_of_steps=1")
        path = f"{self.folder}/first.ckpt"
        self.call("checkpoint convert", f"{self.folder}/first", path)
        reader = tf.train.load_checkpoint(path)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if "LeNet" in name}


def read_idx(stem, count):
    """Returns the first `count` images, scaled as in TF-Slim, and their labels. 0 means all."""
    with gzip.open(f"{RAW}/{stem}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(f"{RAW}/{stem}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images[: count or None].astype(np.float32) / 128 - 1, labels[: count or None].astype(np.int32)


def make_optimizer(train, name, rate):
    """Returns the optimizer that TF-Slim's trainer makes with its default flags."""
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
    """One training by TensorFlow, in a graph of its own."""

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
    """Returns the largest relative difference of the first losses, or infinity if one run ended earlier."""
    a, b = np.array(carole[:COMPARED]), np.array(peer[:COMPARED])
    return float("inf") if len(a) != len(b) else float(np.max(np.abs(a - b) / np.abs(b)))


def one_bit_aside(weights, seed):
    """Returns weights that all differ by one bit, up or down at random."""
    random = np.random.default_rng(seed)

    def move(values):
        return np.nextafter(values, random.choice(np.array([-np.inf, np.inf], values.dtype), values.shape))

    return {name: move(values) for name, values in weights.items()}


def neighbors(weights, optimizer, num_images, train, *rate):
    """Returns TensorFlow's first losses for each neighbor of the initial weights."""
    return [TensorFlow(one_bit_aside(weights, seed), optimizer, num_images, *rate).train(*train, COMPARED)
            for seed in range(NEIGHBORS)]  # fmt: skip


def compare(carole, optimizer, weights, steps, train, test):
    """Trains with both programs, prints a row of the table, and returns whether they agree."""
    ours = carole.train(optimizer, f"--optimizer={optimizer}", f"--max_number_of_steps={steps}")
    peer = TensorFlow(weights, optimizer, len(train[0]))
    theirs = peer.train(*train, steps)
    neighbor_losses = neighbors(weights, optimizer, len(train[0]), train)
    own = max(first_difference(losses, theirs) for losses in neighbor_losses)
    first = first_difference(ours, theirs)
    nearest = min(first, *(first_difference(ours, losses) for losses in neighbor_losses))
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
    """Writes the golden losses at TF-Slim's learning rate, and at a lower one, at which rounding errors do not grow."""
    runs = []
    for rate, name in itertools.product(GOLDEN_RATES, OPTIMIZERS):
        losses = TensorFlow(weights, name, GOLDEN_IMAGES, rate).train(*train, COMPARED)
        own = max(first_difference(neighbor_losses, losses)
                  for neighbor_losses in neighbors(weights, name, GOLDEN_IMAGES, train, rate))  # fmt: skip
        runs.append({"optimizer": name, "learning_rate": rate, "losses": [round(loss, 5) for loss in losses],
                     "own_difference": float(f"{own:.1e}")})  # fmt: skip
    with open(GOLDEN, "w") as file:
        json.dump({"images": GOLDEN_IMAGES, "runs": runs}, file, indent=1)
        file.write("\n")
    print(GOLDEN)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("optimizers", nargs="*", metavar="OPTIMIZER", default=OPTIMIZERS, help=", ".join(OPTIMIZERS))
    parser.add_argument("--steps", type=int, default=3750, help="steps of 32 images; 3750 are two epochs")
    parser.add_argument("--carole", default=f"{ROOT}/build/carole", help="the program")
    parser.add_argument("--golden", action="store_true", help=f"write {os.path.basename(GOLDEN)}")
    options = parser.parse_args()
    if unknown := set(options.optimizers) - set(OPTIMIZERS):
        parser.error(f"OPTIMIZER: got {', '.join(sorted(unknown))}, want some of {', '.join(OPTIMIZERS)}")
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
