#!/usr/bin/env python3
"""TensorBoard's own reader reads what `train::SummaryWriter` writes: runs the test that writes a file of every kind, and compares.

    pip install tensorboard setuptools
    python scripts/tensorboard_events.py
"""

import os
import subprocess
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util


def main():
    with tempfile.TemporaryDirectory() as folder:
        test = ["cargo", "test", "-q", "-p", "taper-train", "--test", "it", "summaries::event_files_hold_what_was_written"]
        subprocess.run(test, check=True, env={**os.environ, "EVENTS_FOLDER": folder})
        check(folder)
    print("TensorBoard reads the same values")


def check(folder):
    events = EventAccumulator(folder, size_guidance={"tensors": 0, "scalars": 0, "images": 0, "histograms": 0})
    events.Reload()
    # Old ones of steps 4 and 5 are dropped: the second file takes up after step 3.
    losses = [(event.step, round(event.value, 6)) for event in events.Scalars("loss/train")]
    assert losses == [(0, 1), (1, 0.5), (2, 0.333333), (3, 0.25), (4, 100), (5, 100)], losses
    assert events.Scalars("accuracy/last")[0].value == 0.75

    [histogram] = events.Histograms("weights")
    value = histogram.histogram_value
    totals = (value.min, value.max, value.num, value.sum, value.sum_squares)
    assert totals == (-1, 2, 5, 2, 5.5) and sum(value.bucket) == 5, totals

    [image] = events.Images("red")
    assert (image.step, image.width, image.height) == (3, 3, 2), image
    assert image.encoded_image_string.startswith(b"\x89PNG")

    [text] = events.Tensors("notes/text_summary")
    assert tensor_util.make_ndarray(text.tensor_proto).tolist() == ["a *first* try: ü".encode()]
    assert events.SummaryMetadata("notes/text_summary").plugin_data.plugin_name == "text"

    def hparams(name):
        content = events.SummaryMetadata(f"_hparams_/{name}").plugin_data.content
        return plugin_data_pb2.HParamsPluginData.FromString(content)

    experiment = hparams("experiment").experiment
    types = {info.name: info.type for info in experiment.hparam_infos}
    assert types == {"lr": 3, "optimizer": 1, "nesterov": 2, "layers": 3}, types
    assert [info.name.tag for info in experiment.metric_infos] == ["accuracy/last"]
    settings = hparams("session_start_info").session_start_info.hparams
    assert settings["lr"].number_value == 0.1 and settings["optimizer"].string_value == "adam"
    assert settings["nesterov"].bool_value is True and settings["layers"].number_value == 3
    assert hparams("session_end_info").session_end_info.status == 1

    assert {node.name for node in events.Graph().node} >= {"layer/x"}


if __name__ == "__main__":
    main()
