"""Data of every condition, to 2^-48, in Hadamard and unimodular bases, with exact optima.

Programs whose matrices are diagonal in one basis are linear programs in the diagonals
(:mod:`families.exact`). A least eigenvalue of ``2^-e``, zero or ``-2^-e`` decides whether the program has an
optimum: mirrored pairs of one family that only a proof can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import chain

import numpy as np

import bregopt as bo
from families.case import EXACT, Case
from families.exact import Vector, hadamard, in_basis, linear_program, log, power, real, unimodular

Numbers = list[Fraction | Decimal]

MILD = 8  # conditions up to 2^8 are well posed


def steepness(rng: np.random.Generator) -> int:
    """Return an exponent: mild, or steep up to 48."""
    return int(rng.integers(2, MILD + 1) if rng.random() < 0.5 else rng.integers(MILD + 1, 49))


# --- Linear programs --------------------------------------------------------------------------------


def mirrored_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield programs with and without an optimum, as the sign of one small eigenvalue decides.

    "largest": ``max sum_i w_i x_i`` under ``c'x <= b`` is unbounded unless ``c > 0``. "least": ``min`` under
    ``c'x <= -b`` is infeasible unless one ``c_i < 0``. A further row, added to the first, hides it.
    """
    for kind in ("largest", "least"):
        for sign in (1, 0, -1):
            for k in range(count):
                e, n = steepness(rng), int(rng.choice([2, 4, 8]))
                V = hadamard(rng, n) if rng.random() < 0.5 else unimodular(rng, n)
                small = sign * power(-e)
                c = [small] + [power(-rng.integers(0, min(e, 20) + 1)) for _ in range(n - 1)]
                w = [Fraction(int(x)) for x in rng.integers(1, 4, n)]
                b = power(rng.integers(-20, 21))
                if kind == "largest":
                    cost, A, right = [-x for x in w], [c], [b]
                else:
                    cost, A, right = w, [c], [-b]
                if rng.random() < 0.5:
                    extra = [Fraction(int(x)) for x in rng.integers(-2, 3, n)]
                    level = b * int(rng.integers(0, 3))
                    A = [[x + y for x, y in zip(c, extra, strict=True)], [-x for x in extra]]
                    right = [right[0] + level, -level]
                case = program_case(
                    V, cost, A, right, kind == "largest", "mirrored", f"{kind} {sign} 2^-{e} {k}"
                )
                if case is not None:  # the further row hides the small eigenvalue from the entries
                    yield replace(case, well_posed=case.well_posed and e <= MILD)


def spectral_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield random programs in one basis, with a feasible point, and their optimum by the simplex method."""
    for k in range(4 * count):
        e, n = steepness(rng), int(rng.choice([2, 4, 8]))
        V = hadamard(rng, n) if rng.random() < 0.5 else unimodular(rng, n)
        m = int(rng.integers(1, n))
        low = min(e, 40)  # of 53 bits, some are for the basis
        A = [[int(rng.integers(-1, 2)) * power(-rng.integers(0, low)) for _ in range(n)] for _ in range(m)]
        A[0] = [power(-rng.integers(0, low)) for _ in range(n)]  # bounds x
        x = [power(-rng.integers(0, 3)) for _ in range(n)]
        b = [sum((a * y for a, y in zip(row, x, strict=True)), Fraction(0)) for row in A]
        cost = [int(rng.integers(-3, 4)) * power(-rng.integers(0, low)) for _ in range(n)]
        scale = power(rng.integers(-20, 21))
        case = program_case(
            V, [scale * y for y in cost], A, b, bool(rng.random() < 0.5), "spectral", f"2^-{e} {k}"
        )
        if case is not None:
            yield case


def program_case(
    V: np.ndarray, c: Vector, A: list[Vector], b: Vector, maximize: bool, family: str, name: str
) -> Case | None:
    """Return the case of ``min c'x`` under ``A x <= b``, stated with matrices in the basis `V`.

    None if ``b`` does not fit doubles, or neither the program nor its dual has a feasible point. Where
    `maximize`, the problem maximizes ``-c'x``.
    """
    m = len(A)
    if any(Fraction(float(beta)) != beta for beta in b):
        return None
    zeros = [Fraction(0)] * m
    with_slacks = [row + [Fraction(int(i == k)) for k in range(m)] for i, row in enumerate(A)]
    value, x, y = linear_program(c + zeros, with_slacks, b)
    if value == np.inf and not _has_dual_point(c, A):
        return None
    C, rows = in_basis(V, c), np.array([in_basis(V, row) for row in A])
    demanded = max(abs(float(q)) / np.linalg.norm(M) for q, M in zip(b, rows, strict=True))
    unit, term, well_posed = float(np.linalg.norm(C) * demanded), 0.0, False
    if x is not None and y is not None:
        term = largest_term(V, A, x[: len(c)], y)
        # X = 0 has no terms; an objective below a millionth of the unit of the data counts as zero.
        unit = max(min(unit, term), 1e-4 * unit) if term else unit
        entries = [abs(p) for p in chain(c, *A) if p]
        mild = max(entries) <= power(MILD) * min(entries)
        well_posed = mild and _interior(c, A, b)

    known = float(value) if np.isinf(float(value)) or not maximize else -float(value)
    make = partial(program, C, rows, np.array(b, dtype=float), maximize)
    return Case(family, name, make, known, unit, np.isfinite(known), well_posed, EXACT, term)


def program(C: np.ndarray, A: np.ndarray, b: np.ndarray, maximize: bool) -> bo.Problem:
    """Return ``min <C, X>``, stated as a maximum if so, under ``A(X) <= b``."""
    X = bo.PSD(len(C))
    goal = bo.Maximize(bo.inner(-C, X)) if maximize else bo.Minimize(bo.inner(C, X))
    return bo.Problem(goal, [bo.inner(A, X) <= b])


def largest_term(V: np.ndarray, A: list[Vector], x: Vector, y: Vector) -> float:
    """Return the magnitudes of the rows at their multipliers, of the ``X`` with ``v_i'X v_i = x_i``."""
    W = np.linalg.inv(V)
    roots = np.sqrt(np.diag(W.T @ np.diag([float(p) for p in x]) @ W).clip(min=0))
    return sum(abs(float(q)) * (roots @ np.abs(in_basis(V, a)) @ roots) for a, q in zip(A, y, strict=True))


def _has_dual_point(c: Vector, A: list[Vector]) -> bool:
    """Whether ``c + A'y >= 0`` for some ``y >= 0``."""
    m, n = len(A), len(c)
    columns = [[-A[i][j] for i in range(m)] + [Fraction(int(j == k)) for k in range(n)] for j in range(n)]
    return linear_program([Fraction(0)] * (m + n), columns, c)[0] != np.inf


def _interior(c: Vector, A: list[Vector], b: Vector) -> bool:
    """Whether points with ``x >= t``, ``A x <= b - t`` and ``y >= t``, ``c + A'y >= t`` exist for t > 0.

    Small ``t``, relative to the sizes of ``b`` and ``c``, do not count.
    """

    def depth(G: list[Vector], h: Vector) -> Fraction:
        # max t under x = t + z, G x + t + s = h, t <= 1: with z, s, t >= 0
        m, n = len(G), len(G[0])
        size = max([abs(q) for q in h if q] or [Fraction(1)])
        rows = [
            [*row, *(Fraction(int(i == k)) for k in range(m)), sum(row, Fraction(1)), Fraction(0)]
            for i, row in enumerate(G)
        ]
        rows.append([Fraction(0)] * (n + m) + [Fraction(1), Fraction(1)])
        cost = [Fraction(0)] * (n + m) + [Fraction(-1), Fraction(0)]
        value = linear_program(cost, rows, [q / size for q in h] + [Fraction(1)])[0]
        return Fraction(-1) if np.isinf(float(value)) else -Fraction(value)

    transposed = [[-a for a in column] for column in zip(*A, strict=True)]
    return min(depth(A, b), depth(transposed, c)) >= power(-MILD)


# --- Divergences and determinants -------------------------------------------------------------------


def divergence_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield nearness in a Hadamard basis: eigenvalues held one by one, a fixed trace, a fixed diagonal.

    The minimizer has the eigenvectors of ``X0``, since averaging over the signs of a Hadamard basis lowers
    each divergence and keeps the rows. With the unit diagonal the average is over the group of the basis.
    """
    for name in TERMS:
        for rows in ("values", "trace", "diagonal"):
            for k in range(count):
                e, n = steepness(rng), int(rng.choice([2, 4, 8]))
                scale = power(0 if rows == "diagonal" else rng.integers(-20, 21))
                H = hadamard(rng, n)
                d = [scale * power(-x) for x in (e, *rng.integers(0, e + 1, n - 2), 0)]
                if name == "frobenius":
                    d = [int(rng.choice([-1, 1])) * x for x in d]
                X0 = in_basis(H, [x / n for x in d])
                held = np.flatnonzero(rng.random(n) < 0.5)
                x: Numbers
                if rows == "values":
                    x = [max(q, Fraction(0)) for q in d]
                    for i in held:
                        x[i] = scale * power(rng.integers(-2, 3))
                    A, b = [np.outer(H[:, i], H[:, i]) for i in held], [n * x[i] for i in held]
                else:
                    total = Fraction(n) if rows == "diagonal" else scale * power(rng.integers(-2, 3))
                    x = of_trace(name, d, total)
                    A, b = [np.eye(n)], [total]
                value, unit = divergence(name, x, d)
                yield Case(
                    "divergence",
                    f"{name} {rows} 2^-{e} {k}",
                    partial(divergence_problem, name, X0, rows, A, b),
                    float(value),
                    float(unit),
                    well_posed=e <= MILD,
                    precision=EXACT,
                    nearest={"A": X0, "divergence": name} if rows == "diagonal" else None,
                    X=(H * [float(q) / n for q in x]) @ H.T,
                )


def divergence_problem(
    name: str, X0: np.ndarray, rows: str, A: list[np.ndarray], b: list[Fraction]
) -> bo.Problem:
    """Return the problem of the matrix nearest to `X0` of unit diagonal, or with ``<A_k, X> = b_k``."""
    X = bo.PSD(len(X0))
    objective = bo.Minimize(getattr(bo, f"{name}_div")(X, X0))
    if rows == "diagonal":
        return bo.Problem(objective, [bo.diag(X) == 1])
    at = np.array(A, dtype=float)
    return bo.Problem(objective, [bo.inner(at, X) == np.array(b, dtype=float)] if len(at) else [])


def _von_neumann(x: Decimal, d: Decimal) -> list[Decimal]:
    return [x * (x / d).ln(), -x, d]


def _logdet(x: Decimal, d: Decimal) -> list[Decimal]:
    return [x / d, -(x / d).ln(), Decimal(-1)]


def _frobenius(x: Decimal, d: Decimal) -> list[Decimal]:
    return [x * x, -2 * x * d, d * d]


TERMS = {"von_neumann": _von_neumann, "logdet": _logdet, "frobenius": _frobenius}


def divergence(name: str, x: Numbers, d: Vector) -> tuple[Decimal, Decimal]:
    """Return the divergence of matrices of these eigenvalues, and the sum of the magnitudes of its terms."""
    terms = [t for p, q in zip(x, d, strict=True) for t in TERMS[name](real(p), real(q))]
    return sum(terms, Decimal(0)), sum(map(abs, terms), Decimal(0))


def of_trace(name: str, d: Vector, total: Fraction) -> Numbers:
    """Return the eigenvalues of sum `total` that are nearest to `d`."""
    if name == "von_neumann":
        return [q * total / sum(d) for q in d]
    if name == "frobenius":  # (d + shift)_+
        for size in range(1, len(d) + 1):
            largest = sorted(d, reverse=True)[:size]
            shift = (total - sum(largest)) / size
            if size == len(d) or sorted(d, reverse=True)[size] + shift <= 0:
                return [max(q + shift, Fraction(0)) for q in d]
    # 1/x = 1/d + shift, where the sum of the x falls with the shift
    inverse = [real(1 / q) for q in d]
    low = -min(inverse)
    high = low + len(d) / real(total)  # every x is at most 1/(low + shift - low)
    for _ in range(240):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(1 / (q + middle) for q in inverse) > real(total) else (low, middle)
    return [1 / (q + high) for q in inverse]


def log_det_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield determinants: the largest under ``<C, X> <= b``, and the least ``<C, X> - log det X``."""
    for goal in ("largest", "barrier"):
        for k in range(count):
            e, n = steepness(rng), int(rng.choice([2, 4, 8]))
            V = hadamard(rng, n) if rng.random() < 0.5 else unimodular(rng, n)
            e = min(e, 44)
            d = [power(-x) for x in (e, *rng.integers(0, e + 1, n - 2), 0)]
            b = int(rng.integers(1, 9)) * power(rng.integers(-20, 21))
            log_det = 2 * log(round(abs(np.linalg.det(V)))) + sum(map(log, d))  # of C
            if goal == "largest":
                value = n * log(b / n) - log_det
                unit = abs(n * log(b / n)) + abs(log_det)
            else:
                value, unit = n + log_det, n + abs(log_det)
            yield Case(
                "log_det",
                f"{goal} 2^-{e} {k}",
                partial(log_det_problem, goal, in_basis(V, d), float(b)),
                float(value),
                float(max(unit, Decimal(1))),
                well_posed=e <= MILD,
                precision=EXACT,
            )


def log_det_problem(goal: str, C: np.ndarray, b: float) -> bo.Problem:
    """Return the problem of the largest determinant, or of the least barrier."""
    X = bo.PSD(len(C))
    if goal == "largest":
        return bo.Problem(bo.Maximize(bo.log_det(X)), [bo.inner(C, X) <= b])
    return bo.Problem(bo.Minimize(bo.inner(C, X) - bo.log_det(X)), [bo.trace(X) >= 0])
