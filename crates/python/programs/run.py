"""Runs one program with PyTorch or with Taper, with the same random numbers: ``run.py torch|taper program.py …``.

A page of the book "Dive into Deep Learning" (``page.md``) is a program too: its cells.

All draws of a program (initial weights, permutations, dropout, noise) are made by numpy from one seed, so that both
libraries compute with the same numbers and their losses can be compared. The last line of the output has the seconds
that the program took, without the import of the library.
"""

import os
import random
import runpy
import sys
import time

import cells
import numpy

SEED = 20220


def install(torch):
    """Replaces the draws of a library by those of numpy."""
    random.seed(SEED)
    # The order of a folder's files, which differs from folder to folder.
    listed = os.listdir
    os.listdir = lambda path=".": sorted(listed(path))
    numpy.random.seed(SEED)
    rng = numpy.random.default_rng(SEED)
    functional = torch.nn.functional

    def of_numpy(values, like=None, dtype=None, device=None, requires_grad=False, **ignored):
        dtype = dtype or (like.dtype if like is not None else torch.get_default_dtype())
        device = device or (like.device if like is not None else None)
        made = torch.from_numpy(numpy.ascontiguousarray(values)).to(dtype)
        made = made.to(device) if device is not None else made
        return made.requires_grad_() if requires_grad else made

    def sizes(args, options):
        size = options.pop("size", args)
        return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)

    def rand(*args, **options):
        return of_numpy(rng.random(sizes(args, options)), **options)

    def randn(*args, **options):
        return of_numpy(rng.standard_normal(sizes(args, options)), **options)

    def randint(*args, low=None, high=None, size=None, dtype=None, **options):
        *numbers, shape = args if size is None else (*args, size)
        numbers = [one for one in (low, *numbers, high) if one is not None]
        drawn = rng.integers(*([0] if len(numbers) == 1 else []), *numbers, tuple(shape))
        return of_numpy(drawn, dtype=dtype or torch.int64, **options)

    def normal(mean=0.0, std=1.0, size=None, generator=None, out=None, **options):
        if size is not None:
            return of_numpy(rng.normal(mean, std, tuple(size)), **options)
        like = mean if isinstance(mean, torch.Tensor) else std
        shape = torch.broadcast_shapes(*(one.shape for one in (mean, std) if isinstance(one, torch.Tensor)))
        return of_numpy(rng.standard_normal(tuple(shape)), like) * std + mean

    def fill(draw, *defaults):
        def filled(self, *args, generator=None, **options):
            given = [*args, *options.values()]
            given += defaults[len(given):]
            with torch.no_grad():
                return self.copy_(of_numpy(draw(*given, tuple(self.shape)), self))

        return filled

    def dropout(input, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return input
        kept = of_numpy(rng.random(tuple(input.shape)) >= p, input)
        return input * kept / (1 - p)

    def dropout_of_channels(input, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return input
        shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
        return input * of_numpy(rng.random(shape) >= p, input) / (1 - p)

    fused = functional.scaled_dot_product_attention

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if dropout_p == 0:
            return fused(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            is_choice = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, float("-inf")) if is_choice else scores + attn_mask
        return dropout(scores.softmax(-1), dropout_p) @ value

    def multinomial(input, num_samples, replacement=False, generator=None):
        rows = input.detach().cpu().double().numpy().reshape(-1, input.shape[-1])
        drawn = [rng.choice(len(row), num_samples, replacement, row / row.sum()) for row in rows]
        return of_numpy(numpy.array(drawn).reshape(*input.shape[:-1], num_samples), dtype=torch.int64).to(input.device)

    def bernoulli(input, generator=None):
        return of_numpy(rng.random(tuple(input.shape)) < input.detach().cpu().numpy(), input)

    torch.rand, torch.randn, torch.randint, torch.normal = rand, randn, randint, normal
    torch.rand_like = lambda input, **options: of_numpy(rng.random(tuple(input.shape)), input, **options)
    torch.randn_like = lambda input, **options: of_numpy(rng.standard_normal(tuple(input.shape)), input, **options)
    torch.randperm = lambda n, **options: of_numpy(rng.permutation(n), dtype=torch.int64)
    torch.multinomial, torch.bernoulli = multinomial, bernoulli
    torch.Tensor.uniform_, torch.Tensor.normal_ = fill(rng.uniform, 0.0, 1.0), fill(rng.normal, 0.0, 1.0)
    functional.dropout = torch.dropout = dropout
    functional.scaled_dot_product_attention = attention
    functional.dropout1d = functional.dropout2d = functional.dropout3d = dropout_of_channels
    init = torch.nn.init
    init.normal_ = lambda tensor, mean=0.0, std=1.0, generator=None: torch.Tensor.normal_(tensor, mean, std)
    truncated = fill(lambda mean, std, a, b, shape: numpy.clip(rng.normal(mean, std, shape), a, b), 0.0, 1.0, -2.0, 2.0)
    init.trunc_normal_ = lambda tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None: truncated(tensor, mean, std, a, b)
    init.uniform_ = lambda tensor, a=0.0, b=1.0, generator=None: torch.Tensor.uniform_(tensor, a, b)
    data = torch.utils.data

    def category(self, sample_shape=()):
        if tuple(sample_shape):
            raise NotImplementedError("draws of several categories at once are not compared")
        return multinomial(self.probs.reshape(-1, self.probs.shape[-1]), 1).reshape(self.probs.shape[:-1])

    torch.distributions.Categorical.sample = category

    def order(self):
        count = len(self.data_source)
        if self.replacement:
            return (int(rng.integers(count)) for _ in range(self.num_samples))
        return iter(rng.permutation(count).tolist())

    data.RandomSampler.__iter__ = order


def install_pictures(torch):
    """The same pictures of torchvision's ``FakeData``, each from its own seed."""
    try:
        from torchvision import datasets, transforms
    except ImportError:
        return

    def item(self, index):
        if index >= len(self):
            raise IndexError("FakeData index out of range")
        rng = numpy.random.default_rng(index)
        picture = torch.from_numpy(rng.random(self.image_size)).float()
        picture, target = transforms.ToPILImage()(picture), int(rng.integers(self.num_classes))
        return (self.transform(picture) if self.transform else picture), target

    datasets.FakeData.__getitem__ = item


def main():
    library, program = sys.argv[1], sys.argv[2]
    if library == "taper":
        from taper.__main__ import alias

        alias()
    import torch

    install(torch)
    install_pictures(torch)
    sys.argv = sys.argv[2:]
    sys.path[0] = ""
    if program.endswith(".md"):
        # The package of the book takes functions of torch when it is imported, so it comes after the draws.
        from d2l import torch as d2l

        cells.show_points(d2l.ProgressBoard)
    begin = time.perf_counter()
    try:
        if program.endswith(".md"):
            cells.run(program)
        elif program.startswith("-m "):
            sys.argv[0] = program[3:]
            runpy.run_module(program[3:], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = program.rpartition("/")[0] or "."
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    print(f"\nseconds of the program: {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
