"""Pickles with the names that PyTorch has for tensors, layers and functions, whether or not there is a module
``torch``."""

import pickle
import sys
import types
from collections import OrderedDict

from . import _taper
from ._size import Size
from ._taper import Tensor, device, dtype

_dtypes = dict(_taper._dtypes)

#: Names of storages, which say the dtype.
STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}
_NAMES = {_dtypes[kind]: name for name, kind in STORAGES.items()}


class _Global:
    """A class or function under the name that PyTorch has for it."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self, *args):
        raise TypeError("this stands for something of PyTorch")


class Pickler(pickle._Pickler):
    """Writes tensors as PyTorch does, and classes of this package under PyTorch's names for them."""

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
            from .nn.modules import PLACES

            place = PLACES.get(obj.__name__, module.split(".")[-1])
            return self._name(obj, f"torch.nn.modules.{place}", obj.__name__)
        names = (name, getattr(obj, "__qualname__", None), getattr(obj, "__name__", None))
        for found in filter(None, names):
            for place in (module, ours(module)):
                if _member(sys.modules.get(place), found) is obj:
                    return self._name(obj, "torch" + ours(module)[len("taper"):], found)
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


Pickler.dispatch[_Reduced] = Pickler.save_reduced


def _is_layer(obj):
    return isinstance(obj, type) and obj.__module__.startswith("taper.nn.modules.") and "." not in obj.__qualname__


def layer_of(module, name):
    """The layer that PyTorch has in this module, wherever it is here."""
    from . import nn

    if not module.startswith("torch.nn.modules."):
        return None
    for place in (nn, nn.modules.linear):
        if _is_layer(getattr(place, name, None)):
            return getattr(place, name)
    return None


def ours(module):
    return "taper" + module[len("torch"):] if module.split(".")[0] == "torch" else module


def _member(module, path):
    for name in path.split("."):
        module = getattr(module, name, None)
    return module
