"""``python -m taper program.py …``: runs a program whose ``import torch`` means Taper.

Entries of ``sys.modules`` are made before the program runs; nothing is written, and an installed PyTorch is
not touched.
"""

import importlib.util
import pkgutil
import runpy
import sys
import types


def alias():
    """Makes ``torch`` and ``torchvision``, with all of their modules, names of this package."""
    import taper

    for found in pkgutil.walk_packages(taper.__path__, "taper."):
        if not found.name.endswith(("__main__", "._taper")):
            importlib.import_module(found.name)
    for name, module in list(sys.modules.items()):
        if name == "taper.vision" or name.startswith("taper.vision."):
            sys.modules["torchvision" + name[len("taper.vision"):]] = module
        elif name == "taper" or name.startswith("taper."):
            sys.modules["torch" + name[len("taper"):]] = module
    sys.modules["torch._C"] = taper._compat
    _alias_safetensors(taper.safetensors)


def _alias_safetensors(ours):
    """Makes ``safetensors`` and ``safetensors.torch`` names of this package, if they are not installed."""
    if "safetensors" in sys.modules or importlib.util.find_spec("safetensors") is not None:
        return
    package = types.ModuleType("safetensors", ours.__doc__)
    package.__path__ = []
    package.safe_open, package.SafetensorError, package.torch = ours.safe_open, ours.SafetensorError, ours
    sys.modules["safetensors"], sys.modules["safetensors.torch"] = package, ours


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m taper program.py [arguments]  |  python -m taper -m module [arguments]")
        return 0 if len(sys.argv) > 1 else 2
    alias()
    if sys.argv[1] == "-m":
        sys.argv = sys.argv[2:]
        sys.path.insert(0, "")
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return 0
    sys.argv = sys.argv[1:]
    import os

    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
