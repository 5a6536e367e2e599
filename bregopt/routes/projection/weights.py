"""A weighted nearness problem in scaled entries, the common form of its two methods.

    minimize    <K o Y, Y> / 2 - <L, Y>
    subject to  Y psd,  lower <= Y <= upper entry by entry,  lo <= B(Y) <= hi or a penalty for that

Here ``X = T Y T`` with a diagonal matrix ``T`` that gives the rows of ``K`` equal means (Sinkhorn and Knopp
1967). ``K`` has mean one, ``Y`` eigenvalues of the order of one, and each row of ``B`` norm about one. Hard
rows of single entries form the box, whose bounds may be equal; all others are the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.divergences import psd_part
from bregopt.presolve.squares import with_squares
from bregopt.program import LinearMap, Penalty, Program
from bregopt.records import dataclass, replace

# Steps of the scaling to equal row means of the weights (Sinkhorn and Knopp).
_SINKHORN_STEPS = 60
# Weight added to all weights for that scaling, relative to the mean weight. Zero weights may prevent equal
# row means.
_SINKHORN_FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Response:
    """The rows' terms in the augmented Lagrangian at given activities.

    Parameters
    ----------
    y : array of shape (m,)
        The next multipliers.
    slope : array of shape (m,)
        Minus their derivative in the activity.
    cost : float
        The rows' terms of the augmented Lagrangian.
    """

    y: Array
    slope: Array
    cost: float


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """The rows that are not in the box.

    Parameters
    ----------
    at : int array of shape (m,)
        The rows of the program.
    size : array of shape (m,)
        The norms that the rows are divided by.
    lo, hi, gamma : array of shape (m,)
        Bounds and weights of penalties, scaled; `gamma` is infinite for hard rows.
    hinge : mask of shape (m,)
    A : LinearMap
        The rows, not scaled.
    scale : array of shape (n, n)
        ``X / Y``, entry by entry.
    """

    at: IntArray
    size: Array
    lo: Array
    hi: Array
    gamma: Array
    hinge: Mask
    A: LinearMap
    scale: Array

    def apply(self, Y: Array) -> Array:
        """Return ``B(Y)``, shape ``(m,)``."""
        return self.A.apply((self.scale * Y,)) / self.size if len(self.at) else np.zeros(0)

    def adjoint(self, y: Array) -> Array | float:
        """Return ``B*(y)``, shape ``(n, n)``; zero without rows."""
        return self.scale * self.A.adjoint(y / self.size) if len(self.at) else 0.0

    def response(self, a: Array, y: Array, sigma: float) -> Response:
        """Return ``min over b of penalty(b) + sigma / 2 (a - b - y / sigma)^2``, and its slopes."""
        shifted = a - y / sigma
        distance = np.clip(shifted, self.lo, self.hi) - shifted
        relaxed = sigma / (1 + np.where(self.hinge, 0.0, sigma / (2 * self.gamma)))
        new = relaxed * distance
        slope = np.where(distance != 0, relaxed, 0.0)
        beyond = self.hinge & (np.abs(new) > self.gamma)
        new = np.where(beyond, np.copysign(self.gamma, new), new)
        linear = np.abs(new) * (np.abs(distance) - np.abs(new) / (2 * sigma))
        cost = np.where(beyond, linear, new * distance / 2)
        return Response(new, np.where(beyond, 0.0, slope), float(cost.sum()))


@dataclass(frozen=True, eq=False)
class ScaledNearness:
    """The scaled problem of the module's docstring.

    Parameters
    ----------
    program : Program
        One block with elementwise weights, no ordinary variables.
    scale : array of shape (n, n)
        ``X / Y``, entry by entry.
    value_scale : float
        The ratio of the program's objective and the scaled one.
    K, L, lower, upper : array of shape (n, n)
    lower_row, upper_row : int array of shape (n, n)
        The row of the program that gives the bound of an entry; -1 without one.
    factor : array of shape (m,)
        The factor of the entry in a row of a single entry; over the program's rows.
    rows : ScaledRows
    """

    program: Program
    scale: Array
    value_scale: float
    K: Array
    L: Array
    lower: Array
    upper: Array
    lower_row: IntArray
    upper_row: IntArray
    factor: Array
    rows: ScaledRows

    @property
    def n(self) -> int:
        """The order."""
        return len(self.K)

    @property
    def fixed(self) -> Mask:
        """Mask of the entries that the box fixes."""
        return self.lower == self.upper

    @property
    def unknowns(self) -> int:
        """The number of entries that the box leaves free."""
        return int(np.triu(~self.fixed).sum())

    @property
    def target(self) -> Array:
        """The minimizer of the objective in the box; zero, or nearest to it, for entries without weight."""
        return self.best(self.L)

    def best(self, L: Array) -> Array:
        """Return the minimizer in the box of ``<K o Y, Y> / 2 - <L, Y>``; nearest to zero without K."""
        free = np.divide(L, self.K, out=np.zeros_like(L), where=self.K > 0)
        return self.clipped(free)

    def clipped(self, Y: Array) -> Array:
        """Return the nearest matrix in the box."""
        return np.clip(Y, self.lower, self.upper)

    def value(self, Y: Array) -> float:
        """Return the objective up to a constant."""
        return float(np.vdot(self.K * Y / 2 - self.L, Y))

    def gradient(self, Y: Array) -> Array:
        """Return ``K o Y - L``."""
        return self.K * Y - self.L

    def dual_point(self, Z: Array, y: Array) -> tuple[Array, Array]:
        """Return the program's multipliers and that of ``X psd``, from those of the scaled problem.

        With the multipliers of the box, the minimizer of the Lagrangian in the box is its global minimizer.
        A bound that it does not attain has no multiplier: that would be round-off, which is of first order in
        the bound on the optimum, and as large as that where ``X0`` meets the rows.
        """
        program, rows = self.program, self.rows
        multipliers = np.zeros(program.m)
        multipliers[rows.at] = y * self.value_scale / rows.size
        linear = Z + rows.adjoint(y)
        best = self.best(self.L + linear)
        reduced = np.triu(self.gradient(best) - linear)
        no_weight = self.K == 0  # there the minimizer is not unique, and `best` may be inside the box
        at_lower, at_upper = no_weight | (best == self.lower), no_weight | (best == self.upper)
        for row, active in (
            (self.lower_row, at_lower & (reduced > 0)),
            (self.upper_row, at_upper & (reduced < 0)),
        ):
            i, j = np.nonzero(active & (row >= 0))
            k = row[i, j]
            twice = np.where(i == j, 1.0, 2.0)
            multipliers[k] = self.value_scale * twice * reduced[i, j] / (self.factor[k] * self.scale[i, j])
        return program.bounds.clip(multipliers), self.value_scale * Z / self.scale

    def scaled_dual(self, y: Array, S: Array) -> tuple[Array, Array]:
        """Return multipliers of the scaled problem from those of the program: ``Z`` and ``y``."""
        return S * self.scale / self.value_scale, y[self.rows.at] * self.rows.size / self.value_scale


def scaled_nearness(program: Program) -> ScaledNearness:
    """Return the scaled form of a program of one block with elementwise weights."""
    (block,) = program.blocks
    nearness = block.nearness
    assert nearness is not None
    X0, W = np.asarray(nearness.X0), 2 * nearness.mu * nearness.parameters["weights"] ** 2
    box = _box(program)
    free = (W > 0) & (box.lower < box.upper)
    t = _row_scaling(np.where(free, W, 0.0))
    scale = np.outer(t, t)
    target = np.clip(np.where(W > 0, X0, 0.0), box.lower, box.upper)
    scale *= _size(program, target / scale, float(scale.diagonal().mean()))
    value_scale = float((W * scale**2)[free].mean()) if free.any() else 1.0
    return ScaledNearness(
        program,
        scale,
        value_scale,
        W * scale**2 / value_scale,
        (W * X0 - block.C) * scale / value_scale,
        box.lower / scale,
        box.upper / scale,
        box.lower_row,
        box.upper_row,
        box.factor,
        _scaled_rows(program, np.flatnonzero(box.factor == 0), scale, value_scale),
    )


def squares_as_rows(scaled: ScaledNearness) -> Program:
    """Return the program with a soft row for each weighted entry that is not fixed, and no divergence."""
    program = scaled.program
    (block,) = program.blocks
    nearness = block.nearness
    assert nearness is not None
    price = nearness.mu * nearness.parameters["weights"] ** 2
    X0, fixed = np.asarray(nearness.X0), scaled.fixed
    paid = np.where(fixed, price * (np.where(fixed, scaled.target, 0.0) * scaled.scale - X0) ** 2, 0.0)
    posed = with_squares(program, 0, np.where(fixed, 0.0, price), X0)
    return replace(posed, offset=program.offset + float(paid.sum()))


@dataclass(frozen=True, eq=False)
class _Box:
    """The tightest bounds from hard rows of single entries, these rows, and their factors."""

    lower: Array
    upper: Array
    lower_row: IntArray
    upper_row: IntArray
    factor: Array


@dataclass(frozen=True, eq=False)
class _Singles:
    """Hard rows ``factor X[i, j]``, and their bounds on the entry; arrays of equal length."""

    at: IntArray
    i: IntArray
    j: IntArray
    factor: Array
    low: Array
    high: Array


def _box(program: Program) -> _Box:
    """Return the box; of rows with contradictory bounds on an entry only the first counts."""
    (block,) = program.blocks
    n, singles = block.n, _singles(program)
    pair = np.minimum(singles.i, singles.j) * n + np.maximum(singles.i, singles.j)
    lower, upper = np.full(n * n, -np.inf), np.full(n * n, np.inf)
    np.maximum.at(lower, pair, singles.low)
    np.minimum.at(upper, pair, singles.high)
    first = np.zeros(len(pair), dtype=bool)
    first[np.unique(pair, return_index=True)[1]] = True
    counts = first | (lower <= upper)[pair]
    only = first & ~(lower <= upper)[pair]
    lower[pair[only]], upper[pair[only]] = singles.low[only], singles.high[only]
    lower_row, upper_row = np.full((2, n * n), -1)
    for row, of_row, bound in ((lower_row, singles.low, lower), (upper_row, singles.high, upper)):
        tightest = counts & (of_row == bound[pair]) & np.isfinite(of_row)
        row[pair[tightest]] = singles.at[tightest]
    factor = np.zeros(program.m)
    factor[singles.at[counts]] = singles.factor[counts]

    def square(S: Any) -> Any:  # from the upper triangle
        return np.where(np.tri(n, k=-1), S.reshape(n, n).T, S.reshape(n, n))

    return _Box(square(lower), square(upper), square(lower_row), square(upper_row), factor)


def _singles(program: Program) -> _Singles:
    """Return the hard rows of a single entry."""
    none = np.zeros(0, dtype=np.intp)
    at, i, j, factor = [none], [none], [none], [np.zeros(0)]
    for term in program.A.terms:
        if term.rows.few_terms:
            t = term.rows.coordinates()
            single = (np.bincount(t.row, minlength=term.rows.m) == 1)[t.row] & (t.value != 0)
            single &= program.bounds.hard[term.at[t.row]]
            at.append(term.at[t.row[single]])
            i.append(t.i[single])
            j.append(t.j[single])
            factor.append(t.value[single])
    rows, value = np.concatenate(at), np.concatenate(factor)
    ends = np.sort([program.bounds.lo[rows] / value, program.bounds.hi[rows] / value], axis=0)
    return _Singles(rows, np.concatenate(i), np.concatenate(j), value, *ends)


def _row_scaling(W: Array) -> Array:
    """Return ``t`` for which the rows of ``W o (tt')`` have about equal means; ``K`` uses it twice."""
    if not W.any():
        return np.ones(len(W))
    W = W / W.mean() + _SINKHORN_FLOOR
    s = np.ones(len(W))
    for _ in range(_SINKHORN_STEPS):
        s *= np.sqrt((W / np.outer(s, s)).mean(axis=1))
    return 1 / np.sqrt(s)


def _size(program: Program, target: Array, square: float) -> float:
    """Return an estimate of the mean eigenvalue of the scaled matrix, from the target and the rows."""
    n = len(target)
    checkpoint(n)
    size = float(np.trace(psd_part(target))) / n
    norms = program.A.norms()
    of_bounds = program.bounds.sizes[norms > 0] / norms[norms > 0]
    size = max(size, float(of_bounds.max(initial=0.0)) / (square * np.sqrt(n)))
    return size if size > 0 else 1.0


def _scaled_rows(program: Program, at: IntArray, scale: Array, value_scale: float) -> ScaledRows:
    """Return the given rows, divided by approximations of their norms."""
    size = program.A.norms()[at] * float(scale.diagonal().mean())
    size = np.where(size > 0, size, 1.0)
    bounds = program.bounds.slice(at)
    hinge = bounds.kind == int(Penalty.HINGE)
    gamma = bounds.gamma * np.where(hinge, size, size**2) / value_scale
    return ScaledRows(at, size, bounds.lo / size, bounds.hi / size, gamma, hinge, program.A.slice(at), scale)
