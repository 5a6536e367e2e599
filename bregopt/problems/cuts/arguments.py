"""Arguments of the functions on graphs, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import finite_array, rectangular
from bregopt.errors import is_one_of
from bregopt.problems.arguments import check_arguments
from bregopt.problems.cuts.triangles import LARGEST_ORDER
from bregopt.routes.options import check_options

__all__ = ["check_bound", "first_sizes", "generator", "number_of_parts", "part_sizes"]


def generator(function: Callable[..., Any], seed: Any, options: Mapping[str, Any]) -> np.random.Generator:
    """Return the generator of a seed; check the options before any work."""
    if "warm_start" in options:
        raise TypeError("a cut has no option 'warm_start': each graph is a problem of its own")
    check_arguments(function, options)
    own = {name: value for name, value in options.items() if name != "solver"}
    check_options(options.get("solver", "auto"), own if seed is None else {**own, "seed": seed})
    return np.random.default_rng(seed)


def check_bound(bound: Any, n: int) -> None:
    """Raise unless a kind of bound is known, and made for this number of vertices."""
    if bound is not False and not is_one_of(bound, ("sdp", "triangles")):
        raise ValueError(f"bound is {bound!r}; expected 'sdp', 'triangles' or False")
    if bound == "triangles" and n > LARGEST_ORDER:
        raise ValueError(
            f"bound is 'triangles' and graph has {n} vertices; expected at most {LARGEST_ORDER}: use 'sdp'"
        )


def number_of_parts(k: Any, n: int) -> None:
    """Raise unless `n` vertices have `k` parts."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k is {k!r}; expected an integer")
    if not 2 <= k <= n:
        raise ValueError(f"k is {k}; expected 2 to {n}, the number of vertices")


def part_sizes(sizes: Any, k: int, n: int) -> list[int]:
    """Return the sizes of `k` parts of `n` vertices; by default they differ by one at most."""
    if sizes is None:
        return [(n + part) // k for part in reversed(range(k))]
    array = rectangular(sizes, "sizes")
    if array.shape != (k,) or array.dtype.kind not in "iu":
        raise ValueError(f"sizes is {sizes!r}; expected {k} integers")
    if array.min() < 1 or array.sum() != n:
        raise ValueError(
            f"sizes is {sizes!r}, with sum {array.sum()}; expected sizes of at least 1 with sum {n}"
        )
    return [int(size) for size in array]


def first_sizes(n: int, imbalance: Any, sizes: Sequence[int] | None) -> tuple[int, int]:
    """Return the smallest and the largest allowed size of the first of two sides."""
    if sizes is not None:
        if imbalance != 0.0:
            raise TypeError("sizes and imbalance are given; expected one of them")
        first, _ = part_sizes(sizes, 2, n)
        return first, first
    fraction = float(finite_array(imbalance, "imbalance", ndim=0))
    if not 0 <= fraction < 1:
        raise ValueError(f"imbalance is {fraction:g}; expected 0 <= imbalance < 1")
    slack = int(np.floor(fraction * n + 1e-9))  # 1e-9 covers the round-off of the product
    slack = max(slack - (slack - n) % 2, n % 2)  # the difference of the sides has the parity of n
    return max((n - slack) // 2, 1), min((n + slack) // 2, n - 1)
