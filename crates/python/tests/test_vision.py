"""``taper.vision``: data sets of files, transforms, pictures of batches."""

import gzip
import struct
import zlib

import pytest
import taper
from test_run import ran

from taper.vision import datasets, models, transforms, utils
from taper.vision.picture import Picture

ROWS, COLUMNS = 5, 4


def write(folder, count=6, packed=True, cut=0):
    """Files of MNIST whose pixel ``k`` of picture ``i`` is ``20 i + k``."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = bytes(20 * i + k for i in range(count) for k in range(ROWS * COLUMNS))
    images = bytes((0, 0, 8, 3)) + struct.pack(">3I", count, ROWS, COLUMNS) + pixels[: len(pixels) - cut]
    labels = bytes((0, 0, 8, 1)) + struct.pack(">I", count) + bytes(i % 3 for i in range(count))
    for start in ("train", "t10k"):
        for name, data in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            path = folder / f"{start}-{name}{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)


@pytest.mark.parametrize("packed", [True, False])
def test_digits_come_from_files(tmp_path, packed):
    write(tmp_path / "MNIST" / "raw", packed=packed)
    change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))])
    digits = datasets.MNIST(str(tmp_path), train=False, download=True, transform=change, target_transform=lambda y: -y)
    assert len(digits) == 6 and digits.data.shape == (6, ROWS, COLUMNS) and digits.targets.tolist() == [0, 1, 2] * 2
    image, target = digits[2]
    expected = (digits.data[2].float() / 255 - 0.5) / 0.25
    assert target == -2 and image.shape == (1, ROWS, COLUMNS) and taper.equal(image[0], expected)
    assert taper.equal(digits[-1][0], digits[5][0])
    loader = taper.utils.data.DataLoader(digits, batch_size=4)
    assert [tuple(x.shape) for x, _ in loader] == [(4, 1, ROWS, COLUMNS), (2, 1, ROWS, COLUMNS)]
    with pytest.raises(IndexError):
        digits[6]


def test_files_that_are_not_there_or_cut_are_errors(tmp_path):
    with pytest.raises(RuntimeError, match="Dataset not found.*downloads nothing"):
        datasets.FashionMNIST(str(tmp_path), download=True)
    write(tmp_path, cut=3)
    with pytest.raises(RuntimeError, match="117 bytes for sizes"):
        datasets.MNIST(str(tmp_path))
    write(tmp_path)
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(RuntimeError, match="not a file of IDX"):
        datasets.MNIST(str(tmp_path))


def test_transforms_of_tensors_and_pictures():
    picture = Picture("RGB", (3, 2), bytes(range(18)))
    x = transforms.PILToTensor()(picture)
    assert x.tolist()[0] == [[0, 3, 6], [9, 12, 15]] and x.shape == (3, 2, 3)
    assert transforms.ToPILImage()(x).tobytes() == picture.tobytes()
    assert transforms.hflip(x).tolist()[0] == [[6, 3, 0], [15, 12, 9]]
    assert transforms.CenterCrop(1)(x).shape == (3, 1, 1)
    assert transforms.CenterCrop((4, 4))(x).tolist()[0] == [[0, 0, 0, 0], [0, 3, 6, 0], [9, 12, 15, 0], [0, 0, 0, 0]]
    assert transforms.Pad((1, 0))(x).shape == (3, 2, 5) and transforms.Pad(1)(picture).size == (5, 4)
    assert transforms.Resize(4)(x).shape == (3, 4, 6) and transforms.Resize((5, 7))(picture).size == (7, 5)
    assert transforms.Resize(2)(picture) is picture
    assert transforms.Grayscale()(x).tolist()[0][0][0] == int(0.587 * 1 + 0.114 * 2)
    assert transforms.ConvertImageDtype()(x).max().item() == pytest.approx(17 / 255)
    taper.manual_seed(0)
    crops = {transforms.RandomCrop(1)(x).tolist()[0][0][0] for _ in range(200)}
    assert crops == {0, 3, 6, 9, 12, 15}
    with pytest.raises(ValueError, match="larger than input image size"):
        transforms.RandomCrop(3)(x)
    with pytest.raises(ValueError, match="division by zero"):
        transforms.Normalize((0.0,), (0.0,))(x.float())
    with pytest.raises(TypeError, match="floats"):
        transforms.Normalize((0.0,), (1.0,))(x)
    with pytest.raises(TypeError, match="unexpected keyword"):
        transforms.Resize(size=3, length=4)


def test_a_grid_is_written_as_png(tmp_path):
    x = taper.arange(3 * 2 * 2).float().view(3, 1, 2, 2) / 11
    grid = utils.make_grid(x, nrow=2, padding=1, pad_value=1.0)
    assert grid.shape == (3, 7, 7) and grid[0, 1, 1:3].tolist() == x[0, 0, 0].tolist()
    assert grid[2, 4, 1:3].tolist() == x[2, 0, 0].tolist() and grid[1, 4:, 4:].eq(1.0)[..., -1].all()
    utils.save_image(x, tmp_path / "grid.png", nrow=2, padding=1)
    data = (tmp_path / "grid.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (7, 7)
    length = struct.unpack(">I", data[33:37])[0]
    rows = zlib.decompress(data[41:41 + length])
    assert len(rows) == 7 * 22 and rows[22 + 1 + 6] == round(x[0, 0, 0, 1].item() * 255)


def test_false_pictures_repeat_and_networks_have_the_names_of_torchvision():
    data = datasets.FakeData(size=2, image_size=(3, 8, 8), num_classes=4, transform=transforms.ToTensor())
    assert taper.equal(data[1][0], data[1][0]) and not taper.equal(data[0][0], data[1][0])
    with pytest.raises(IndexError):
        data[2]
    net = models.resnet18(num_classes=5)
    assert sum(p.numel() for p in models.resnet18().parameters()) == 11689512
    assert {"layer2.0.downsample.0.weight", "layer4.1.bn2.running_var", "fc.bias"} <= set(net.state_dict())
    assert net.eval()(taper.zeros(2, 3, 32, 32)).shape == (2, 5)


def test_programs_import_torchvision(tmp_path):
    write(tmp_path / "MNIST" / "raw")
    (tmp_path / "program.py").write_text(
        "import torch, torchvision\n"
        "import torchvision.transforms as T\n"
        "from torchvision.datasets import MNIST\n"
        "from torchvision.utils import save_image\n"
        "data = MNIST('.', transform=T.ToTensor())\n"
        "save_image(torch.stack([image for image, _ in data]), 'all.png')\n"
        "print(type(data[0][0]) is torch.Tensor, torchvision.datasets.MNIST is MNIST)\n"
    )
    code, out, errors = ran(tmp_path, "program.py")
    assert (code, out) == (0, "True True\n"), errors
    assert (tmp_path / "all.png").stat().st_size > 50
