"""``torch.compiler``: marks for PyTorch's compiler, which Taper has no need of. Its own is ``taper.compile``."""

from . import compile  # noqa: F401


def _as_it_is(function=None, *args, **options):
    """The function itself, as a decorator with or without brackets."""
    return function if function is not None else lambda function: function


allow_in_graph = assume_constant_result = disable = nonstrict_trace = nested_compile_region = _as_it_is


def is_compiling():
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset():
    """Nothing is kept between functions."""


def set_stance(*args, **options):
    """There is one way to compile."""


def cudagraph_mark_step_begin():
    """Results of an earlier step are never written again."""
