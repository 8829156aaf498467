"""Nested batches: what is applied to every tensor of a batch gives a batch of the same types.

Known containers are tuples (NamedTuple and structseq among them), lists, deques, mappings (dict subclasses keep their
type and attributes), dataclasses (frozen and slotted too), and objects with a method ``pin_memory``, torch's
convention for a batch type of one's own. Everything else (strings, numbers, None, numpy arrays) passes through.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_leaf", "map_tensors", "tensors"]


def is_leaf(tree: object) -> bool:
    """Return whether ``tree`` is moved as a whole: a tensor, or an object with pin_memory() and to(device)."""
    if isinstance(tree, torch.Tensor):
        return True
    if isinstance(tree, type):
        return False
    return callable(getattr(tree, "pin_memory", None)) and callable(getattr(tree, "to", None))


def map_tensors(tree: Any, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401  a batch is of any type
    """Return ``tree`` with ``function`` applied to each leaf (see is_leaf), every container in its own type.

    A part in which nothing changed is returned itself, not a copy; the tree given is never written to. No constructor
    of the caller's types runs but a tuple's or an immutable mapping's own.
    """
    if is_leaf(tree):
        return function(tree)
    if isinstance(tree, Mapping):
        return _map_mapping(tree, function)
    if isinstance(tree, (tuple, list, deque)):
        return _map_sequence(tree, function)
    names = _attributes(tree)
    old = {name: getattr(tree, name) for name in names}
    new = {name: map_tensors(value, function) for name, value in old.items()}
    if all(new[name] is old[name] for name in names):
        return tree
    clone = copy.copy(tree)
    for name, value in new.items():
        object.__setattr__(clone, name, value)  # frozen dataclasses refuse setattr
    return clone


def tensors(tree: object) -> Iterator[Any]:
    """Yield every tensor of ``tree``, and every object that has its own ``record_stream``; containers are opened."""
    if isinstance(tree, torch.Tensor) or (
        not isinstance(tree, type) and callable(getattr(tree, "record_stream", None))
    ):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, (tuple, list, deque)):
        for value in tree:
            yield from tensors(value)
    else:
        for name in _attributes(tree):
            yield from tensors(getattr(tree, name))


def _attributes(tree: object) -> list[str]:
    """Return the names of the attributes that may hold tensors: none but for dataclasses and objects that pin."""
    if isinstance(tree, type):
        return []
    if dataclasses.is_dataclass(tree):
        return [field.name for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
    if callable(getattr(tree, "pin_memory", None)):
        return list(getattr(tree, "__dict__", ()))
    return []


def _map_mapping(tree: Mapping[Any, Any], function: Callable[[Any], Any]) -> Mapping[Any, Any]:
    new = {key: map_tensors(value, function) for key, value in tree.items()}
    if all(new[key] is value for key, value in tree.items()):
        return tree
    if isinstance(tree, MutableMapping):
        clone = copy.copy(tree)  # keeps a defaultdict's factory, a subclass's attributes
        clone.update(new)
        return clone
    return type(tree)(new)  # type: ignore[call-arg]  # MappingProxyType and its like take a dict


def _map_sequence(tree: Any, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    new = [map_tensors(value, function) for value in tree]
    if all(after is before for after, before in zip(new, tree, strict=True)):
        return tree
    if isinstance(tree, tuple):
        return tree._make(new) if hasattr(tree, "_make") else type(tree)(new)
    clone = copy.copy(tree)
    for position, value in enumerate(new):
        clone[position] = value
    return clone
