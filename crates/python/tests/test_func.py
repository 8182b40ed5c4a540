"""``taper.func`` and ``autograd.functional``, against formulas, loops over slices, and finite differences."""

import pytest
import taper
from taper import nn
from taper.autograd import functional
from taper.func import (
    functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap,
)


def near(found, wanted, tolerance=1e-5):
    wanted = wanted if isinstance(wanted, taper.Tensor) else taper.tensor(wanted)
    assert tuple(found.shape) == tuple(wanted.shape)
    found, wanted = found.detach().double(), wanted.detach().double()
    assert taper.allclose(found, wanted, atol=tolerance, rtol=tolerance), (found, wanted)


# Slices

def test_vmap_is_a_loop_over_slices():
    a, b = taper.randn(5, 3), taper.randn(3, 5)
    near(vmap(taper.dot, (0, 1))(a, b), taper.stack([taper.dot(a[k], b[:, k]) for k in range(5)]))
    near(vmap(lambda x, y: x * y + 1, (0, None))(a, b[:, 0]), a * b[:, 0] + 1)
    near(vmap(lambda x: (x.softmax(0), x.sum()))(a)[1], a.sum(1))
    near(vmap(lambda x: x.sort().values)(a), a.sort(1).values)
    near(vmap(lambda x: x.view(1, 3).expand(2, 3))(a), a.view(5, 1, 3).expand(5, 2, 3))


def test_vmap_of_dims_and_structures():
    a = taper.randn(2, 5, 3)
    assert vmap(lambda x: x.exp(), 1, 1)(a).shape == (2, 5, 3)
    assert vmap(lambda x: x.exp(), -1, -1)(a).shape == (2, 5, 3)
    assert vmap(lambda x: x.exp(), 2)(a).shape == (3, 2, 5)
    given = {"a": a, "b": [a[0, 0], 3]}
    found = vmap(lambda tree, k: {"sum": tree["a"].sum() * tree["b"][1], "b": (tree["b"][0] + k,)},
                 ({"a": 1, "b": [None, None]}, None))(given, 2.0)
    near(found["sum"], a.sum((0, 2)) * 3)
    near(found["b"][0], (a[0, 0] + 2).expand(5, 3))
    first, second = vmap(lambda x: (x, x * 2), out_dims=(0, 1))(a)
    assert first.shape == (2, 5, 3) and second.shape == (5, 2, 3)
    near(vmap(vmap(taper.dot))(a, a), (a * a).sum(-1))
    near(vmap(vmap(lambda x, y: x * y, (None, 0)), (0, None))(a[0, 0], a[0, 1]), a[0, 0].outer(a[0, 1]))
    near(vmap(lambda x, y=None: x + y)(a, y=a), a + a)


def test_vmap_in_chunks():
    a = taper.randn(7, 3)
    near(vmap(lambda x: x.cumsum(0), chunk_size=3)(a), a.cumsum(1))


def test_vmap_is_called_once_and_writes_in_place_are_seen():
    calls = []

    def function(x):
        calls.append(x.shape)
        y = x.clone()
        y[0] = 0
        y += 1
        return y

    a = taper.randn(4, 3)
    wanted = a.clone()
    wanted[:, 0] = 0
    near(vmap(function)(a), wanted + 1)
    assert calls == [(3,)]


def test_vmap_records_gradients():
    a = taper.randn(4, 3, requires_grad=True)
    vmap(lambda x: (x ** 3).sum())(a).sum().backward()
    near(a.grad, 3 * a ** 2)


def test_vmap_errors():
    a = taper.ones(2, 3)
    with pytest.raises(ValueError, match="same size in the mapped dimension, got sizes \\[2, 3\\]"):
        vmap(taper.add, (0, 1))(a, a)
    with pytest.raises(ValueError, match="expected in_dim to satisfy -2 <= in_dim < 2"):
        vmap(taper.sin, 2)(a)
    with pytest.raises(ValueError, match="not compatible with the structure"):
        vmap(taper.sin, (0, 0))(a)
    with pytest.raises(ValueError, match="of type <class 'float'>"):
        vmap(taper.add)(a, 1.0)
    with pytest.raises(ValueError, match="must only return Tensors"):
        vmap(lambda x: 1)(a)
    with pytest.raises(ValueError, match="got no inputs"):
        vmap(lambda: a)()
    with pytest.raises((RuntimeError, NotImplementedError), match="vmap"):
        vmap(lambda x: x * x.sum().item())(a)
    with pytest.raises(KeyError):
        vmap(lambda x: {}["none"])(a)


def test_a_slice_that_is_still_held_does_not_stop_an_optimizer():
    held = []
    vmap(lambda x: held.append(x * 2) or x)(taper.randn(4, 3))
    taper.synchronize()
    vmap(lambda x: held.append(x * 2) or x)(taper.randn(4, 3))
    layer = nn.Linear(3, 2)
    optimizer = taper.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.bias.tolist()
    layer(taper.ones(1, 3)).sum().backward()
    optimizer.step()
    assert layer.bias.tolist() == pytest.approx([one - 0.1 for one in before])
    with pytest.raises((RuntimeError, NotImplementedError), match="vmap"):
        held[0].tolist()


# Gradients

def test_grad():
    x = taper.tensor(2.0)
    near(grad(lambda x: x ** 3)(x), 12.0)
    near(grad(grad(lambda x: x ** 3))(x), 12.0)
    assert not grad(lambda x: x ** 3)(x).requires_grad and not x.requires_grad
    with taper.no_grad():
        near(grad(lambda x: x ** 3)(x), 12.0)
    near(grad(lambda a, b: a * b * b, 1)(x, taper.tensor(3.0)), 12.0)
    both = grad(lambda a, b: a * b * b, (0, 1))(x, taper.tensor(3.0))
    near(both[0], 9.0), near(both[1], 12.0)
    tree = grad(lambda t: (t["a"] * t["b"][0]).sum())({"a": taper.ones(2), "b": (taper.tensor(3.0),)})
    near(tree["a"], [3.0, 3.0]), near(tree["b"][0], 2.0)
    gradient, aux = grad(lambda x: (x ** 2, {"kept": x + 1}), has_aux=True)(x)
    near(gradient, 4.0), near(aux["kept"], 3.0)
    gradient, (value, aux) = grad_and_value(lambda x: (x ** 2, x), has_aux=True)(x)
    near(value, 4.0)
    near(grad(lambda x: taper.tensor(1.0))(x), 0.0)
    with pytest.raises(RuntimeError, match="scalar tensor, got tensor with 1 dims"):
        grad(lambda x: x)(taper.ones(2))


def test_nested_gradients_keep_their_variables_apart():
    # The inner derivative is of y alone, although both are the same number.
    x = taper.tensor(3.0)
    near(grad(lambda x: grad(lambda y: x * y)(x))(x), 1.0)
    near(grad(lambda x: x * grad(lambda y: x + y)(taper.tensor(1.0)))(x), 1.0)


def test_grad_of_a_tracked_tensor_is_recorded():
    x = taper.tensor(2.0, requires_grad=True)
    grad(lambda x: x ** 3)(x).backward()
    near(x.grad, 12.0)
    weight = taper.tensor(2.0, requires_grad=True)
    grad(lambda x: weight * x ** 2)(taper.tensor(3.0)).backward()
    near(weight.grad, 6.0)


def test_gradients_of_each_sample():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    images, labels = taper.randn(5, 1, 4, 4), taper.tensor([0, 2, 1, 1, 0])

    def loss(parameters, image, label):
        logits = functional_call(model, parameters, (image.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, label.unsqueeze(0))

    found = vmap(grad(loss), (None, 0, 0))(parameters, images, labels)
    for k in range(5):
        model.zero_grad()
        nn.functional.cross_entropy(model(images[k : k + 1]), labels[k : k + 1]).backward()
        for name, one in model.named_parameters():
            near(found[name][k], one.grad)


def test_statistics_that_all_slices_share_are_refused():
    norm, x = nn.BatchNorm1d(3), taper.randn(5, 4, 3)
    before = norm.running_mean.tolist()
    with pytest.raises(RuntimeError, match="running_mean or running_var, which will be updated in place"):
        vmap(norm)(x)
    assert norm.running_mean.tolist() == before
    near(vmap(lambda x: norm.eval()(x))(x), norm.eval()(x.flatten(0, 1)).unflatten(0, (5, 4)))
    norm.train()(x[0])
    norm = taper.func.replace_all_batch_norm_modules_(norm)
    near(vmap(norm)(x), taper.stack([norm(one) for one in x]))


def test_functions_with_a_gradient_of_their_own():
    class Square(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 3 * x * gradient

    a = taper.randn(4, 3)
    near(vmap(grad(lambda x: Square.apply(x).sum()))(a), 3 * a)


def test_a_step_within_a_loss():
    def loss(w, x, y):
        return ((x @ w - y) ** 2).mean()

    def adapted(w, x, y):
        return loss(w - 0.1 * grad(loss)(w, x, y), x, y)

    w, xs, ys = taper.randn(3, requires_grad=True), taper.randn(4, 6, 3), taper.randn(4, 6)
    vmap(adapted, (None, 0, 0))(w, xs, ys).mean().backward()
    near(w.grad, taper.stack([grad(adapted)(w.detach(), x, y) for x, y in zip(xs, ys)]).mean(0))


def test_an_ensemble_of_modules():
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    assert parameters["0.weight"].shape == (3, 4, 3) and parameters["0.weight"].requires_grad and not buffers
    x = taper.randn(5, 3)
    found = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), (0, 0, None))(parameters, buffers, x)
    near(found, taper.stack([model(x) for model in models]))


# Products and Jacobians

def test_vjp():
    x, y = taper.tensor([1.0, 2.0]), taper.tensor(3.0)
    value, pull = vjp(lambda x, y: {"a": x * y, "b": (x ** 2).sum()}, x, y)
    near(value["a"], [3.0, 6.0])
    by_x, by_y = pull({"a": taper.tensor([1.0, 10.0]), "b": taper.tensor(1.0)})
    near(by_x, [3.0 + 2, 30.0 + 4]), near(by_y, 21.0)
    assert not value["a"].requires_grad and not by_x.requires_grad
    value, pull, aux = vjp(lambda x: (x.sin(), "aux"), x, has_aux=True)
    near(pull(taper.ones(2))[0], x.cos())
    near(pull(taper.ones(2) * 2)[0], x.cos() * 2)
    assert aux == "aux"
    near(vmap(pull)(taper.eye(2))[0], taper.diag(x.cos()))


def test_jvp_and_linearize():
    x, t = taper.tensor([1.0, 2.0]), taper.tensor([10.0, 1.0])
    value, along = jvp(lambda x: (x ** 3).sum(), (x,), (t,))
    near(value, 9.0), near(along, 42.0)
    value, along = jvp(lambda x, y: [x * y, x + y], (x, taper.ones(2)), (t, taper.zeros(2)))
    near(along[0], t), near(along[1], t)
    value, derivative = linearize(lambda x: x.sin(), x)
    near(derivative(t), x.cos() * t), near(derivative(2 * t), x.cos() * t * 2)
    near(jvp(lambda x: taper.ones(2), (x,), (t,))[1], [0.0, 0.0])
    near(vmap(lambda t: jvp(lambda x: x ** 2, (x,), (t,))[1])(taper.eye(2)), taper.diag(2 * x))
    with pytest.raises(RuntimeError, match="same shapes"):
        jvp(taper.sin, (x,), (taper.ones(3),))


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians(transform):
    w, x = taper.randn(3, 2), taper.tensor([1.0, 2.0])
    near(transform(lambda x: w @ x ** 2)(x), w * 2 * x)
    near(transform(lambda a, b: a @ b, 1)(w, x), w)
    by_w, by_x = transform(lambda a, b: a @ b, (0, 1))(w, x)
    assert by_w.shape == (3, 3, 2)
    near(by_x, w)
    found = transform(lambda t: (t["a"].sum(), t["a"] * t["b"]))({"a": x, "b": taper.tensor(3.0)})
    near(found[0]["a"], [1.0, 1.0]), near(found[0]["b"], 0.0)
    near(found[1]["a"], taper.eye(2) * 3), near(found[1]["b"], x)
    found, aux = transform(lambda x: (x ** 2, x + 1), has_aux=True)(x)
    near(aux, x + 1)
    near(transform(transform(lambda x: (x ** 3).sum()))(x), taper.diag(6 * x))
    near(vmap(transform(lambda x: x ** 2))(w), taper.stack([taper.diag(2 * row) for row in w]))
    near(transform(lambda x: taper.ones(2))(x), taper.zeros(2, 2))


def test_hessians():
    x = taper.tensor([1.0, 2.0])
    near(hessian(lambda x: x.sum() ** 3)(x), taper.full((2, 2), 18.0))
    near(jacfwd(jacrev(lambda x: x.sum() ** 3))(x), taper.full((2, 2), 18.0))
    blocks = hessian(lambda a, b: (a * a * b).sum(), (0, 1))(x, x)
    near(blocks[0][0], taper.diag(2 * x)), near(blocks[0][1], taper.diag(2 * x)), near(blocks[1][1], taper.zeros(2, 2))
    near(vmap(hessian(lambda x: (x ** 4).sum()))(taper.ones(3, 2)), 12 * taper.eye(2).expand(3, 2, 2))


def test_batches_of_seeds():
    x = taper.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x ** 2
    (found,) = taper.autograd.grad(y, x, taper.eye(3), is_grads_batched=True)
    near(found, taper.diag(2 * x))
    with pytest.raises(RuntimeError, match="first dimension of each grad_output as the batch"):
        taper.autograd.grad(y, x, taper.ones(3), is_grads_batched=True)
    z = taper.ones(1, requires_grad=True)
    found = taper.autograd.grad(x * 2, (x, z), taper.eye(3), is_grads_batched=True, materialize_grads=True)
    near(found[1], taper.zeros(3, 1))


def test_functional():
    x, v = taper.tensor([1.0, 2.0]), taper.tensor([1.0, 10.0])
    for strategy in ("reverse-mode", "forward-mode"):
        near(functional.jacobian(lambda x: x ** 2, x, strategy=strategy), taper.diag(2 * x))
    near(functional.jacobian(lambda x, y: x * y, (x, v))[1], taper.diag(x))
    rows = functional.jacobian(lambda x, y: (x * y, x.sum()), (x, v))
    near(rows[0][0], taper.diag(v)), near(rows[1][1], [0.0, 0.0])
    near(functional.hessian(lambda x: (x ** 3).sum(), x), taper.diag(6 * x))
    blocks = functional.hessian(lambda x, y: (x * y).sum(), (x, v))
    near(blocks[0][1], taper.eye(2))
    value, found = functional.vjp(lambda x: x ** 2, x, v)
    near(value, x ** 2), near(found, 2 * x * v)
    value, found = functional.jvp(lambda x: (x ** 2, x), x, v)
    near(found[0], 2 * x * v), near(found[1], v)
    for product in (functional.hvp, functional.vhp):
        value, found = product(lambda x: (x ** 3).sum(), x, v)
        near(value, 9.0), near(found, 6 * x * v)
    near(functional.vjp(lambda x: x.sum(), x)[1], [1.0, 1.0])
    with pytest.raises(RuntimeError, match="v can only be None"):
        functional.vjp(lambda x: x, x)
    with pytest.raises(RuntimeError, match="single element"):
        functional.hessian(lambda x: x, x)
    y = taper.tensor([1.0, 2.0], requires_grad=True)
    assert not functional.jacobian(lambda y: y ** 3, y).requires_grad
    functional.jacobian(lambda y: y ** 3, y, create_graph=True).sum().backward()
    near(y.grad, 6 * y)
