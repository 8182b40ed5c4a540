"""``torchvision.transforms`` for tensors and pictures."""

import random

from ..._functions import randint
from .functional import (
    InterpolationMode,  # noqa: F401
    _channels_first,
    _pair,
    center_crop,
    convert_image_dtype,
    crop,
    hflip,
    normalize,
    pad,
    pil_to_tensor,
    resize,
    rgb_to_grayscale,
    to_pil_image,
    to_tensor,
    vflip,
)


class _Transform:
    """A transform with the arguments that it was made with."""

    def __repr__(self):
        given = ", ".join(f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({given})"


class Compose:
    """One transform after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self):
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"Compose({lines}\n)"


def _simple(name, function, *arguments):
    """A class whose calls pass its arguments to a function."""
    def init(self, *args, **kwargs):
        for key, value in zip(arguments, args):
            setattr(self, key, value)
        for key, value in kwargs.items():
            if key not in arguments:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
            setattr(self, key, value)

    def call(self, image):
        return function(image, **vars(self))

    return type(name, (_Transform,), {"__init__": init, "__call__": call, "__module__": __name__})


ToTensor = _simple("ToTensor", to_tensor)
PILToTensor = _simple("PILToTensor", pil_to_tensor)
ToPILImage = _simple("ToPILImage", to_pil_image, "mode")
ConvertImageDtype = _simple("ConvertImageDtype", convert_image_dtype, "dtype")
Normalize = _simple("Normalize", normalize, "mean", "std", "inplace")
Resize = _simple("Resize", resize, "size", "interpolation", "max_size", "antialias")
CenterCrop = _simple("CenterCrop", lambda image, size: center_crop(image, size), "size")
Pad = _simple("Pad", pad, "padding", "fill", "padding_mode")
Grayscale = _simple("Grayscale", rgb_to_grayscale, "num_output_channels")


class Lambda(_Transform):
    def __init__(self, lambd):
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, image):
        return self.lambd(image)


class RandomApply(_Transform):
    def __init__(self, transforms, p=0.5):
        self.transforms, self.p = transforms, p

    def __call__(self, image):
        return Compose(self.transforms)(image) if random.random() < self.p else image


class RandomHorizontalFlip(_Transform):
    _flip = staticmethod(hflip)

    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, image):
        return self._flip(image) if random.random() < self.p else image


class RandomVerticalFlip(RandomHorizontalFlip):
    _flip = staticmethod(vflip)


class RandomCrop(_Transform):
    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        self.size, self.padding, self.pad_if_needed = _pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def __call__(self, image):
        if self.padding is not None:
            image = pad(image, self.padding, self.fill, self.padding_mode)
        (tall, wide), (height, width) = _channels_first(image).shape[-2:], self.size
        if self.pad_if_needed and (tall < height or wide < width):
            image = pad(image, (max(width - wide, 0), max(height - tall, 0)), self.fill, self.padding_mode)
            tall, wide = _channels_first(image).shape[-2:]
        if tall < height or wide < width:
            raise ValueError(f"Required crop size {self.size} is larger than input image size {(tall, wide)}")
        top, left = (int(randint(0, room + 1, (1,)).item()) for room in (tall - height, wide - width))
        return crop(image, top, left, height, width)
