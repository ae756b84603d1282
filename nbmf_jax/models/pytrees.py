"""Immutable objects that JAX can take apart and put together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import jax
from jax.tree_util import GetAttrKey

__all__ = ["new_without_checks", "register_immutable"]

Kind = TypeVar("Kind")


def register_immutable(
    kind: type[Kind], data: tuple[str, ...], static: tuple[str, ...] = ()
) -> type[Kind]:
    """Let JAX flatten and rebuild objects of this class.

    Args:
        kind: the class.
        data: attributes that hold arrays, or objects that JAX can take apart.
        static: attributes that are part of a program: hashable, compared by value.
    """

    def flatten_with_keys(x: Any) -> Any:
        children = tuple((GetAttrKey(name), getattr(x, name)) for name in data)
        return children, tuple(getattr(x, name) for name in static)

    def flatten(x: Any) -> Any:
        return tuple(getattr(x, name) for name in data), tuple(getattr(x, n) for n in static)

    def unflatten(fixed: tuple[Any, ...], values: Iterable[Any]) -> Kind:
        return new_without_checks(
            kind, **dict(zip(static, fixed, strict=True)), **dict(zip(data, values, strict=True))
        )

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
    return kind


def new_without_checks(kind: type[Kind], **attributes: Any) -> Kind:
    """An object whose constructor is not called.

    JAX rebuilds objects with placeholders instead of arrays, which no check would let pass.
    """
    x = object.__new__(kind)
    for name, value in attributes.items():
        object.__setattr__(x, name, value)
    return x
