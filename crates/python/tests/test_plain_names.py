"""Functions of ``torch`` that are those of ``torch.nn.functional`` with arguments of their own; sparse tensors, which
are dense; and pooling by powers."""

import pytest
import taper
from taper.nn import functional as F


def close(a, b):
    taper.testing.assert_close(a, b)


def test_names_of_both_modules_are_the_same_function():
    for name in ("conv2d", "conv_transpose1d", "max_pool2d", "avg_pool1d", "cosine_similarity", "pixel_shuffle"):
        assert getattr(taper, name) is getattr(F, name)
    x = taper.rand(2, 3, 8)
    close(taper.conv1d(x, taper.ones(1, 3, 1)), x.sum(1, keepdim=True))


def test_norms_take_their_settings_by_position():
    x, weight, bias = taper.rand(4, 6, 5), taper.rand(6), taper.rand(6)
    mean, var = taper.rand(6), taper.rand(6) + 0.5
    close(taper.batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5, False),
          F.batch_norm(x, mean, var, weight, bias))
    close(taper.group_norm(x, 3, weight, bias), F.group_norm(x, 3, weight, bias))
    close(taper.instance_norm(x, weight, bias, None, None, True, 0.1, 1e-5, False),
          F.instance_norm(x, weight=weight, bias=bias))


def test_losses_have_reductions_as_numbers():
    x, y = taper.rand(5).log_softmax(0), taper.rand(5).softmax(0)
    close(taper.kl_div(x, y), F.kl_div(x, y))
    close(taper.kl_div(x, y, 2), F.kl_div(x, y, reduction="sum"))
    close(taper.kl_div(x, y, reduction=0), F.kl_div(x, y, reduction="none"))
    a, b, signs = taper.rand(3, 4), taper.rand(3, 4), taper.tensor([1.0, -1.0, 1.0])
    close(taper.cosine_embedding_loss(a, b, signs, 0.2, 2), F.cosine_embedding_loss(a, b, signs, 0.2, reduction="sum"))
    close(taper.triplet_margin_loss(a, b, b.flip(0)), F.triplet_margin_loss(a, b, b.flip(0)))
    close(taper.binary_cross_entropy_with_logits(a, b, None, None, 0),
          F.binary_cross_entropy_with_logits(a, b, reduction="none"))


def test_draws():
    drawn = taper.binomial(taper.full((500,), 10.0), taper.full((500,), 0.3))
    assert 2.5 < drawn.mean().item() < 3.5 and drawn.max().item() <= 10
    assert taper.alpha_dropout(taper.ones(4), 0.5, False).eq(1).all()
    assert [len(part) for part in taper.split_with_sizes(taper.arange(5), [2, 3])] == [2, 3]


def test_pooling_by_powers_and_with_indices():
    x = taper.rand(2, 3, 8, 6)
    close(F.lp_pool2d(x, 2.0, 2), (F.avg_pool2d(x**2, 2) * 4).sqrt())
    close(F.lp_pool1d(x[0], 1.0, 3, stride=1), F.avg_pool1d(x[0], 3, 1) * 3)
    assert F.lp_pool3d(x[None], 3.0, 2).shape == (1, 2, 1, 4, 3)
    values, places = F.max_pool2d_with_indices(x, 2)
    close(values, F.max_pool2d(x, 2))
    close(x.flatten(2).gather(2, places.flatten(2)).reshape_as(values), values)
    assert len(F.adaptive_max_pool1d_with_indices(x[0], 4)) == 2


def test_sparse_tensors_are_dense_ones_with_their_values():
    s = taper.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3))
    assert s.tolist() == [[0, 0, 3], [9, 0, 0]] and s.to_dense() is s.to_sparse()
    dense = taper.rand(3, 2)
    close(taper.sparse.mm(s, dense), s @ dense)
    close(taper.sparse.addmm(taper.ones(2, 2), s, dense, beta=2), 2 + s @ dense)
    assert taper.sparse.softmax(s, 1).tolist() == [[0, 0, 1], [1, 0, 0]]
    values = taper.tensor([1.0, 2.0], requires_grad=True)
    taper.sparse_coo_tensor(taper.tensor([[0, 1], [1, 1]]), values).sum().backward()
    assert values.grad.tolist() == [1, 1]
    with pytest.raises(TypeError, match="values"):
        taper.sparse_coo_tensor([[0], [0]])


def test_an_accelerator_is_a_gpu_of_any_maker():
    found = taper.accelerator.current_accelerator()
    assert (found is not None) == taper.accelerator.is_available() == (taper.accelerator.device_count() > 0)
    assert found is None or found.type == "cuda"


def test_axes_have_the_names_of_numpy_too():
    x = taper.rand(2, 3)
    close(x.softmax(axis=1), x.softmax(1))
    assert x.argmax(axis=0).equal(x.argmax(0)) and taper.argmax(x, axis=1, keepdims=True).shape == (2, 1)
    close(taper.std(x, axis=0, keepdims=True), x.std(0, keepdim=True))
    assert x.max(axis=1).indices.equal(x.max(1).indices) and taper.stack([x, x], axis=1).shape == (2, 2, 3)
    close(taper.linalg.vector_norm(x, axis=1), x.norm(dim=1))
    assert len(taper.split(x, 1, axis=1)) == 3 and x.squeeze(axis=0).shape == (2, 3)
