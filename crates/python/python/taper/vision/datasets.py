"""``torchvision.datasets`` for the files that are there: nothing is downloaded."""

import gzip
import os
import pickle
import struct

from .._functions import frombuffer, randint, randn, tensor
from .._taper import Generator
from ..utils.data import Dataset
from .picture import _UINT8, picture
from .transforms import to_pil_image


class VisionDataset(Dataset):
    """Samples of a folder, which transforms change."""

    def __init__(self, root=None, transforms=None, transform=None, target_transform=None):
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transforms, self.transform, self.target_transform = transforms, transform, target_transform

    def _changed(self, image, target):
        if self.transforms is not None:
            return self.transforms(image, target)
        image = image if self.transform is None else self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self):
        return f"Dataset {type(self).__name__}\n    Number of datapoints: {len(self)}\n    Root location: {self.root}"


def _read(*paths):
    """The first of these files that is there, unpacked."""
    for path in paths:
        for name in (path, path + ".gz"):
            if os.path.isfile(name):
                with (gzip.open if name.endswith(".gz") else open)(name, "rb") as file:
                    return file.read()
    raise RuntimeError(
        f"Dataset not found: none of {', '.join(paths)} (or with .gz) is there. Taper downloads nothing: put the files there"
    )


def _idx(data, axes):
    """The sizes and the bytes of a file of IDX."""
    if len(data) < 4 + 4 * axes or data[:4] != bytes((0, 0, 8, axes)):
        raise RuntimeError(f"not a file of IDX with bytes along {axes} axes")
    sizes = struct.unpack(f">{axes}I", data[4:4 + 4 * axes])
    count = 1
    for size in sizes:
        count *= size
    if len(data) - 4 - 4 * axes != count:
        raise RuntimeError(f"a file of IDX has {len(data) - 4 - 4 * axes} bytes for sizes {sizes}")
    return sizes, data[4 + 4 * axes:]


class MNIST(VisionDataset):
    """Handwritten digits from ``root/MNIST/raw``, or from the files in ``root`` itself."""

    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven",
               "8 - eight", "9 - nine"]

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        start = "train" if train else "t10k"
        images, labels = (
            _read(*(os.path.join(folder, f"{start}-{name}") for folder in (self.raw_folder, self.root)))
            for name in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        (count, self._height, self._width), self._images = _idx(images, 3)
        (labelled,), labels = _idx(labels, 1)
        if labelled != count:
            raise RuntimeError(f"{count} pictures and {labelled} labels")
        self._labels = list(labels)
        self.data = frombuffer(self._images, dtype=_UINT8).view(count, self._height, self._width)
        self.targets = tensor(self._labels)

    @property
    def raw_folder(self):
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def class_to_idx(self):
        return {name: at for at, name in enumerate(self.classes)}

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, index):
        index = range(len(self))[int(index)]
        pixels = self._height * self._width
        image = picture("L", (self._width, self._height), self._images[index * pixels:(index + 1) * pixels])
        return self._changed(image, self._labels[index])


class FashionMNIST(MNIST):
    """Pictures of clothes in MNIST's format."""

    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Cursive Japanese characters in MNIST's format."""

    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class CIFAR10(VisionDataset):
    """Small colour pictures from ``root/cifar-10-batches-py``."""

    base_folder, _train, _test, _label = "cifar-10-batches-py", [f"data_batch_{k}" for k in range(1, 6)], ["test_batch"], "labels"

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train, self.targets, self._pictures = train, [], []
        for name in self._train if train else self._test:
            found = pickle.loads(_read(os.path.join(self.root, self.base_folder, name)), encoding="latin1")
            self.targets.extend(found[self._label])
            self._pictures.extend(found["data"])

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        rows = frombuffer(bytes(self._pictures[index]), dtype=_UINT8).view(3, 32, 32)
        return self._changed(to_pil_image(rows), self.targets[index])


class CIFAR100(CIFAR10):
    base_folder, _train, _test, _label = "cifar-100-python", ["train"], ["test"], "fine_labels"


class FakeData(VisionDataset):
    """Pictures of random numbers, each from its own seed."""

    def __init__(self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None, target_transform=None,
                 random_offset=0):
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, image_size, num_classes, random_offset

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = Generator()
        generator.manual_seed(index + self.random_offset)
        image = randn(*self.image_size, generator=generator)
        target = randint(0, self.num_classes, (1,), generator=generator)
        return self._changed(to_pil_image(image), int(target.item()))


class ImageFolder(VisionDataset):
    """Pictures in a folder for each class; reading them needs Pillow."""

    _ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

    def __init__(self, root, transform=None, target_transform=None, loader=None, is_valid_file=None):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
        self.class_to_idx = {name: at for at, name in enumerate(self.classes)}
        self.loader = loader or _opened
        valid = is_valid_file or (lambda path: path.lower().endswith(self._ENDINGS))
        self.samples = [
            (os.path.join(folder, name), at)
            for label, at in self.class_to_idx.items()
            for folder, _, names in sorted(os.walk(os.path.join(self.root, label)))
            for name in sorted(names)
            if valid(os.path.join(folder, name))
        ]
        self.imgs, self.targets = self.samples, [target for _, target in self.samples]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)


def _opened(path):
    from PIL import Image

    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def _absent(name):
    def absent(*args, **kwargs):
        raise NotImplementedError(f"torchvision.datasets.{name}: the package reads MNIST, FashionMNIST, KMNIST, CIFAR, ImageFolder and FakeData")

    absent.__name__ = name
    return absent


LSUN, ImageNet, CelebA, SVHN, STL10 = map(_absent, ("LSUN", "ImageNet", "CelebA", "SVHN", "STL10"))
