"""Checks that TensorBoard's readers and its HPARAMS page find what a training run recorded.

usage: check_summaries.py CAROLE
"""
import io
import struct
import sys
import tempfile
import zlib

import h5py
import numpy as np
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import (api_pb2, backend_context, get_experiment,
                                         list_session_groups)

from sample_run import SampleRun

STEPS = 12


def read_gray_png(data):
    """Decodes an 8-bit gray PNG without a library. Returns its pixels."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert (depth, color) == (8, 0), (depth, color)
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    raw = io.BytesIO(zlib.decompress(packed))
    rows = np.zeros((height, width), np.int64)
    for y in range(height):
        kind, = raw.read(1)
        line = np.frombuffer(raw.read(width), np.uint8).astype(np.int64)
        above = rows[y - 1] if y > 0 else np.zeros(width, np.int64)
        for x in range(width):
            left, up = (rows[y, x - 1] if x else 0), above[x]
            corner = above[x - 1] if x else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda v: abs(guess - v))
            add = (0, left, up, (left + up) // 2, paeth)[kind]
            rows[y, x] = (line[x] + add) % 256
    return rows


def read_events(folder):
    """Reads all events; TensorBoard would show a random subset."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "histograms": 0})
    events.Reload()
    return events


def check_scalars(events):
    tags = {tag for tag in events.Tags()["scalars"] if not tag.startswith("sparsity/")}
    want = {"total_loss_1", "losses/softmax_cross_entropy_loss/value", "Losses/clone_loss",
            "Losses/regularization_loss", "train/Accuracy", "learning_rate", "gradient_norm",
            "global_step/sec", "images/sec", "exposed_communication_ms"}
    assert tags == want, tags ^ want
    losses = events.Scalars("total_loss_1")
    assert [e.step for e in losses] == list(range(1, STEPS + 1)), losses
    parts = [events.Scalars(t) for t in ("Losses/clone_loss", "Losses/regularization_loss")]
    for total, data, regularization in zip(losses, *parts):
        assert abs(total.value - data.value - regularization.value) < 1e-5
    for accuracy in events.Scalars("train/Accuracy"):
        assert abs(accuracy.value * 16 - round(accuracy.value * 16)) < 1e-5, accuracy  # a fraction of a batch of 16
    assert all(e.value > 0 for e in events.Scalars("gradient_norm"))


def check_images(events):
    tags = set(events.Tags()["images"])
    assert tags == {"input/image/0", "input/image/1"}, tags
    images = events.Images("input/image/0")
    assert [e.step for e in images] == list(range(1, STEPS + 1))
    for image in images:
        pixels = read_gray_png(image.encoded_image_string)
        bright = pixels == 230  # the square of write_digits(): bytes are unchanged
        assert bright.sum() == 25 and pixels[~bright].max() < 40, pixels


def check_evaluations(events):
    assert set(events.Tags()["scalars"]) == {"eval/Accuracy", "eval/Recall_5", "eval/Loss"}
    assert [e.step for e in events.Scalars("eval/Accuracy")] == [STEPS // 2, STEPS]
    assert events.Images("eval/confusion")[0].width == 320


def check_histograms(events, checkpoint):
    tags = set(events.Tags()["histograms"])
    names = {"LeNet/conv1/weights", "LeNet/fc4/biases"}
    assert names <= tags and {f"gradients/{n}" for n in names} <= tags, tags
    end_points = {t.removeprefix("activations/") for t in tags if t.startswith("activations/")}
    assert end_points == {"conv1", "pool1", "conv2", "pool2", "Flatten", "fc3", "dropout3",
                          "Logits", "Predictions"}, end_points
    assert 0 < events.Scalars("sparsity/conv2")[-1].value < 1, "ReLU must produce some zeros"
    predictions = events.Histograms("activations/Predictions")[-1].histogram_value
    assert abs(predictions.sum - 16) < 1e-4, predictions  # a sum of 1 for each image
    with h5py.File(checkpoint) as file:
        found = {}
        file.visititems(lambda name, item: found.update({name: item[...]})
                        if isinstance(item, h5py.Dataset) and item.shape == (5, 5, 1, 32) else None)
    last = events.Histograms("LeNet/conv1/weights")[-1]
    assert last.step == STEPS and last.histogram_value.num == 800
    weights = next(v for n, v in found.items() if "Momentum" not in n)
    assert abs(last.histogram_value.min - weights.min()) < 1e-6, (last, weights.min())
    assert abs(last.histogram_value.sum_squares - np.square(weights, dtype=np.float64).sum()) < 1e-4
    gradients = [e.histogram_value for e in events.Histograms("gradients/LeNet/conv1/weights")]
    assert all(g.num == 800 and g.max > g.min for g in gradients)
    squares = sum(events.Histograms(t)[-1].histogram_value.sum_squares for t in tags if t.startswith("gradients/"))
    norm = events.Scalars("gradient_norm")[-1].value
    assert abs(squares ** 0.5 / norm - 1) < 1e-4, (squares, norm)  # neither contains the loss scale


def check_hyper_parameters(folder):
    events = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(folder)
    events.Reload()
    provider = data_provider.MultiplexerDataProvider(events, folder)
    hparams = backend_context.Context(
        base_plugin.TBContext(logdir=folder, multiplexer=events, data_provider=provider))
    request = context.RequestContext()
    experiment = get_experiment.Handler(request, hparams, "", api_pb2.GetExperimentRequest()).run()
    names = {info.name for info in experiment.hparam_infos}
    assert {"learning_rate", "optimizer", "batch_size", "model_name"} <= names, names
    assert not names & {"train_dir", "dataset_dir"}, names
    assert "eval/Accuracy" in {info.name.tag for info in experiment.metric_infos}
    groups = list_session_groups.Handler(
        request, hparams, "", api_pb2.ListSessionGroupsRequest(
            start_index=0, slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS])).run()
    (group,) = groups.session_groups
    assert "eval/Accuracy" in {metric.name.tag for metric in group.metric_values}, group
    values = dict(group.hparams)
    assert values["learning_rate"].number_value == 0.01, values
    assert values["optimizer"].string_value == "momentum", values
    assert values["batch_size"].number_value == 16, values
    assert values["histograms"].bool_value is True, values


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = SampleRun(sys.argv[1], folder)
        run.train(STEPS, "--eval_every=6", "--save_summaries_steps=1", "--histograms",
                  "--image_summaries=2", "--loss_scale=1024")
        events = read_events(run.train_dir)
        check_scalars(events)
        check_images(events)
        check_evaluations(read_events(run.train_dir / "eval"))
        check_histograms(events, run.train_dir / f"model.ckpt-{STEPS}.h5")
        check_hyper_parameters(folder)  # the parent folder, as users compare several runs
    print("TensorBoard reads what a run recorded")


main()
