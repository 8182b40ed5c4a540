"""``autocast`` and a scaler of gradients."""

import functools

from . import _taper


class autocast:
    """Runs products in a shorter float, as a context or a decorator."""

    def __init__(self, device_type="cuda", dtype=None, enabled=True, cache_enabled=None):
        shorter = dict(_taper._dtypes)["bfloat16" if device_type == "cpu" else "float16"]
        self._dtype = (dtype or shorter) if enabled else None

    def __enter__(self):
        self._before = _taper._set_autocast(self._dtype)
        return self

    def __exit__(self, *error):
        _taper._set_autocast(self._before)

    def __call__(self, function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return call


def get_autocast_dtype(device_type):
    before = _taper._set_autocast(None)
    _taper._set_autocast(before)
    return before


def is_autocast_enabled(device_type=None):
    return get_autocast_dtype(device_type) is not None


class GradScaler:
    """Scales a loss so that the gradients of short floats do not vanish."""

    def __init__(self, device="cuda", init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5,
                 growth_interval=2000, enabled=True):
        self._scale, self._enabled = float(init_scale), enabled
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        self._good_steps, self._found_inf, self._unscaled = 0, False, False

    def scale(self, loss):
        return loss * self._scale if self._enabled else loss

    def unscale_(self, optimizer):
        if not self._enabled or self._unscaled:
            return
        finite = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = parameter.grad / self._scale
                    finite = finite and bool(parameter.grad.isfinite().all())
        self._found_inf, self._unscaled = not finite, True

    def step(self, optimizer, *args, **kwargs):
        self.unscale_(optimizer)
        return None if self._found_inf else optimizer.step(*args, **kwargs)

    def update(self, new_scale=None):
        if new_scale is not None:
            self._scale = float(new_scale)
        elif self._found_inf:
            self._scale, self._good_steps = self._scale * self._backoff, 0
        else:
            self._good_steps += 1
            if self._good_steps == self._interval:
                self._scale, self._good_steps = self._scale * self._growth, 0
        self._found_inf = self._unscaled = False

    def get_scale(self):
        return self._scale if self._enabled else 1.0

    def is_enabled(self):
        return self._enabled

    def state_dict(self):
        return {"scale": self._scale, "_growth_tracker": self._good_steps}

    def load_state_dict(self, state):
        self._scale, self._good_steps = state["scale"], state["_growth_tracker"]
