"""Names that libraries on top of PyTorch use: marks for its compiler, operations of their own, trees, streams, timers,
masks of functions, pictures, and what they import when a program runs by ``python -m taper``."""

import pytest
import taper
from taper import nn
from taper.nn import functional as F
from test_run import ran


def test_marks_of_the_compiler():
    assert not taper.compiler.is_compiling() and not taper.compiler.is_exporting()
    assert taper.compiler.disable(len) is len and taper.compiler.disable(recursive=False)(len) is len
    assert taper.compiler.compile is taper.compile and taper.version.cuda is None
    assert taper.functional.einsum is taper.einsum


def test_an_operation_of_a_program():
    @taper.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: taper.Tensor, by: float = 2.0) -> taper.Tensor:
        return x * by

    @scaled.register_fake
    def _(x, by=2.0):
        raise AssertionError("sizes come from the operation itself")

    assert scaled(taper.ones(2)).tolist() == [2, 2] and scaled(taper.ones(1), by=3.0).tolist() == [3]
    assert taper.ops.tests.scaled(taper.ones(1), 5.0).tolist() == [5]
    assert taper.ops.tests.scaled.default is scaled

    def setup(ctx, inputs, output):
        ctx.by = inputs[1]

    scaled.register_autograd(lambda ctx, gradient: (gradient * ctx.by * 10, None), setup_context=setup)
    x = taper.ones(2, requires_grad=True)
    scaled(x, by=4.0).sum().backward()
    assert x.grad.tolist() == [40, 40]
    scaled.register_kernel("cpu")(lambda x, by: x - by)
    assert scaled(taper.ones(1), 3.0).tolist() == [-2]
    with pytest.raises(KeyError, match="unknown"):
        taper.library.register_fake("tests::unknown", len)


def test_trees():
    tree = taper.utils._pytree
    nested = {"a": [1, 2], "b": (3, None)}
    leaves, spec = tree.tree_flatten(nested)
    assert leaves == [1, 2, 3, None] and spec.num_leaves == 4
    assert tree.tree_unflatten([5, 6, 7, 8], spec) == {"a": [5, 6], "b": (7, 8)}
    assert tree.tree_map(lambda a, b: (a, b), [1, 2], [3, 4]) == [(1, 3), (2, 4)]
    assert tree.tree_map_only(int, lambda n: -n, nested) == {"a": [-1, -2], "b": (-3, None)}
    assert tree.tree_leaves(nested, is_leaf=lambda node: isinstance(node, list)) == [[1, 2], 3, None]

    class Pair:
        def __init__(self, a, b):
            self.parts = [a, b]

    tree.register_pytree_node(Pair, lambda pair: (pair.parts, "kept"), lambda parts, kept: Pair(*parts))
    assert tree.tree_map(lambda n: n + 1, Pair(1, 2)).parts == [2, 3]


def test_streams_are_one_queue():
    stream = taper.cuda.Stream() if taper.cuda.is_available() else None
    with taper.cuda.stream(stream):
        assert taper.ones(1).add(1).item() == 2
    with pytest.raises(NotImplementedError, match="taper.compile"):
        taper.cuda.CUDAGraph()


def test_a_timer_computes_what_it_times():
    timer = taper.utils.benchmark.Timer("net(x)", globals={"net": nn.Linear(3, 3), "x": taper.ones(2, 3)}, label="net")
    found = timer.timeit(20)
    assert found.number_per_run == 20 and found.mean > 0 and "net" in repr(found) and "20 runs" in repr(found)
    with pytest.raises(RuntimeError, match="size"):
        taper.utils.benchmark.Timer("x + y", globals={"x": taper.ones(2), "y": taper.ones(3)}).timeit(2)


def test_attention_with_a_function_of_positions():
    from taper.nn.attention import SDPBackend, sdpa_kernel
    from taper.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

    q, k, v = (taper.randn(2, 4, 6, 8) for _ in range(3))
    causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, 6, 6)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    taper.testing.assert_close(flex_attention(q, k, v, block_mask=causal), expected)
    with sdpa_kernel(SDPBackend.MATH):
        found = flex_attention(q, k, v, lambda score, b, h, q, k: taper.where(q >= k, score, float("-inf")))
    taper.testing.assert_close(found, expected)
    near = create_block_mask(and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 2), 2, 4, 6, 6)
    assert near.shape == (2, 4, 6, 6) and near.to_dense()[0, 0].sum() == 11
    found, lse = flex_attention(q, k[:, :2], v[:, :2], block_mask=near, enable_gqa=True, return_lse=True)
    scores = (q @ k[:, :2].repeat_interleave(2, 1).mT / 8**0.5).masked_fill(~near.to_dense(), float("-inf"))
    taper.testing.assert_close(lse, scores.logsumexp(-1))
    taper.testing.assert_close(found, scores.softmax(-1) @ v[:, :2].repeat_interleave(2, 1))


def test_the_graph_behind_a_result():
    a, b = taper.ones(2, requires_grad=True), taper.ones(2)
    y = (a * b).exp().sum()
    assert y.grad_fn.name() == "SumBackward0"
    (exp, zero), = y.grad_fn.next_functions
    assert exp.name() == "ExpBackward0" and zero == 0
    (product, _), = exp.next_functions
    assert [one and one.name() for one, _ in product.next_functions] == ["AccumulateGrad", None]
    with taper.autograd.graph.save_on_cpu():
        (a * 2).sum().backward()
    assert a.grad.tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="checkpoint"):
        taper.autograd.graph.saved_tensors_hooks(None, None)


def test_a_default_device_for_a_block():
    with taper.device("cpu"):
        assert taper.ones(1).device.type == "cpu"
    # PyTorch computes no values there; Taper computes none before they are read.
    with taper.device("meta"):
        net = nn.Linear(3, 2)
    assert net.weight.shape == (2, 3) and net.weight.is_meta and net.weight.device == taper.device("meta")
    assert taper.device("meta") != taper.device("cpu") and not taper.ones(1).is_meta
    made = taper.empty_like(net.weight, device="cpu")
    assert made.device.type == "cpu" and made.shape == (2, 3)
    with pytest.raises(RuntimeError, match="device"):
        net(taper.ones(1, 3))


def test_a_view_with_more_axes_of_one_element_is_written():
    positions = taper.arange(4).expand((1, -1))
    positions.copy_(taper.arange(4).flip(0).expand(1, 4))
    assert positions.tolist() == [[3, 2, 1, 0]]
    with pytest.raises(RuntimeError, match="single memory location"):
        taper.arange(4).expand(2, 4).add_(1)


def test_a_mask_without_axes_chooses_all_or_nothing():
    x, y = taper.arange(3.0), taper.tensor(2.0)
    x[taper.tensor(True)] = taper.tensor([[5.0, 6.0, 7.0]])
    x[taper.tensor(False)] = taper.tensor([1.0])
    x[taper.tensor(False)] = taper.empty(0, 3)
    y[y > 1] = taper.tensor([3.0])
    assert x.tolist() == [5, 6, 7] and y.item() == 3
    with pytest.raises(RuntimeError, match="expand"):
        y[y > 1] = taper.tensor([3.0, 4.0])
    with pytest.raises(RuntimeError, match="expand"):
        y[y > 1] = taper.empty(0)


def test_operations_in_place_as_functions():
    x = taper.zeros(2)
    assert taper.cos_(x) is x and x.tolist() == [1, 1]
    assert taper.clamp_(x, max=0.5).tolist() == [0.5, 0.5] and taper.arccosh_(taper.ones(1)).item() == 0


def test_parametrizations_are_computed_once_within_cached():
    class Counted(nn.Module):
        calls = 0

        def forward(self, weight):
            Counted.calls += 1
            return weight * 2

    layer = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", Counted())
    Counted.calls = 0
    with nn.utils.parametrize.cached():
        assert layer.weight is layer.weight and Counted.calls == 1
    assert layer.weight is not layer.weight
    # A second one needs no inverse.
    nn.utils.parametrize.register_parametrization(layer, "weight", Counted())
    taper.testing.assert_close(layer.weight, layer.parametrizations.weight.original * 4)


def test_files_of_pictures(tmp_path):
    pytest.importorskip("PIL")
    from taper.vision import io
    from taper.vision.transforms import functional

    picture = taper.randint(0, 256, (3, 5, 7), dtype=taper.uint8)
    io.write_png(picture, tmp_path / "a.png")
    assert io.read_image(str(tmp_path / "a.png")).equal(picture)
    data = taper.tensor(list((tmp_path / "a.png").read_bytes()), dtype=taper.uint8)
    assert io.decode_image(data, io.ImageReadMode.RGB).equal(picture)
    assert io.read_image(tmp_path / "a.png", io.ImageReadMode.GRAY).shape == (1, 5, 7)
    assert functional.hflip(picture).equal(picture.flip(-1))


LIBRARY = """
import torch, torch._dynamo, torch.utils._pytree, torch.utils.benchmark, torch.autograd.function, torch.functional
import torchvision.io, torchvision.transforms.functional as TF
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from safetensors.torch import save_file, storage_ptr
from safetensors import safe_open

assert tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) >= (2, 6)
assert torch._dynamo.disable(len) is len
with TransformGetItemToIndex():
    save_file({"a": torch.ones(2)}, "a.safetensors")
with safe_open("a.safetensors", framework="pt") as file:
    print(file.get_tensor("a").tolist(), storage_ptr(torch.ones(1)) > 0)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * 3


x = torch.ones(1, requires_grad=True)
Once.apply(x).backward()
print(x.grad)
"""


def test_modules_that_libraries_import(tmp_path):
    (tmp_path / "program.py").write_text(LIBRARY)
    code, out, errors = ran(tmp_path, "program.py")
    assert code == 0, errors
    assert out == "[1.0, 1.0] True\ntensor([3.])\n"
