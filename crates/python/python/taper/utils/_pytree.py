"""``torch.utils._pytree``: nested containers as lists of leaves, which libraries use although it is private."""

from .._tree import flatten, map_leaves, register


class TreeSpec:
    """The structure of a tree without its leaves."""

    def __init__(self, count, build):
        self.num_leaves, self.unflatten = count, build


def tree_flatten(tree, is_leaf=None):
    leaves, build = flatten(tree, is_leaf)
    return leaves, TreeSpec(len(leaves), build)


def tree_unflatten(leaves, treespec):
    return treespec.unflatten(list(leaves))


def tree_leaves(tree, is_leaf=None):
    return flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    if not rests:
        return map_leaves(func, tree, is_leaf)
    leaves, build = flatten(tree, is_leaf)
    return build([func(*each) for each in zip(leaves, *(tree_leaves(rest, is_leaf) for rest in rests))])


def tree_map_only(kind, func, tree, is_leaf=None):
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree, is_leaf=is_leaf)


def register_pytree_node(cls, flatten_fn, unflatten_fn, **names):
    """A class whose objects are containers: ``flatten_fn`` gives the parts and what else ``unflatten_fn`` needs."""
    def children(node):
        parts, context = flatten_fn(node)
        return list(parts), lambda parts: unflatten_fn(parts, context)

    register(cls, children)


_register_pytree_node = register_pytree_node


def _dict_flatten_with_keys(tree):
    return list(tree.items()), list(tree)
