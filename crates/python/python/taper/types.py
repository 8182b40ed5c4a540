"""Names for annotations."""

from ._taper import Tensor, device, dtype

Number = int | float | bool
Device = device | str | int | None
_TensorOrTensors = Tensor | tuple
__all__ = ["Device", "Number", "Tensor", "dtype"]
