"""``python -m taper program.py …``: runs a program whose ``import torch`` means Taper.

Entries of ``sys.modules`` are made before the program runs; nothing is written, and an installed PyTorch is
not touched.
"""

import contextlib
import importlib
import pkgutil
import runpy
import sys
import types


#: The version of PyTorch that libraries are told, which choose their calls by it.
_SERVED = "2.7.0+taper"


def alias():
    """Makes ``torch`` and ``torchvision``, with all of their modules, names of this package."""
    import taper

    taper.__version__ = taper.version.__version__ = _SERVED
    for found in pkgutil.walk_packages(taper.__path__, "taper."):
        if not found.name.endswith(("__main__", "._taper")):
            importlib.import_module(found.name)
    for name, module in list(sys.modules.items()):
        if name == "taper.vision" or name.startswith("taper.vision."):
            sys.modules["torchvision" + name[len("taper.vision"):]] = module
        elif name == "taper" or name.startswith("taper."):
            sys.modules["torch" + name[len("taper"):]] = module
    sys.modules["torch._C"] = taper._compat
    for name in ("complex32", "complex64", "complex128"):
        setattr(taper, name, _Absent(name))
    taper.cfloat, taper.cdouble = taper.complex64, taper.complex128
    _alias_private(taper)
    _alias_safetensors(taper.safetensors)


class _Absent:
    """The name of a dtype that no tensor has, for the tables of libraries."""

    is_complex, is_floating_point = True, False

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"torch.{self._name}"


def _module(name, **members):
    """A module of members under a name."""
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def _alias_private(taper):
    """The private modules of PyTorch's compiler that libraries import: marks without a meaning here."""
    from taper import compiler

    marks = {name: getattr(compiler, name) for name in ("allow_in_graph", "assume_constant_result", "disable", "reset")}
    taper._dynamo = _module("torch._dynamo", __path__=[], is_compiling=compiler.is_compiling, **marks)
    name = "torch._dynamo._trace_wrapped_higher_order_op"
    taper._dynamo._trace_wrapped_higher_order_op = _module(name, TransformGetItemToIndex=contextlib.nullcontext)


def _alias_safetensors(ours):
    """Makes ``safetensors`` and ``safetensors.torch`` names of this package: those of the package make PyTorch's."""
    _module(
        "safetensors", __path__=[], __version__="0.8.0", safe_open=ours.safe_open, torch=ours,
        SafetensorError=ours.SafetensorError,
    )
    sys.modules["safetensors.torch"] = ours


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
