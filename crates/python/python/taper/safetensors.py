"""Files of safetensors, with the functions of the package ``safetensors.torch``.

A file has the length of its head in eight bytes, a head in JSON with the dtype, the shape and the place of
each tensor, and the bytes of all tensors.
"""

import json
import os
import threading

from . import _taper
from ._size import Size
from ._taper import Tensor

_dtypes = dict(_taper._dtypes)
_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}
_KINDS = {name: _dtypes[kind] for name, kind in _NAMES.items() if kind in _dtypes}
_TITLES = {kind: name for name, kind in _KINDS.items()}

#: The longest head that a reader takes.
_HEAD_MAX_BYTES = 100_000_000


class SafetensorError(Exception):
    """A file that is not one of safetensors, or is damaged."""


def _checked(tensors):
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    places = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
        places.setdefault(tensor.data_ptr(), []).append(name)
    shared = [set(names) for names in places.values() if len(names) > 1]
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when "
            f"loading them again: {shared}.\nA potential way to correctly save your model is to use `save_model`."
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means you "
                "are trying to save tensors which are reference of each other in which case it's recommended to save "
                "only the full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to "
                "pack it before saving."
            )
        if tensor.dtype not in _TITLES:
            raise SafetensorError(f"safetensors has no name for {tensor.dtype}")


def _parts(tensors, metadata):
    """The bytes of a file, head first."""
    _checked(tensors)
    head, parts, start = {}, [], 0
    if metadata is not None:
        if not all(isinstance(one, str) for pair in metadata.items() for one in pair):
            raise TypeError("metadata must be a dict of str to str")
        head["__metadata__"] = dict(metadata)
    # Wide elements first, so that each tensor begins at a multiple of its element's size.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        data = tensor.detach()._bytes()
        shape, end = list(tensor._sizes()), start + len(data)
        head[name] = {"dtype": _TITLES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
        parts.append(data)
        start = end
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *parts]


def save(tensors, metadata=None):
    """The bytes of a file with these tensors."""
    return b"".join(_parts(tensors, metadata))


def save_file(tensors, filename, metadata=None):
    """Writes tensors to a file."""
    parts = _parts(tensors, metadata)
    with open(filename, "wb") as file:
        file.writelines(parts)


def _head(read, size):
    """The head of a file, and where the bytes of the tensors begin."""
    length = read(8)
    if len(length) < 8:
        raise SafetensorError("Error while deserializing header: header too small")
    length = int.from_bytes(length, "little")
    if length > _HEAD_MAX_BYTES:
        raise SafetensorError("Error while deserializing header: header too large")
    if 8 + length > size:
        raise SafetensorError("Error while deserializing header: invalid header length")
    try:
        head = json.loads(read(length).decode())
    except ValueError as error:
        raise SafetensorError(f"Error while deserializing header: invalid JSON in header: {error}") from None
    metadata = head.pop("__metadata__", None) if isinstance(head, dict) else None
    end = 0
    try:
        for name, one in sorted(head.items(), key=lambda item: item[1]["data_offsets"]):
            first, last = one["data_offsets"]
            kind = _KINDS.get(one["dtype"])
            if kind is None:
                raise SafetensorError(
                    f"Error while deserializing header: dtype {one['dtype']} of `{name}` is not known"
                )
            if first != end or last - first != Size(one["shape"]).numel() * kind.itemsize:
                raise SafetensorError(f"Error while deserializing header: invalid offset for tensor `{name}`")
            end = last
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SafetensorError(f"Error while deserializing header: invalid header: {error!r}") from None
    if 8 + length + end != size:
        raise SafetensorError("Error while deserializing header: incomplete metadata, file not fully covered")
    return head, metadata, 8 + length


def _tensor(one, data, device):
    return _taper._from_bytes(data, one["shape"], _KINDS[one["dtype"]], device)


class safe_open:
    """A file whose tensors are read one by one. Use it in a ``with``."""

    def __init__(self, filename, framework="pt", device="cpu", backend=None):
        self._device, self._file, self._reading = device, open(filename, "rb"), threading.Lock()
        try:
            self._head, self._metadata, self._start = _head(self._file.read, os.fstat(self._file.fileno()).st_size)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def keys(self):
        return sorted(self._head)

    def offset_keys(self):
        return sorted(self._head, key=lambda name: self._head[name]["data_offsets"])

    def metadata(self):
        return self._metadata

    def get_tensor(self, name):
        if name not in self._head:
            raise SafetensorError(f"File does not contain tensor {name}")
        one = self._head[name]
        first, last = one["data_offsets"]
        with self._reading:
            self._file.seek(self._start + first)
            data = self._file.read(last - first)
        return _tensor(one, data, self._device)

    def get_slice(self, name):
        return _Slice(self, name)


class _Slice:
    """A tensor of a file of which a part is wanted."""

    def __init__(self, file, name):
        self._file, self._name = file, name

    def get_shape(self):
        return list(self._file._head[self._name]["shape"])

    def get_dtype(self):
        return self._file._head[self._name]["dtype"]

    def __getitem__(self, index):
        return self._file.get_tensor(self._name)[index].clone()


def load_file(filename, device="cpu"):
    """The tensors of a file, by their names."""
    with safe_open(filename, "pt", device) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def load(data):
    """The tensors of the bytes of a file."""
    import io

    head, _, start = _head(io.BytesIO(data).read, len(data))
    found = {}
    for name, one in head.items():
        first, last = one["data_offsets"]
        found[name] = _tensor(one, bytes(data[start + first : start + last]), "cpu")
    return found


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Writes the state of a module; of tensors that share memory only the first is written."""
    metadata, seen, kept = dict(metadata or {}), {}, {}
    for name, tensor in model.state_dict().items():
        first = seen.setdefault(tensor.data_ptr(), name)
        if first == name:
            kept[name] = tensor.contiguous() if force_contiguous else tensor
        else:
            metadata[name] = first
    save_file(kept, filename, metadata or None)


def load_model(model, filename, strict=True, device="cpu"):
    """Reads the state of a module, and gives the names that are missing and those that are too many."""
    with safe_open(filename, "pt", device) as file:
        state = {name: file.get_tensor(name) for name in file.keys()}
        for name, first in (file.metadata() or {}).items():
            if first in state and name not in state:
                state[name] = state[first]
    missing, unexpected = model.load_state_dict(state, strict=strict)
    return set(missing), list(unexpected)


def storage_ptr(tensor):
    return tensor.untyped_storage().data_ptr()


def storage_size(tensor):
    return tensor.untyped_storage().nbytes()
