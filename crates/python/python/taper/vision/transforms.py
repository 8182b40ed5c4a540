"""``torchvision.transforms`` for tensors and pictures."""

import functools
import random

from .._functions import randint, tensor
from .._taper import Tensor, _dtypes
from ..nn import functional as F
from .picture import _UINT8, is_picture, picture, pixels

_TYPES = dict(_dtypes)
_FLOAT = _TYPES["float32"]


class InterpolationMode:
    NEAREST, BILINEAR, BICUBIC = "nearest", "bilinear", "bicubic"


def _channels_first(image):
    """A tensor ``[C, H, W]`` of a picture, an array or a tensor, with its own numbers."""
    if isinstance(image, Tensor):
        return image
    if is_picture(image):
        return pixels(image).permute(2, 0, 1).contiguous()
    if hasattr(image, "__array_interface__"):
        found = tensor(image)
        return (found.unsqueeze(0) if found.dim() == 2 else found.permute(2, 0, 1)).contiguous()
    raise TypeError(f"pic should be PIL Image or ndarray. Got {type(image)}")


def _like(image, changed):
    """The changed tensor as a picture, if the image was one."""
    return changed if isinstance(image, Tensor) else to_pil_image(changed)


def to_tensor(image):
    """Floats from 0 to 1 ``[C, H, W]`` of bytes."""
    found = _channels_first(image)
    return found.to(_FLOAT).div(255) if found.dtype == _UINT8 else found


def pil_to_tensor(image):
    return _channels_first(image)


def to_pil_image(image, mode=None):
    found = _channels_first(image)
    if found.dim() == 2:
        found = found.unsqueeze(0)
    if found.is_floating_point():
        found = found.mul(255).clamp(0, 255).to(_UINT8)
    channels, height, width = found.shape
    if channels not in (1, 3):
        raise ValueError(f"pic should have 1 or 3 channels, not {channels}")
    return picture("L" if channels == 1 else "RGB", (width, height), found.permute(1, 2, 0).contiguous()._bytes())


def convert_image_dtype(image, dtype=_FLOAT):
    if image.dtype == dtype:
        return image
    if image.dtype == _UINT8 and dtype.is_floating_point:
        return image.to(dtype) / 255
    if image.is_floating_point() and dtype == _UINT8:
        return image.mul(255.999).to(dtype)
    return image.to(dtype)


@functools.lru_cache(maxsize=16)
def _columns(numbers, dtype, device):
    return tensor(numbers, dtype=dtype, device=device).view(-1, 1, 1)


def normalize(image, mean, std, inplace=False):
    """``(image - mean) / std`` for each channel."""
    if not isinstance(image, Tensor) or not image.is_floating_point():
        raise TypeError(f"img should be Tensor Image of floats. Got {type(image)}")
    if 0 in map(float, std):
        raise ValueError("std evaluated to zero, leading to division by zero.")
    mean, std = (_columns(tuple(map(float, numbers)), image.dtype, str(image.device)) for numbers in (mean, std))
    return image.sub_(mean).div_(std) if inplace else (image - mean) / std


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size) if len(size) == 2 else (size[0], size[0])


def resize(image, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
    """An int is the length of the shorter side."""
    found = _channels_first(image)
    height, width = found.shape[-2:]
    if isinstance(size, int) or len(size) == 1:
        size = size if isinstance(size, int) else size[0]
        short = min(height, width)
        wanted = (int(size * height / short), int(size * width / short))
    else:
        wanted = tuple(size)
    if wanted == (height, width):
        return image
    batch = found.unsqueeze(0) if found.dim() == 3 else found
    mode = getattr(interpolation, "value", interpolation)
    mode = {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(mode, mode)
    if is_picture(image) and hasattr(image, "resize"):
        # Pillow rounds between its two passes.
        return image.resize(wanted[::-1], {"nearest": 0, "bilinear": 2, "bicubic": 3}[mode])
    options = {} if mode == "nearest" else {"align_corners": False, "antialias": bool(antialias)}
    made = F.interpolate(batch.to(_FLOAT), size=wanted, mode=mode, **options)
    made = made.squeeze(0) if found.dim() == 3 else made
    made = made if found.is_floating_point() else made.round().clamp(0, 255).to(found.dtype)
    return _like(image, made)


def crop(image, top, left, height, width):
    return _like(image, _channels_first(image)[..., top:top + height, left:left + width])


def pad(image, padding, fill=0, padding_mode="constant"):
    """Padding of all sides, of left/right and top/bottom, or of left, top, right and bottom."""
    sides = (padding,) * 4 if isinstance(padding, int) else tuple(padding) * (4 // len(padding))
    left, top, right, bottom = sides
    found = _channels_first(image)
    around = (left, right, top, bottom)
    made = F.pad(found, around, value=fill) if padding_mode == "constant" else F.pad(found, around, mode=padding_mode)
    return _like(image, made)


def center_crop(image, output_size):
    height, width = _pair(output_size)
    found = _channels_first(image)
    tall, wide = found.shape[-2:]
    if height > tall or width > wide:
        more = (max(width - wide, 0), max(height - tall, 0))
        image = pad(image, (more[0] // 2, more[1] // 2, (more[0] + 1) // 2, (more[1] + 1) // 2))
        tall, wide = max(tall, height), max(wide, width)
    return crop(image, round((tall - height) / 2), round((wide - width) / 2), height, width)


def hflip(image):
    return _like(image, _channels_first(image).flip(-1))


def vflip(image):
    return _like(image, _channels_first(image).flip(-2))


def rgb_to_grayscale(image, num_output_channels=1):
    found = _channels_first(image)
    if found.shape[-3] == 3:
        red, green, blue = found.unbind(-3)
        gray = (0.2989 * red + 0.587 * green + 0.114 * blue).to(found.dtype).unsqueeze(-3)
    else:
        gray = found
    return _like(image, gray if num_output_channels == 1 else gray.expand(3, *gray.shape[-2:]))


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
