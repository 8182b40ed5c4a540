"""One process: programs for several ask here first."""


def is_available():
    return False


def is_initialized():
    return False


def get_rank(group=None):
    return 0


def get_world_size(group=None):
    return 1


def init_process_group(*args, **kwargs):
    raise RuntimeError("torch.distributed: the package does not run in several processes yet")


def destroy_process_group(group=None):
    """There is no group."""
