"""Writes the checkpoints of this folder with TensorFlow itself; they are read by tests/io.

usage: write_fixtures.py FOLDER      (tensorflow 2.21 wrote the committed ones)

Element i of a tensor is first + i/4, which float16 and bfloat16 hold exactly.
"""
import os
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

# name, dtype, shape, first element
TENSORS = [
    ("net/conv1/weights", tf.float32, (3, 3, 2, 4), 1),
    ("net/conv1/weights/Momentum", tf.float32, (3, 3, 2, 4), -1),
    ("net/conv1/BatchNorm/beta", tf.float32, (4,), 2),
    ("net/conv1/BatchNorm/moving_mean", tf.float32, (4,), 3),
    ("net/logits/weights", tf.float32, (4, 3), 4),
    ("net/logits/biases", tf.float32, (3,), 5),
    ("beta1_power", tf.float32, (), 0.5),
    ("types/double", tf.float64, (5,), -2),
    ("types/half", tf.float16, (5,), -3),
    ("types/bfloat16", tf.bfloat16, (5,), 6),
]


def values(shape, first):
    return (first + 0.25 * np.arange(np.prod(shape, dtype=int))).reshape(shape)


def variable(name, dtype, shape, first, device=""):
    with tf1.device(device):
        return tf1.get_variable(name, initializer=tf.cast(values(shape, first), dtype))


def fill(version):
    """Variables of one graph; those that V1 can hold for V1."""
    for row in TENSORS:
        if version == 2 or row[1] != tf.bfloat16:
            variable(*row)
    tf1.get_variable("global_step", initializer=tf.constant(3000000017, tf.int64))
    tf1.get_variable("types/int32", initializer=tf.constant([-7, 8], tf.int32))
    tf1.get_variable("types/bool", initializer=tf.constant([True, False, True]))
    tf1.get_variable("types/string", initializer=tf.constant(["a", "", "long text"]))
    # 5 rows in 2 parts: 3 and 2.
    tf1.get_variable("parts/weights", initializer=tf.constant(values((5, 130), 7), tf.float32),
                     partitioner=tf1.fixed_size_partitioner(2, axis=0), use_resource=False)


def save(build, path, **saver):
    with tf.Graph().as_default():
        build()
        config = tf1.ConfigProto(device_count={"CPU": 2})
        with tf1.Session(config=config) as session:
            session.run(tf1.global_variables_initializer())
            tf1.train.Saver(**saver).save(session, path, write_meta_graph=False)
    print(sorted(tf.train.load_checkpoint(path).get_variable_to_shape_map().items()))


def two_devices():
    variable("net/a/weights", tf.float32, (2, 3), 1, "/cpu:0")
    variable("net/b/weights", tf.float32, (4,), 2, "/cpu:1")


def keras_objects(path):
    """The names that tf.keras's object-based checkpoints of a Sequential net have."""
    layers = {}
    for i, shape in enumerate([(3, 3, 1, 2), (8, 3)]):
        layer = tf.Module()
        layer.kernel = tf.Variable(tf.cast(values(shape, 1 + i), tf.float32))
        layer.bias = tf.Variable(tf.cast(values(shape[-1:], 3 + i), tf.float32))
        layers[f"layer_with_weights-{i}"] = layer
    tf.train.Checkpoint(**layers).write(path)


def nested_objects(path):
    """The names that a Keras net inside of another net has, and the names of its variables."""
    def layer(name, *shapes):
        module = tf.Module()
        for i, (weight, shape) in enumerate(shapes):
            value = tf.cast(values(shape, 1 + i), tf.float32)
            setattr(module, weight, tf.Variable(value, name=f"{name}/{weight}"))
        return module
    inner = tf.Module()
    setattr(inner, "layer_with_weights-0", layer("conv1", ("kernel", (1, 1, 1, 2))))
    setattr(inner, "layer_with_weights-1", layer("conv1_bn", ("gamma", (2,)), ("beta", (2,))))
    outer = {"layer_with_weights-0": inner, "layer_with_weights-1": layer("dense", ("kernel", (2, 3)))}
    tf.train.Checkpoint(**outer).write(path)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    v1 = tf1.train.SaverDef.V1
    save(lambda: fill(2), f"{folder}/v2.ckpt")
    save(lambda: fill(1), f"{folder}/v1.ckpt", write_version=v1)
    save(two_devices, f"{folder}/sharded.ckpt", sharded=True)
    keras_objects(f"{folder}/objects.ckpt")
    nested_objects(f"{folder}/nested.ckpt")
    os.remove(f"{folder}/checkpoint")


main()
