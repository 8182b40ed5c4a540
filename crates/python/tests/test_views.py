"""Programs of views and writes against numpy, whose views share memory as PyTorch's do."""

import random

import numpy
import pytest
import taper

SEEDS = 300
STEPS = 30


def index_of(rng, shape):
    """Brackets of integers, slices, new axes and an ellipsis, for numpy and for Taper."""
    parts = []
    for size in shape[: rng.randint(0, len(shape))]:
        kind = rng.random()
        if kind < 0.4 and size > 0:
            parts.append(rng.randrange(-size, size))
        else:
            start, stop = rng.choice([None, rng.randint(-size - 1, size + 1)]), rng.choice([None, rng.randint(0, size + 1)])
            parts.append(slice(start, stop, rng.choice([None, 1, 2, 3])))
    if rng.random() < 0.2:
        parts.insert(rng.randint(0, len(parts)), None)
    if rng.random() < 0.3:
        parts.append(Ellipsis)
    return tuple(parts)


def view_of(rng, array, tensor):
    """One more view of a pair, or the pair itself where the view cannot be."""
    kind, rank = rng.randrange(7), array.ndim
    if kind == 0:
        index = index_of(rng, array.shape)
        # With an ellipsis numpy gives a view also of one element.
        return array[index if Ellipsis in index else (*index, Ellipsis)], tensor[index]
    if kind == 1 and rank >= 2:
        order = rng.sample(range(rank), rank)
        return array.transpose(order), tensor.permute(order)
    if kind == 2 and array.flags.c_contiguous and array.size:
        return array.reshape(-1), tensor.view(-1)
    if kind == 3 and rank >= 2:
        return numpy.swapaxes(array, 0, -1), tensor.transpose(0, -1)
    if kind == 4 and rank >= 1 and array.shape[-1] >= 2:
        half = array.shape[-1] // 2
        return array[..., half:], tensor.split([half, array.shape[-1] - half], -1)[1]
    if kind == 5:
        return array[None], tensor.unsqueeze(0)
    if kind == 6 and array.flags.c_contiguous and array.size % 2 == 0 and array.size:
        return array.reshape(2, -1), tensor.detach().view(2, -1)
    return array, tensor


def write_to(rng, array, tensor):
    """The same write to both."""
    kind = rng.randrange(7)
    number = rng.randint(-9, 9)
    if kind == 0:
        array[...] = number
        tensor.fill_(number)
    elif kind == 1:
        array += number
        tensor += number
    elif kind == 2:
        array *= 2
        tensor.mul_(2)
    elif kind == 3:
        index = index_of(rng, array.shape)
        array[index] = number
        tensor[index] = number
    elif kind == 4 and array.ndim and array.shape[-1]:
        row = numpy.arange(array.shape[-1], dtype=array.dtype) + number
        array[...] = row
        tensor.copy_(taper.tensor(row))
    elif kind == 5:
        mask = array > number
        array[mask] = 0
        tensor[taper.tensor(mask)] = 0
    else:
        numpy.clip(array, -50, 50, out=array)
        tensor.clamp_(-50, 50)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs_of_views_and_writes(seed):
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 4)))
    base = numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape)
    pairs = [(base, taper.from_numpy(base))]
    for step in range(STEPS):
        array, tensor = rng.choice(pairs)
        if len(pairs) < 10 and rng.random() < 0.5:
            pairs.append(view_of(rng, array, tensor))
        else:
            write_to(rng, array, tensor)
        for number, (array, tensor) in enumerate(pairs):
            found = tensor.numpy()
            assert found.shape == array.shape, (seed, step, number)
            assert numpy.array_equal(found, array), (seed, step, number)


def test_a_write_to_a_row_is_seen_by_the_base():
    x = taper.zeros(2, 3)
    x[0].fill_(5)
    x.view(-1)[4] = 7
    assert x.tolist() == [[5, 5, 5], [0, 7, 0]]
    y = x[1]
    x.zero_()
    assert y.tolist() == [0, 0, 0]


def test_versions_count_writes_through_all_views():
    x = taper.zeros(3)
    y = x[1:]
    y.add_(1)
    x.mul_(2)
    assert (x._version, y._version) == (2, 2)
    assert y.detach()._version == 2


def test_expanded_memory_cannot_be_written():
    x = taper.zeros(3, 1).expand(3, 2)
    with pytest.raises(RuntimeError, match="more than one element"):
        x.add_(1)


def test_view_is_refused_and_reshape_copies_where_strides_forbid():
    x = taper.arange(6).reshape(2, 3)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.T.view(-1)
    flat = x.T.reshape(-1)
    flat[0] = 9
    assert x[0, 0].item() == 0
    assert x.T.stride() == [1, 3] or x.T.stride() == (1, 3)
    assert not x.T.is_contiguous() and x.T.contiguous().is_contiguous()


def test_a_clone_is_not_changed_with_its_source():
    x = taper.ones(3)
    y = x.clone()
    x.zero_()
    assert y.tolist() == [1, 1, 1]


def test_threads_write_one_tensor():
    import threading

    x = taper.zeros(4)
    rows = [x[at] for at in range(4)]

    def work(row):
        for _ in range(50):
            row.fill_(row.item() + 1)

    threads = [threading.Thread(target=work, args=(row,)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Writes of different rows do not meet.
    assert x.tolist() == [50] * 4
