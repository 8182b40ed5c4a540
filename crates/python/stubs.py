"""Writes the type stubs of the package, ``python/taper/**/*.pyi``, from the signatures of the module itself.

Run it with the built package in the path: ``PYTHONPATH=python python stubs.py``. With ``--check`` it writes
nothing, and names the stubs that are not those of the module.
"""

import enum
import importlib
import inspect
import keyword
import sys
import types
from pathlib import Path

import taper
from taper import _taper

ROOT = Path(__file__).parent / "python" / "taper"

#: The modules with stubs. Other modules are typed by their sources.
MODULES = (
    "_taper", "", "nn", "nn.functional", "nn.init", "nn.parameter", "nn.utils", "nn.modules.module", "optim",
    "optim.lr_scheduler", "autograd", "autograd.functional", "func", "linalg", "special", "distributions",
    "distributions.constraints", "utils.data", "cuda", "safetensors", "serialization",
)

#: Modules whose functions give tensors, unless the table below says otherwise.
OF_TENSORS = ("_taper", "", "nn.functional", "linalg", "special", "nn.init")

HEAD = """# Written by stubs.py; do not edit.
# mypy: disable-error-code="override, misc, assignment, valid-type"
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

"""

PARAMETERS = {
    "dtype": "_dtype | None", "device": "_Device", "input": "_Tensor", "tensors": "Any", "keepdim": "bool",
    "requires_grad": "bool", "out": "_Tensor | None", "generator": "_Generator | None", "inplace": "bool",
    "memory_format": "Any", "target": "_Tensor", "lr": "float | _Tensor", "weight": "_Tensor | None",
    "other": "Any", "index": "Any", "mask": "_Tensor", "bias": "Any", "reduction": "str",
}

_PAIRS = dict.fromkeys("max min median mode kthvalue sort topk cummax cummin aminmax".split(), "Any")
_PARTS = dict.fromkeys("split chunk unbind tensor_split split_with_sizes".split(), "tuple[_Tensor, ...]")
_TRUTHS = dict.fromkeys(
    "is_tensor is_floating_point is_complex is_contiguous is_pinned is_signed equal allclose is_grad_enabled "
    "is_nonzero is_storage is_inference_mode_enabled are_deterministic_algorithms_enabled can_cast is_autocast_enabled "
    "__bool__ __contains__ has_names is_inference is_set_to is_same_size is_shared".split(), "bool",
)
_WHOLES = dict.fromkeys(
    "dim ndimension numel nelement element_size storage_offset data_ptr get_device __len__ __int__ __index__ "
    "__hash__ get_num_threads initial_seed seed".split(), "int",
)
_NOTHING = dict.fromkeys(
    "backward __setitem__ __delitem__ save set_printoptions set_default_dtype set_default_device require_grad "
    "set_num_threads set_float32_matmul_precision use_deterministic_algorithms synchronize retain_grad "
    "set_default_tensor_type set_rng_state".split(), "None",
)
RESULTS = {
    **_PAIRS, **_PARTS, **_TRUTHS, **_WHOLES, **_NOTHING,
    "__float__": "float", "__complex__": "complex", "__repr__": "str", "__str__": "str", "__format__": "str",
    "__iter__": "Iterator[_Tensor]", "item": "Any", "tolist": "Any", "numpy": "Any", "__array__": "Any",
    "__dlpack__": "Any", "__dlpack_device__": "tuple[int, int]", "size": "Any", "stride": "Any", "register_hook": "Any",
    "storage": "Any", "untyped_storage": "Any", "type": "Any", "__reduce_ex__": "Any", "dim_order": "tuple[int, ...]",
    "unique": "Any", "unique_consecutive": "Any", "std_mean": "Any", "var_mean": "Any", "frexp": "Any", "nonzero": "Any",
    "where": "Any", "load": "Any", "compile": "Any", "vmap": "Callable[..., Any]", "typename": "str",
    "promote_types": "_dtype", "result_type": "_dtype", "get_default_dtype": "_dtype", "get_autocast_dtype": "_dtype",
    "get_default_device": "_device", "manual_seed": "_Generator", "get_float32_matmul_precision": "str",
    "broadcast_tensors": "tuple[_Tensor, ...]", "broadcast_shapes": "_Size", "meshgrid": "tuple[_Tensor, ...]",
    "histogram": "Any", "svd": "Any", "qr": "Any", "eigh": "Any", "eig": "Any", "slogdet": "Any", "lu": "Any",
    "lu_factor": "Any", "lstsq": "Any", "cholesky_ex": "Any", "inv_ex": "Any", "ldl_factor": "Any", "geqrf": "Any",
    "calculate_gain": "float", "atleast_1d": "Any", "atleast_2d": "Any", "atleast_3d": "Any", "block_diag": "_Tensor",
    "multi_head_attention_forward": "Any", "embedding_bag": "_Tensor", "hsplit": "tuple[_Tensor, ...]",
    "vsplit": "tuple[_Tensor, ...]", "dsplit": "tuple[_Tensor, ...]", "is_leaf": "bool",
}

#: The results of methods of other classes.
OF_CLASSES = {"__len__": "int", "__exit__": "None", "__hash__": "int", "__eq__": "bool", "__ne__": "bool"}

PROPERTIES = {
    "shape": "_Size", "dtype": "_dtype", "device": "_device", "grad": "_Tensor | None", "requires_grad": "bool",
    "is_leaf": "bool", "ndim": "int", "T": "_Tensor", "mT": "_Tensor", "H": "_Tensor", "mH": "_Tensor",
    "data": "_Tensor", "real": "_Tensor", "itemsize": "int", "nbytes": "int", "is_cuda": "bool", "is_cpu": "bool",
    "is_floating_point": "bool", "is_complex": "bool", "is_signed": "bool", "index": "int | None", "type": "str",
    "is_sparse": "bool", "is_quantized": "bool", "is_meta": "bool", "_version": "int", "_is_view": "bool",
}

#: Special methods that stubs show; the others are those of every object.
SPECIAL = {
    "__init__", "__call__", "__getitem__", "__setitem__", "__delitem__", "__len__", "__iter__", "__contains__",
    "__enter__", "__exit__", "__float__", "__int__", "__index__", "__bool__", "__complex__", "__getattr__", "__next__",
    "__array__", "__neg__", "__pos__", "__abs__", "__invert__", "__eq__", "__ne__", "__hash__", "__dlpack__",
    "__dlpack_device__", "__reversed__",
    *(f"__{prefix}{name}__" for prefix in ("", "r", "i") for name in
      "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()),
    "__lt__", "__le__", "__gt__", "__ge__",
}


def full(module):
    return f"taper.{module}" if module else "taper"


def place(module):
    """The file of a module's stub."""
    path = ROOT.joinpath(*module.split(".")) if module else ROOT
    return path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")


class Stub:
    """The stub of one module."""

    def __init__(self, module):
        self.module, self.object = module, importlib.import_module(full(module))
        self.imports, self.lines = set(), []

    def text(self):
        for name in self.names():
            self.member(name, getattr(self.object, name))
        aliases = [f"from taper._taper import {name} as _{name}" for name in ("Tensor", "dtype", "device", "Generator")]
        if self.module == "_taper":
            aliases = ["_Tensor = Tensor", "_dtype = dtype", "_device = device", "_Generator = Generator"]
        aliases += ["from taper._size import Size as _Size", "_Device = _device | str | int | None"]
        own = "\n".join(sorted(self.imports))
        if self.module == "_taper":
            lines = "\n".join(self.lines + aliases[:4])
            return f"{HEAD}from taper._size import Size as _Size\n{own}\n\n{lines}\n_Device = device | str | int | None\n"
        return HEAD + "\n".join(aliases) + "\n" + own + "\n\n" + "\n".join(self.lines) + "\n"

    def names(self):
        names = getattr(self.object, "__all__", None)
        if self.module in ("", "utils.data", "optim", "nn") or names is None:
            names = {*vars(self.object), *(names or ())}
        extra = {"__version__"} if self.module in ("", "_taper") else set()
        private = self.module == "_taper"
        return sorted(
            name for name in names
            if name in extra or not name.startswith("__") and (private or not name.startswith("_"))
        )

    def member(self, name, value):
        if isinstance(value, types.ModuleType):
            if value.__name__.split(".")[0] == "taper" and self.module != "_taper":
                self.imported(value.__name__, name)
            return
        home = getattr(value, "__module__", None)
        kind = isinstance(value, type) or inspect.isroutine(value)
        known = [module for module in MODULES if full(module) == home and module != self.module]
        if kind and known and getattr(importlib.import_module(home), name, None) is value:
            return self.lines.append(f"from {home} import {name} as {name}")
        native = self.module != "_taper" and vars(_taper).get(name) is value
        if kind and native:
            return self.lines.append(f"from taper._taper import {name} as {name}")
        if kind and home and home.split(".")[0] not in ("taper", "torch", "builtins"):
            return
        if isinstance(value, type):
            self.klass(name, value)
        elif inspect.isroutine(value):
            self.function(name, value, "")
        else:
            self.lines.append(f"{name}: {self.kind_of(value)}")

    def imported(self, module, name):
        parent, _, last = module.rpartition(".")
        self.imports.add(f"from {parent} import {last} as {name}" if last == name else f"import {module} as {name}")

    def kind_of(self, value):
        if isinstance(value, (_taper.dtype, _taper.device, _taper.Generator)):
            return f"_{type(value).__name__}"
        if isinstance(value, enum.Enum) or value is None or not isinstance(value, (bool, int, float, str)):
            return "Any"
        return type(value).__name__

    def klass(self, name, value):
        bases = [base for base in value.__bases__ if base is not object]
        shown = []
        for base in bases:
            public = base.__name__ in self.names() and getattr(self.object, base.__name__, None) is base
            if public or base in (tuple, dict, list, Exception):
                shown.append(base.__name__ if base is not tuple else "tuple[Any, ...]")
            elif base is taper.Tensor:
                shown.append("_Tensor")
            else:
                shown += self.known_base(base)
        self.lines.append(f"class {name}({', '.join(dict.fromkeys(shown))}):" if shown else f"class {name}:")
        before = len(self.lines)
        # The members of bases that have no stub are the class's own.
        kinds = [value] + [base for base in value.__mro__[1:] if base is not object and not self.has_stub(base)]
        seen = {}
        for kind in kinds:
            for member in vars(kind):
                seen.setdefault(member, kind)
        for member in sorted(seen):
            self.class_member(name, member, vars(seen[member])[member])
        if len(self.lines) == before:
            self.lines.append("    ...")

    def known_base(self, base):
        for module in MODULES:
            found = importlib.import_module(full(module))
            public = not base.__name__.startswith("_") and base.__module__ == full(module)
            if public and vars(found).get(base.__name__) is base:
                self.imports.add(f"from {full(module)} import {base.__name__} as _{base.__name__}")
                return [f"_{base.__name__}"]
        return [one for further in base.__bases__ if further is not object for one in self.known_base_or_own(further)]

    def known_base_or_own(self, base):
        if base is taper.Tensor:
            return ["_Tensor"]
        if base.__name__ in self.names() and getattr(self.object, base.__name__, None) is base:
            return [base.__name__]
        return self.known_base(base)

    def has_stub(self, base):
        return base in (taper.Tensor, tuple, dict, list, Exception, BaseException) or bool(
            self.known_base(base)[:1] and base.__name__ in (one.lstrip("_") for one in self.known_base(base))
        ) or (base.__name__ in self.names() and getattr(self.object, base.__name__, None) is base)

    def class_member(self, owner, name, value):
        special = name.startswith("__")
        if special and name not in SPECIAL or name.startswith("_") and not special and owner not in ("Tensor",):
            if not (special and name == "__new__" and owner != "Tensor"):
                return
        if name == "forward" and owner == "Module":
            return self.lines.append("    forward: Callable[..., Any]")
        if name == "__getattr__":
            return self.lines.append("    def __getattr__(self, name: str) -> Any: ...")
        if isinstance(value, property) or inspect.isgetsetdescriptor(value):
            kind = PROPERTIES.get(name, "Any")
            return self.lines.append(f"    {name}: {kind}")
        if isinstance(value, (staticmethod, classmethod)):
            self.lines.append(f"    @{type(value).__name__}")
            return self.function(name, value.__func__, "    ", owner, isinstance(value, classmethod))
        if inspect.isroutine(value):
            return self.function(name, value, "    ", owner, True)
        if isinstance(value, type) or special or keyword.iskeyword(name):
            return None
        return self.lines.append(f"    {name}: {self.kind_of(value)}")

    def function(self, name, value, indent, owner=None, has_self=False):
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):
            signature = None
        first = "self, " if has_self and name != "__new__" else "cls, " if has_self else ""
        arguments = first + "*args: Any, **kwargs: Any"
        if signature is not None and not keyword.iskeyword(name):
            arguments = self.arguments(signature, has_self)
        result = self.result(name, owner)
        self.lines.append(f"{indent}def {name}({arguments}) -> {result}: ...")

    def result(self, name, owner):
        if name == "__init__":
            return "None"
        if name == "__new__":
            return f'"{owner}"'
        if owner not in (None, "Tensor"):
            return OF_CLASSES.get(name, "Any")
        if owner is None and self.module not in OF_TENSORS:
            return "None" if name in ("save", "save_file", "save_model") else "Any"
        if name.startswith("_") and not name.startswith("__"):
            return "Any"
        return RESULTS.get(name, "_Tensor")

    def arguments(self, signature, has_self):
        parts, star, positional = [], False, False
        for at, parameter in enumerate(signature.parameters.values()):
            if at == 0 and has_self:
                parts.append(parameter.name if parameter.name in ("self", "cls") else "self")
                positional = parameter.kind is parameter.POSITIONAL_ONLY
                continue
            if positional and parameter.kind is not parameter.POSITIONAL_ONLY:
                parts.append("/")
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            if parameter.kind is parameter.VAR_POSITIONAL:
                star = True
                parts.append(f"*{parameter.name}: Any")
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                parts.append(f"**{parameter.name}: Any")
                continue
            if parameter.kind is parameter.KEYWORD_ONLY and not star:
                star = True
                parts.append("*")
            parts.append(self.argument(parameter))
        if positional:
            parts.append("/")
        return ", ".join(parts)

    @staticmethod
    def argument(parameter):
        name, default = parameter.name, parameter.default
        kind = PARAMETERS.get(name)
        if kind is None:
            kind = type(default).__name__ if isinstance(default, (bool, str)) else "Any"
            kind = "float" if isinstance(default, float) else kind
        elif default is None and "None" not in kind and kind not in ("Any", "_Device"):
            kind += " | None"
        elif isinstance(default, bool) and kind != "bool":
            kind = "Any"
        if default is parameter.empty:
            return f"{name}: {kind}"
        finite = isinstance(default, float) and abs(default) < 1e300
        simple = finite or default is None or isinstance(default, (bool, int, str))
        return f"{name}: {kind} = {default!r}" if simple else f"{name}: {kind} = ..."


def stubs():
    return {place(module): Stub(module).text() for module in MODULES}


def main():
    stale = []
    for path, text in stubs().items():
        if not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(text)
    (ROOT / "py.typed").touch()
    if "--check" in sys.argv and stale:
        sys.exit(f"not current: {', '.join(stale)}")
    print(f"{len(stale)} of {len(MODULES)} stubs {'are not current' if '--check' in sys.argv else 'written'}")


if __name__ == "__main__":
    main()
