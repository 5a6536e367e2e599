"""The error measures of the 7th DIMACS challenge, by which solvers of semidefinite programs are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.constants import LARGEST_FORMED
from bregopt.certify.slacks import least_eigenvalue, slack
from bregopt.certify.trace_bound import trace_bounds
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Block, Program
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank

__all__ = ["DimacsSizes", "dimacs_errors", "dimacs_sizes"]


class DimacsSizes(NamedTuple):
    """The magnitudes that the DIMACS errors are relative to.

    Parameters
    ----------
    bounds : float
        One plus the largest magnitude of a bound of a row.
    costs : float
        One plus the largest magnitude of an entry of the costs.
    """

    bounds: float
    costs: float


# Computed once for each program; dropped with it.
_sizes: WeakKeyDictionary[Program, DimacsSizes] = WeakKeyDictionary()


def dimacs_sizes(program: Program) -> DimacsSizes | None:
    """Return what the errors are relative to; None where there is a divergence, a cap or a soft row."""
    if program.curved or not program.bounds.all_hard:
        return None
    if program not in _sizes:
        costs = max((_largest_entry(block) for block in program.blocks), default=0.0)
        largest = float(program.bounds.sizes.max(initial=0.0))
        _sizes[program] = DimacsSizes(1 + largest, 1 + max(costs, _largest([program.c])))
    return _sizes[program]


def dimacs_errors(program: Program, X: Sequence[Matrix], u: Array, y: Array) -> Array:
    """Return the six DIMACS error measures of a primal and a dual point.

    Let ``Z = C - A*(y)``, the reduced costs ``z = c - B'y``, ``|b|`` the largest magnitude of a bound of a
    row, and ``|C|`` that of a cost. The slacks of rows and of the box of ``u`` count among the variables, and
    a vector's distance from a second-order cone is minus its smaller eigenvalue.
    The measures are::

        1  ||violations of the rows||_2 / (1 + |b|)
        2  (distance of X and u from their cone and box) / (1 + |b|)
        3  ||z of free variables||_2 / (1 + |C|)
        4  (distance of Z and z from the dual cone) / (1 + |C|)
        5  (primal - dual) / (1 + |primal| + |dual|), which may be negative
        6  (<X, Z> + slacks times their multipliers) / (1 + |primal| + |dual|)

    Parameters
    ----------
    program : Program
        With a linear objective and hard rows.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
    u : array of shape (k,)
    y : array of shape (m,)
        Clipped to its range first. Where rows bound the trace of a block, their multipliers take up the
        negative eigenvalue of its ``Z``, as in the certificate.

    Returns
    -------
    array of shape (6,)

    Raises
    ------
    ValueError
        If there is a divergence, a cap or a soft row: the measures are not defined for them.

    References
    ----------
    Mittelmann (2003), An independent benchmarking of SDP and SOCP solvers, Mathematical Programming 95.
    """
    if any(program.divergences) or not program.bounds.all_hard:
        raise ValueError("DIMACS errors are defined for linear objectives and hard rows only")
    if program.capped:
        raise ValueError("DIMACS errors are not defined for bounds on eigenvalues (lambda_max)")
    sizes = dimacs_sizes(program)
    assert sizes is not None
    bounds, y, activity = program.bounds, program.bounds.clip(y), program.activity(X, u)
    Z = [slack(program, b, y, X_b) for b, X_b in enumerate(X)]
    for trace, Z_b in zip(trace_bounds(program), Z, strict=True):
        if trace is not None:
            y = y + least_eigenvalue(Z_b) * trace.multipliers
    Z = [slack(program, b, y, X_b) for b, X_b in enumerate(X)]
    z = program.c - program.B.T @ y
    bound = np.where(y > 0, bounds.lo, np.where(y < 0, bounds.hi, 0.0))
    # Each reduced cost prices one bound of its variable; where that is infinite, the other bound replaces it.
    wanted, other = np.where(z > 0, (program.u_lo, program.u_hi), (program.u_hi, program.u_lo))
    free, missed = program.free, np.isinf(wanted) & np.isfinite(other)
    end = np.where(np.isfinite(wanted), wanted, np.where(missed, other, 0.0))
    priced, cones = np.where(free, 0.0, z), program.cones

    primal = sum(block.cost_value(X_b) for block, X_b in zip(program.blocks, X, strict=True)) + program.c @ u
    dual = y @ bound + priced @ end
    products = sum(_inner(X_b, Z_b) for X_b, Z_b in zip(X, Z, strict=True))
    products += (y * (activity - bound))[bounds.lo < bounds.hi].sum() + priced @ (u - end)
    size = 1 + abs(primal) + abs(dual)
    return np.array(
        [
            np.linalg.norm(bounds.violation(activity)) / sizes.bounds,
            max(
                _beyond(X),
                _largest([np.clip(u, program.u_lo, program.u_hi) - u, cones.outside(u[cones.index])]),
            )
            / sizes.bounds,
            np.linalg.norm(z[free]) / sizes.costs,
            max(_beyond(Z), _largest([z[missed], cones.outside(z[cones.index])])) / sizes.costs,
            (primal - dual) / size,
            products / size,
        ]
    )


def _beyond(matrices: Sequence[Matrix | SparsePlusLowRank]) -> float:
    """Return the largest magnitude of a negative eigenvalue of the matrices."""
    own = [least_eigenvalue(A) for A in matrices if not isinstance(A, LowRank)]
    return max([0.0, *(-value for value in own)])


def _inner(X: Matrix, Z: Array | SparsePlusLowRank) -> float:
    """Return ``<X, Z>``."""
    if isinstance(X, LowRank):
        return float(np.vdot(X.factor, Z @ X.factor))
    return float(np.vdot(X, Z.dense() if isinstance(Z, SparsePlusLowRank) else Z))


def _largest_entry(block: Block) -> float:
    """Return the largest magnitude of an entry of ``C``."""
    if block.cost is None:
        return 0.0
    if block.n <= LARGEST_FORMED:
        return float(np.abs(block.C).max(initial=0.0))
    t = block.cost.coordinates()
    i, j = np.minimum(t.i, t.j), np.maximum(t.i, t.j)
    _, inverse = np.unique(i * block.n + j, return_inverse=True)
    entry = np.bincount(inverse, np.where(i == j, t.value, t.value / 2))
    return float(np.abs(entry).max(initial=0.0))


def _largest(arrays: Sequence[Array]) -> float:
    """Return the largest magnitude of any entry."""
    return max(float(np.abs(a).max(initial=0.0)) for a in arrays)
