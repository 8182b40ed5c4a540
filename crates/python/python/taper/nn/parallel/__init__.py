"""Several GPUs and processes."""

from ..modules.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Runs a module where it is: batches are not divided."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class DistributedDataParallel(Module):
    """Needs several processes, which this package does not have yet."""

    def __init__(self, module, *args, **kwargs):
        raise RuntimeError("DistributedDataParallel: the package does not run in several processes yet")
