"""``save`` and ``load``: files in the format of PyTorch, which reads them and whose files are read.

A pickle refers to storages, and names functions of ``torch._utils`` that make tensors of them.
"""

import io
import os
import pickle
import sys
from collections import Counter, OrderedDict

from . import _archive, _legacy, _taper
from ._pickler import STORAGES, Pickler, layer_of, ours
from ._size import Size
from ._storage import UntypedStorage, swapped
from ._taper import Tensor, device

_dtypes = dict(_taper._dtypes)


def save(obj, f, pickle_module=pickle, pickle_protocol=2, _use_new_zipfile_serialization=True,
         _disable_byteorder_record=False):
    """Writes an object to a path or a file, in PyTorch's zip format."""
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("save: only the zip format of PyTorch 1.6 and later is written")
    text = io.BytesIO()
    pickler = Pickler(text, pickle_protocol)
    pickler.dump(obj)
    file, own = _archive.opened(f, "wb")
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
        if own:
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
    kinds = {("torch", name): _Kind(_dtypes[kind]) for name, kind in STORAGES.items()}
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
        if isinstance(parts, tuple) and len(parts) == 4 and parts[0] == "module":
            # The older format has the source of a class beside its name.
            return parts[1]
        # The older format has a sixth part, for storages that are parts of others.
        whole = isinstance(parts, tuple) and (len(parts) == 5 or len(parts) == 6 and parts[5] is None)
        if not whole or parts[0] != "storage":
            raise pickle.UnpicklingError(f"Unknown typename for persistent_load, expected 'storage' but got {parts!r}")
        _, kind, name, place, count, *_ = parts
        if not isinstance(kind, _Kind):
            raise pickle.UnpicklingError(f"a storage of an unknown kind: {kind!r}")
        if name not in self._storages:
            data = self._archive.record(f"data/{name}")
            if len(data) != count * kind.dtype.itemsize:
                raise RuntimeError(
                    f"storage {name} has {len(data)} bytes in the file, and {count} elements of {kind.dtype} are "
                    "expected"
                )
            if self._archive.swapped:
                data = swapped(data, kind.dtype.itemsize)
            self._storages[name] = self._place(data, kind.dtype, place)
        return self._storages[name]

    def find_class(self, module, name):
        module = _old_names(module, name)
        if self._trusted:
            if (module, name) in _REBUILD:
                return _REBUILD[module, name]
            layer = layer_of(module, name)
            return super().find_class(ours(module), name) if layer is None else layer
        allowed = _allowed()
        if (module, name) in allowed:
            return allowed[module, name]
        path = f"{module}.{name}"
        for known in (path, path.replace("torch.", "taper.", 1)):
            if known in _SAFE and module not in ("sys", "os", "posix", "nt"):
                return _SAFE[known]
        own = self._own(module, name)
        if own is not None and any(own is one for one in _SAFE.values()):
            return own
        path = path.removeprefix("builtins.")
        raise pickle.UnpicklingError(
            f"Unsupported global: GLOBAL {path} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{path}])` or the `torch.serialization.safe_globals([{path}])` "
            "context manager to allowlist this global if you trust this class/function."
        )

    @staticmethod
    def _own(module, name):
        """The class or function of this package that PyTorch has under a name; ``None`` for others."""
        if module.split(".")[0] != "torch":
            return None
        return layer_of(module, name) or getattr(sys.modules.get(ours(module)), name, None)

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
    "Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only "
    "if you trust the source of the checkpoint. \n\t(1) Re-running `torch.load` with `weights_only` set to `False` will "
    "likely succeed, but it can result in arbitrary code execution. Do it only if you got the file from a trusted "
    "source.\n\t(2) Alternatively, to load with `weights_only=True` please check the recommended steps in the "
    "following error message.\n\tWeightsUnpickler error: "
)


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Reads what :func:`save`, or PyTorch, has written."""
    file, own = _archive.opened(f, "rb")
    try:
        start = file.read(4)
        file.seek(0)
        # As in PyTorch, the user who starts a program may trust its files.
        forced = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true")
        trusted = weights_only is False or forced
        archive, text = _opened(file, start)
        pickle_load_args.setdefault("encoding", "utf-8")
        try:
            return _Unpickler(text, archive, _placement(map_location), trusted, **pickle_load_args).load()
        except pickle.UnpicklingError as error:
            if trusted:
                raise
            raise pickle.UnpicklingError(_FAILED + str(error)) from None
    finally:
        if own:
            file.close()


def _opened(file, start):
    """The records of a file, and its pickle."""
    if start[:1] == b"\x80":
        archive = _legacy.Legacy(file, _storage_kinds())
        return archive, archive.pickle
    if start[:2] != b"PK":
        found = f"the file begins with {start!r}: it is not in a format of torch.save" if start else "the file is empty"
        raise pickle.UnpicklingError(found)
    archive = _archive.Reader(file)
    if "constants.pkl" in archive:
        raise RuntimeError("Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``: a "
                           "TorchScript archive is a program, which Taper does not run")
    archive.swapped = "byteorder" in archive and archive.record("byteorder") == b"big"
    return archive, io.BytesIO(archive.record("data.pkl"))
