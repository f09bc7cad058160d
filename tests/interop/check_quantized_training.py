"""Trains a quantized mobilenet_v1_025 on Fashion-MNIST, converts it with TensorFlow's converter to a TFLite file that computes
with 8-bit integers only, and compares accuracies.

usage: check_quantized_training.py CAROLE
"""
import functools
import gzip
import os
import re
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

from run_programs import run_carole, run_tflite

RAW = "/usr/share/datasets/fashion-mnist"
SIZE = 28
IMAGES = 2000
SKIPPED = 77


def read_idx(name, header):
    path = next((f"{RAW}/{name}{ending}" for ending in ("", ".gz") if os.path.exists(f"{RAW}/{name}{ending}")), None)
    if path is None:
        print(f"skipped: {RAW}/{name} is missing; install dataset-fashion-mnist")
        sys.exit(SKIPPED)
    data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read()
    return np.frombuffer(data, np.uint8, offset=header)


def convert(graph):
    """8-bit integers with the ranges in the graph; pixels are (code - 128) / 128."""
    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(graph, ["input"], ["MobilenetV1/Predictions/Reshape_1"])
    converter.inference_type = converter.inference_input_type = tf.uint8
    converter.quantized_input_stats = {"input": (128.0, 128.0)}
    return converter.convert()


def classify(model, images):
    interpreter = tf.lite.Interpreter(model_content=model)
    outputs = run_tflite(interpreter, images)
    floats = [tensor["name"] for tensor in interpreter.get_tensor_details() if tensor["dtype"] == np.float32]
    assert not floats, floats
    return np.argmax(outputs, axis=-1).ravel()


def main():
    carole = functools.partial(run_carole, sys.argv[1])
    pixels = read_idx("t10k-images-idx3-ubyte", 16).reshape(-1, SIZE, SIZE, 1)[:IMAGES]
    labels = read_idx("t10k-labels-idx1-ubyte", 8)[:IMAGES]
    with tempfile.TemporaryDirectory() as folder:
        carole("dataset", "build", "--dataset_name=fashion_mnist", f"--raw_dir={RAW}", f"--dataset_dir={folder}/data")
        carole("train", "--dataset_name=fashion_mnist", f"--dataset_dir={folder}/data", f"--train_dir={folder}/run",
               "--model_name=mobilenet_v1_025", "--preprocessing_name=lenet", f"--train_image_size={SIZE}", "--batch_size=64",
               "--max_number_of_steps=400", "--learning_rate=0.003", "--learning_rate_decay_type=cosine", "--optimizer=adam",
               "--opt_epsilon=1e-7", "--batch_norm_decay=0.98", "--quantize_delay=200")

        def accuracy(*flags):
            text = carole("eval", "--dataset_name=fashion_mnist", f"--dataset_dir={folder}/data",
                          f"--checkpoint_path={folder}/run", f"--eval_dir={folder}/eval", "--batch_size=100",
                          f"--max_num_batches={IMAGES // 100}", *flags)
            return float(re.search(r"eval/Accuracy ([0-9.]+)", text)[1])

        in_float, simulated = accuracy(), accuracy("--quantize")
        graph = f"{folder}/frozen.pb"
        carole("export", "--format=graphdef", "--freeze", "--quantize", f"--checkpoint_path={folder}/run",
               f"--output={graph}")
        model = convert(graph)
        integers = float(np.mean(classify(model, pixels) == labels))
        print(f"accuracy on {IMAGES} images: {in_float:.4f} in fp32, {simulated:.4f} simulated, "
              f"{integers:.4f} in 8-bit integers ({len(model)} bytes)")
        assert simulated > 0.7, simulated
        assert abs(integers - simulated) <= 0.01 and abs(integers - in_float) <= 0.02, (in_float, simulated, integers)


if __name__ == "__main__":
    main()
