"""Exact truths: matrices of doubles without rounding, linear programs in fractions, logarithms of 50 digits.

``sum_i a_i v_i v_i'`` with linearly independent integer vectors ``v_i``, orthogonal or not, is a matrix of
doubles if the bits of the ``a_i`` fit. On psd ``X`` the numbers ``x_i = v_i' X v_i`` are nonnegative and
otherwise arbitrary: a semidefinite program in such matrices *is* the linear program in ``x``, whatever its
condition.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import count

import numpy as np

decimal.getcontext().prec = 60

Vector = list[Fraction]


def hadamard(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return ``n`` orthogonal columns of signs, ``n`` a power of two; rows and columns in random order."""
    H = np.ones((1, 1), dtype=int)
    while len(H) < n:
        H = np.block([[H, H], [H, -H]])
    return H[rng.permutation(n)][:, rng.permutation(n)]


def unimodular(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return ``n`` integer columns of determinant one."""
    lower, upper = (np.tril(rng.integers(-1, 2, (n, n)), -1) + np.eye(n, dtype=int) for _ in range(2))
    return lower @ upper.T


def doubles(A: np.ndarray) -> np.ndarray:
    """Return an array of fractions as doubles; an entry that does not fit is an error of its family."""
    rounded = A.astype(float)
    assert all(Fraction(x) == y for x, y in zip(rounded.ravel().tolist(), A.ravel(), strict=True))
    return rounded


def in_basis(V: np.ndarray, a: Sequence[Fraction]) -> np.ndarray:
    """Return ``sum_i a_i v_i v_i'`` over the columns of `V`."""
    columns = np.array([[Fraction(int(x)) for x in row] for row in V], dtype=object)
    return doubles((columns * np.array(a, dtype=object)) @ columns.T)


def power(k: int) -> Fraction:
    """Return ``2^k``."""
    return Fraction(2) ** int(k)


def real(x: Fraction | Decimal | int) -> Decimal:
    """Return a fraction to 60 digits."""
    return x if isinstance(x, Decimal) else Decimal(x.numerator) / Decimal(x.denominator)


def log(x: Fraction | int) -> Decimal:
    """Return the logarithm of a fraction."""
    return Decimal(x.numerator).ln() - Decimal(x.denominator).ln()


def root(x: Fraction | int) -> Decimal:
    """Return the square root of a fraction."""
    return real(x).sqrt()


def linear_program(
    c: Vector, A: list[Vector], b: Vector
) -> tuple[Fraction | float, Vector | None, Vector | None]:
    """Return value, optimum and multipliers of ``min c'x`` under ``A x = b``, ``x >= 0``.

    The simplex method with Bland's rule, in fractions. The value is ``inf`` if the program is infeasible and
    ``-inf`` if it is unbounded, without points.
    """
    m, n = len(A), len(c)
    signs = [1 if beta >= 0 else -1 for beta in b]
    rows = [
        [s * a for a in row] + [Fraction(int(i == k)) for k in range(m)] + [s * beta]
        for i, (s, row, beta) in enumerate(zip(signs, A, b, strict=True))
    ]
    basis = list(range(n, n + m))  # a nonnegative artificial variable in each row
    least, _ = _descend(rows, basis, [Fraction(0)] * n + [Fraction(1)] * m, n + m)
    assert least is not None
    if least > 0:
        return np.inf, None, None
    for i, k in enumerate(basis):  # an artificial variable of value zero leaves, unless its row is empty
        if k >= n and (j := next((j for j in range(n) if rows[i][j]), None)) is not None:
            _pivot(rows, basis, i, j)
    value, reduced = _descend(rows, basis, c + [Fraction(0)] * m, n)
    if value is None:
        return -np.inf, None, None
    x = [Fraction(0)] * (n + m)
    for i, k in enumerate(basis):
        x[k] = rows[i][-1]
    return value, x[:n], [-s * r for s, r in zip(signs, reduced[n : n + m], strict=True)]


def _descend(rows: list[Vector], basis: list[int], c: Vector, columns: int) -> tuple[Fraction | None, Vector]:
    """Pivot in the first columns until no reduced cost is negative; return the value and these costs."""
    while True:
        reduced = [
            c[j] - sum(c[k] * row[j] for k, row in zip(basis, rows, strict=True)) for j in range(len(c))
        ]
        enters = next((j for j in range(columns) if reduced[j] < 0), None)
        if enters is None:
            return sum((c[k] * row[-1] for k, row in zip(basis, rows, strict=True)), Fraction(0)), reduced
        ratios = [(row[-1] / row[enters], basis[i], i) for i, row in enumerate(rows) if row[enters] > 0]
        if not ratios:
            return None, reduced
        _pivot(rows, basis, min(ratios)[2], enters)


def _pivot(rows: list[Vector], basis: list[int], i: int, j: int) -> None:
    """Let column `j` enter the basis in row `i`."""
    rows[i] = [a / rows[i][j] for a in rows[i]]
    for k, row in enumerate(rows):
        if k != i and row[j]:
            rows[k] = [a - row[j] * p for a, p in zip(row, rows[i], strict=True)]
    basis[i] = j


def null_vectors(V: np.ndarray) -> list[np.ndarray]:
    """Return a basis of the integer vectors ``w`` with ``V'w = 0``, by elimination in fractions."""
    rows = [[Fraction(int(x)) for x in column] for column in V.T]
    n, pivots = len(V), []
    for j in range(n):
        r = len(pivots)
        if (i := next((i for i in range(r, len(rows)) if rows[i][j]), None)) is None:
            continue
        rows[r], rows[i] = rows[i], rows[r]
        _pivot(rows, [0] * len(rows), r, j)
        pivots.append(j)
    found = []
    for j in sorted(set(range(n)) - set(pivots)):
        w = [Fraction(int(k == j)) for k in range(n)]
        for i, p in enumerate(pivots):
            w[p] = -rows[i][j]
        common = next(d for d in count(1) if all((d * x).denominator == 1 for x in w))
        found.append(np.array([int(common * x) for x in w]))
    return found
