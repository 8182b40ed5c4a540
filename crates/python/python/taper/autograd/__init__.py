"""Gradients: ``grad``, ``backward``, the modes, and functions with a gradient of their own."""

import functools

from .. import _taper
from .._taper import Tensor


class _Mode:
    """A mode of recording, as a context or as a decorator with or without brackets."""

    _enabled = None

    def __new__(cls, function=None, *args):
        self = object.__new__(cls)
        return self(function) if callable(function) and not isinstance(function, type) else self

    def __init__(self, mode=None):
        self._before = []

    def __enter__(self):
        self._before.append(_taper._set_grad_enabled(self._enabled))
        return self

    def __exit__(self, *error):
        _taper._set_grad_enabled(self._before.pop())

    def __call__(self, function):
        kind, enabled = type(self), self._enabled

        def mode():
            made = object.__new__(kind)
            made._enabled, made._before = enabled, []
            return made

        import inspect

        if inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def generate(*args, **kwargs):
                with mode():
                    yield from function(*args, **kwargs)

            return generate

        @functools.wraps(function)
        def call(*args, **kwargs):
            with mode():
                return function(*args, **kwargs)

        return call


class no_grad(_Mode):
    """Nothing is recorded."""

    _enabled = False


class enable_grad(_Mode):
    """Operations are recorded, also within ``no_grad``."""

    _enabled = True


class inference_mode(_Mode):
    """As ``no_grad``; ``inference_mode(False)`` changes nothing."""

    _enabled = False

    def __init__(self, mode=True):
        self._before = []
        self._enabled = False if mode else _taper.is_grad_enabled()


class set_grad_enabled(_Mode):
    """Sets the mode at once, and takes it back at the end of a ``with``."""

    def __new__(cls, mode):
        return object.__new__(cls)

    def __init__(self, mode):
        self._enabled = bool(mode)
        self._before = [_taper._set_grad_enabled(self._enabled)]

    def __enter__(self):
        return self


def _listed(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _seeds(seeds, count):
    return [None] * count if seeds is None else _listed(seeds)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of tensors to their leaves."""
    tensors = _listed(tensors)
    retain = create_graph if retain_graph is None else retain_graph
    inputs = None if inputs is None else _listed(inputs)
    _taper._backward(tensors, _seeds(grad_tensors, len(tensors)), retain, create_graph, inputs)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """The gradients of outputs by inputs."""
    outputs, inputs = _listed(outputs), _listed(inputs)
    seeds = _seeds(grad_outputs, len(outputs))
    if is_grads_batched:
        for output, seed in zip(outputs, seeds):
            if seed is None or seed.shape[1:] != output.shape:
                raise RuntimeError(
                    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                    "dimension. The sizes of the remaining dimensions are expected to match the shape of "
                    "corresponding output, but a mismatch was detected: grad_output has a shape of "
                    f"{None if seed is None else seed.shape} and output has a shape of {output.shape}."
                )
        found = _taper._grad_batched(outputs, seeds, inputs, create_graph)
    else:
        found = _taper._grad(outputs, seeds, inputs, create_graph)
    if materialize_grads:
        batch = seeds[0].shape[:1] if is_grads_batched else ()
        found = [
            one.new_zeros((*batch, *one.shape)) if value is None else value for one, value in zip(inputs, found)
        ]
    elif not allow_unused and any(value is None for value in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return tuple(found)


class _Context:
    """The values that ``forward`` leaves for ``backward``."""

    def __init__(self, needs):
        self.needs_input_grad, self._saved, self._not_differentiable = needs, (), ()
        self._materialize = True

    def save_for_backward(self, *tensors):
        self._saved = tensors

    @property
    def saved_tensors(self):
        return self._saved

    saved_variables = saved_tensors

    def mark_non_differentiable(self, *tensors):
        self._not_differentiable = tensors

    def mark_dirty(self, *tensors):
        self._dirty = tensors

    def set_materialize_grads(self, value):
        self._materialize = value


class Function:
    """A function with a gradient of its own: ``forward`` and ``backward`` are static methods."""

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("You must implement the backward function for custom autograd.Function.")

    @classmethod
    def apply(cls, *args):
        needs = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        ctx = _Context(needs)
        with no_grad():
            if "setup_context" in cls.__dict__ or hasattr(cls, "setup_context"):
                outputs = cls.forward(*args)
                cls.setup_context(ctx, args, outputs)
            else:
                outputs = cls.forward(ctx, *args)
        if not any(needs) or not _taper.is_grad_enabled():
            return outputs
        several = isinstance(outputs, tuple)
        results = list(outputs) if several else [outputs]
        tied = [
            at for at, one in enumerate(results)
            if isinstance(one, Tensor) and one.is_floating_point()
            and not any(one is other for other in ctx._not_differentiable)
        ]
        places = [at for at, arg in enumerate(args) if isinstance(arg, Tensor)]
        shapes = [results[at] for at in tied]

        def pull(gradients):
            if ctx._materialize:
                gradients = tuple(
                    like.new_zeros(like.shape) if one is None else one for one, like in zip(gradients, shapes)
                )
            complete = [None] * len(results)
            for at, one in zip(tied, gradients):
                complete[at] = one
            found = cls.backward(ctx, *complete)
            found = found if isinstance(found, tuple) else (found,)
            if len(found) < len(args):
                raise RuntimeError(
                    f"function {cls.__name__}Backward returned an incorrect number of gradients (expected "
                    f"{len(args)}, got {len(found)})"
                )
            return [found[at] if needs[at] else None for at in places]

        made = _taper._custom(f"{cls.__name__}Backward", pull, [args[at] for at in places], shapes)
        for at, one in zip(tied, made):
            results[at] = one
        return tuple(results) if several else results[0]


def Variable(data, requires_grad=False):
    return data.detach().requires_grad_(requires_grad) if requires_grad else data


class detect_anomaly:
    """Accepted; Taper's errors name what failed."""

    def __init__(self, check_nan=True):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def set_detect_anomaly(mode, check_nan=True):
    return detect_anomaly()


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, **settings):
    """Compares gradients with finite differences, with Taper's own steps and tolerances. Further settings of PyTorch
    change nothing."""
    try:
        _taper._gradcheck(func, _listed(inputs))
    except RuntimeError:
        if raise_exception:
            raise
        return False
    return True


from . import function, graph  # noqa: E402, F401
