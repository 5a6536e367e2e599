"""Problems that are nearly infeasible or nearly unbounded, with a known optimum.

All matrices are diagonal in one orthogonal basis, that of a Hadamard matrix, so that each problem is a linear
program in the eigenvalues ``x``. Its data are dyadic and exact in doubles: one eigenvalue, or one sum of two
multipliers, is ``2^-k`` instead of zero. The optimum follows in rationals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

SCALES = (1e-6, 1.0, 1e6)


@dataclass(frozen=True, eq=False)
class LinearCase:
    """``min c'x`` for ``lo <= A x <= hi`` and ``x >= 0``, each vector in the basis `Q`.

    Parameters
    ----------
    family : str
    c : array of shape (n,)
    A : array of shape (m, n)
    lo, hi : array of shape (m,)
    Q : array of shape (n, n)
        Orthogonal; each column has entries of one size.
    value : Fraction or None
        The optimum; infinite where there is no point, ``-inf`` where it is unbounded.
    """

    family: str
    c: np.ndarray
    A: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    Q: np.ndarray
    value: Fraction | float

    def matrix(self, eigenvalues: np.ndarray) -> np.ndarray:
        """Return the matrix of these eigenvalues, exactly."""
        return (self.Q * eigenvalues) @ self.Q.T

    def rows(self, X: Any, inner: Callable[[np.ndarray, Any], Any]) -> list[Any]:
        """Return the constraints on a variable of a modeling language."""
        found = []
        for eigenvalues, lo, hi in zip(self.A, self.lo, self.hi, strict=True):
            a = inner(self.matrix(eigenvalues), X)
            found.append(a == lo if lo == hi else a >= lo if np.isinf(hi) else a <= hi)
        return found

    def scaled(self, objective: float, rows: float, size: float) -> LinearCase:
        """Return the problem in other units, rounded to powers of two so that its data stay exact."""
        objective, rows, size = (2.0 ** round(np.log2(s)) for s in (objective, rows, size))
        value = self.value if np.isinf(float(self.value)) else self.value * Fraction(objective * size)
        ends = rows * size
        return LinearCase(
            self.family, self.c * objective, self.A * rows, self.lo * ends, self.hi * ends, self.Q, value
        )


def hadamard(n: int) -> np.ndarray:
    """Return an orthogonal matrix of dyadic entries: Hadamard matrices of order 4 beside the identity."""
    H = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    Q = np.eye(n)
    if n >= 4:
        Q[:4, :4] = H
    return Q


def _dyadic(rng: np.random.Generator, n: int) -> np.ndarray:
    return 2.0 ** rng.integers(-2, 3, n)


def bounded_by_a_row(rng: np.random.Generator, n: int, t: float) -> tuple:
    """``max p'x`` for ``d'x <= b`` with ``d > 0``, one of its entries `t`."""
    p, d, b = _dyadic(rng, n), _dyadic(rng, n), float(rng.integers(1, 8))
    d[rng.integers(n)] = t
    best = max(Fraction(p_i) / Fraction(d_i) for p_i, d_i in zip(p, d, strict=True)) if t > 0 else np.inf
    return -p, d[None], [-np.inf], [b], -best * Fraction(b) if t > 0 else -np.inf


def bounded_by_the_cost(rng: np.random.Generator, n: int, t: float) -> tuple:
    """``min -x_0 + (a + t) x_1 + p'x`` for ``x_0 - a x_1 <= b``: the ray ``(a, 1)`` costs `t`."""
    a, b = float(_dyadic(rng, 1)[0]), float(rng.integers(1, 8))
    c, d = _dyadic(rng, n), np.zeros(n)
    c[0], c[1], d[0], d[1] = -1, a + t, 1, -a
    return c, d[None], [-np.inf], [b], -Fraction(b) if t > 0 else -np.inf


def met_by_an_eigenvalue(rng: np.random.Generator, n: int, t: float) -> tuple:
    """``min p'x`` for ``d'x == -b``, with one negative entry ``-t`` of ``d``."""
    p, d, b = _dyadic(rng, n), _dyadic(rng, n), float(rng.integers(1, 8))
    k = rng.integers(n)
    d[k] = -t
    return p, d[None], [-b], [-b], Fraction(b) * Fraction(p[k]) / Fraction(t) if t > 0 else np.inf


def met_by_two_rows(rng: np.random.Generator, n: int, t: float) -> tuple:
    """``min p'x`` for ``x_0 - a x_1 >= b`` and ``(a + t) x_1 - x_0 >= b``, whose sum is ``t x_1 >= 2 b``."""
    p, a, b = _dyadic(rng, n), float(_dyadic(rng, 1)[0]), float(rng.integers(1, 8))
    A = np.zeros((2, n))
    A[0, :2], A[1, :2] = (1, -a), (-1, a + t)
    if t <= 0:
        return p, A, [b, b], [np.inf, np.inf], np.inf
    x1 = 2 * Fraction(b) / Fraction(t)
    value = Fraction(p[1]) * x1 + Fraction(p[0]) * (Fraction(b) + Fraction(a) * x1)
    return p, A, [b, b], [np.inf, np.inf], value


FAMILIES: tuple[Callable[..., tuple], ...] = (
    bounded_by_a_row,
    bounded_by_the_cost,
    met_by_an_eigenvalue,
    met_by_two_rows,
)


def case(seed: int, k: int, family: Callable[..., tuple], *, has_answer: bool = True) -> LinearCase:
    """Return a problem with ``t = 2^-k``, or without an answer for ``-2^-k`` in its place."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    t = (1.0 if has_answer else -1.0) * 2.0**-k
    c, A, lo, hi, value = family(rng, n, t)
    Q = hadamard(n) if rng.random() < 0.7 else np.eye(n)
    return LinearCase(family.__name__, c, A, np.array(lo), np.array(hi), Q, value)


def cases(count: int, seed: int = 0, *, has_answer: bool = True) -> Iterator[LinearCase]:
    """Yield cases of all families with ``2^-k`` from ``k = 20`` to 50, in all units."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        own = case(seed + number, int(rng.integers(20, 51)), FAMILIES[number % 4], has_answer=has_answer)
        yield own.scaled(*rng.choice(SCALES, 3))
