"""Checks that other programs read what `carole export` writes, and compute the same logits: ONNX Runtime, TensorFlow (frozen
graph, freeze_graph, SavedModel), the interpreter of TFLite, and safetensors. Prints a table: net, format, largest difference
relative to the largest logit.

usage: check_export.py CAROLE NET_SAMPLES [--all | NET...]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
import tensorflow as tf
from tensorflow.python.tools import freeze_graph

from run_programs import run_carole, run_tflite

TOLERANCE = 1e-4  # of the largest logit
PREPROCESSING_TOLERANCE = 1e-3  # of a probability
# Net, image size (0: the net's own), classes.
NETS = [("lenet", 0, 10), ("cifarnet", 0, 10), ("mnist_keras", 0, 10), ("mobilenet_v1_025", 64, 20),
        ("mobilenet_v3_small", 64, 20), ("resnet_v1_50", 64, 20), ("resnet50", 64, 20), ("nasnet_cifar", 0, 10)]
ONE_FILE = 2**31 - 1  # bytes


def read(path, *shape):
    return np.fromfile(path, "<f4").reshape(shape)


class Exporter:
    def __init__(self, program, samples, folder):
        self.program, self.samples, self.folder = program, samples, folder

    def run(self, *arguments, code=0):
        return run_carole(self.program, *arguments, code=code)

    def sample(self, net, size, classes):
        """Writes a checkpoint; returns its path, the images (N,H,W,C) and the logits (N,K)."""
        subprocess.run([self.samples, "write", self.folder, net, str(size), str(classes)], check=True)
        prefix = f"{self.folder}/{net}"
        logits = read(f"{prefix}.logits", 2, -1)
        pixels = np.fromfile(f"{prefix}.images", "<f4")
        for channels in (3, 1):
            side = int(round((pixels.size / 2 / channels) ** 0.5))
            if side * side * channels * 2 == pixels.size:
                return f"{prefix}.h5", pixels.reshape(2, side, side, channels), logits
        raise AssertionError("images are not square")

    def export(self, checkpoint, form, *flags, code=0):
        output = f"{checkpoint[:-3]}.{form}"
        text = self.run("export", f"--checkpoint_path={checkpoint}", f"--format={form}", f"--output={output}", *flags,
                        code=code)
        return text if code else output


def run_onnx(path, **inputs):
    onnx.checker.check_model(path, full_check=os.path.getsize(path) < ONE_FILE)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["logits", "predictions"], inputs)


def output_names(path):
    """The names of the results, which are the nodes that nobody reads."""
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(open(path, "rb").read())
    read_by = {name.split(":")[0] for node in graph.node for name in node.input}
    last = [node.name for node in graph.node if node.name not in read_by]
    assert len(last) == 1, last
    node = {n.name: n for n in graph.node}
    logits = last[0]  # predictions; the logits are in front of the softmax
    while node[logits].op in ("Reshape", "Softmax"):
        is_softmax_input = node[logits].op == "Softmax"
        logits = node[logits].input[0]
        if is_softmax_input and node[logits].op == "Reshape" and "redictions" in logits:
            logits = node[logits].input[0]
            break
        if is_softmax_input:
            break
    return logits, last[0]


def run_graph(path, images, name):
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(open(path, "rb").read())
    with tf.Graph().as_default() as target:
        tf.import_graph_def(graph, name="")
        with tf.compat.v1.Session(graph=target) as session:
            return session.run(f"{name}:0", {"input:0": images})


def convert_and_run(path, images, name):
    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(path, ["input"], [name],
                                                                    {"input": list(images.shape)})
    [output] = run_tflite(tf.lite.Interpreter(model_content=converter.convert()), [images])
    return output


def freeze(exporter, checkpoint, name, *flags):
    """Lets TensorFlow freeze the graph without weights, with a converted checkpoint."""
    graph = exporter.export(checkpoint, "graphdef", *flags)
    exporter.run("checkpoint", "convert", checkpoint, f"{checkpoint[:-3]}.ckpt")
    frozen = f"{checkpoint[:-3]}.frozen"
    with tf.Graph().as_default():
        freeze_graph.freeze_graph(graph, "", True, f"{checkpoint[:-3]}.ckpt", name, "save/restore_all", "save/Const:0",
                                  frozen, True, "")
    return frozen


def check_net(exporter, net, size, classes, table):
    checkpoint, images, logits = exporter.sample(net, size, classes)
    scale = np.abs(logits).max()

    def compare(form, got):
        assert got.shape == logits.shape, (net, form, got.shape)
        error = np.abs(got - logits).max() / scale
        table.append((net, form, error))
        print(f"{net:<34}{form:<16}{error:.1e}", flush=True)
        assert error < TOLERANCE, (net, form, error)

    nchw = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    compare("onnx", run_onnx(exporter.export(checkpoint, "onnx"), input=nchw)[0])
    compare("onnx nhwc", run_onnx(exporter.export(checkpoint, "onnx", "--layout=nhwc", "--opset=22"), input=images)[0])
    graph = exporter.export(checkpoint, "graphdef", "--freeze")
    name, _ = output_names(graph)
    compare("frozen graph", run_graph(graph, images, name))
    compare("tflite", convert_and_run(graph, images, name))
    folder = exporter.export(checkpoint, "saved_model")
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    compare("saved_model", serve(input=tf.constant(images))["logits"].numpy())
    shutil.rmtree(folder)
    for file in os.listdir(exporter.folder):
        if not file.endswith(".h5"):
            os.remove(f"{exporter.folder}/{file}")


def check_freeze_graph(exporter):
    checkpoint, images, logits = exporter.sample("mobilenet_v1_025", 64, 20)
    name = "MobilenetV1/Logits/SpatialSqueeze"
    error = np.abs(run_graph(freeze(exporter, checkpoint, name), images, name) - logits).max() / np.abs(logits).max()
    assert error < TOLERANCE, error


def check_text(exporter):
    checkpoint, images, _ = exporter.sample("lenet", 0, 10)
    binary = open(exporter.export(checkpoint, "graphdef", "--freeze"), "rb").read()
    text = open(exporter.export(checkpoint, "graphdef", "--freeze", "--write_text_graphdef")).read()
    from google.protobuf import text_format
    want, got = tf.compat.v1.GraphDef(), tf.compat.v1.GraphDef()
    want.ParseFromString(binary)
    text_format.Parse(text, got)
    assert want == got


def check_recipe(exporter):
    """TF-Slim's command line, word for word."""
    output = f"{exporter.folder}/slim.pb"
    exporter.run("export", "--recipe=export_inference_graph", "--alsologtostderr", "--model_name=inception_v3",
                 f"--output_file={output}")
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(open(output, "rb").read())
    names = {node.name for node in graph.node}
    assert {"input", "InceptionV3/Logits/SpatialSqueeze", "InceptionV3/Predictions/Reshape_1"} <= names
    first = "InceptionV3/InceptionV3/Conv2d_1a_3x3"
    assert {f"{first}/Conv2D", f"{first}/BatchNorm/FusedBatchNormV3", f"{first}/Relu",
            "InceptionV3/Logits/Conv2d_1c_1x1/BiasAdd"} <= names
    [input_node] = [node for node in graph.node if node.op == "Placeholder"]
    assert [d.size for d in input_node.attr["shape"].shape.dim] == [-1, 299, 299, 3]
    for net, wanted in (
        ("mobilenet_v1_025", ["MobilenetV1/MobilenetV1/Conv2d_1_depthwise/depthwise"]),
        ("nasnet_mobile", ["cell_0/comb_iter_0/left/separable_5x5_1/separable_conv2d/depthwise",
                           "cell_0/comb_iter_0/left/separable_5x5_1/separable_conv2d"]),
    ):  # fmt: skip
        exporter.run("export", "--recipe=export_inference_graph", f"--model_name={net}", f"--output_file={output}")
        graph.ParseFromString(open(output, "rb").read())
        missing = set(wanted) - {node.name for node in graph.node}
        assert not missing, missing
    text = exporter.run("export", "--recipe=export_inference_graph", "--model_name=inception_v3", code=64)
    assert "You must supply the path to save to with --output_file" in text, text


def check_safetensors(exporter):
    checkpoint, _, _ = exporter.sample("lenet", 0, 10)
    path = exporter.export(checkpoint, "safetensors")
    tensors = safetensors.numpy.load_file(path)
    graph = exporter.export(checkpoint, "graphdef", "--freeze")
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(open(graph, "rb").read())
    weights = {n.name: tf.make_ndarray(n.attr["value"].tensor) for n in definition.node
               if n.op == "Const" and n.name in tensors}
    assert len(weights) == len(tensors) == 8, tensors.keys()
    for name, values in tensors.items():
        assert np.array_equal(values, weights[name]), name


def check_external(exporter):
    checkpoint, images, logits = exporter.sample("lenet", 0, 10)
    path = exporter.export(checkpoint, "onnx", "--external_data")
    old = path + ".00000000.data"
    open(old, "w").close()
    path = exporter.export(checkpoint, "onnx", "--external_data")
    assert not os.path.exists(old), "the data of another model stay"
    got = run_onnx(path, input=np.ascontiguousarray(images.transpose(0, 3, 1, 2)))[0]
    assert np.abs(got - logits).max() < TOLERANCE * np.abs(logits).max()


def check_metadata(exporter):
    checkpoint, _, _ = exporter.sample("lenet", 0, 10)
    model = onnx.load(exporter.export(checkpoint, "onnx"))
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["class_names"]) == [f'class "{k}" \\ \u00e9' for k in range(10)], metadata
    want = {"net": "lenet", "step": "1", "preprocessing": "lenet", "image_size": "28"}
    assert want.items() <= metadata.items(), metadata
    assert len(metadata["weights_digest"]) == 8
    with safetensors.safe_open(exporter.export(checkpoint, "safetensors"), "numpy") as file:
        assert file.metadata()["class_names"] == metadata["class_names"]


def check_full_disk(exporter):
    """A disk that gets full in the middle: an error, no file, and the old file stays."""
    checkpoint, _, _ = exporter.sample("lenet", 0, 10)  # 13 MB
    folder = f"{exporter.folder}/small"
    os.mkdir(folder)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]).returncode != 0:
        print("skipped: cannot mount a small disk; needs root")
        return
    try:
        for form, name in (("onnx", "net"), ("graphdef", "net"), ("safetensors", "net"), ("saved_model", "folder")):
            flags = ["--freeze"] if form == "graphdef" else []
            with open(f"{folder}/net", "w") as file:
                file.write("old")
            text = exporter.run("export", f"--checkpoint_path={checkpoint}", f"--format={form}",
                                f"--output={folder}/{name}", *flags, code=74)
            assert "No space left" in text, text
            left = [f"{path}/{file}" for path, _, files in os.walk(folder) for file in files]
            assert left == [f"{folder}/net"] and open(left[0]).read() == "old", left
    finally:
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def check_large(exporter):
    """vgg_416 has 2.3 GB: TensorFlow's files are refused, ONNX gets a second file."""
    checkpoint, images, logits = exporter.sample("vgg_416", 0, 0)
    for form, *flags in (("graphdef", "--freeze"), ("saved_model",)):
        text = exporter.export(checkpoint, form, *flags, code=64)
        assert "too large for one file of TensorFlow" in text, text
    path = exporter.export(checkpoint, "onnx")
    got = run_onnx(path, input=np.ascontiguousarray(images.transpose(0, 3, 1, 2)))[0]
    error = np.abs(got - logits).max() / np.abs(logits).max()
    print(f"{'vgg_416':<34}{'onnx, two files':<16}{error:.1e}", flush=True)
    assert error < TOLERANCE, error


def photo(height, width, channels):
    """An image with smooth areas and edges."""
    y, x = np.mgrid[0:height, 0:width]
    layers = [127 + 90 * np.sin(x / (9 + 3 * c) + c) * np.cos(y / 17) + 30 * ((x // 20 + y // 20) % 2) for c in range(3)]
    return np.clip(np.stack(layers[:channels], -1), 0, 255).astype(np.uint8)


def check_preprocessing(exporter):
    for net, size, classes, shapes in [("mobilenet_v1_025", 64, 5, [(90, 140), (200, 150)]),
                                       ("resnet_v1_50", 64, 5, [(90, 140), (300, 151)]),
                                       ("imagenet_resnet_v2_18", 64, 5, [(121, 121), (90, 143)]),
                                       ("cifarnet", 0, 10, [(32, 32), (40, 21)]),
                                       ("lenet", 0, 10, [(28, 28), (33, 20)])]:
        checkpoint, images, _ = exporter.sample(net, size, classes)
        channels = images.shape[3]
        onnx_path = exporter.export(checkpoint, "onnx", "--with_preprocessing")
        folder = exporter.export(checkpoint, "saved_model", "--with_preprocessing")
        serve = tf.saved_model.load(folder).signatures["serving_default"]
        for i, (height, width) in enumerate(shapes):
            pixels = photo(height, width, channels)
            for ending, encode in (("png", tf.io.encode_png), ("jpg", tf.io.encode_jpeg)):
                path = f"{exporter.folder}/photo{i}.{ending}"
                encoded = encode(pixels).numpy()
                open(path, "wb").write(encoded)
                text = exporter.run("predict", f"--checkpoint_path={checkpoint}", "--json", f"--top={classes}", path)
                line = next(line for line in text.splitlines() if line.startswith("{"))
                want = np.zeros(classes)
                for found in json.loads(line)["predictions"]:
                    want[found["class"]] = found["probability"]
                got = {"saved_model": serve(image_bytes=tf.constant([encoded, encoded]))["predictions"].numpy()}
                decoded = tf.io.decode_image(encoded).numpy()
                got["onnx"] = run_onnx(onnx_path, image=np.stack([decoded, decoded]))[1]
                for form, predictions in got.items():
                    error = np.abs(predictions - want).max()
                    print(f"{net} {height}x{width} {ending} {form}: {error:.1e}", flush=True)
                    assert error < PREPROCESSING_TOLERANCE, (net, form, ending, error)
        shutil.rmtree(folder)


def check_errors(exporter):
    checkpoint, _, _ = exporter.sample("lenet", 0, 10)

    def fails(code, words, *flags, form="onnx"):
        before = sorted(os.listdir(exporter.folder))
        text = exporter.export(checkpoint, form, *flags, code=code)
        assert all(word in text for word in words), (words, text)
        assert sorted(os.listdir(exporter.folder)) == before, "a failed export leaves files"

    fails(64, ["--format", "tflite", "onnx"], form="tflite")
    fails(64, ["lenett", "lenet"], "--model_name=lenett")
    fails(65, ["do not fit the net"], "--model_name=resnet_v1_50", "--image_size=64")
    fails(64, ["--opset", "17", "22"], "--opset=12")
    fails(64, ["--opset", "graphdef"], "--opset=17", form="graphdef")
    fails(65, ["ExponentialMovingAverage"], "--moving_averages")
    for form, *flags in (("onnx",), ("graphdef", "--freeze"), ("saved_model",), ("safetensors",)):
        fails(65, ["LeNet/conv1/weights_quant/min", "train with it"], "--quantize", *flags, form=form)
    fails(64, ["--is_training", "--quantize"], "--quantize", "--is_training", form="graphdef")
    with open(f"{exporter.folder}/file", "w"):
        pass
    text = exporter.run("export", f"--checkpoint_path={checkpoint}", f"--output={exporter.folder}/file/net.onnx", code=74)
    assert "file" in text, text


def all_nets(program):
    lines = subprocess.run([program, "model", "list"], check=True, capture_output=True, text=True).stdout.splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    return [(name, 0, 10) for name in names if name not in ("net", "vgg_416") and not name.startswith("-")]


def main():
    program, samples, *nets = sys.argv[1:]
    table = []
    with tempfile.TemporaryDirectory() as folder:
        exporter = Exporter(program, samples, folder)
        if nets == ["--all"]:
            chosen = all_nets(program)
        elif nets:
            chosen = [(net, 0, 10) for net in nets]
        else:
            for check in (check_errors, check_metadata, check_full_disk, check_recipe, check_text, check_safetensors,
                          check_external, check_freeze_graph, check_preprocessing):
                print(check.__name__, flush=True)
                check(exporter)
            chosen = NETS
        if nets == ["--all"]:
            check_large(exporter)
        for net, size, classes in chosen:
            check_net(exporter, net, size, classes, table)
    print(f"{len(table)} results; the largest difference is {max(row[2] for row in table):.1e} of the largest logit")


if __name__ == "__main__":
    main()
