"""Progress bars for long work; tqdm is imported only where one is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from bregopt.errors import require

__all__ = ["digits_bar", "items_bar"]

Item = TypeVar("Item")

_FORM = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"


def items_bar(items: Iterable[Item], description: str, shown: bool) -> Iterator[Item]:
    """Yield the items; a bar counts them if it is `shown`."""
    yield from _tqdm()(items, desc=description) if shown else items


@contextmanager
def digits_bar(description: str, tol: float, shown: bool) -> Iterator[Callable[[Any], None] | None]:
    """Yield a function that takes the steps of a solve, None if the bar is not `shown`.

    The bar is full when the gap and the residuals are within the tolerance. Its length is in digits, that
    is, in the logarithm of the largest of them, from the first step on.
    """
    if not shown:
        yield None
        return
    with _tqdm()(total=1.0, desc=f"bregopt {description}", bar_format=_FORM) as bar:
        first = math.nan

        def step(state: Any) -> None:
            nonlocal first
            error = max(state.gap, state.primal_residual, state.dual_residual)
            bar.set_postfix_str(f"gap {state.gap:.1e}")
            if not 0 < error < math.inf:
                return
            digits = -math.log10(error / tol)
            first = min(digits, -1.0) if math.isnan(first) else first
            share = min(1.0, max(0.0, 1 - digits / first))
            bar.update(max(share - bar.n, 0.0))

        yield step


def _tqdm() -> Any:
    return require("tqdm.auto", "progress").tqdm
