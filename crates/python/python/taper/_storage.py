"""Storages of a file: bytes that tensors share, and the views that tensors are of them."""

from . import _taper
from ._size import Size
from ._taper import Tensor, device


class UntypedStorage:
    """The bytes of a file that tensors share, as functions of ``map_location`` get them."""

    def __init__(self, data, kind, place):
        self._data, self._kind, self._place, self._tensors = data, kind, device(place), []

    @property
    def device(self):
        return self._place

    @property
    def dtype(self):
        return self._kind

    def nbytes(self):
        return len(self._data)

    def size(self):
        return len(self._data)

    def __len__(self):
        return len(self._data)

    def to(self, *, device):
        return UntypedStorage(self._data, self._kind, device)

    def cpu(self):
        return self.to(device="cpu")

    def cuda(self, device=None):
        from . import cuda

        return self.to(device=cuda._named(device))

    def _tensor(self, kind, offset, size, stride):
        """The tensor at these places. One that fills the storage is the memory of all others."""
        kind = kind or self._kind
        count = len(self._data) // kind.itemsize
        size, stride = tuple(size), tuple(stride)
        contiguous = stride == _contiguous(size)
        for known, base in self._tensors:
            if known == kind:
                break
        else:
            whole = contiguous and offset == 0 and Size(size).numel() == count
            sizes = size if whole else (count,)
            base = _taper._from_bytes(self._data, sizes, kind, self._place)
            self._tensors.append((kind, base))
            if whole:
                return base
        flat = base if base.dim() == 1 else base.view(-1)
        return _strided(flat, offset, size, stride)


def _contiguous(size):
    strides, step = [], 1
    for count in reversed(size):
        strides.append(step)
        step *= max(count, 1)
    return tuple(reversed(strides))


def _strided(flat, offset, size, stride):
    """A view of a vector at these places, or a copy where no sequence of views gives it."""
    last = offset + sum((count - 1) * step for count, step in zip(size, stride)) if 0 not in size else offset
    if last >= max(flat.numel(), 1) or offset < 0 or any(step < 0 for step in stride):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are out of bounds for "
            f"storage of size {flat.numel()}"
        )
    count = Size(size).numel()
    if stride == _contiguous(size) or count == 0:
        return flat[offset : offset + count].view(size)
    # Axes that repeat elements are added at the end, and the others are sorted by their strides.
    axes = [at for at in range(len(size)) if stride[at] and size[at] > 1]
    order = sorted(axes, key=lambda at: (-stride[at], at))
    view = _nested(flat, offset, [(size[at], stride[at]) for at in order])
    if view is None:
        return flat.as_strided(size, stride, offset).clone()
    view = view.permute([order.index(at) for at in axes])
    kept = [size[at] if at in axes else 1 for at in range(len(size))]
    if len(axes) < len(size):
        view = view.view(kept)
    return view if kept == list(size) else view.expand(size)


def _nested(flat, offset, axes):
    """A view for strides each of which is a multiple of the next, the last one excepted, or ``None``."""
    if not axes:
        return flat[offset]
    *outer, (count, step) = axes
    shape, index, rest, block = [], [], offset, None
    for size, stride in outer:
        start, rest = divmod(rest, stride)
        if block is not None and (block % stride or start + size > block // stride):
            return None
        shape.append(start + size if block is None else block // stride)
        index.append(slice(start, start + size))
        block = stride
    end = rest + (count - 1) * step + 1
    index.append(slice(rest, end, step))
    if block is None:
        return flat[index[0]]
    # The last row of the outermost axis may lack elements that no tensor has.
    if end > block or shape[0] * outer[0][1] > flat.numel():
        return None
    return flat[: shape[0] * outer[0][1]].view([*shape, block])[tuple(index)]


def swapped(data, size):
    import array

    if size == 1:
        return data
    numbers = array.array({2: "H", 4: "I", 8: "Q"}[size], data)
    numbers.byteswap()
    return numbers.tobytes()


class StorageOfTensor:
    """The memory that a tensor and its views have in PyTorch: its address and its size."""

    def __init__(self, tensor):
        self._tensor = tensor

    @property
    def device(self):
        return self._tensor.device

    def data_ptr(self):
        # Views of one memory have one number.
        return self._tensor.data_ptr()

    def nbytes(self):
        reach = sum((size - 1) * step for size, step in zip(self._tensor.shape, self._tensor.stride()))
        return (self._tensor.storage_offset() + reach + 1) * self._tensor.itemsize if self._tensor.numel() else 0

    def size(self):
        return self.nbytes()

    __len__ = size


Tensor.untyped_storage = Tensor.storage = lambda self: StorageOfTensor(self)
