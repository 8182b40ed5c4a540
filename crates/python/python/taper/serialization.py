"""``save`` and ``load``: pickles of anything with tensors in it."""

import io
import os
import pickle


def save(obj, f, pickle_module=pickle, pickle_protocol=2, _use_new_zipfile_serialization=True):
    """Writes an object to a path or a file. The format is a pickle of its own, which :func:`load` reads."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            pickle.dump(obj, file, protocol=4)
    else:
        pickle.dump(obj, f, protocol=4)


class _Unpickler(pickle.Unpickler):
    """Only knows what the package itself writes, and plain collections, unless a program trusts the file."""

    def __init__(self, file, trusted):
        super().__init__(file)
        self._trusted = trusted

    def find_class(self, module, name):
        ours = module.split(".")[0] in ("taper", "torch", "collections")
        if self._trusted or ours or (module, name) in _PLAIN or (module, name) in _SAFE:
            return super().find_class(module.replace("torch", "taper", 1) if module.startswith("torch") else module, name)
        raise pickle.UnpicklingError(
            f"Weights only load failed: {module}.{name} is not allowed; use weights_only=False if you trust the file"
        )


_PLAIN = {("builtins", name) for name in ("set", "frozenset", "complex", "slice", "range", "bytearray")}


#: The classes and functions that a program trusts.
_SAFE = set()


def add_safe_globals(safe):
    """Classes and functions that :func:`load` may use from a file."""
    _SAFE.update((one.__module__, one.__qualname__) for one in safe)


class safe_globals:
    """As :func:`add_safe_globals`, within a ``with``."""

    def __init__(self, safe):
        self._names = {(one.__module__, one.__qualname__) for one in safe}

    def __enter__(self):
        self._names -= _SAFE
        _SAFE.update(self._names)

    def __exit__(self, *error):
        _SAFE.difference_update(self._names)


def load(f, map_location=None, pickle_module=pickle, *, weights_only=True, mmap=None, **options):
    """Reads what :func:`save` has written."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            f = io.BytesIO(file.read())
    found = _Unpickler(f, not weights_only).load()
    return found if map_location is None else _moved(found, map_location)


def _moved(found, device):
    from ._taper import Tensor

    if isinstance(found, Tensor):
        moved = found.to(device)
        return moved
    if isinstance(found, dict):
        for name in found:
            found[name] = _moved(found[name], device)
        return found
    if isinstance(found, (list, tuple)):
        return type(found)(_moved(one, device) for one in found)
    return found
