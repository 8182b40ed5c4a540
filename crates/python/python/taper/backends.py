"""Settings of PyTorch's backends that programs ask for and set."""

import contextlib
import sys
import types


class _Settings(types.ModuleType):
    """Settings that are taken and change nothing."""

    enabled = deterministic = True
    benchmark = allow_tf32 = False

    def is_available(self):
        return False

    def is_built(self):
        return False

    @contextlib.contextmanager
    def flags(self, *args, **options):
        yield


def _settings(name):
    made = _Settings(f"{__name__}.{name}")
    sys.modules[made.__name__] = made
    return made


cudnn, mps, mkldnn, mkl, openmp = map(_settings, ("cudnn", "mps", "mkldnn", "mkl", "openmp"))
cuda = _settings("cuda")
cuda.matmul = _settings("cuda.matmul")
