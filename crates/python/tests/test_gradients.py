"""Gradients, leaves that are changed, hooks, modes and functions written in Python."""

import numpy
import pytest
import taper


def test_three_lines_to_a_gradient():
    x = taper.tensor([1.0, 2.0, 3.0], requires_grad=True)
    ((x + 2) ** 2 + 3).mean().backward()
    assert x.grad.tolist() == pytest.approx([2.0, 8 / 3, 10 / 3])


def test_a_leaf_that_needs_a_gradient_cannot_be_changed_in_place():
    x = taper.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation."):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0].zero_()
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        x[0] = 5
    with taper.no_grad():
        x.add_(1)
        x[0] = 5
    x.data.mul_(2)
    assert x.tolist() == [10, 4, 4] and x.is_leaf and x.requires_grad


def test_writes_into_a_plain_tensor_are_recorded():
    w = taper.tensor([2.0, 3.0], requires_grad=True)
    x = taper.zeros(2, 2)
    x[0] = w * w
    x[1].copy_(w)
    assert x.requires_grad and not x.is_leaf
    x.sum().backward()
    assert w.grad.tolist() == [5.0, 7.0]


def test_an_in_place_operation_on_a_view_of_a_result_is_recorded():
    w = taper.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = w * 2
    y[1:].mul_(10)
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 20.0, 20.0]


def test_gradients_add_up_and_are_seen_by_earlier_handles():
    x = taper.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    grad = x.grad
    (x * 4).sum().backward()
    assert x.grad.tolist() == [7, 7] and grad.tolist() == [7, 7]
    x.grad.zero_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    x.grad = None
    assert x.grad is None and grad.tolist() == [2, 2]


def test_grad_of_several_outputs_and_of_a_second_order():
    x = taper.tensor([1.0, 2.0], requires_grad=True)
    y = taper.tensor(3.0, requires_grad=True)
    (gx, gy) = taper.autograd.grad([(x**3).sum() * y, x.sum()], [x, y], create_graph=True)
    assert gx.tolist() == [10.0, 37.0] and gy.item() == 9.0
    (second,) = taper.autograd.grad(gx.sum(), x)
    assert second.tolist() == [18.0, 36.0]
    with pytest.raises(RuntimeError, match="not have been used"):
        taper.autograd.grad(x.sum(), y)


def test_backward_with_a_gradient_retained_and_twice():
    x = taper.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.backward(taper.tensor([1.0, 10.0]), retain_graph=True)
    y.backward(taper.tensor([1.0, 0.0]))
    assert x.grad.tolist() == [4.0, 40.0]
    with pytest.raises(RuntimeError):
        y.sum().backward()
        y.sum().backward()


def test_no_grad_and_detach():
    x = taper.ones(2, requires_grad=True)
    with taper.no_grad():
        assert not (x * 2).requires_grad
        with taper.enable_grad():
            assert (x * 2).requires_grad
    assert not x.detach().requires_grad

    @taper.no_grad()
    def silent(value):
        return value * 2

    @taper.inference_mode()
    def inferred(value):
        return value * 2

    assert not silent(x).requires_grad and not inferred(x).requires_grad and (x * 2).requires_grad
    taper.set_grad_enabled(False)
    assert not taper.is_grad_enabled()
    taper.set_grad_enabled(True)


def test_hooks_see_and_change_gradients():
    x = taper.ones(2, requires_grad=True)
    y = x * 3
    seen = []
    y.register_hook(seen.append)
    handle = x.register_hook(lambda gradient: gradient * 10)
    y.retain_grad()
    (y * 2).sum().backward()
    assert seen[0].tolist() == [2, 2] and y.grad.tolist() == [2, 2]
    assert x.grad is not None
    handle.remove()

    z = taper.ones(2, requires_grad=True)
    z.register_hook(lambda gradient: gradient * 10)
    (z * 3).sum().backward()
    assert z.grad.tolist() == [30, 30]


def test_an_exception_in_a_hook_is_raised():
    x = taper.ones(2, requires_grad=True)
    y = x * 3

    def hook(gradient):
        raise KeyError("from the hook")

    y.register_hook(hook)
    with pytest.raises(KeyError, match="from the hook"):
        y.sum().backward()


def test_a_function_with_a_gradient_of_its_own():
    class Scaled(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_backward(x, y)
            ctx.factor = factor
            return x * y * factor

        @staticmethod
        def backward(ctx, gradient):
            x, y = ctx.saved_tensors
            return gradient * y * ctx.factor, gradient * x * ctx.factor, None

    x = taper.tensor([1.0, 2.0], requires_grad=True)
    y = taper.tensor([3.0, 4.0], requires_grad=True)
    z = Scaled.apply(x, y, 10)
    assert z.grad_fn.name() == "ScaledBackward"
    z.sum().backward()
    assert x.grad.tolist() == [30, 40] and y.grad.tolist() == [10, 20]


def test_gradcheck_finds_a_wrong_gradient():
    class Wrong(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    x = taper.tensor([1.0, 2.0], dtype=taper.float64, requires_grad=True)
    assert taper.autograd.gradcheck(lambda value: (value * value).sum(), [x])
    assert not taper.autograd.gradcheck(lambda value: Wrong.apply(value).sum(), [x], raise_exception=False)


def test_a_clone_of_a_result_has_a_gradient_of_its_own():
    x = taper.ones(2, requires_grad=True)
    y = x * 2
    z = y.clone()
    (gradient,) = taper.autograd.grad((y * 3 + z * 5).sum(), z)
    assert gradient.tolist() == [5, 5]


def test_functional_gradients():
    gradient = taper.func.grad(lambda x: (x**3).sum())(taper.tensor([1.0, 2.0]))
    assert numpy.allclose(gradient.numpy(), [3, 12]) if not gradient.requires_grad else True
    assert gradient.tolist() == [3, 12]


def test_a_hook_of_a_leaf_stays_when_the_leaf_changes():
    x = taper.ones(2, requires_grad=True)
    optimizer, seen = taper.optim.SGD([x], lr=1.0), []
    x.register_hook(lambda gradient: seen.append(gradient.tolist()))
    for _ in range(2):
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()
    assert seen == [[2, 2], [-2, -2]]
    with taper.no_grad():
        x.copy_(taper.tensor([5.0, 5.0]))
        assert (x * 1).tolist() == [5, 5]


def test_dtypes_devices_and_tensors_are_pickled():
    import pickle

    for value in (taper.float16, taper.device("cuda", 1), taper.Size([2, 3])):
        assert pickle.loads(pickle.dumps(value)) == value
    x = taper.nn.Parameter(taper.tensor([1.0, 2.0]))
    y = pickle.loads(pickle.dumps(x))
    assert isinstance(y, taper.nn.Parameter) and y.requires_grad and y.tolist() == [1, 2]
    z = pickle.loads(pickle.dumps(taper.tensor([True, False])))
    assert z.dtype == taper.bool and z.tolist() == [True, False]


def test_panics_and_errors_are_exceptions():
    with pytest.raises(RuntimeError):
        taper.ones(2) + taper.ones(3)
    with pytest.raises(IndexError):
        taper.ones(2).sum(3)
    with pytest.raises(TypeError):
        taper.exp("x")
    with pytest.raises(TypeError):
        taper.ones(2) + "x"
