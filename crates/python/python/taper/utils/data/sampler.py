"""Orders in which a data set is read."""

from ... import _taper


def _generator(generator):
    return generator or _taper._default_generator("cpu")


class Sampler:
    def __init__(self, data_source=None):
        pass

    def __iter__(self):
        raise NotImplementedError

    def __class_getitem__(cls, kind):
        return cls


class SequentialSampler(Sampler):
    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._count = num_samples

    @property
    def num_samples(self):
        return len(self.data_source) if self._count is None else int(self._count)

    def __iter__(self):
        size, left = len(self.data_source), self.num_samples
        rng = _generator(self.generator)
        if self.replacement:
            # Few at a time: a program may ask for more than it will ever read.
            while left > 0:
                count = min(left, 1024)
                yield from _taper._random("randint", [count], [0, size], None, None, rng).tolist()
                left -= count
            return
        while left > 0:
            order = rng._permutation(size)
            yield from order[:left]
            left -= size

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        return iter([self.indices[at] for at in _generator(self.generator)._permutation(len(self.indices))])

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    def __init__(self, weights, num_samples, replacement=True, generator=None):
        from ..._functions import as_tensor

        self.weights, self.num_samples = as_tensor(weights).double(), num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self):
        drawn = _taper.multinomial(self.weights, self.num_samples, self.replacement, self.generator)
        return iter(drawn.tolist())

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self):
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
