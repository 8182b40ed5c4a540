"""Networks as ONNX files, and files as networks."""

import io
from pathlib import Path

import pytest
import taper
from taper import nn
from taper.nn import functional as F

CLASSIFIER = Path(__file__).parents[2] / "onnx/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 3)

    def forward(self, picture, scale):
        features = F.relu(self.norm(self.conv(picture))).mean(dim=(2, 3))
        return F.log_softmax(self.head(self.drop(features)) * scale, dim=1)


def test_a_network_that_is_written_computes_the_same_at_other_sizes(tmp_path):
    net = Net()
    net.norm.running_mean.add_(0.3)
    picture, scale = taper.rand(2, 1, 8, 8), taper.tensor(2.0)
    path = tmp_path / "net.onnx"
    operators = taper.onnx.export(
        net,
        (picture, scale),
        path,
        output_names=["logits"],
        dynamic_axes={"picture": {0: "batch", 2: "height"}, "logits": {0: "batch"}},
        do_constant_folding=True,
    )
    assert operators["Conv"] == 1 and operators["BatchNormalization"] == 1 and operators["Gemm"] == 1
    assert net.training and net.drop.training
    net.eval()
    read = taper.onnx.load(path)
    assert read.input_names == ["picture", "scale"] and read.output_names == ["logits"]
    for shape in [(2, 1, 8, 8), (5, 1, 11, 8)]:
        picture = taper.rand(*shape)
        taper.testing.assert_close(read(picture, scale=scale), net(picture, scale), rtol=1e-5, atol=1e-5)
    assert "batch" in repr(read)


def test_a_function_is_written_to_a_file_object():
    file = io.BytesIO()
    operators = taper.onnx.export(lambda x: (x.sin(), x.cos()), taper.rand(3), file, input_names=["x"])
    assert operators == {"Sin": 1, "Cos": 1} and b"taper" in file.getvalue()


def test_an_exporter_is_known_inside_of_forward(tmp_path):
    seen = []

    def forward(x):
        seen.append(taper.onnx.is_in_onnx_export())
        return x + 1

    taper.onnx.export(forward, taper.rand(3), tmp_path / "one.onnx", opset_version=18)
    assert seen and all(seen) and not taper.onnx.is_in_onnx_export()


def test_what_cannot_be_written_or_read_is_an_error(tmp_path):
    x = taper.rand(3)
    with pytest.raises(TypeError, match="give a file"):
        taper.onnx.export(lambda x: x, x)
    with pytest.raises(RuntimeError, match="versions from 18 to"):
        taper.onnx.export(lambda x: x + 1, x, tmp_path / "old.onnx", opset_version=7)
    with pytest.raises(ZeroDivisionError):
        taper.onnx.export(lambda x: 1 / 0, x, tmp_path / "fails.onnx")
    with pytest.raises(OSError, match="none.onnx"):
        taper.onnx.load(tmp_path / "none.onnx")
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    with pytest.raises((OSError, RuntimeError)):
        taper.onnx.load(tmp_path / "junk.onnx")


def test_a_file_of_another_program_runs():
    model = taper.onnx.load(CLASSIFIER)
    output = model(taper.zeros(1, 3, 48, 192))
    assert output.shape == (1, 2) and abs(output.sum().item() - 1) < 1e-5
    with pytest.raises(RuntimeError, match="picture"):
        model(picture=taper.zeros(1, 3, 48, 192))
    with pytest.raises(TypeError, match="2 inputs"):
        model(taper.zeros(1), taper.zeros(1))
