"""The state of the default generator."""

import contextlib

from ._functions import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, **options):
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)
