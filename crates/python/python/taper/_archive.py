"""The zip files of PyTorch: a pickle of all but the numbers, and a record of bytes for each storage."""

import io
import os
import zipfile

#: Bytes of storages begin at multiples of this, so that a reader can map them into memory.
_ALIGNMENT = 64

_BROKEN = (
    "PytorchStreamReader failed reading zip archive: {}. There is a high likelihood that your checkpoint file is "
    "corrupted. This can happen if the checkpoint was not saved properly, was transferred incorrectly, or the file "
    "was modified after saving."
)


class Writer:
    """Writes records into a new archive."""

    def __init__(self, file):
        self._file = file
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)

    def record(self, name, data):
        info = zipfile.ZipInfo(f"archive/{name}", (1980, 1, 1, 0, 0, 0))
        # The header has 30 bytes, the name and the extra field, whose own head has 4 bytes.
        start = self._zip.start_dir + 30 + len(info.filename) + 4
        padding = -start % _ALIGNMENT
        info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
        self._zip.writestr(info, data)

    def close(self):
        self._zip.close()


class Reader:
    """Reads the records of an archive, under whichever folder they are."""

    def __init__(self, file):
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise RuntimeError(_BROKEN.format(f"failed finding central directory ({error})")) from None
        names = self._zip.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
        if not pickles:
            raise RuntimeError(_BROKEN.format("file not found: archive/data.pkl"))
        self._folder = pickles[0][: -len("data.pkl")]
        self._names = set(names)

    def __contains__(self, name):
        return self._folder + name in self._names

    def record(self, name):
        try:
            return self._zip.read(self._folder + name)
        except KeyError:
            raise RuntimeError(_BROKEN.format(f"file not found: {self._folder}{name}")) from None
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
            raise RuntimeError(_BROKEN.format(f"{self._folder}{name}: {error}")) from None


def opened(file, mode):
    """A file that can seek, and whether it is to be closed."""
    if isinstance(file, (str, os.PathLike)):
        return open(file, mode), True
    for name in ("read", "seek", "tell") if mode == "rb" else ("write",):
        if not hasattr(file, name):
            kind = "read from" if mode == "rb" else "written to"
            raise AttributeError(f"'{type(file).__name__}' object has no attribute '{name}': it can't be {kind}")
    if mode == "rb":
        # As PyTorch does, an archive is looked for from the present place on.
        return io.BytesIO(file.read()), False
    return file, False
