"""Random problems whose optimum is a known integer: no proven interval may exclude it.

``T`` is a unit triangular matrix of integers, so that its inverse has integers, too. ``X = T D T'`` and ``Z =
inv(T)' E inv(T)`` with complementary diagonals ``D`` and ``E`` are a complementary pair of integer matrices.
With integer rows, multipliers and slacks, all data are integers, exact in floating point.

``python tests/library/rational.py --count 10000`` verifies that many, and prints how many bounds were proven.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import bregopt as bo

KINDS = (
    *("equalities", "inequalities", "variables", "free", "blocks", "trace", "maximize", "soft"),
    *("face", "empty row"),
)


@dataclass(frozen=True, eq=False)
class Known:
    """A problem with its optimal value."""

    kind: str
    problem: bo.Problem
    value: int


def pair(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return psd integer matrices ``X`` and ``Z`` with ``X Z = 0`` and ranks that add up to `n`."""
    T = np.eye(n, dtype=int) + np.tril(rng.integers(-1, 2, (n, n)), -1)
    inverse = np.rint(np.linalg.inv(T)).astype(int)
    assert (T @ inverse == np.eye(n)).all()
    rank = int(rng.integers(1, n)) if n > 1 else int(rng.integers(0, 2))
    D = np.where(np.arange(n) < rank, rng.integers(1, 5, n), 0)
    E = np.where(np.arange(n) < rank, 0, rng.integers(1, 5, n))
    return (T * D) @ T.T, (inverse.T * E) @ inverse


def on_face(
    rng: np.random.Generator, X: np.ndarray, Z: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return a vector ``z`` of signs, and a pair like `X`, `Z` of the next order with ``X z = 0``."""
    z = rng.choice([-1, 0, 1], len(X) + 1)
    z[-1] = 1
    z[0] = rng.choice([-1, 1])
    H = np.vstack([np.eye(len(X), dtype=int), -z[:-1]])
    return z, (H @ X @ H.T, np.pad(Z, (0, 1)))


def problem(rng: np.random.Generator, kind: str) -> Known:
    """Return a random problem of a kind."""
    orders = rng.integers(1, 5, 3) if kind == "blocks" else rng.integers(2, 7, 1)
    pairs = [pair(rng, int(n)) for n in orders]
    m = int(rng.integers(1, max(2, orders.sum())))
    if kind == "face":
        z, pairs[0] = on_face(rng, *pairs[0])
        orders = orders + 1
    rows = [[_symmetric(rng, int(n)) for n in orders] for _ in range(m)]
    if kind == "trace":
        rows[0] = [np.eye(int(n), dtype=int) for n in orders]
    a = np.array([sum(int((A * X).sum()) for A, (X, _) in zip(row, pairs, strict=True)) for row in rows])
    y = rng.integers(-3, 4, m)
    loose = np.zeros(m, dtype=bool)
    if kind == "inequalities":
        loose = rng.random(m) < 0.5
        y = np.where(loose, np.maximum(y, 0), y)  # >= rows
    b = np.where(loose & (y == 0), a - rng.integers(0, 3, m), a)  # with slack where the multiplier is zero
    variables, terms = [bo.PSD(int(n), name=f"X{k}") for k, n in enumerate(orders)], []
    value, penalties = int(b @ y), 0
    for X, (k, (_, Z)) in zip(variables, enumerate(pairs), strict=True):
        C = Z + sum(int(y[i]) * rows[i][k] for i in range(m))
        terms.append(bo.inner(np.asarray(C, dtype=float), X))
    bodies = [
        sum(
            (bo.inner(A.astype(float), X) for A, X in zip(row[1:], variables[1:], strict=True)),
            bo.inner(row[0].astype(float), variables[0]),
        )
        for row in rows
    ]
    constraints = []
    if kind in ("variables", "free"):
        k = int(rng.integers(1, 3))
        k = min(k, m)
        B = rng.integers(-2, 3, (m, k))
        B[np.arange(k), np.arange(k)] = 5  # independent columns
        at = rng.integers(0, 4, k)
        z = np.zeros(k, dtype=int)
        if kind == "variables":
            z = np.where(at == 0, rng.integers(0, 3, k), 0)
        u = bo.Variable(k, name="u")
        c = z + B.T @ y
        b = b + B @ at
        value = int(b @ y)
        bodies = [body + bo.sum(B[i].astype(float) * u) for i, body in enumerate(bodies)]
        terms.append(bo.sum(c.astype(float) * u))
        if kind == "variables":
            constraints.append(u >= 0)
    if kind == "soft":  # a hinge whose weight exceeds the multiplier acts as the row itself
        gamma = np.abs(y) + 1
        soft = [
            bo.soft(body == float(rhs), gamma=float(g), penalty="hinge")
            for body, rhs, g in zip(bodies, b, gamma, strict=True)
        ]
        constraints += soft
    else:
        constraints += [
            body >= float(rhs) if ge else body == float(rhs)
            for body, rhs, ge in zip(bodies, b, loose, strict=True)
        ]
    if kind == "face":
        constraints.append(bo.quad_form(z.astype(float), variables[0]) == 0)
    if kind == "empty row":
        constraints.append(bo.inner(np.zeros(pairs[0][0].shape), variables[0]) == 0)
    objective = sum(terms[1:], terms[0])
    if kind == "maximize":
        return Known(kind, bo.Problem(bo.Maximize(-objective), constraints), -value)
    return Known(kind, bo.Problem(bo.Minimize(objective), constraints), value + penalties)


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    A = rng.integers(-2, 3, (n, n))
    return A + A.T


def problems(seed: int, count: int) -> Iterator[Known]:
    """Yield random problems, all kinds in turn."""
    for k in range(count):
        yield problem(np.random.default_rng([seed, k]), KINDS[k % len(KINDS)])


def main() -> None:
    """Verify many problems, and print how many bounds were proven and whether one is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally: Counter[tuple[str, str]] = Counter()
    widths = []
    for known in problems(options.seed, options.count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            found = known.problem.solve(tol=1e-8).verify()
        if not found.lower <= known.value <= found.upper:
            raise SystemExit(f"{known.kind}: the interval {found!r} excludes {known.value}")
        both = np.isfinite([found.lower, found.upper])
        tally[known.kind, "both" if both.all() else "one" if both.any() else "none"] += 1
        if both.all():
            widths.append(found.relative_width)
    for kind in KINDS:
        print(f"{kind:14}", {how: tally[kind, how] for how in ("both", "one", "none")})
    print(f"{options.count} problems, none excluded; median relative width {np.median(widths):.1e}")


if __name__ == "__main__":
    main()
