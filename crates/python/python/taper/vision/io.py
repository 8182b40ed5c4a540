"""``torchvision.io``: pictures in files, by Pillow."""

import enum
import io
import os

from .transforms.functional import pil_to_tensor
from .utils import save_image


class ImageReadMode(enum.Enum):
    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_PILLOW = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def _opened(file, mode):
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("torchvision.io: Taper reads pictures by Pillow: pip install pillow") from error
    name = mode.upper() if isinstance(mode, str) else mode.name
    with Image.open(file) as image:
        return pil_to_tensor(image if name == "UNCHANGED" else image.convert(_PILLOW[name]))


def read_image(path, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """The bytes of a picture ``[channels, height, width]``."""
    return _opened(os.fspath(path), mode)


def decode_image(input, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """As :func:`read_image`, also of a file's bytes in a tensor."""
    if isinstance(input, (str, os.PathLike)):
        return read_image(input, mode)
    return _opened(io.BytesIO(input.cpu().numpy().tobytes()), mode)


def write_png(input, filename, compression_level=6):
    """Writes bytes ``[channels, height, width]``."""
    save_image(input.float() / 255, filename, format="png")
