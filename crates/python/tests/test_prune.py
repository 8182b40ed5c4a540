"""Masks on weights."""

import pytest
import taper
from taper import nn
from taper.nn.utils import prune


def test_the_smallest_weights_become_zero():
    layer = nn.Linear(4, 2)
    original = layer.weight.detach().clone()
    prune.l1_unstructured(layer, "weight", amount=3)
    assert sorted(name for name, _ in layer.named_parameters()) == ["bias", "weight_orig"]
    assert [name for name, _ in layer.named_buffers()] == ["weight_mask"]
    kept = original.abs() > original.abs().flatten().kthvalue(3).values
    assert layer.weight.equal(original * kept) and layer.weight_mask.sum() == 5
    # Gradients reach what is kept alone, and a call computes the weight from its parts.
    layer(taper.ones(1, 4)).sum().backward()
    assert layer.weight_orig.grad.equal(kept.float())
    with taper.no_grad():
        layer.weight_orig.fill_(2)
    layer(taper.ones(1, 4))
    assert layer.weight.equal(2.0 * kept)
    assert prune.is_pruned(layer)
    prune.remove(layer, "weight")
    assert not prune.is_pruned(layer) and not list(layer.buffers())
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.equal(2.0 * kept)
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(layer, "weight")


def test_one_method_after_another():
    layer = nn.Conv2d(2, 6, 3)
    prune.random_unstructured(layer, "weight", amount=0.3)
    assert (layer.weight_mask == 0).sum() == round(0.3 * 108)
    before = layer.weight.detach().clone()
    prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
    norms = before.flatten(1).norm(dim=1)
    kept = norms >= norms.sort(descending=True).values[2]
    assert layer.weight.equal(before * kept.view(6, 1, 1, 1))
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2


def test_several_layers_as_one():
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    with taper.no_grad():
        first.weight.copy_(taper.arange(6.0).view(2, 3))
        second.weight.copy_(taper.arange(6.0).view(2, 3) + 4)
    prune.global_unstructured([(first, "weight"), (second, "weight")], prune.L1Unstructured, amount=5)
    assert first.weight.tolist() == [[0, 0, 0], [0, 0, 5]] and second.weight_mask.all()


def test_amounts():
    assert prune.RandomStructured(2, dim=1).prune(taper.rand(3, 5) + 1).eq(0).sum() == 6
    mask = taper.tensor([1.0, 0.0])
    assert prune.CustomFromMask(mask).prune(taper.ones(2)).tolist() == [1, 0]
    for amount, kind in ((-1, ValueError), (1.5, ValueError), ("a", TypeError)):
        with pytest.raises(kind, match="amount"):
            prune.l1_unstructured(nn.Linear(2, 2), "weight", amount)
    with pytest.raises(ValueError, match="smaller than the number"):
        prune.l1_unstructured(nn.Linear(2, 2), "weight", 5)
    with pytest.raises(ValueError, match="multidimensional"):
        prune.ln_structured(nn.Linear(2, 2), "bias", 1, 2, 0)
