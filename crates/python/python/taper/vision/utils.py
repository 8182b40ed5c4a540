"""``torchvision.utils``: many pictures as one, and PNG files."""

import struct
import zlib

from .._functions import full, stack
from .._taper import Tensor
from .picture import _UINT8


def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, scale_each=False, pad_value=0.0):
    """Pictures ``[N, C, H, W]`` side by side, ``nrow`` in a row: ``[3, H, W]``."""
    if isinstance(tensor, (list, tuple)):
        tensor = stack(list(tensor), 0)
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(0)
    if tensor.size(1) == 1:
        tensor = tensor.expand(-1, 3, -1, -1)
    if normalize:
        def scaled(image):
            low, high = value_range or (image.min().item(), image.max().item())
            return image.clamp(low, high).sub(low).div(max(high - low, 1e-5))

        tensor = stack([scaled(image) for image in tensor], 0) if scale_each else scaled(tensor)
    count, channels, height, width = tensor.shape
    if count == 1:
        return tensor.squeeze(0)
    columns = min(nrow, count)
    rows = -(-count // columns)
    tall, wide = height + padding, width + padding
    grid = full((channels, tall * rows + padding, wide * columns + padding), pad_value, dtype=tensor.dtype)
    for k in range(count):
        top, left = k // columns * tall + padding, k % columns * wide + padding
        grid[:, top:top + height, left:left + width] = tensor[k].cpu()
    return grid


def _png(pixels, width, height, channels):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + pixels[at:at + width * channels] for at in range(0, len(pixels), width * channels))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def save_image(tensor, fp, format=None, **options):
    """Writes pictures of floats from 0 to 1 as one PNG file, whatever the name ends with."""
    grid = make_grid(tensor.detach() if isinstance(tensor, Tensor) else tensor, **options)
    channels, height, width = grid.shape
    data = grid.mul(255).add(0.5).clamp(0, 255).to(_UINT8).permute(1, 2, 0).contiguous()._bytes()
    written = _png(bytes(data), width, height, channels)
    if hasattr(fp, "write"):
        fp.write(written)
    else:
        with open(fp, "wb") as file:
            file.write(written)
