"""Sizes of tensors, and the named results of functions that give several tensors."""


class Size(tuple):
    """The sizes of a tensor: a tuple that prints as PyTorch's does."""

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self):
        count = 1
        for size in self:
            count *= size
        return count

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count):
        return Size(tuple.__mul__(self, count))

    def __reduce__(self):
        return Size, (tuple(self),)


class _Results(tuple):
    """Several tensors with names. The subclasses say which."""

    _fields = ()

    def __new__(cls, values):
        return tuple.__new__(cls, values)

    def __repr__(self):
        parts = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"torch.return_types.{type(self).__name__}(\n{parts})"

    def __reduce__(self):
        return tuple, (tuple(self),)


def results(name, *fields):
    """A class for results with these names."""
    members = {field: property(lambda self, at=at: self[at]) for at, field in enumerate(fields)}
    return type(name, (_Results,), {"_fields": fields, "__module__": "torch.return_types", **members})


_PAIRS = ("max", "min", "median", "mode", "kthvalue", "sort", "topk", "cummax", "cummin", "nanmedian")
TYPES = {name: results(name, "values", "indices") for name in _PAIRS}
TYPES["aminmax"] = results("aminmax", "min", "max")
