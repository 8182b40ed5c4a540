"""The rules of the array API standard that are not PyTorch's."""

import numpy
import pytest
import taper
from taper import array_api as xp


def test_a_tensor_knows_its_namespace():
    x = xp.asarray([1.0, 2.0])
    assert x.__array_namespace__() is xp and x.to_device("cpu") is x
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="1999.12")


def test_sums_of_small_integers_are_wide():
    for name, wide in (("uint8", "uint64"), ("int8", "int64"), ("float32", "float32")):
        x = xp.ones((3,), dtype=getattr(xp, name))
        for found in (xp.sum(x), xp.prod(x), xp.cumulative_sum(x)):
            assert found.dtype == getattr(xp, wide)


def test_reductions_over_no_axes_and_all_axes():
    x = xp.asarray([[1.0, 3.0], [5.0, 7.0]])
    assert xp.std(x).item() == pytest.approx(numpy.std([1, 3, 5, 7]))
    assert xp.sum(x, axis=()).tolist() == x.tolist() and xp.std(x, axis=()).tolist() == [[0, 0], [0, 0]]
    assert xp.sum(x, keepdims=True).shape == (1, 1)


def test_floor_division_and_remainder_of_infinities_and_zeros():
    inf = float("inf")
    x = xp.asarray([inf, -inf, 1.0, 7.0])
    assert xp.floor_divide(x, xp.asarray([2.0, 2.0, -inf, 2.0])).tolist() == [inf, -inf, -0.0, 3.0]
    found = xp.remainder(xp.asarray([-0.0, 0.0, 7.0]), xp.asarray([3.0, -3.0, 4.0]))
    assert numpy.signbit(found.numpy()).tolist() == [False, True, False] and found.tolist() == [0, 0, 3]


def test_unique_values_have_the_places_of_their_first_elements():
    found = xp.unique_all(xp.asarray([[3, 1], [3, 2]]))
    assert found.values.tolist() == [1, 2, 3] and found.counts.tolist() == [1, 1, 2]
    assert found.indices.tolist() == [1, 3, 0] and found.inverse_indices.tolist() == [[2, 0], [2, 1]]


def test_cumulative_sums_begin_with_zero():
    x = xp.asarray([[1, 2], [3, 4]])
    assert xp.cumulative_sum(x, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0, 3, 7]]
    with pytest.raises(ValueError):
        xp.cumulative_sum(x)


def test_data_come_and_go_by_dlpack():
    array = numpy.from_dlpack(taper.tensor([1.0, 2.0]))
    assert array.tolist() == [1, 2]
    assert xp.from_dlpack(array).tolist() == [1, 2]


def test_numbers_are_operands_of_every_function():
    x = taper.tensor([1.0, 3.0])
    assert xp.maximum(x, 2.0).tolist() == [2.0, 3.0] and xp.minimum(2.0, x).tolist() == [1.0, 2.0]
    assert xp.atan2(taper.tensor([]), 0).shape == (0,)
    assert xp.logical_and(taper.tensor([True, False]), True).tolist() == [True, False]


def test_each_matrix_has_its_tolerance_and_vectors_broadcast():
    a = taper.tensor([[[4.0, 0.0], [0.0, 1.0]]] * 2)
    found = xp.linalg.pinv(a, rtol=taper.tensor([0.1, 0.5]))
    assert found[0].tolist() == [[0.25, 0.0], [0.0, 1.0]] and found[1].tolist() == [[0.25, 0.0], [0.0, 0.0]]
    x, y = taper.tensor([1.0, 0.0, 0.0]), taper.tensor([[0.0, 1.0, 0.0]] * 2)
    assert xp.linalg.cross(x, y).tolist() == [[0.0, 0.0, 1.0]] * 2


def test_an_axis_is_added_once():
    with pytest.raises(ValueError, match="twice"):
        xp.expand_dims(taper.ones(2), axis=(0, 0))
