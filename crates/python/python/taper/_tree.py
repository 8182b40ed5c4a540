"""Nested tuples, lists and dicts: their leaves in order, and the same structure with other leaves."""

from collections import OrderedDict, defaultdict

from ._size import Size


#: Classes of programs whose objects are nodes, each with a function as :func:`_children`.
_registered = {}
register = _registered.__setitem__


def _children(tree):
    """The parts of a node and a function that builds it of others; ``None`` for a leaf."""
    kind = type(tree)
    if kind in _registered:
        return _registered[kind](tree)
    if kind in (dict, OrderedDict):
        names = list(tree)
        return [tree[name] for name in names], lambda parts: kind(zip(names, parts))
    if kind is defaultdict:
        names, factory = list(tree), tree.default_factory
        return [tree[name] for name in names], lambda parts: defaultdict(factory, zip(names, parts))
    if kind in (list, tuple):
        return list(tree), kind
    if isinstance(tree, tuple) and kind is not Size:
        build = (lambda parts: kind(*parts)) if hasattr(kind, "_make") else kind
        return list(tree), build
    return None


def flatten(tree, is_leaf=None):
    """The leaves of a tree, and a function that builds the tree of as many others."""
    found = None if is_leaf is not None and is_leaf(tree) else _children(tree)
    if found is None:
        return [tree], lambda leaves: leaves[0]
    parts, build = found
    leaves, builds = [], []
    for part in parts:
        own, rebuild = flatten(part, is_leaf)
        builds.append((len(leaves), len(leaves) + len(own), rebuild))
        leaves += own
    return leaves, lambda others: build([rebuild(others[first:last]) for first, last, rebuild in builds])


def map_leaves(function, tree, is_leaf=None):
    leaves, build = flatten(tree, is_leaf)
    return build([function(leaf) for leaf in leaves])


def spread(prefix, tree):
    """A leaf of ``prefix`` for each leaf of a tree: a leaf there counts for all that is below it. ``None`` if
    the two do not fit."""
    if prefix is None or isinstance(prefix, int):
        return [prefix] * len(flatten(tree)[0])
    below, own = _children(tree), _children(prefix)
    fits = below is not None and own is not None and len(below[0]) == len(own[0])
    if not fits or (isinstance(tree, dict) and set(tree) != set(prefix)):
        return None
    pairs = [(prefix[name], tree[name]) for name in tree] if isinstance(tree, dict) else zip(own[0], below[0])
    found = [spread(one, part) for one, part in pairs]
    return None if any(one is None for one in found) else [leaf for one in found for leaf in one]
