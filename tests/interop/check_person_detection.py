"""Follows the guide that trains a person detector for microcontrollers: Visual Wake Words from COCO, a gray mobilenet_v1_025
of 96 pixels, evaluation, a frozen graph, and a TFLite file of 8-bit integers. The COCO here is drawn: a person is a bright
ellipse, everything else is stripes.

usage: check_person_detection.py CAROLE
"""
import functools
import json
import os
import re
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

from run_programs import run_carole, run_tflite

SIZE = 96
COUNTS = {"train2014": 64, "val2014": 40}


def draw(random, has_person):
    height, width = (int(random.integers(100, 140)) for _ in range(2))
    y, x = np.mgrid[0:height, 0:width]
    image = 70 + 25 * np.sin(x / random.uniform(3, 6))[..., None] + random.uniform(-10, 10, (1, 1, 3))
    if has_person:
        inside = ((y - height / 2) / (height / 3)) ** 2 + ((x - width / 2) / (width / 4)) ** 2 < 1
        image = np.where(inside[..., None], 220, image)
    return np.clip(image, 0, 255).astype(np.uint8)


def write_coco(folder):
    """Writes images and annotations. Returns the labels of the validation images by name."""
    random = np.random.default_rng(1)
    os.makedirs(f"{folder}/annotations")
    for split, count in COUNTS.items():
        os.makedirs(f"{folder}/{split}")
        images, annotations, labels = [], [], {}
        for i in range(count):
            label = i % 2
            name, pixels = f"COCO_{i:04}.jpg", draw(random, label == 1)
            with open(f"{folder}/{split}/{name}", "wb") as file:
                file.write(tf.io.encode_jpeg(pixels, quality=95).numpy())
            height, width, _ = pixels.shape
            images.append({"id": i, "file_name": name, "height": height, "width": width})
            annotations.append({"id": i, "image_id": i, "category_id": 1 if label else 2, "area": height * width / 4,
                                "bbox": [0, 0, width, height], "segmentation": [[0, 0, 1, 1]]})
            labels[name] = label
        with open(f"{folder}/annotations/instances_{split}.json", "w") as file:
            json.dump({"images": images, "annotations": annotations,
                       "categories": [{"id": 1, "name": "person"}, {"id": 2, "name": "stripes"}]}, file)
    return labels


def preprocess(path):
    """What the guide's program on the device does: the central part, gray, in [-1, 1]."""
    pixels = tf.io.decode_jpeg(open(path, "rb").read(), channels=3)
    height, width, _ = pixels.shape
    top, left = height // 16, width // 16
    part = tf.cast(pixels[top:height - top, left:width - left], tf.float32)[None]
    part = tf.compat.v1.image.resize_bilinear(part, [SIZE, SIZE])[0]
    gray = tf.reduce_sum(part * [0.2989, 0.587, 0.114], -1, keepdims=True)
    return (gray.numpy() - 127.5) / 127.5


def convert(graph, output, images):
    """TensorFlow's conversion to 8-bit integers, with ranges measured on the training images."""
    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(graph, ["input"], [output])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None].astype(np.float32)] for image in images)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def classify(model, images):
    interpreter = tf.lite.Interpreter(model_content=model)
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    assert source["dtype"] == result["dtype"] == np.int8
    scale, zero = source["quantization"]
    codes = np.clip(np.round(np.array(images) / scale + zero), -128, 127).astype(np.int8)
    return np.argmax(run_tflite(interpreter, codes), axis=-1).ravel()


def main():
    carole = functools.partial(run_carole, sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        labels = write_coco(f"{folder}/coco")
        carole("dataset", "build", "--dataset_name=visualwakewords", f"--raw_dir={folder}/coco",
               f"--dataset_dir={folder}/data", "--train_shards=2", "--validation_shards=2")
        carole("train", "--dataset_name=visualwakewords", "--dataset_split_name=train", f"--dataset_dir={folder}/data",
               f"--train_dir={folder}/run", "--model_name=mobilenet_v1_025", "--preprocessing_name=mobilenet_v1",
               f"--train_image_size={SIZE}", "--input_grayscale=True", "--batch_size=16", "--max_number_of_steps=60",
               "--learning_rate=0.01", "--learning_rate_decay_type=fixed", "--optimizer=adam", "--opt_epsilon=1e-7",
               "--batch_norm_decay=0.9", "--min_crop_area=0.5")
        text = carole("eval", "--dataset_name=visualwakewords", "--dataset_split_name=val", f"--dataset_dir={folder}/data",
                      f"--checkpoint_path={folder}/run", f"--eval_dir={folder}/eval", "--batch_size=8")
        accuracy = float(re.search(r"eval/Accuracy ([0-9.]+)", text)[1])
        assert accuracy > 0.9, text
        graph = f"{folder}/vww_96_grayscale_frozen.pb"
        carole("export", "--format=graphdef", "--freeze", f"--checkpoint_path={folder}/run", f"--output={graph}")
        train = [preprocess(f"{folder}/coco/train2014/COCO_{i:04}.jpg") for i in range(COUNTS["train2014"])]
        model = convert(graph, "MobilenetV1/Predictions/Reshape_1", train)
        images = [preprocess(f"{folder}/coco/val2014/{name}") for name in labels]
        quantized = float(np.mean(classify(model, images) == np.array(list(labels.values()))))
        print(f"accuracy of carole {accuracy:.3f}, of {len(model)} bytes of 8-bit TFLite {quantized:.3f}")
        assert abs(quantized - accuracy) <= 0.03, (quantized, accuracy)  # one image of 40 is 0.025
        assert len(model) < 400_000


if __name__ == "__main__":
    main()
