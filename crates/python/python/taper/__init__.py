"""Taper with PyTorch's names: deep learning in Rust on any GPU.

Programs that ``import torch`` run unchanged with ``python -m taper program.py``.
"""

import builtins

from . import _taper


class layout:
    """How elements lie in memory; there is one way."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"torch.{self._name}"


strided = _taper.strided = layout("strided")
contiguous_format, preserve_format, channels_last = (
    layout(name) for name in ("contiguous_format", "preserve_format", "channels_last")
)

from ._taper import (  # noqa: E402
    Generator,
    Tensor,
    __version__,
    device,
    dtype,
    explain,
    get_default_device,
    get_default_dtype,
    is_grad_enabled,
    promote_types,
    set_default_device,
    set_default_dtype,
)
from . import _tensor  # noqa: E402
from ._size import Size  # noqa: E402
from ._tensor import set_printoptions  # noqa: E402

globals().update(_taper._dtypes)

from ._functions import *  # noqa: E402, F403
from . import autograd  # noqa: E402
from .autograd import functional as _functional  # noqa: E402, F401
from ._composed import *  # noqa: E402, F403
from . import (  # noqa: E402
    _compat,
    accelerator,
    amp,
    array_api,
    backends,
    cuda,
    distributed,
    distributions,
    fft,
    func,
    jit,
    library,
    linalg,
    masked,
    models,
    nn,
    onnx,
    optim,
    profiler,
    random,
    safetensors,
    serialization,
    signal,
    sparse,
    special,
    studio,
    testing,
    types,
    utils,
    version,
)
from .amp import autocast, get_autocast_dtype, is_autocast_enabled  # noqa: E402
from .autograd import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402
from .linalg import logdet, pinverse, slogdet  # noqa: E402
from .nn.functional import celu_, dropout, embedding, layer_norm, relu_, rms_norm, selu_  # noqa: E402
from .func import vmap  # noqa: E402
from ._plain_names import *  # noqa: E402, F403
from .serialization import load, save  # noqa: E402
from .sparse import sparse_coo_tensor, spmm  # noqa: E402

#: Operations in place that are functions too.
_IN_PLACE = (
    "abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_ "
    "ceil_ clamp_ clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ "
    "fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ "
    "rad2deg_ reciprocal_ resize_as_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_"
)
globals().update({_name: getattr(Tensor, _name) for _name in _IN_PLACE.split()})

from math import e, inf, nan, pi  # noqa: E402, F401
newaxis = None
default_generator = _taper._default_generator("cpu")


def _typed(name, kind):
    class Typed:
        """A way to make tensors of one dtype."""

        def __new__(cls, *args, device=None):
            if len(args) == 1 and not isinstance(args[0], builtins.int):
                return tensor(args[0], dtype=kind, device=device)  # noqa: F405
            return zeros(*args or (0,), dtype=kind, device=device)  # noqa: F405

    Typed.__name__ = name
    return Typed


for _kind, _title in _tensor._TYPE_NAMES.items():
    globals()[f"{_title}Tensor"] = _typed(f"{_title}Tensor", _kind)
del _kind, _title


def _dtype_of_name(name):
    return dict(_taper._dtypes)[name]


def _device_of_name(name):
    return device(name)


def set_default_tensor_type(kind):
    set_default_dtype({"DoubleTensor": float64, "HalfTensor": float16}.get(str(kind).split(".")[-1], float32))  # noqa: F405


def is_inference_mode_enabled():
    return False


def get_num_threads():
    return _taper._num_threads()


def set_num_threads(count):
    _taper._set_num_threads(count)


def set_float32_matmul_precision(precision):
    """Products of float32 are exact to float32 whatever a program asks."""


def get_float32_matmul_precision():
    return "highest"


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Taper's operations are deterministic."""


def are_deterministic_algorithms_enabled():
    return True


def compile(model=None, **options):
    """Taper fuses operations by itself: the model as it is."""
    return (lambda model: model) if model is None else model


def synchronize(device="cpu"):
    """Computes everything that is pending on a device, and waits for it."""
    _taper.synchronize(device)


def typename(object):
    kind = type(object)
    return object.type() if isinstance(object, Tensor) else f"{kind.__module__}.{kind.__qualname__}"


def numel(input):
    return input.numel()


from . import compiler, functional  # noqa: E402, F401
from .cuda import Event, Stream  # noqa: E402, F401
from .library import ops  # noqa: E402, F401
