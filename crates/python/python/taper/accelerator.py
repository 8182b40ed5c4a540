"""``torch.accelerator``: the GPUs of this machine, whatever their maker."""

from . import _taper, cuda


def is_available():
    return cuda.is_available()


def device_count():
    return cuda.device_count()


def current_accelerator(check_available=False):
    """The kind of GPU, or ``None`` without one."""
    return _taper.device("cuda") if cuda.is_available() else None


def current_device_index():
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device):
    cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device=None):
    cuda.synchronize(device)


def memory_allocated(device=None):
    return cuda.memory_allocated(device)


def max_memory_allocated(device=None):
    return cuda.max_memory_allocated(device)


def empty_cache():
    cuda.empty_cache()
