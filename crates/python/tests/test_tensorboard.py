"""The files of ``SummaryWriter``, read as records of TensorBoard: length, checksum, message, checksum."""

import struct

import pytest
import taper
from taper.utils.tensorboard import SummaryWriter


def records(folder):
    """The messages of all event files of a folder."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            found.append(data[at + 12 : at + 12 + length])
            at += 16 + length
        assert at == len(data)
    return found


def fields(message):
    """The fields of a message of protocol buffers: number and value."""
    at, found = 0, []

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind in (1, 5):
            size, form = (8, "<d") if kind == 1 else (4, "<f")
            (value,) = struct.unpack_from(form, message, at)
            at += size
        else:
            size = varint()
            value = message[at : at + size]
            at += size
        found.append((key >> 3, value))
    return found


def summaries(folder):
    """The step, the tag and the fields of each value."""
    found = []
    for message in records(folder):
        event = fields(message)
        step = dict(event).get(2, 0)
        for number, summary in event:
            for _, value in fields(summary) if number == 5 else ():
                value = dict(fields(value))
                found.append((step, value[1].decode(), value))
    return found


def test_numbers_and_texts(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss/train", taper.tensor(1.0 / (step + 1)), step)
        writer.add_text("notes", "a *text*", 7)
        assert writer.get_logdir() == str(tmp_path)
    found = summaries(tmp_path)
    curve = [(step, value[2]) for step, tag, value in found if tag == "loss/train"]
    assert [step for step, _ in curve] == [0, 1, 2]
    assert [value for _, value in curve] == pytest.approx([1, 1 / 2, 1 / 3])
    ((step, _, value),) = [one for one in found if one[1].startswith("notes")]
    assert step == 7 and b"a *text*" in value[8]


def test_histograms(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_histogram("weights", taper.tensor([-1.0, 0.5, 2.0]), 4)
    writer.add_histogram("list", [1, 2])
    writer.close()
    ((step, _, value),) = [one for one in summaries(tmp_path) if one[1] == "weights"]
    histogram = dict(fields(value[5]))
    assert step == 4 and (histogram[1], histogram[2], histogram[3]) == (-1, 2, 3)


def test_images(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_image("picture", taper.rand(3, 4, 5), 1)
    writer.add_image("turned", taper.zeros(4, 5, 3, dtype=taper.uint8), 1, dataformats="HWC")
    writer.add_images("several", taper.rand(10, 1, 2, 3), 1)
    with pytest.raises(AssertionError, match="input format are different"):
        writer.add_image("wrong", taper.rand(4, 5))
    writer.flush()
    sizes = {}
    for _, tag, value in summaries(tmp_path):
        image = dict(fields(value[4]))
        assert image[4].startswith(b"\x89PNG")
        sizes[tag] = image[1], image[2]
    assert sizes == {"picture": (4, 5), "turned": (4, 5), "several": (4, 24)}


def test_settings_and_several_curves(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_hparams({"lr": 0.1, "kind": "sgd", "nesterov": True}, {"accuracy": taper.tensor(0.5)}, run_name="one")
    writer.add_scalars("loss", {"train": 1.0, "test": 2.0}, 3)
    writer.close()
    assert any(tag == "accuracy" and value[2] == 0.5 for _, tag, value in summaries(tmp_path / "one"))
    assert [value[2] for _, _, value in summaries(tmp_path / "loss_test")] == [2.0]
    with pytest.raises(TypeError):
        writer.add_hparams({"a": [1]}, {})


def test_a_closed_writer_begins_a_new_file(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1.0, 0)
    writer.close()
    writer.add_scalar("a", 2.0, 1)
    writer.close()
    assert [value[2] for _, _, value in summaries(tmp_path)] == [1.0, 2.0]
