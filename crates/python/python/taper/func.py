"""``torch.func``: transforms of functions, and modules with other parameters.

``vmap`` is Taper's own: the function is called once with slices that have no values, and the operations that
it records are built again for all slices. The derivatives are backward passes; a Jacobian takes one pass for
all of its rows.
"""

import functools
import threading

from . import _taper
from ._taper import Tensor
from ._tree import flatten, map_leaves, spread
from .autograd import enable_grad

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]


# Slices

def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """The function of all slices of its arguments. Random numbers are the same for every slice."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("vmap: chunk_size should be None or greater than 0.")

    @functools.wraps(func)
    def mapped(*args, **kwargs):
        dims, leaves, build = _checked(func, in_dims, args, kwargs)
        if chunk_size is None:
            return _mapped(func, dims, leaves, build, out_dims)
        return _in_chunks(func, dims, leaves, build, out_dims, chunk_size)

    return mapped


#: How many functions of this thread are called with slices.
_running = threading.local()


def refuse_shared_statistics(input, statistics):
    """The error of a normalization whose statistics, which all slices share, would be those of one slice."""
    if getattr(_running, "depth", 0) and _taper._is_mapped(input) and not _taper._is_mapped(statistics):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in "
            "place, were not batched.\nPlease refer to https://pytorch.org/functorch/stable/batch_norm.html"
        )


def _title(func):
    return getattr(func, "__name__", repr(func))


def _checked(func, in_dims, args, kwargs):
    """The mapped axis of each leaf of a call, or ``None``; the leaves, and the call of others."""
    name = f"vmap({_title(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(
            f"{name}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args and not kwargs:
        raise ValueError(f"{name}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
                         "function with no inputs. The latter is unsupported.")
    own = spread(in_dims if isinstance(in_dims, int) else tuple(in_dims), args)
    if own is None:
        raise ValueError(
            f"{name}: in_dims is not compatible with the structure of `inputs`. in_dims has structure {in_dims} but "
            f"inputs have {len(args)} parts."
        )
    leaves, build = flatten((args, kwargs))
    # Arguments by name are mapped along their first axis.
    dims = own + [0] * (len(leaves) - len(own))
    sizes = []
    for at, (leaf, dim) in enumerate(zip(leaves, dims)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"{name}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or "
                             "None.")
        if not isinstance(leaf, Tensor):
            raise ValueError(f"{name}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot "
                             "vmap over non-Tensor arguments, please use None as the respective in_dim")
        if dim < -leaf.dim() or dim >= leaf.dim():
            raise ValueError(f"{name}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                             f"{leaf.dim()} so expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}.")
        sizes.append(leaf.shape[dim])
    if not sizes:
        raise ValueError(f"{name}: got no tensor to vmap over. At least one in_dim must be an integer.")
    if len(set(sizes)) > 1:
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                         f"{sizes} for the mapped dimension")
    return dims, leaves, build


def _mapped(func, dims, leaves, build, out_dims):
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    shape = {}

    def call(slices):
        given = list(leaves)
        for at, part in zip(places, slices):
            given[at] = part
        args, kwargs = build(given)
        _running.depth = getattr(_running, "depth", 0) + 1
        try:
            results, rebuild = flatten(func(*args, **kwargs))
        finally:
            _running.depth -= 1
        for one in results:
            if not isinstance(one, Tensor):
                raise ValueError(
                    f"vmap({_title(func)}, ...): `{_title(func)}` must only return Tensors, got type {type(one)}. Did "
                    "you mean to set out_dims= to None for output?"
                )
        shape["build"] = rebuild
        shape["dims"] = spread(tuple(out_dims) if isinstance(out_dims, list) else out_dims, rebuild(results))
        shape["one"] = results
        return results

    results = _taper._vmap(call, [leaves[at] for at in places], [dims[at] for at in places])
    if shape["dims"] is None:
        raise ValueError(
            f"vmap({_title(func)}, ..., out_dims={out_dims}): out_dims is not compatible with the structure of "
            "`outputs`."
        )
    moved = []
    for result, one, dim in zip(results, shape["one"], shape["dims"]):
        if dim is None:
            moved.append(result[0])
        else:
            moved.append(result if dim == 0 else result.movedim(0, dim))
    return shape["build"](moved)


def _in_chunks(func, dims, leaves, build, out_dims, size):
    count = next(leaf.shape[dim] for leaf, dim in zip(leaves, dims) if dim is not None)
    parts = []
    for start in range(0, count, size):
        def part(leaf, dim):
            return leaf if dim is None else leaf.narrow(dim, start, min(size, count - start))

        parts.append(_mapped(func, dims, [part(*pair) for pair in zip(leaves, dims)], build, out_dims))
    if len(parts) == 1:
        return parts[0]
    flat = [flatten(one)[0] for one in parts]
    along = spread(tuple(out_dims) if isinstance(out_dims, list) else out_dims, parts[0])
    joined = [column[0] if dim is None else _taper.cat(list(column), dim) for column, dim in zip(zip(*flat), along)]
    return flatten(parts[0])[1](joined)


# Derivatives

def _variables(tree):
    """The tensors of a tree as variables of their own, the tree of them, and a function that builds a tree of
    other leaves."""
    leaves, build = flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"Expected all inputs to be Tensors, got {type(leaf)}")
    own = [leaf.clone() if leaf.requires_grad else leaf.detach().requires_grad_() for leaf in leaves]
    return own, build(own), build


def _released(results, variables):
    """Results of a derivative without their graph, unless it has other tensors than the variables in it."""
    if not _taper.is_grad_enabled():
        return [one.detach() for one in results]
    leaves = [one for one in variables if one.is_leaf]
    if leaves and not _taper._depend_on_others([one for one in results if one.requires_grad], leaves):
        return [one.detach() for one in results]
    return results


def _gradients(outputs, variables, seeds):
    """The gradients for one seed for each output; zeros for a variable that no output depends on."""
    pairs = [(output, seed) for output, seed in zip(outputs, seeds) if output.requires_grad]
    found = [None] * len(variables)
    if pairs:
        found = _taper._grad([one for one, _ in pairs], [one for _, one in pairs], variables, True)
    return [one.new_zeros(one.shape) if value is None else value for one, value in zip(variables, found)]


def _rows(outputs, variables, seeds, create_graph=True):
    """The gradients for a batch of seeds."""
    pairs = [(output, seed) for output, seed in zip(outputs, seeds) if output.requires_grad]
    found = [None] * len(variables)
    if pairs:
        found = _taper._grad_batched([one for one, _ in pairs], [one for _, one in pairs], variables, create_graph)
    count = seeds[0].shape[0]
    return [
        one.new_zeros((count, *one.shape)) if value is None else value for one, value in zip(variables, found)
    ]


def _basis(tensors):
    """For each tensor the unit vectors of all of them together: the identity matrix, cut by columns."""
    from ._functions import eye

    counts = [one.numel() for one in tensors]
    parts, start, total = [], 0, sum(counts)
    for one, count in zip(tensors, counts):
        unit = eye(total, dtype=one.dtype, device=one.device).narrow(1, start, count)
        parts.append(unit.reshape(total, *one.shape))
        start += count
    return parts


def _auxiliary(found, has_aux):
    if not has_aux:
        return found, None
    if not isinstance(found, tuple) or len(found) != 2:
        raise RuntimeError("the function should return a tuple (output, aux) if has_aux is True")
    return found


def grad(func, argnums=0, has_aux=False):
    """The gradient of a function of a scalar value."""

    @functools.wraps(func)
    def gradient(*args, **kwargs):
        gradients, found = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (gradients, found[1]) if has_aux else gradients

    return gradient


def grad_and_value(func, argnums=0, has_aux=False):
    """The gradient of a function of a scalar value, and the value."""

    @functools.wraps(func)
    def call(*args, **kwargs):
        chosen, put = _chosen(args, argnums)
        with enable_grad():
            variables, tree, build = _variables(chosen)
            value, aux = _auxiliary(func(*put(tree), **kwargs), has_aux)
            if not isinstance(value, Tensor):
                raise RuntimeError("Expected f(*args) to return a tensor, got "
                                   f"{type(value).__name__} for grad")
            if value.dim() != 0:
                raise RuntimeError("Expected f(*args) to return a scalar tensor, got tensor with "
                                   f"{value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            gradients = _gradients([value], variables, [None])
        gradients = build(_released(gradients, variables))
        (value,) = _released([value], variables)
        aux = map_leaves(lambda one: _released([one], variables)[0] if isinstance(one, Tensor) else one, aux)
        return gradients, (value, aux) if has_aux else value

    return call


def _chosen(args, argnums):
    """The arguments with these numbers, and the call's arguments with others in their places."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for number in numbers:
        if not isinstance(number, int):
            raise RuntimeError(f"argnum must be an int, got {type(number)}")
        if not -len(args) <= number < len(args):
            raise RuntimeError(f"Got argnum={number}, but only {len(args)} positional inputs")

    def put(others):
        complete = list(args)
        for number, other in zip(numbers, (others,) if isinstance(argnums, int) else others):
            complete[number] = other
        return complete

    return (args[argnums] if isinstance(argnums, int) else tuple(args[number] for number in numbers)), put


def vjp(func, *primals, has_aux=False):
    """The value of a function, and the function of a cotangent that gives the gradients of the arguments."""
    with enable_grad():
        variables, tree, build = _variables(primals)
        value, aux = _auxiliary(func(*tree), has_aux)
    outputs, rebuild = flatten(value)

    def pull(*cotangents):
        # The cotangent has the structure of the value, or its parts are given one by one.
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        seeds = flatten(given)[0]
        if len(seeds) != len(outputs):
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs "
                               f"to the function: {len(outputs)} tensors, not {len(seeds)}")
        with enable_grad():
            found = _gradients(outputs, variables, seeds)
        return build(_released(found, variables))

    value = rebuild(_released(outputs, variables))
    return (value, pull, aux) if has_aux else (value, pull)


def _pushed(func, primals, has_aux=False):
    """The value of a function, and its vector-Jacobian product for a recorded cotangent. The gradient of that
    product by the cotangent is the Jacobian-vector product."""
    variables, tree, _ = _variables(primals)
    value, aux = _auxiliary(func(*tree), has_aux)
    outputs, rebuild = flatten(value)
    seeds = [one.detach().new_ones(one.shape).requires_grad_() for one in outputs]
    return variables, outputs, rebuild, seeds, _gradients(outputs, variables, seeds), aux


def _directions(primals, tangents):
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples. E.g. it should be "
                           "valid to call f(*primals).")
    directions, primals = flatten(tangents)[0], flatten(primals)[0]
    if len(directions) != len(primals):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure."
        )
    for primal, tangent in zip(primals, directions):
        if primal.shape != tangent.shape:
            raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same shapes: "
                               f"{primal.shape} and {tangent.shape}")
    return directions


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The value of a function, and its derivative along the tangents: two backward passes."""
    directions = _directions(primals, tangents)
    with enable_grad():
        variables, outputs, rebuild, seeds, slopes, aux = _pushed(func, primals, has_aux)
        found = _gradients(slopes, seeds, directions)
    value, found = rebuild(_released(outputs, variables)), rebuild(_released(found, variables + seeds))
    return (value, found, aux) if has_aux else (value, found)


def linearize(func, *primals):
    """The value of a function, and its derivative at this place as a function of tangents."""
    with enable_grad():
        variables, outputs, rebuild, seeds, slopes, _ = _pushed(func, primals)

    def derivative(*tangents):
        with enable_grad():
            found = _gradients(slopes, seeds, _directions(primals, tangents))
        return rebuild(_released(found, variables + seeds))

    return rebuild(_released(outputs, variables)), derivative


def _blocks(rows, firsts, seconds):
    """The rows of a Jacobian, cut into one block for each of the tensors that the rows are of."""
    blocks, start = [], 0
    for first in firsts:
        count = first.numel()
        blocks.append([
            row.narrow(0, start, count).reshape(tuple(first.shape) + tuple(second.shape))
            for row, second in zip(rows, seconds)
        ])
        start += count
    return blocks


def jacrev(func, argnums=0, has_aux=False, *, chunk_size=None, _preallocate_and_copy=False):
    """The Jacobian of a function, by one backward pass for all elements of its results."""

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        chosen, put = _chosen(args, argnums)
        with enable_grad():
            variables, tree, build = _variables(chosen)
            value, aux = _auxiliary(func(*put(tree), **kwargs), has_aux)
            outputs, rebuild = flatten(value)
            rows = _rows(outputs, variables, _basis(outputs))
        rows = _released(rows, variables)
        found = rebuild([build(blocks) for blocks in _blocks(rows, outputs, variables)])
        return (found, aux) if has_aux else found

    return jacobian


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The Jacobian of a function, by one pass for all elements of its arguments."""

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        chosen, put = _chosen(args, argnums)
        build = flatten(chosen)[1]
        call = (lambda one: func(*put(one), **kwargs))
        with enable_grad():
            variables, outputs, rebuild, seeds, slopes, aux = _pushed(call, (chosen,), has_aux)
            columns = _rows(slopes, seeds, _basis(variables))
        columns = _released(columns, variables + seeds)
        # Columns have the axis of the arguments first; blocks have it last.
        by_argument, start = [], 0
        for one in variables:
            count = one.numel()
            by_argument.append([
                column.narrow(0, start, count).movedim(0, -1).reshape(tuple(output.shape) + tuple(one.shape))
                for column, output in zip(columns, outputs)
            ])
            start += count
        found = rebuild([build([own[at] for own in by_argument]) for at in range(len(outputs))])
        return (found, aux) if has_aux else found

    return jacobian


def hessian(func, argnums=0):
    """The second derivatives of a function."""
    return jacrev(jacrev(func, argnums), argnums)


# Modules

def functional_call(module, parameters_and_buffers, args=(), kwargs=None, *, tie_weights=True, strict=False):
    """Calls a module with other parameters and buffers, by their names."""
    replaced = []
    if isinstance(parameters_and_buffers, (tuple, list)):
        parameters_and_buffers = {name: value for part in parameters_and_buffers for name, value in part.items()}
    try:
        for name, value in parameters_and_buffers.items():
            path, _, last = name.rpartition(".")
            part = module.get_submodule(path)
            kind = part._parameters if last in part._parameters else part._buffers
            replaced.append((kind, last, kind[last]))
            kind[last] = value
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for kind, name, value in reversed(replaced):
            kind[name] = value


def replace_all_batch_norm_modules_(root):
    """Takes the running statistics from all normalizations, so that a module can be mapped in training."""
    for module in root.modules():
        if getattr(module, "track_running_stats", False):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models):
    """The parameters and the buffers of modules of one kind, each with an axis of modules first."""
    from ._functions import stack

    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(named, required):
        return {
            name: stack([dict(getattr(model, named)())[name].detach() for model in models]).requires_grad_(
                required and one.requires_grad
            )
            for name, one in getattr(models[0], named)()
        }

    return stacked("named_parameters", True), stacked("named_buffers", False)
