"""Immutable objects that JAX can take apart and put together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

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

    def values(x: Kind, names: tuple[str, ...]) -> tuple[object, ...]:
        return tuple(getattr(x, name) for name in names)

    def flatten(x: Kind) -> tuple[tuple[object, ...], tuple[object, ...]]:
        return values(x, data), values(x, static)

    def flatten_with_keys(x: Kind) -> tuple[Iterable[tuple[object, object]], tuple[object, ...]]:
        return zip(map(GetAttrKey, data), values(x, data), strict=True), values(x, static)

    def unflatten(fixed: tuple[object, ...], values: Iterable[object]) -> Kind:
        return new_without_checks(
            kind, **dict(zip(static, fixed, strict=True)), **dict(zip(data, values, strict=True))
        )

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
    return kind


def new_without_checks(kind: type[Kind], **attributes: object) -> Kind:
    """An object whose constructor is not called.

    JAX rebuilds objects with placeholders instead of arrays, which no check would let pass.
    """
    x = object.__new__(kind)
    for name, value in attributes.items():
        object.__setattr__(x, name, value)
    return x
