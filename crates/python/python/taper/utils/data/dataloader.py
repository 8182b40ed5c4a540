"""Loaders: batches of a data set in some order."""

import collections.abc

from ... import _taper
from ..._functions import stack, tensor
from ..._taper import Tensor
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler


def default_collate(batch):
    """Samples as one: tensors are stacked, and lists, tuples and dicts go through part by part."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch, 0)
    if hasattr(first, "__array_interface__"):
        return stack([tensor(one) for one in batch], 0)
    if isinstance(first, float):
        return tensor(batch, dtype=dict(_taper._dtypes)["float64"])
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: default_collate([one[key] for one in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(default_collate, map(list, zip(*batch))))
    if isinstance(first, collections.abc.Sequence):
        if any(len(one) != len(first) for one in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(parts)) for parts in zip(*batch)]
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}")


def get_worker_info():
    return None


class DataLoader:
    """Batches of a data set. They are loaded in the program's own process: ``num_workers`` is accepted."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device="", in_order=True):
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
        self.dataset, self.num_workers, self.generator, self.drop_last = dataset, num_workers, generator, drop_last
        self.pin_memory, self.timeout, self.worker_init_fn = pin_memory, timeout, worker_init_fn
        self._streams = isinstance(dataset, IterableDataset)
        if batch_sampler is not None:
            batch_size = None
        elif sampler is None and not self._streams:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and not self._streams:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.sampler, self.batch_sampler = batch_size, sampler, batch_sampler
        single = batch_size is None and batch_sampler is None
        self.collate_fn = collate_fn or ((lambda sample: sample) if single else default_collate)

    def __len__(self):
        if self._streams:
            count = len(self.dataset)
            return count if self.batch_size is None else -(-count // self.batch_size)
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)

    def __iter__(self):
        if self._streams:
            yield from self._stream()
        elif self.batch_sampler is None:
            for index in self.sampler:
                yield self.collate_fn(self.dataset[index])
        else:
            for indices in self.batch_sampler:
                if hasattr(self.dataset, "__getitems__"):
                    samples = self.dataset.__getitems__(indices)
                else:
                    samples = [self.dataset[index] for index in indices]
                yield self.collate_fn(samples)

    def _stream(self):
        if self.batch_size is None:
            yield from map(self.collate_fn, self.dataset)
            return
        batch = []
        for sample in self.dataset:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.collate_fn(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.collate_fn(batch)

    def __class_getitem__(cls, kind):
        return cls
