"""Data of every condition, to 2^-48, in Hadamard and unimodular bases, with exact optima.

Programs whose matrices are diagonal in one basis are linear programs in the diagonals (:mod:`families.exact`).
A least eigenvalue of ``2^-e``, zero or ``-2^-e`` decides whether the program has an optimum: mirrored pairs of
one family that no solver can tell apart by its tolerance, only by a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np

import bregopt as bo
from families.case import EXACT, Case
from families.exact import Vector, hadamard, in_basis, linear_program, log, power, real, unimodular

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
                if case is not None:
                    yield case


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
    m, n = len(A), len(c)
    if any(Fraction(float(beta)) != beta for beta in b):
        return None
    zeros = [Fraction(0)] * m
    with_slacks = [row + [Fraction(int(i == k)) for k in range(m)] for i, row in enumerate(A)]
    value, x, y = linear_program(c + zeros, with_slacks, b)
    if value == np.inf and linear_program(zeros, [list(r) for r in zip(*A, strict=True)], c)[0] == np.inf:
        if not _has_dual_point(c, A):
            return None
    C, rows = in_basis(V, c), np.array([in_basis(V, row) for row in A])
    right = np.array([float(beta) for beta in b])
    unit = 1.0
    well_posed = False
    if x is not None and y is not None:
        terms = sum(abs(p * q) for p, q in zip(c, x, strict=False))
        unit = float(max(terms, sum(abs(p * q) for p, q in zip(b, y, strict=True))))
        entries = [abs(p) for p in [*c, *sum(A, [])] if p]
        mild = max(entries) <= power(MILD) * min(entries)
        well_posed = mild and _interior(c, A, b)

    def make() -> bo.Problem:
        X = bo.PSD(n)
        objective = bo.inner(-C, X) if maximize else bo.inner(C, X)
        goal = bo.Maximize(objective) if maximize else bo.Minimize(objective)
        return bo.Problem(goal, [bo.inner(rows, X) <= right])

    known = float(value) if np.isinf(float(value)) or not maximize else -float(value)
    return Case(family, name, make, known, unit, np.isfinite(known), well_posed, EXACT)


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
    atoms = {"von_neumann": bo.von_neumann_div, "logdet": bo.logdet_div, "frobenius": bo.frobenius_div}
    for name, atom in atoms.items():
        for rows in ("values", "trace", "diagonal"):
            for k in range(count):
                e, n = steepness(rng), int(rng.choice([2, 4, 8]))
                scale = power(0 if rows == "diagonal" else rng.integers(-20, 21))
                H = hadamard(rng, n)
                d = [scale * power(-rng.integers(0, e + 1)) for _ in range(n)]
                d[0], d[-1] = scale * power(-e), scale
                if name == "frobenius":
                    d = [int(rng.choice([-1, 1])) * x for x in d]
                X0 = in_basis(H, [x / n for x in d])
                x: list[Fraction | Decimal]
                if rows == "values":
                    held = np.flatnonzero(rng.random(n) < 0.5) if rng.random() < 0.8 else np.array([0])
                    t = {int(i): scale * power(rng.integers(-2, 3)) for i in held}
                    x = [t.get(i, max(y, Fraction(0))) for i, y in enumerate(d)]
                else:
                    total = Fraction(n) if rows == "diagonal" else scale * power(rng.integers(-2, 3))
                    x = of_trace(name, d, total)
                value, unit = DIVERGENCES[name](x, d)

                def make(
                    atom=atom, X0=X0, rows=rows, n=n, H=H, x=x, held=held if rows == "values" else None
                ) -> bo.Problem:
                    X = bo.PSD(n)
                    if rows == "values":
                        at = np.array([np.outer(H[:, i], H[:, i]) for i in held]).reshape(-1, n, n)
                        rhs = np.array([float(x[i] * n) for i in held])
                        constraints = [bo.inner(at, X) == rhs] if len(held) else []
                    elif rows == "trace":
                        constraints = [bo.trace(X) == float(sum(x))]
                    else:
                        constraints = [bo.diag(X) == 1]
                    return bo.Problem(bo.Minimize(atom(X, X0)), constraints)

                nearest = {"A": X0, "divergence": name} if rows == "diagonal" else None
                yield Case(
                    "divergence",
                    f"{name} {rows} 2^-{e} {k}",
                    make,
                    float(value),
                    float(unit),
                    well_posed=e <= MILD,
                    precision=EXACT,
                    nearest=nearest,
                )


def _real(x: Fraction | Decimal) -> Decimal:
    return x if isinstance(x, Decimal) else real(x)


def _von_neumann(x: list, d: list) -> tuple[Decimal, Decimal]:
    pairs = [(_real(p), _real(q)) for p, q in zip(x, d, strict=True)]
    value = sum((p * (p / q).ln() - p + q for p, q in pairs), Decimal(0))
    return value, sum((p * abs((p / q).ln()) + p + q for p, q in pairs), Decimal(0))


def _logdet(x: list, d: list) -> tuple[Decimal, Decimal]:
    ratios = [_real(p) / _real(q) for p, q in zip(x, d, strict=True)]
    value = sum((r - r.ln() - 1 for r in ratios), Decimal(0))
    return value, sum((r + abs(r.ln()) + 1 for r in ratios), Decimal(0))


def _frobenius(x: list, d: list) -> tuple[Decimal, Decimal]:
    pairs = [(_real(p), _real(q)) for p, q in zip(x, d, strict=True)]
    return sum(((p - q) ** 2 for p, q in pairs), Decimal(0)), sum(
        (p * p + q * q for p, q in pairs), Decimal(0)
    )


DIVERGENCES: dict[str, Callable[[list, list], tuple[Decimal, Decimal]]] = {
    "von_neumann": _von_neumann,
    "logdet": _logdet,
    "frobenius": _frobenius,
}


def of_trace(name: str, d: Vector, total: Fraction) -> list[Fraction | Decimal]:
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
    inverse = [_real(1 / q) for q in d]
    low = -min(inverse)
    high = low + len(d) / _real(total)  # every x is at most 1/(low + shift - low)
    for _ in range(240):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(1 / (q + middle) for q in inverse) > _real(total) else (low, middle)
    return [1 / (q + high) for q in inverse]


def log_det_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield determinants: the largest under ``<C, X> <= b``, and the least ``<C, X> - log det X``."""
    for k in range(2 * count):
        e, n = steepness(rng), int(rng.choice([2, 4, 8]))
        V = hadamard(rng, n) if rng.random() < 0.5 else unimodular(rng, n)
        d = [power(-rng.integers(0, min(e, 40) + 1)) for _ in range(n)]
        d[0], d[-1] = power(-min(e, 44)), Fraction(1)
        C, b = in_basis(V, d), int(rng.integers(1, 9)) * power(rng.integers(-20, 21))
        log_det = (
            sum((log(q) for q in d), Decimal(0)) + 2 * abs(Decimal(round(abs(np.linalg.det(V))))).ln()
        )  # of C: det V is an integer
        largest = n * log(b / n) - log_det

        def make(C=C, b=b, n=n, bounded=bool(k % 2)) -> bo.Problem:
            X = bo.PSD(n)
            if bounded:
                return bo.Problem(bo.Maximize(bo.log_det(X)), [bo.inner(C, X) <= float(b)])
            return bo.Problem(bo.Minimize(bo.inner(C, X) - bo.log_det(X)), [bo.trace(X) >= 0])

        value = largest if k % 2 else n + log_det
        unit = float(n * abs(log(b / n)) + abs(log_det)) if k % 2 else float(n + abs(log_det))
        name = f"{'largest' if k % 2 else 'barrier'} 2^-{e} {k}"
        yield Case("log_det", name, make, float(value), max(unit, 1.0), well_posed=e <= MILD, precision=EXACT)
