"""``taper.cuda``: the GPUs that Taper finds, of any maker. ``cuda:0`` is the first."""

import contextlib

from . import _taper

_current = 0


def is_available():
    return device_count() > 0


def device_count():
    return _taper.cuda_device_count()


def current_device():
    return _current


def _named(device):
    """A device of this module: a number, a name, or the current one."""
    if device is None:
        return _taper.device("cuda", _current)
    device = _taper.device("cuda", device) if isinstance(device, int) else _taper.device(device)
    return _taper.device("cuda", _current) if device.index is None else device


def set_device(device):
    global _current
    _current = _named(device).index


def get_device_name(device=None):
    return _taper.cuda_properties(_named(device))[0]


class _Properties:
    """The properties of a GPU."""

    def __init__(self, name, memory):
        self.name, self.total_memory = name, memory or 0
        self.major, self.minor, self.multi_processor_count = 0, 0, 0

    def __repr__(self):
        return f"_CudaDeviceProperties(name='{self.name}', total_memory={self.total_memory // 2**20}MB)"


def get_device_properties(device=None):
    return _Properties(*_taper.cuda_properties(_named(device)))


def get_device_capability(device=None):
    return 0, 0


def synchronize(device=None):
    if is_available():
        _taper.synchronize(_named(device))


def memory_allocated(device=None):
    return _taper.memory_stats(_named(device))[0] if is_available() else 0


def max_memory_allocated(device=None):
    return _taper.memory_stats(_named(device))[1] if is_available() else 0


def memory_reserved(device=None):
    return _taper.memory_stats(_named(device))[2] if is_available() else 0


def reset_peak_memory_stats(device=None):
    if is_available():
        _taper.empty_cache(_named(device), True)


def empty_cache():
    if is_available():
        _taper.empty_cache(_named(None), False)


def manual_seed(seed):
    _taper._manual_seed(seed)


manual_seed_all = manual_seed


def is_bf16_supported(including_emulation=True):
    return True


@contextlib.contextmanager
def device(number):
    global _current
    before = _current
    set_device(number)
    try:
        yield
    finally:
        _current = before


class Stream:
    """The one queue of a GPU."""

    def __init__(self, device=None, priority=0, **options):
        self.device, self.priority = _named(device), priority

    def synchronize(self):
        synchronize(self.device)

    def wait_stream(self, stream):
        """Operations of one queue are in order."""

    def wait_event(self, event):
        """Operations of one queue are in order."""

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def query(self):
        self.synchronize()
        return True


def current_stream(device=None):
    return Stream(device)


default_stream = current_stream


class StreamContext:
    """Names a stream for the operations within: there is one."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return self.stream

    def __exit__(self, *error):
        pass


def stream(stream):
    return StreamContext(stream)


class CUDAGraph:
    def __init__(self, keep_graph=False):
        raise NotImplementedError("Taper has no CUDA graphs: taper.compile records a function once and runs it again")


graph = CUDAGraph


class Event:
    """A moment of this process: operations before it are waited for."""

    def __init__(self, enable_timing=False, **options):
        self._time = None

    def record(self, stream=None):
        import time

        synchronize()
        self._time = time.perf_counter()

    def synchronize(self):
        synchronize()

    def wait(self, stream=None):
        """Operations of one queue are in order."""

    def query(self):
        return True

    def elapsed_time(self, end):
        return (end._time - self._time) * 1000.0


from . import amp  # noqa: E402, F401
