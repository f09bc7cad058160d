"""Checks that h5py finds in a checkpoint exactly what write_samples.cpp wrote.

usage: check_checkpoint.py WRITE_SAMPLES
"""
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy as np

# TF-Slim name, shape, first element, trainable, path in Keras's layout.
BATCH_NORM = "net__conv1__BatchNorm/net__conv1__BatchNorm/"
VARIABLES = [
    ("net/conv1/weights", (3, 3, 2, 4), 1, True, "net__conv1/net__conv1/kernel:0"),
    ("net/conv1/BatchNorm/beta", (4,), 2, True, BATCH_NORM + "beta:0"),
    ("net/conv1/BatchNorm/gamma", (4,), 3, True, BATCH_NORM + "gamma:0"),
    ("net/conv1/BatchNorm/moving_mean", (4,), 4, False, BATCH_NORM + "moving_mean:0"),
    ("net/conv1/BatchNorm/moving_variance", (4,), 5, False, BATCH_NORM + "moving_variance:0"),
    ("net/conv2_depthwise/depthwise_weights", (3, 3, 4, 1), 6, True,
     "net__conv2_depthwise/net__conv2_depthwise/depthwise_kernel:0"),
    ("net/logits/weights", (4, 3), 7, True, "net__logits/net__logits/kernel:0"),
    ("net/logits/biases", (3,), 8, True, "net__logits/net__logits/bias:0"),
]
SLOTS = [
    ("net/conv1/weights/Momentum", (3, 3, 2, 4), -1, False, "net/conv1/weights/Momentum"),
    ("beta1_power", (), 0.5, False, "beta1_power"),
]
ATTRIBUTES = {"model_name": "net", "flags": "--batch_size=8 --note=naïve", "empty": ""}
LAYERS = [
    ("net__conv1", ["kernel:0"]),
    ("net__conv1__BatchNorm", ["gamma:0", "beta:0", "moving_mean:0", "moving_variance:0"]),
    ("net__conv2_depthwise", ["depthwise_kernel:0"]),
    ("net__logits", ["kernel:0", "bias:0"]),
]


def values(shape, first):
    """Element i is first + i/4."""
    return (first + 0.25 * np.arange(np.prod(shape, dtype=int))).astype("<f4").reshape(shape)


def texts(attribute):
    return [t.decode() if isinstance(t, bytes) else t for t in attribute]


def crc64(data):
    """CRC-64/XZ."""
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0xC96C5795D7870F42 if i & 1 else 0)
        table.append(i)
    crc = 2**64 - 1
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ (2**64 - 1)


def expected_digest():
    def table(rows):
        out = struct.pack("<q", len(rows))
        for name, shape, first, trainable, _ in rows:
            out += name.encode() + b"\0" + struct.pack("<qq", trainable, len(shape))
            out += struct.pack(f"<{len(shape)}q", *shape) + values(shape, first).tobytes()
        return out

    data = table(VARIABLES) + table(SLOTS) + struct.pack("<qqqQ", 120, 2, 640, 2**64 - 5)
    for name in sorted(ATTRIBUTES):
        data += name.encode() + b"\0" + ATTRIBUTES[name].encode() + b"\0"
    return f"{crc64(data):016x}"


def check_table(group, rows, prefix):
    assert texts(group.attrs["names"]) == [row[0] for row in rows]
    assert texts(group.attrs["paths"]) == [prefix + row[4] for row in rows]
    assert texts(group.attrs["trainable"]) == ["01"[row[3]] for row in rows]
    for _, shape, first, _, path in rows:
        data = group.file[prefix + path]
        assert data.shape == shape and data.dtype == np.dtype("<f4"), path
        assert np.array_equal(data[()], values(shape, first)), path


def check(file):
    weights = file["model_weights"]
    for group in (file, weights):
        assert (group.attrs["backend"], group.attrs["keras_version"]) == ("tensorflow", "2.15.0")
    assert texts(weights.attrs["layer_names"]) == [name for name, _ in LAYERS]
    for layer, names in LAYERS:
        want = [f"{layer}/{name}" for name in names]
        assert texts(weights[layer].attrs["weight_names"]) == want, layer
        assert all(isinstance(weights[layer][name], h5py.Dataset) for name in want), layer
    state = file["carole"]
    check_table(state["variables"], VARIABLES, "/model_weights/")
    check_table(state["slots"], SLOTS, "/carole/slots/")
    numbers = [state.attrs[key] for key in ("format_version", "step", "epoch", "position", "seed")]
    assert numbers == [1, 120, 2, 640, 2**64 - 5], numbers
    found = state["attributes"].attrs
    assert {key: texts([found[key]])[0] for key in found} == ATTRIBUTES
    assert texts([state.attrs["digest"]])[0] == expected_digest()


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "checkpoint", folder], check=True)
        with h5py.File(f"{folder}/model.ckpt-120.h5", "r") as file:
            check(file)
    print("h5py", h5py.__version__, "reads the checkpoint")


main()
