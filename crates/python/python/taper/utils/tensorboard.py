"""``SummaryWriter``: files for TensorBoard, which Taper writes."""

import os
import time

from .. import _taper
from .._taper import Tensor

__all__ = ["SummaryWriter"]


def _tensor(values):
    from .._functions import tensor

    return values.detach() if isinstance(values, Tensor) else tensor(values)


def _number(value):
    return float(value.item() if isinstance(value, Tensor) else value)


class SummaryWriter:
    """Writes numbers, histograms, images, texts and hyperparameters of a run into a folder of its own."""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            import socket

            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir, self._purge_step = str(log_dir), purge_step
        self._native, self._runs, self._last = None, {}, 0
        self._open()

    def _open(self):
        if self._native is None:
            # The steps from this one on, which an earlier run of this folder may have written, are not shown.
            last = None if not self._purge_step else self._purge_step - 1
            self._native = _taper._SummaryWriter(self.log_dir, last)
        return self._native

    def _step(self, step):
        if step is not None:
            self._last = int(_number(step))
        return self._last if step is not None else 0

    def get_logdir(self):
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        self._open().scalar(tag, _number(scalar_value), self._step(global_step))

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several curves of one chart: each is a run in a folder beside this one."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self._runs:
                self._runs[folder] = SummaryWriter(folder)
            self._runs[folder].add_scalar(main_tag, value, global_step)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        self._open().histogram(tag, _tensor(values), self._step(global_step))

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        self._open().image(tag, _ordered(_tensor(img_tensor), dataformats), self._step(global_step))

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Images as one, in a grid of at most eight columns."""
        images = _ordered(_tensor(img_tensor), dataformats)
        count, columns = images.shape[0], min(8, images.shape[0])
        missing = -count % columns
        if missing:
            images = _taper.cat([images, images.new_zeros(missing, *images.shape[1:])], 0)
        rows = images.unflatten(0, (-1, columns)).permute(2, 0, 3, 1, 4)
        channels, down, height, across, width = rows.shape
        self._open().image(tag, rows.reshape(channels, down * height, across * width), self._step(global_step))

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        self._open().text(tag, str(text_string), self._step(global_step))

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """The settings of a run and its last metrics, in a run of their own below this one."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        settings = [(name, value.item() if isinstance(value, Tensor) else value) for name, value in hparam_dict.items()]
        metrics = [(name, _number(value)) for name, value in metric_dict.items()]
        writer = _taper._SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time())))
        writer.hparams(settings, metrics)
        writer.flush()

    def flush(self):
        for writer in (self._native, *self._runs.values()):
            if writer is not None:
                writer.flush()

    def close(self):
        """Writes what is left. A later call begins a new file."""
        self.flush()
        for writer in self._runs.values():
            writer.close()
        self._native, self._runs = None, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def _ordered(image, dataformats):
    """An image with its axes in the order N, C, H, W, as far as it has them."""
    formats = dataformats.upper()
    if len(formats) != image.dim() or len(set(formats)) != len(formats) or not set(formats) <= set("NCHW"):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {tuple(image.shape)}, input_format: "
            f"{dataformats}"
        )
    image = image.permute([formats.index(axis) for axis in "NCHW" if axis in formats])
    # Integers are from 0 to 255.
    return image if image.is_floating_point() else image.to(_uint8)


_uint8 = dict(_taper._dtypes)["uint8"]
