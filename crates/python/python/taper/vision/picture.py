"""A picture of bytes, in place of Pillow's where Pillow is not installed."""

from .._functions import frombuffer
from .._taper import _dtypes

_UINT8 = dict(_dtypes)["uint8"]


class Picture:
    """Rows of pixels of 8 bits: ``mode`` is ``L`` (one channel) or ``RGB``; ``size`` is width and height."""

    def __init__(self, mode, size, data):
        self.mode, self.size, self._data = mode, tuple(size), bytes(data)

    @property
    def width(self):
        return self.size[0]

    @property
    def height(self):
        return self.size[1]

    def getbands(self):
        return tuple(self.mode)

    def tobytes(self):
        return self._data

    def __repr__(self):
        return f"<taper.vision.Picture mode={self.mode} size={self.width}x{self.height}>"


def picture(mode, size, data):
    """A picture of Pillow, or one of this package."""
    try:
        from PIL import Image
    except ImportError:
        return Picture(mode, size, data)
    return Image.frombytes(mode, tuple(size), bytes(data))


def is_picture(one):
    return hasattr(one, "getbands") and hasattr(one, "tobytes")


def pixels(one):
    """The bytes of a picture as a tensor ``[height, width, channels]``."""
    channels = len(one.getbands())
    return frombuffer(one.tobytes(), dtype=_UINT8).view(one.size[1], one.size[0], channels)
