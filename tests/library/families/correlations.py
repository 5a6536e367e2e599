"""Nearest correlation matrices by construction, and matrices with one free entry, in exact arithmetic.

``X`` is the mean of outer products of sign vectors, ``S`` a sum of outer products of integer vectors that are
orthogonal to these: ``X S = 0``. Then ``X`` is the correlation matrix nearest to ``A`` with the entries
``X_ij - S_ij / (2 H_ij^2)``, for weights ``H`` that are powers of two: all numbers are dyadic. Fixed entries
have any multiplier. A floor ``t`` moves the spectrum of ``X`` to ``t + (1 - t) x``.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np

import bregopt as bo
from families.case import EXACT, Case
from families.exact import doubles, log, null_vectors, power, real, root

KINDS = (
    "plain",
    "weights",
    "decades",
    "row weights",
    "fixed",
    "floor",
    "fixed and floor",
    "fixed and decades",
)


def correlation_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield nearest correlation matrices: weights over decades, fixed pairs, floors."""
    for kind in KINDS:
        for k in range(count):
            yield nearest_case(rng, kind, f"{kind} {k}")


def nearest_case(rng: np.random.Generator, kind: str, name: str) -> Case:
    """Return a nearest correlation matrix of a kind."""
    n = int(rng.integers(3, 10))
    signs = rng.choice([-1, 1], (n, 2 if n < 6 else int(rng.choice([2, 4]))))
    t = power(-rng.integers(4, 13)) if "floor" in kind else Fraction(0)
    same = np.eye(n, dtype=int)
    X = t * same + (1 - t) * (signs @ signs.T).astype(object) / Fraction(signs.shape[1])
    S = sum(int(rng.integers(1, 4)) * np.outer(w, w) for w in null_vectors(signs)).astype(object)
    S = S * power(-rng.integers(0, 6))
    spread = 10 if "decades" in kind else 2
    exponents = -rng.integers(0, spread + 1, (n, n))
    exponents = np.triu(exponents, 1) + np.triu(exponents, 1).T
    if kind == "row weights":
        rows = -rng.integers(0, 5, n)  # of the roots of the weights
        exponents = rows[:, None] + rows
    elif "weights" not in kind and "decades" not in kind:
        exponents *= 0
    H = np.array([[power(e) for e in row] for row in exponents], dtype=object)
    off = ~np.eye(n, dtype=bool)
    fixed = np.triu(rng.random((n, n)) < 0.25, 1) & ("fixed" in kind)
    fixed = fixed | fixed.T
    moved = np.where(off & ~fixed, -S / (2 * H * H), Fraction(0) * S)
    A = doubles(X + moved)
    value = (H * H * moved * moved).sum()
    unit = float(max(value, (abs(S) * abs(moved)).sum(), power(-40)))
    weights = None
    arguments: dict[str, object] = {"A": A}
    if kind == "row weights":
        arguments["weights"] = np.array([float(power(2 * e)) for e in rows])
    elif "weights" in kind or "decades" in kind:
        arguments["weights"] = H.astype(float)
    if (exponents != 0).any():
        weights = H.astype(float)
    if fixed.any():
        arguments["fixed"] = fixed
    if t:
        arguments["min_eigenvalue"] = float(t)

    def make() -> bo.Problem:
        Y = bo.PSD(n)  # X - t I
        i, j = np.nonzero(np.triu(fixed))
        rows = [bo.diag(Y) == float(1 - t)] + ([Y[i, j] == A[i, j]] if len(i) else [])
        return bo.Problem(bo.Minimize(bo.frobenius_div(Y, A - float(t) * np.eye(n), weights)), rows)

    # The fixed entries, completed by zeros, are definite: then the rows have an interior.
    interior = not fixed.any() or bool(
        np.linalg.eigvalsh(np.where(fixed | ~off, A, 0.0))[0] > float(t) + 0.05
    )
    return Case(
        "correlation",
        name,
        make,
        float(value),
        unit,
        well_posed=interior and "decades" not in kind,
        scale=float((H.astype(float) ** 2 * A**2).sum()),
        distance=np.inf if interior else 0.0,
        precision=EXACT,
        nearest=arguments,
        X=X.astype(float),
    )


# --- One free entry ---------------------------------------------------------------------------------


def free_entry_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield matrices with all entries given but one, whose interval a Schur complement gives.

    The end of the interval, the entry nearest to another, and the determinants are closed forms. A diagonal
    that leaves room ``2^-e``, none, or ``-2^-e`` decides whether the matrix exists.
    """
    for goal in ("largest", "nearest", "weighted", "log_det", "logdet"):
        for sign in (1, 1, 1, 0, -1):
            for k in range(count):
                e = int(rng.integers(0, 5) if rng.random() < 0.6 else rng.integers(5, 41))
                case = free_entry(rng, goal, sign * power(-e), f"{goal} {sign} 2^-{e} {k}")
                if case is not None:
                    yield case


def free_entry(rng: np.random.Generator, goal: str, room: Fraction, name: str) -> Case | None:
    """Return a matrix in which entry (0, 1) is free and (0, 0) exceeds the least possible by `room`."""
    m = int(rng.integers(1, 4))  # the order of the block K that both share
    T = np.eye(m, dtype=int) + np.tril(rng.integers(-1, 2, (m, m)), -1)
    K = T @ T.T
    inverse = np.rint(np.linalg.inv(K)).astype(int)  # det K = 1
    B = rng.integers(-2, 3, (2, m))
    schur = B @ inverse @ B.T
    rooms = [room, power(-rng.integers(0, 3))]
    if room <= 0 and goal in ("log_det", "logdet"):
        return None  # no definite matrix
    M = np.array([[Fraction(0)] * (m + 2) for _ in range(m + 2)], dtype=object)
    M[2:, 2:], M[:2, 2:], M[2:, :2] = K, B, B.T
    for i in range(2):
        M[i, i] = schur[i, i] + rooms[i]
    middle = Fraction(int(schur[0, 1]))
    radius = root(rooms[0] * rooms[1]) if room >= 0 else Decimal(0)
    x0 = middle + int(rng.integers(-8, 9)) * power(-rng.integers(0, 4))
    weight = power(-rng.integers(0, 11)) if goal == "weighted" else Fraction(1)
    n, given = m + 2, np.triu(np.ones((m + 2, m + 2), dtype=bool))
    given[0, 1] = False
    i, j = np.nonzero(given)
    data = doubles(np.where(M == 0, Fraction(0), M))
    start = data.copy()
    start[0, 1] = start[1, 0] = float(x0)
    weights = np.ones((n, n))
    weights[0, 1] = weights[1, 0] = float(weight)
    anchor = np.eye(n)  # of LogDet: tr X is given, and the free entry enters through the determinant
    beyond = max(abs(real(x0 - middle)) - radius, Decimal(0))
    determinant = log(rooms[0] * rooms[1]) if room > 0 else Decimal(0)  # of the middle; det K = 1
    trace = sum((real(M[p, p]) for p in range(n)), Decimal(0))
    value = {
        "largest": real(middle) + radius,
        "nearest": 2 * beyond**2,
        "weighted": 2 * real(weight) ** 2 * beyond**2,
        "log_det": determinant,
        "logdet": trace - determinant - n,
    }[goal]
    scale = float((weights**2 * start**2).sum())  # of a squared distance
    unit = {
        "largest": max(float(abs(real(middle)) + radius), float(abs(M[0, 0] * M[1, 1])) ** 0.5),
        "log_det": float(max(abs(determinant), Decimal(1))),
        "logdet": float(trace + abs(determinant) + n),
    }.get(goal, 2 * float(weight * (x0 - middle)) ** 2 if beyond else scale)

    def make() -> bo.Problem:
        X = bo.PSD(n)
        objective = {
            "largest": lambda: bo.Maximize(X[0, 1]),
            "nearest": lambda: bo.Minimize(bo.frobenius_div(X, start)),
            "weighted": lambda: bo.Minimize(bo.frobenius_div(X, start, weights)),
            "log_det": lambda: bo.Maximize(bo.log_det(X)),
            "logdet": lambda: bo.Minimize(bo.logdet_div(X, anchor)),
        }[goal]()
        return bo.Problem(objective, [X[i, j] == data[i, j]])

    known = float(value) if room >= 0 else np.inf
    return Case(
        "one free entry",
        name,
        make,
        known,
        unit,
        # Without an interior, or at its end, multipliers need not exist.
        attained=room > 0,
        distance=float(abs(room) / max(M.ravel())) if room else 0.0,
        well_posed=room >= power(-4),
        precision=EXACT,
        scale=scale if goal in ("nearest", "weighted") else float(max(abs(p) for p in M.ravel())),
    )
