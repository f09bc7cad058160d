"""Checks that TensorBoard's readers find in an event file exactly what write_samples.cpp wrote.

usage: check_events.py WRITE_SAMPLES
"""
import math
import subprocess
import sys
import tempfile

from tensorboard import version
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator)
from tensorboard.util import tensor_util


def check_plain(events):
    """Checks the older reader, which has one list for each kind of value."""
    tags = events.Tags()
    assert tags["scalars"] == ["total_loss_1", "not_a_number"], tags
    assert tags["histograms"] == ["weights"] and tags["images"] == ["input"], tags
    assert tags["tensors"] == [], tags
    losses = [(e.step, e.value) for e in events.Scalars("total_loss_1")]
    assert losses == [(10 * i, 2 - 0.25 * i) for i in range(5)], losses
    assert math.isnan(events.Scalars("not_a_number")[0].value)
    (image,) = events.Images("input")
    assert (image.step, image.width, image.height) == (40, 2, 1)
    assert image.encoded_image_string.startswith(b"\x89PNG")
    (histogram,) = events.Histograms("weights")
    found = histogram.histogram_value
    assert (found.min, found.max, found.num, found.sum) == (-1, 3, 6, 4), found
    assert found.sum_squares == 12 and sum(found.bucket) == 6, found
    assert found.bucket[found.bucket_limit.index(0)] == 2, found


def check_plugins(events):
    """Checks the newer reader, which the dashboards use."""
    for plugin, tags in {"scalars": {"total_loss_1", "not_a_number"}, "histograms": {"weights"},
                         "images": {"input"}}.items():
        assert set(events.PluginTagToContent(plugin)) == tags, plugin
    (histogram,) = events.Tensors("weights")
    rows = tensor_util.make_ndarray(histogram.tensor_proto)
    assert rows.shape[1] == 3 and rows[:, 2].sum() == 6, rows
    assert rows[0, 0] == -1 and rows[-1, 1] == 3, rows


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "events", folder], check=True)
        for accumulator, check in ((EventAccumulator, check_plain),
                                   (PluginEventAccumulator, check_plugins)):
            events = accumulator(folder)
            events.Reload()
            check(events)
    print("TensorBoard", version.VERSION, "reads the event file")


main()
