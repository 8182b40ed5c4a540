"""The format of PyTorch before version 1.6: a pickle, a list of storages, and their bytes behind it."""

import io
import pickle

#: The first value of such a file.
MAGIC = 0x1950A86A20F9469CFC6C


class _Ghost:
    """An object that takes whatever a pickle does to it."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    def __setstate__(self, state):
        pass

    def __setitem__(self, key, value):
        pass

    def append(self, value):
        pass

    extend = append


class _Scan(pickle._Unpickler):
    """Reads a pickle without what it makes, for the element sizes of its storages."""

    def __init__(self, file, kinds):
        super().__init__(file, encoding="latin1")
        self.sizes, self._kinds = {}, kinds

    def find_class(self, module, name):
        return self._kinds.get((module, name), _Ghost)

    def persistent_load(self, parts):
        if isinstance(parts, tuple) and len(parts) > 2 and parts[0] == "storage" and hasattr(parts[1], "dtype"):
            self.sizes[parts[2]] = parts[1].dtype.itemsize
        # A class comes with its source.
        return _Ghost if isinstance(parts, tuple) and parts[:1] == ("module",) else _Ghost()


class Legacy:
    """The records of a file, with the methods of :class:`taper._archive.Reader`."""

    swapped = False

    def __init__(self, file, kinds):
        self._data = {}
        try:
            if _Scan(file, {}).load() != MAGIC:
                raise pickle.UnpicklingError("the file is a pickle, and none of torch.save")
            version, system = _Scan(file, {}).load(), _Scan(file, {}).load()
            if version != 1001:
                raise RuntimeError(f"Invalid protocol version: {version}")
            self.swapped = not system.get("little_endian", True)
            start, scan = file.tell(), _Scan(file, kinds)
            scan.load()
            end = file.tell()
            for key in _Scan(file, {}).load():
                count = file.read(8)
                size = int.from_bytes(count, "big" if self.swapped else "little") * scan.sizes[key]
                data = file.read(size)
                if len(count) < 8 or len(data) < size:
                    raise RuntimeError(f"unexpected EOF: the file ends within storage {key}, it might be corrupted.")
                self._data[f"data/{key}"] = data
            file.seek(start)
            self.pickle = io.BytesIO(file.read(end - start))
        except (EOFError, KeyError, AttributeError, TypeError, IndexError) as error:
            raise RuntimeError(f"the file is damaged, or none of torch.save: {error!r}") from None

    def record(self, name):
        if name not in self._data:
            raise RuntimeError(f"the file has no {name}")
        return self._data[name]
