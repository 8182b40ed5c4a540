"""``assert_close``."""

from ._functions import as_tensor
from ._taper import Tensor

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Raises an ``AssertionError`` if two tensors, or two collections of them, differ."""
    if isinstance(actual, (list, tuple)) and not isinstance(actual, Tensor):
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype)
        return
    actual, expected = as_tensor(actual), as_tensor(expected)
    if actual.shape != expected.shape:
        raise AssertionError(f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}.")
    if check_dtype and actual.dtype != expected.dtype:
        raise AssertionError(f"The values for attribute 'dtype' do not match: {actual.dtype} != {expected.dtype}.")
    usual = _TOLERANCES.get(str(actual.dtype).removeprefix("torch."), (0.0, 0.0))
    rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
    if not actual.to(expected.dtype).allclose(expected, rtol, atol, equal_nan):
        raise AssertionError(msg or f"Tensor-likes are not close!\n\n{actual}\n{expected}")
