"""Checks that other programs compute with `carole export --quantize` what carole's reference backend computes: TensorFlow
(frozen graph, freeze_graph, SavedModel), TFLite with 8-bit integers, ONNX Runtime, and safetensors. Names, numbers of
nodes and integer results are compared with TensorFlow 1.15's rewriter (tests/data/quantize). Differences are in codes of
the last quantization.

usage: check_quantized.py CAROLE NET_SAMPLES DATA [NET...]
"""
import collections
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

from check_export import Exporter, freeze, output_names, read, run_graph
from run_programs import run_tflite

# The largest differences of logits in codes. "simulated": programs whose sums have other rounding errors than carole's, so
# that values flip to the next code; in deep nets the flips add up. "tflite": TFLite's integers, which are the same on every
# machine, compared with TensorFlow's; none if the logits are not quantized. "predictions": TFLite's, in 1/256.
Tolerance = collections.namedtuple("Tolerance", "simulated tflite predictions")
TOLERANCES = {"lenet": Tolerance(1, None, 1), "cifarnet": Tolerance(1, None, 1), "mobilenet_v1_025": Tolerance(1, 1, 1),
              "mobilenet_v2_035": Tolerance(6, 2, 3), "resnet_v1_50": Tolerance(2, 1, 1),
              "inception_v1": Tolerance(4, 4, 1), "mobilenet_v3_small": Tolerance(8, 6, 1)}
NO_GOLDEN = {"mobilenet_v3_small": 96}  # image size
CLASSES = 10
ROUNDED_IMAGE = 2  # the image that is made of bytes
ONE_CODE_OF_PREDICTIONS = 1 / 256


class Sample:
    """A checkpoint of a quantized net, and what carole computes with it. `empty`: a range that becomes (0, 0)."""

    def __init__(self, exporter, data, net, empty=""):
        self.net, self.exporter = net, exporter
        self.golden = None
        arguments = [str(NO_GOLDEN.get(net, 0)), str(CLASSES)]
        if net not in NO_GOLDEN:
            self.golden = json.load(open(f"{data}/{net}.json"))
            names = [quant["name"] for quant in self.golden["fake_quant"]]
            ranges = f"{exporter.folder}/{net}.ranges"
            with open(ranges, "w") as file:
                for index, low, high, *_ in self.golden["eval"]["per_quant"]:
                    ends = "0 0" if names[index] == empty else f"{low} {high}"
                    file.write(f"{names[index]} {ends}\n")
            arguments.append(ranges)
        subprocess.run([exporter.samples, "quantize", exporter.folder, net, *arguments], check=True)
        prefix = f"{exporter.folder}/{net}"
        self.checkpoint = f"{prefix}.h5"
        self.logits, self.predictions = (read(f"{prefix}.{name}", 3, CLASSES) for name in ("logits", "probabilities"))
        pixels = np.fromfile(f"{prefix}.images", "<f4").reshape(3, -1)
        channels = 1 if net == "lenet" else 3
        side = int(round((pixels.shape[1] / channels) ** 0.5))
        self.images = pixels.reshape(3, side, side, channels)

    def bytes_of_image(self):
        """The rounded image as bytes."""
        image = self.images[ROUNDED_IMAGE:]
        return np.round(image * 127.5 + 128).astype(np.uint8)


def load_graph(path):
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(open(path, "rb").read())
    return graph


class Nodes:
    """The nodes of a frozen graph by name."""

    def __init__(self, path):
        self.by_name = {node.name: node for node in load_graph(path).node}

    def source_of(self, name):
        """The node that makes an input, without nodes that pass it on."""
        node = self.by_name[name]
        return self.source_of(node.input[0]) if node.op == "Identity" else node

    def range_of(self, quant):
        """The two constants that the node reads."""
        ends = [self.source_of(name) for name in quant.input[1:]]
        assert all(end.op == "Const" for end in ends), quant
        return tuple(float(tf.make_ndarray(end.attr["value"].tensor)) for end in ends), [end.name for end in ends]

    def last_scale(self):
        """One code of the quantization that ends the net."""
        quants = [node for node in self.by_name.values() if node.op == "FakeQuantWithMinMaxVars"]
        (low, high), _ = self.range_of([q for q in quants if not q.attr["narrow_range"].b][-1])
        return (high - low) / 255


def check_nodes(sample, nodes, expected):
    """Names and attributes of the graph compared with TensorFlow's."""
    quants = {name[:name.rindex("/")]: node for name, node in nodes.by_name.items()
              if node.op == "FakeQuantWithMinMaxVars"}
    for name, node in quants.items():
        assert node.attr["num_bits"].i == 8, name
        assert nodes.range_of(node)[1] == [f"{name}/min", f"{name}/max"], name
    if not sample.golden:
        return
    wanted = {quant["name"]: quant for quant in sample.golden["fake_quant"]}
    assert quants.keys() == wanted.keys(), quants.keys() ^ wanted.keys()
    for name, quant in wanted.items():
        assert quants[name].attr["narrow_range"].b == quant["narrow"], name
        if quant["op"] == "Mul":
            assert nodes.source_of(quants[name].input[0]).name == quant["of"], name
        for reader in quant["to"]:
            if reader.endswith("_Fold"):
                assert reader in nodes.by_name, reader
    for layer, _, _ in sample.golden["folded"]:
        scope = layer[:layer.rindex("/")]
        assert {f"{scope}/mul_fold", f"{scope}/add_fold"} <= nodes.by_name.keys(), scope
    for name in nodes.by_name:
        assert not name.endswith("/scale_reshape") or name.endswith("/BatchNorm_Fold/scale_reshape"), name
    ops = collections.Counter(node.op for node in nodes.by_name.values() if node.op not in ("Const", "Identity"))
    if "Mean" in expected["ops"]:  # an average of all pixels
        ops["Mean"] += ops.pop("AvgPool")
    assert ops == expected["ops"], (ops, expected["ops"])


def convert_tflite(path, node, shape):
    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(path, ["input"], [node], {"input": [1, *shape]})
    converter.inference_type = converter.inference_input_type = tf.uint8
    converter.quantized_input_stats = {"input": (127.5, 127.5)}
    return tf.lite.Interpreter(model_content=converter.convert())


def run_integers(interpreter, image):
    """Returns the codes of the result, their quantization (scale, zero) and their type."""
    [codes] = run_tflite(interpreter, [image])
    [result] = interpreter.get_output_details()
    return codes[0].astype(int), result["quantization"], result["dtype"]


def check_integers(net, interpreter):
    """No tensor has floats."""
    found = {detail["name"]: np.dtype(detail["dtype"]).name for detail in interpreter.get_tensor_details()
             if np.dtype(detail["dtype"]).name not in ("uint8", "int8", "int32")}
    assert not found, (net, list(found.items())[:5])


def check_tflite(sample, graph, outputs, expected, tolerance, compare):
    logits, predictions = outputs
    image, shape = sample.bytes_of_image(), sample.images.shape[1:]
    if tolerance.tflite is not None:
        interpreter = convert_tflite(graph, logits, shape)
        codes, (scale, zero), dtype = run_integers(interpreter, image)
        check_integers(sample.net, interpreter)
        assert dtype == np.uint8, dtype
        # carole's own sums differ from processor to processor, too.
        allowed = tolerance.simulated + tolerance.tflite
        compare("tflite", (codes - zero) * scale, sample.logits[ROUNDED_IMAGE], allowed)
        if expected:
            want = expected["logits_uint8"]
            assert abs(scale / want["quantization"][0] - 1) < 1e-5 and zero == want["quantization"][1], (scale, zero)
            compare("tflite, TF's", codes * scale, np.array(want["values"]) * scale, tolerance.tflite)
    interpreter = convert_tflite(graph, predictions, shape)
    codes, quantization, _ = run_integers(interpreter, image)
    if sample.net != "cifarnet":  # neither TFLite nor ONNX Runtime has LRN for integers
        check_integers(sample.net, interpreter)
    assert quantization == (ONE_CODE_OF_PREDICTIONS, 0), quantization
    error = np.abs(codes - sample.predictions[ROUNDED_IMAGE] * 256).max()
    print(f"{sample.net:<20}{'predictions':<16}{error:.2f}", flush=True)
    assert error <= tolerance.predictions, (sample.net, error)
    if expected:
        error = np.abs(codes - np.array(expected["predictions_uint8"]["values"])).max()
        assert error <= tolerance.predictions, (sample.net, error)


def run_onnx(path, images, level, optimized=""):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = optimized
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"input": np.ascontiguousarray(images.transpose(0, 3, 1, 2))})[0]


def check_onnx(sample, tolerance, compare):
    levels = onnxruntime.GraphOptimizationLevel
    for opset in (17, 22):
        path = sample.exporter.export(sample.checkpoint, "onnx", "--quantize", f"--opset={opset}")
        onnx.checker.check_model(path, full_check=True)
        compare(f"onnx {opset}", run_onnx(path, sample.images, levels.ORT_DISABLE_ALL), sample.logits,
                tolerance.simulated)
    optimized = f"{path}.optimized"
    got = run_onnx(path, sample.images, levels.ORT_ENABLE_EXTENDED, optimized)
    compare("onnx integers", got, sample.logits, tolerance.simulated)
    ops = collections.Counter(node.op_type for node in onnx.load(optimized).graph.node)
    # Layers after a concatenation read values that are not quantized again.
    assert ops["LRN"] or ops["Concat"] or ops["QLinearConv"] + ops["QGemm"] >= ops["Conv"] + ops["Gemm"], ops
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer
               if tensor.name.endswith("_quantized")]
    assert weights and all(codes.dtype == np.uint8 and codes.min() >= 1 for codes in weights), sample.net


def check_net(exporter, data, net, export_json):
    sample = Sample(exporter, data, net)
    expected = export_json.get(net)
    tolerance = TOLERANCES[net]
    graph = exporter.export(sample.checkpoint, "graphdef", "--freeze", "--quantize")
    nodes = Nodes(graph)
    check_nodes(sample, nodes, expected)
    code = nodes.last_scale()

    def compare(form, got, want, codes):
        error = np.abs(got - want).max() / code
        print(f"{net:<20}{form:<16}{error:.2f}", flush=True)
        assert error < codes + 0.01, (net, form, error)

    logits, predictions = output_names(graph)
    if nodes.by_name[logits].op == "FakeQuantWithMinMaxVars":  # only the predictions read quantized logits
        logits = nodes.by_name[logits].input[0]
    compare("frozen graph", run_graph(graph, sample.images, logits), sample.logits, tolerance.simulated)
    if expected:
        assert logits == expected["logits_node"], logits
        compare("TensorFlow's", sample.logits[ROUNDED_IMAGE], np.array(expected["logits_f32"]), tolerance.simulated)
    folder = exporter.export(sample.checkpoint, "saved_model", "--quantize")
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    compare("saved_model", serve(input=tf.constant(sample.images))["logits"].numpy(), sample.logits, tolerance.simulated)
    shutil.rmtree(folder)
    check_onnx(sample, tolerance, compare)
    check_tflite(sample, graph, (logits, predictions), expected, tolerance, compare)


def check_freeze_graph(exporter, data):
    """TensorFlow's freeze_graph fills the graph without weights."""
    sample = Sample(exporter, data, "mobilenet_v1_025")
    name = "MobilenetV1/Logits/SpatialSqueeze"
    path = freeze(exporter, sample.checkpoint, name, "--quantize")
    error = np.abs(run_graph(path, sample.images, name) - sample.logits).max() / Nodes(path).last_scale()
    assert error < 1.01, error


def check_recipe(exporter, _):
    """TF-Slim's command line, which needs no checkpoint."""
    output = f"{exporter.folder}/slim.pb"
    exporter.run("export", "--recipe=export_inference_graph", "--model_name=mobilenet_v1", "--quantize",
                 f"--output_file={output}")
    ops = collections.Counter(node.op for node in load_graph(output).node)
    assert ops["FakeQuantWithMinMaxVars"] == 56 and ops["Rsqrt"] == 27, ops
    assert "MobilenetV1/MobilenetV1/Conv2d_0/act_quant/max" in {node.name for node in load_graph(output).node}


def check_safetensors(exporter, data):
    sample = Sample(exporter, data, "lenet")
    tensors = safetensors.numpy.load_file(exporter.export(sample.checkpoint, "safetensors", "--quantize"))
    assert len(tensors) == 8 + 2 * 8, tensors.keys()
    golden = sample.golden
    for index, low, high, *_ in golden["eval"]["per_quant"]:
        name = golden["fake_quant"][index]["name"]
        assert tensors[f"{name}/min"] == np.float32(low) and tensors[f"{name}/max"] == np.float32(high), name
    assert len(safetensors.numpy.load_file(exporter.export(sample.checkpoint, "safetensors"))) == 8


def check_float(exporter, data):
    """Without --quantize, the checkpoint of a quantized net is exported as a float net."""
    sample = Sample(exporter, data, "lenet")
    graph = load_graph(exporter.export(sample.checkpoint, "graphdef", "--freeze"))
    assert all(node.op != "FakeQuantWithMinMaxVars" for node in graph.node)


def check_empty_range(exporter, data):
    """If all activations were zero in training, all are rounded to zero."""
    sample = Sample(exporter, data, "lenet", empty="LeNet/conv2/act_quant")
    path = exporter.export(sample.checkpoint, "onnx", "--quantize")
    got = run_onnx(path, sample.images, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert np.abs(got - sample.logits).max() < 1e-5, (got, sample.logits)
    assert np.abs(got - got[0]).max() < 1e-5, "the logits do not depend on the image"


def check_external(exporter, data):
    """The second file holds codes and floats, each at its own offset."""
    sample = Sample(exporter, data, "lenet")
    path = exporter.export(sample.checkpoint, "onnx", "--quantize", "--external_data")
    got = run_onnx(path, sample.images, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    assert np.abs(got - sample.logits).max() < 0.05 * np.abs(sample.logits).max()


def main():
    program, samples, data, *nets = sys.argv[1:]
    export_json = json.load(open(f"{data}/export.json"))
    with tempfile.TemporaryDirectory() as folder:
        exporter = Exporter(program, samples, folder)
        if not nets:
            for check in (check_recipe, check_safetensors, check_float, check_empty_range, check_external, check_freeze_graph):
                print(check.__name__, flush=True)
                check(exporter, data)
        for net in nets or TOLERANCES:
            check_net(exporter, data, net, export_json)


if __name__ == "__main__":
    main()
