"""``save`` and ``load``: files in the format of PyTorch, which reads them and whose files are read.

A pickle refers to storages, and names functions of ``torch._utils`` that make tensors of them. It is written with
PyTorch's names whether or not a module ``torch`` is there.
"""

import io
import pickle
import sys
import types
from collections import Counter, OrderedDict

from . import _archive, _taper
from ._size import Size
from ._taper import Tensor, device, dtype

_dtypes = dict(_taper._dtypes)

#: Names of storages, which say the dtype.
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}
_NAMES = {_dtypes[kind]: name for name, kind in _STORAGES.items()}


class _Global:
    """A class or function under the name that PyTorch has for it."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self, *args):
        raise TypeError("this stands for something of PyTorch")


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


# Writing

class _Pickler(pickle._Pickler):
    """Writes tensors as PyTorch does, and classes of this package under the names that PyTorch has for them."""

    dispatch = pickle._Pickler.dispatch.copy()

    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self.storages, self._kept, self._names = {}, [], {}

    def persistent_id(self, obj):
        return obj.parts if type(obj) is _Written else None

    def reducer_override(self, obj):
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if type(obj) is device:
            kind, _, index = str(obj).partition(":")
            return _Global("torch", "device"), (kind, int(index)) if index else (kind,)
        if type(obj) is Size:
            return _Global("torch", "Size"), (tuple(obj),)
        return NotImplemented

    def _tensor(self, tensor):
        from .nn.parameter import Buffer, Parameter

        if type(tensor) is Parameter:
            plain = self._plain(tensor.detach(), False)
            # Attributes that a program has set come with a parameter.
            if tensor.__dict__:
                state = dict(tensor.__dict__)
                name = "_rebuild_parameter_with_state"
                return _Global("torch._utils", name), (plain, tensor.requires_grad, OrderedDict(), state)
            return _Global("torch._utils", "_rebuild_parameter"), (plain, tensor.requires_grad, OrderedDict())
        function, args = self._reduced(tensor, tensor.requires_grad)
        state = {name: value for name, value in tensor.__dict__.items()}
        if type(tensor) in (Tensor, Buffer) and not (type(tensor) is Tensor and state):
            return function, args
        return _Global("torch._tensor", "_rebuild_from_type_v2"), (function, type(tensor), args, state)

    def _plain(self, tensor, requires_grad):
        return _Reduced(*self._reduced(tensor, requires_grad))

    def _reduced(self, tensor, requires_grad):
        storage, kind = self._storage(tensor), tensor.dtype
        args = (storage, tensor.storage_offset(), tuple(tensor._sizes()), tensor.stride(), requires_grad, OrderedDict())
        if kind in _NAMES:
            return _Global("torch._utils", "_rebuild_tensor_v2"), args
        return _Global("torch._utils", "_rebuild_tensor_v3"), (*args, kind)

    def _storage(self, tensor):
        key = tensor.data_ptr()
        if key not in self.storages:
            # The tensor is held, so that no other memory gets its number.
            self.storages[key] = (str(len(self.storages)), tensor._whole().detach())
            self._kept.append(tensor)
        name, whole = self.storages[key]
        known = whole.dtype in _NAMES
        kind = _Global("torch", _NAMES[whole.dtype]) if known else _Global("torch.storage", "UntypedStorage")
        count = whole.numel() if known else whole.nbytes
        return _Written(("storage", kind, name, str(whole.device), count))

    def save_marker(self, obj):
        self._name(obj, obj.module, obj.name)

    def save_reduced(self, obj):
        self.save_reduce(obj.function, obj.args, obj=obj)
        self._kept.append(obj)

    def save_dtype(self, obj):
        self._name(obj, "torch", repr(obj)[len("torch."):])

    def save_global(self, obj, name=None):
        module = getattr(obj, "__module__", None) or ""
        if module.split(".")[0] not in ("taper", "torch"):
            return super().save_global(obj, name)
        if _is_layer(obj):
            return self._name(obj, f"torch.nn.modules.{_PLACES.get(obj.__name__, module.split('.')[-1])}", obj.__name__)
        names = (name, getattr(obj, "__qualname__", None), getattr(obj, "__name__", None))
        for found in filter(None, names):
            for place in (module, _ours(module)):
                if _member(sys.modules.get(place), found) is obj:
                    return self._name(obj, "torch" + _ours(module)[len("taper"):], found)
        raise pickle.PicklingError(f"Can't pickle {obj!r}: it's not found as {module}.{names[1]}")

    def _name(self, obj, module, name):
        """Writes the name of something that a module has, which is remembered by what it names."""
        if (module, name) in self._names:
            return self.write(self.get(self.memo[id(self._names[module, name])][0]))
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self._names[module, name] = obj if isinstance(obj, _Global) else _Global(module, name)
        self.memoize(self._names[module, name])

    dispatch[_Global] = save_marker
    dispatch[dtype] = save_dtype
    dispatch[type] = lambda self, obj: self._type(obj)
    dispatch[types.FunctionType] = save_global

    def _type(self, obj):
        if obj in (type(None), type(NotImplemented), type(...)):
            return self.save_type(obj)
        return self.save_global(obj)


class _Written:
    """A reference to a storage."""

    def __init__(self, parts):
        self.parts = parts


class _Reduced:
    """A call that a pickle makes."""

    def __init__(self, function, args):
        self.function, self.args = function, args


_Pickler.dispatch[_Reduced] = _Pickler.save_reduced


#: The modules in which PyTorch has layers that are elsewhere here.
_PLACES = {
    name: module
    for module, names in {
        "activation": "MultiheadAttention",
        "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
        "distance": "CosineSimilarity PairwiseDistance",
        "flatten": "Flatten Unflatten",
        "fold": "Fold Unfold",
        "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
        "linear": "NonDynamicallyQuantizableLinear",
        "normalization": "LayerNorm RMSNorm GroupNorm LocalResponseNorm",
        "padding": " ".join(f"{kind}Pad{d}d" for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")
                            for d in (1, 2, 3)),
        "pixelshuffle": "PixelShuffle PixelUnshuffle",
        "upsampling": "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
    }.items()
    for name in names.split()
}


def _is_layer(obj):
    return isinstance(obj, type) and obj.__module__.startswith("taper.nn.modules.") and "." not in obj.__qualname__


def _layer(module, name):
    """The layer that PyTorch has in this module, wherever it is here."""
    from . import nn

    if not module.startswith("torch.nn.modules."):
        return None
    for place in (nn, nn.modules.transformer):
        if _is_layer(getattr(place, name, None)):
            return getattr(place, name)
    return None


def _ours(module):
    return "taper" + module[len("torch"):] if module.split(".")[0] == "torch" else module


def _member(module, path):
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def save(obj, f, pickle_module=pickle, pickle_protocol=2, _use_new_zipfile_serialization=True,
         _disable_byteorder_record=False):
    """Writes an object to a path or a file, in PyTorch's zip format."""
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("save: only the zip format of PyTorch 1.6 and later is written")
    text = io.BytesIO()
    pickler = _Pickler(text, pickle_protocol)
    pickler.dump(obj)
    file, ours = _archive.opened(f, "wb")
    try:
        writer = _archive.Writer(file)
        writer.record("data.pkl", text.getvalue())
        writer.record(".format_version", b"1")
        writer.record(".storage_alignment", b"64")
        writer.record("byteorder", b"little")
        for name, whole in pickler.storages.values():
            writer.record(f"data/{name}", whole._bytes())
        writer.record("version", b"3\n")
        writer.close()
    finally:
        if ours:
            file.close()


# Reading

def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    made = storage._tensor(None, storage_offset, size, stride)
    return made.requires_grad_() if requires_grad else made


def _rebuild_tensor(storage, storage_offset, size, stride):
    return storage._tensor(None, storage_offset, size, stride)


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    made = storage._tensor(dtype, storage_offset, size, stride)
    return made.requires_grad_() if requires_grad else made


def _rebuild_parameter(data, requires_grad, backward_hooks):
    from .nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    return _with_state(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def _with_state(made, state):
    state = state[0] if isinstance(state, tuple) else state
    made.__dict__.update(state or {})
    return made


def _rebuild_from_type_v2(func, new_type, args, state):
    made = func(*args)
    if type(made) is not new_type and new_type is not Tensor:
        other = Tensor.__new__(new_type)
        made = other.set_(made)
    return _with_state(made, state)


def _device(*args):
    return device(*args)


def _get_layout(name):
    return _taper.strided


def _storage_kinds():
    kinds = {("torch", name): _Kind(_dtypes[kind]) for name, kind in _STORAGES.items()}
    untyped = _Kind(_dtypes["uint8"])
    return {**kinds, ("torch.storage", "UntypedStorage"): untyped, ("torch", "UntypedStorage"): untyped}


class _Kind:
    """The dtype of a storage, in the place of its class."""

    __slots__ = ("dtype",)

    def __init__(self, dtype):
        self.dtype = dtype


_REBUILD = {
    ("torch._utils", function.__name__): function
    for function in (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter,
                     _rebuild_parameter_with_state)
}
_REBUILD.update(_storage_kinds())
_REBUILD[("torch._tensor", "_rebuild_from_type_v2")] = _rebuild_from_type_v2
_REBUILD[("torch.serialization", "_get_layout")] = _get_layout
_REBUILD.update({("torch", name): kind for name, kind in _dtypes.items()})


def _allowed():
    import _codecs

    from .nn.parameter import Buffer, Parameter

    return {
        **_REBUILD,
        ("collections", "OrderedDict"): OrderedDict, ("collections", "Counter"): Counter,
        ("torch.nn.parameter", "Parameter"): Parameter, ("torch.nn.parameter", "Buffer"): Buffer,
        ("torch", "Size"): Size, ("torch", "Tensor"): Tensor, ("torch", "device"): _device,
        ("_codecs", "encode"): _codecs.encode, ("builtins", "bytearray"): bytearray, ("builtins", "set"): set,
        ("builtins", "complex"): complex,
    }


#: Classes and functions that a program trusts, by their names.
_SAFE = {}


def _named(safe):
    named = {}
    for one in safe:
        one, name = one if isinstance(one, tuple) else (one, f"{one.__module__}.{one.__qualname__}")
        named[name] = one
    return named


def add_safe_globals(safe_globals):
    """Classes and functions that :func:`load` may use from a file with ``weights_only=True``."""
    _SAFE.update(_named(safe_globals))


def get_safe_globals():
    return list(_SAFE.values())


def clear_safe_globals():
    _SAFE.clear()


class safe_globals:
    """As :func:`add_safe_globals`, within a ``with``."""

    def __init__(self, safe_globals):
        self._named = _named(safe_globals)

    def __enter__(self):
        self._added = {name: one for name, one in self._named.items() if name not in _SAFE}
        _SAFE.update(self._added)

    def __exit__(self, *error):
        for name in self._added:
            _SAFE.pop(name, None)


class _Unpickler(pickle._Unpickler):
    """Reads a pickle of PyTorch. Without trust it calls nothing but what makes tensors and collections."""

    dispatch = pickle._Unpickler.dispatch.copy()

    def __init__(self, file, archive, place, trusted, **options):
        super().__init__(file, **options)
        self._archive, self._place, self._trusted, self._storages = archive, place, trusted, {}

    def persistent_load(self, parts):
        if not isinstance(parts, tuple) or len(parts) != 5 or parts[0] != "storage":
            raise pickle.UnpicklingError(f"Unknown typename for persistent_load, expected 'storage' but got {parts!r}")
        _, kind, name, place, count = parts
        if not isinstance(kind, _Kind):
            raise pickle.UnpicklingError(f"a storage of an unknown kind: {kind!r}")
        if name not in self._storages:
            data = self._archive.record(f"data/{name}")
            if len(data) != count * kind.dtype.itemsize:
                raise RuntimeError(
                    f"storage {name} has {len(data)} bytes in the file, and {count} elements of {kind.dtype} are expected"
                )
            if self._archive.swapped:
                data = _swapped(data, kind.dtype.itemsize)
            self._storages[name] = self._place(data, kind.dtype, place)
        return self._storages[name]

    def find_class(self, module, name):
        module = _old_names(module, name)
        if self._trusted:
            if (module, name) in _REBUILD:
                return _REBUILD[module, name]
            layer = _layer(module, name)
            return super().find_class(_ours(module), name) if layer is None else layer
        allowed = _allowed()
        if (module, name) in allowed:
            return allowed[module, name]
        path = f"{module}.{name}"
        for known in (path, path.replace("torch.", "taper.", 1)):
            if known in _SAFE and module not in ("sys", "os", "posix", "nt"):
                return _SAFE[known]
        path = path.removeprefix("builtins.")
        raise pickle.UnpicklingError(
            f"Unsupported global: GLOBAL {path} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{path}])` or the `torch.serialization.safe_globals([{path}])` "
            "context manager to allowlist this global if you trust this class/function."
        )

    def load_build(self):
        if not self._trusted:
            target = self.stack[-2]
            kinds = (Tensor, OrderedDict, *(one for one in _SAFE.values() if isinstance(one, type)))
            if not isinstance(target, kinds):
                raise pickle.UnpicklingError(
                    f"Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but "
                    f"got {type(target)}"
                )
            if type(target) is OrderedDict:
                state = self.stack.pop()
                target.__dict__.update(state)
                return
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def _old_names(module, name):
    """Protocol 2 has the names of Python 2."""
    import _compat_pickle

    if (module, name) in _compat_pickle.NAME_MAPPING:
        return _compat_pickle.NAME_MAPPING[module, name][0]
    return _compat_pickle.IMPORT_MAPPING.get(module, module)


def _swapped(data, size):
    import array

    if size == 1:
        return data
    numbers = array.array({2: "H", 4: "I", 8: "Q"}[size], data)
    numbers.byteswap()
    return numbers.tobytes()


def _placement(map_location):
    """A function that gives a storage, on the device that ``map_location`` says."""

    def default(data, kind, place):
        if place.startswith("cuda"):
            from . import cuda

            if not cuda.is_available():
                raise RuntimeError(
                    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you "
                    "are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to "
                    "map your storages to the CPU."
                )
        return UntypedStorage(data, kind, place)

    if map_location is None:
        return default
    if isinstance(map_location, dict):
        return lambda data, kind, place: default(data, kind, str(map_location.get(place, place)))
    if isinstance(map_location, (str, device)):
        target = str(map_location)
        return lambda data, kind, place: default(data, kind, target)

    def ask(data, kind, place):
        found = map_location(UntypedStorage(data, kind, "cpu"), place)
        return default(data, kind, place) if found is None else found

    return ask


_FAILED = (
    "Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only if "
    "you trust the source of the checkpoint. \n\t(1) Re-running `torch.load` with `weights_only` set to `False` will "
    "likely succeed, but it can result in arbitrary code execution. Do it only if you got the file from a trusted "
    "source.\n\t(2) Alternatively, to load with `weights_only=True` please check the recommended steps in the following "
    "error message.\n\tWeightsUnpickler error: "
)


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Reads what :func:`save`, or PyTorch, has written."""
    file, ours = _archive.opened(f, "rb")
    try:
        start = file.read(4)
        file.seek(0)
        if start[:2] != b"PK":
            raise pickle.UnpicklingError(_foreign(start))
        archive = _archive.Reader(file)
        if "constants.pkl" in archive:
            raise RuntimeError("Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``: "
                               "a TorchScript archive is a program, which Taper does not run")
        archive.swapped = "byteorder" in archive and archive.record("byteorder") == b"big"
        trusted = weights_only is False
        text = io.BytesIO(archive.record("data.pkl"))
        pickle_load_args.setdefault("encoding", "utf-8")
        try:
            return _Unpickler(text, archive, _placement(map_location), trusted, **pickle_load_args).load()
        except pickle.UnpicklingError as error:
            if trusted:
                raise
            raise pickle.UnpicklingError(_FAILED + str(error)) from None
    finally:
        if ours:
            file.close()


def _foreign(start):
    if not start:
        return "the file is empty"
    if start[:1] == b"\x80":
        return (
            "the file is a pickle, perhaps in the format of PyTorch before version 1.6, which is not read; load it with "
            "PyTorch and save it again"
        )
    return f"the file begins with {start!r}: it is not in the zip format of torch.save"
