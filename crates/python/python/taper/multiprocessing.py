"""``torch.multiprocessing``: Python's own processes. Tensors are not shared between them."""

from multiprocessing import *  # noqa: F403
from multiprocessing import Process, get_context, get_start_method, set_start_method  # noqa: F401


def set_sharing_strategy(new_strategy):
    """Tensors have no memory that processes share."""


def get_sharing_strategy():
    return "file_descriptor"


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Calls a function in new processes, with their numbers."""
    context = get_context(start_method)
    processes = [context.Process(target=fn, args=(rank, *args), daemon=daemon) for rank in range(nprocs)]
    for process in processes:
        process.start()
    if not join:
        return processes
    for rank, process in enumerate(processes):
        process.join()
        if process.exitcode:
            raise RuntimeError(f"process {rank} terminated with exit code {process.exitcode}")
    return None
