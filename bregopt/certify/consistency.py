"""Checks of row families and divergences that are not built in, against their own definitions.

A certificate relies on ``<A*(y), X> = y'A(X)`` and on the bound of a divergence's dual. The tests of bregopt
cover the built-in classes. Any other class is checked on a few matrices, and nothing is certified where it
contradicts itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify.constants import CHECKED_ROWS, DESCENT_STEPS, FAMILY_NOISE, LARGEST_CHECKED_STEP
from bregopt.divergences import BUILT_IN, Divergence, psd_part
from bregopt.program.lowrank import LowRank
from bregopt.program.program import Program
from bregopt.program.rows import FAMILIES, Rows

__all__ = ["check_families", "growth_seen", "least_seen"]


def check_families(program: Program) -> None:
    """Refuse a row family that is not built in and contradicts itself.

    Raises
    ------
    ValueError
        If two methods of a class disagree; the message names them.
    """
    for term in program.A.terms:
        if type(term.rows) not in FAMILIES:
            problem = _contradiction(term.rows)
            if problem is not None:
                raise ValueError(
                    f"the row family {type(term.rows).__name__} contradicts itself: {problem}. "
                    "See bregopt.program.rows.Rows for the definition of each method"
                )


def _contradiction(rows: Rows) -> str | None:
    """Return a message on methods of a family that disagree on random matrices, None where all agree."""
    rng, n = np.random.default_rng(0), rows.n
    F, s = rng.normal(size=(n, max(1, min(n, 3)))), rng.random(n)
    X = F @ F.T
    tried = rng.permutation(rows.m)[:CHECKED_ROWS]
    matrices = np.array([rows.adjoint(np.eye(rows.m)[k]) for k in tried]).reshape(-1, n, n)
    if not np.array_equal(matrices, matrices.transpose(0, 2, 1)):
        return "adjoint(y) is not symmetric"
    y = rng.normal(size=rows.m)
    flat = matrices.reshape(len(tried), -1)
    activity = rows.apply(X)
    t = rows.coordinates()
    of_terms = np.bincount(t.row, t.value * X[t.i, t.j], rows.m)
    expected: list[tuple[str, Any, Any]] = [
        ("coordinates() are not those of apply", of_terms, activity),
        ("apply(X) is not <A_k, X> with the A_k of adjoint", activity[tried], flat @ X.ravel()),
        ("apply differs between an array and a LowRank", rows.apply(LowRank(F)), activity),
        ("adjoint is not linear", float(np.vdot(rows.adjoint(y), X)), float(y @ activity)),
        ("norms() are not those of the A_k of adjoint", rows.norms()[tried], np.linalg.norm(flat, axis=1)),
        (
            "magnitude(s) is not sum |A_ij| s_i s_j",
            rows.magnitude(s)[tried],
            np.abs(flat) @ np.outer(s, s).ravel(),
        ),
    ]
    for message, found, wanted in expected:
        size = max(float(np.abs(flat).max(initial=0.0)) * float(np.trace(X)), TINY)
        noise = FAMILY_NOISE * size * n
        if np.shape(found) != np.shape(wanted) or not (np.abs(found - wanted) <= noise).all():
            return message
    return None


def least_seen(divergence: Divergence, W: Array, mu: float, X: Array, cap: float | None = None) -> float:
    """Return the least ``<W, Y> + mu D(Y, X0)`` over some psd ``Y``; infinite for built-in divergences.

    The eigenvalues of ``Y`` are at most `cap`.

    Every valid lower bound on the minimum is at most this. The ``Y`` are the iterates of a projected gradient
    method from `X`.
    """
    if type(divergence) in BUILT_IN:
        return np.inf

    def objective(Y: Array) -> float:
        value = float(np.vdot(W, Y)) + mu * divergence.value(Y)
        return value if np.isfinite(value) else np.inf

    largest = np.inf if cap is None else cap
    Y = psd_part(X, largest)
    least, step = objective(Y), 1.0
    for _ in range(DESCENT_STEPS):
        slope = W + mu * divergence.gradient(Y)
        size = float(np.linalg.norm(slope))
        if not 0 < size < np.inf:
            break
        new = psd_part(Y - step * max(float(np.linalg.norm(Y)), TINY) / size * slope, largest)
        value = objective(new)
        Y, least, step = (new, value, 2 * step) if value < least else (Y, least, step / 4)
    return least


def growth_seen(divergence: Divergence, X: Array, start: Array) -> float:
    """Return the steepest chord of ``D`` found along the direction `X`; ``-inf`` for built-in divergences.

    As ``D`` is convex, its recession function is at least the slope of any chord. Chords begin at `start`.
    """
    if type(divergence) in BUILT_IN:
        return -np.inf
    first = divergence.value(start)
    steps = 10.0 ** np.arange(LARGEST_CHECKED_STEP + 1)
    slopes = [(divergence.value(start + t * X) - first) / t for t in steps]
    return max((slope for slope in slopes if not np.isnan(slope)), default=np.inf)
