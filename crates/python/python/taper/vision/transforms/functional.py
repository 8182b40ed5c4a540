"""``torchvision.transforms.functional``: changes of tensors and pictures."""

import enum
import functools

from ..._functions import tensor
from ..._taper import Tensor, _dtypes
from ...nn import functional as F
from ..picture import _UINT8, is_picture, picture, pixels

_TYPES = dict(_dtypes)
_FLOAT = _TYPES["float32"]


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


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


#: Pillow's numbers of its filters.
_OF_PILLOW = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


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
        return image.resize(wanted[::-1], _OF_PILLOW[mode])
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
