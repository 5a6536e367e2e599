"""A design as a problem: the matrices of its candidates, the weights that it may have, and its criteria.

There is one positive semidefinite matrix ``M_i`` for each candidate. The sum of the weights is given, and
they are within bounds and budgets. The criteria D and A are ``-log det M`` and ``tr(K inv(M))``, with
gradients ``-<M_i, S>`` in the weights. Then ``<M, S>`` over its largest value for any design bounds the
efficiency from below (Kiefer 1974).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack, qr

from bregopt.arrays import EPS, Array, IntArray, Mask, finite_array
from bregopt.errors import SolverError
from bregopt.linalg import log_det, root_of
from bregopt.records import dataclass

INFORMATION_ROUND_OFF = 8 * EPS  # of an information matrix, for each of its rows
_ROUND_OFF = 1e-12  # of sums of weights
_UNAFFORDABLE = 1e-7  # room below a budget that the tolerance of a linear program may hide, relative to costs


@dataclass(frozen=True, eq=False)
class Candidates:
    """Matrices ``M_i`` of order ``n``.

    Parameters
    ----------
    X : array of shape (m, n) or (m, n, n)
        Rows ``x_i`` with ``M_i = x_i x_i'``, or the symmetric matrices themselves.
    """

    X: Array

    def __len__(self) -> int:
        return len(self.X)

    @property
    def n(self) -> int:
        """The order of the matrices."""
        return self.X.shape[1]

    @property
    def are_rows(self) -> bool:
        """Whether each matrix has rank one and is given by its row."""
        return self.X.ndim == 2

    def __getitem__(self, index: IntArray) -> Candidates:
        return Candidates(self.X[index])

    def information(self, u: Array) -> Array:
        """Return ``sum_i u_i M_i``."""
        M: Array = (self.X.T * u) @ self.X if self.are_rows else np.tensordot(u, self.X, 1)
        return M

    def whitened(self, L: Array) -> Candidates:
        """Return the matrices ``inv(L) M_i inv(L)'`` for a lower triangular ``L``."""
        if self.are_rows:
            return Candidates(lapack.dtrtrs(L, self.X.T, lower=1)[0].T)
        m, n, _ = self.X.shape
        half = lapack.dtrtrs(L, self.X.transpose(1, 0, 2).reshape(n, m * n), lower=1)[0].reshape(n, m, n)
        whole = lapack.dtrtrs(L, half.transpose(2, 1, 0).reshape(n, m * n), lower=1)[0]
        return Candidates(whole.reshape(n, m, n).transpose(1, 0, 2))

    def rotated(self, Q: Array) -> Candidates:
        """Return the matrices ``Q'M_i Q``."""
        return Candidates(self.X @ Q if self.are_rows else Q.T @ self.X @ Q)

    def traces(self) -> Array:
        """Return the trace of each matrix."""
        return np.einsum("ij,ij->i", self.X, self.X) if self.are_rows else np.einsum("ijj->i", self.X)

    def inner(self, S: Array) -> Array:
        """Return ``<M_i, S>``."""
        if self.are_rows:
            return np.einsum("ij,ij->i", self.X @ S, self.X)
        return np.asarray(self.X.reshape(len(self), -1) @ S.ravel())

    def svec(self) -> Array:
        """Return the upper triangles, times the root of two off the diagonal, ``(m, n (n + 1) / 2)``."""
        i, j = np.triu_indices(self.n)
        upper = self.X[:, i] * self.X[:, j] if self.are_rows else self.X[:, i, j]
        upper *= np.where(i == j, 1.0, np.sqrt(2.0))
        return upper


@dataclass(frozen=True, eq=False)
class LocalModel:
    """A criterion to second order in the weights.

    Parameters
    ----------
    own : float
        ``<M, S>``: ``n`` for D, ``tr(K inv(M))`` for A.
    given : float
        ``<M0, S>`` of the part of ``M`` that no weight changes.
    g : array of shape (m,)
        ``<M_i, S>``, the sensitivities: minus the gradient.
    white : Candidates
        ``inv(L) M_i inv(L)'`` for ``M = L L'``.
    R : array of shape (n, n) or None
        ``inv(L) K inv(L)'`` for A.
    """

    own: float
    given: float
    g: Array
    white: Candidates
    R: Array | None

    def hessian(self) -> Array:
        """Return the Hessian, shape ``(m, m)``, of candidates that are rows."""
        W = self.white.X
        G = W @ W.T
        return G * G if self.R is None else 2 * G * (W @ self.R @ W.T)

    def hessian_factor(self) -> Array:
        """Return ``F`` with the Hessian ``F F'``, shape ``(m, n (n + 1) / 2)``."""
        if self.R is None:
            return self.white.svec()
        eigenvalues, Q = np.linalg.eigh(self.R)
        i, j = np.triu_indices(len(eigenvalues))
        return self.white.rotated(Q).svec() * np.sqrt(np.maximum(eigenvalues[i] + eigenvalues[j], 0.0))


def local_model(candidates: Candidates, M: Array, K: Array | None, M0: Array | None) -> LocalModel | None:
    """Return the model at an information matrix, None where that is not positive definite.

    Parameters
    ----------
    candidates : Candidates
    M : array of shape (n, n)
    K : array of shape (n, n) or None
        Positive definite for ``tr(K inv(M))``; None for ``-log det M``.
    M0 : array of shape (n, n) or None
        The part of ``M`` that no weight changes.
    """
    L = root_of(M)
    if L is None:
        return None
    white = candidates.whitened(L)
    fixed = np.zeros(M.shape) if M0 is None else congruent(L, M0)
    if K is None:
        return LocalModel(float(len(M)), float(fixed.trace()), white.traces(), white, None)
    R = congruent(L, K)
    return LocalModel(float(R.trace()), float(np.vdot(fixed, R)), white.inner(R), white, R)


def congruent(L: Array, S: Array) -> Array:
    """Return ``inv(L) S inv(L)'``, exactly symmetric."""
    half = lapack.dtrtrs(L, S, lower=1)[0]
    whole: Array = lapack.dtrtrs(L, half.T, lower=1)[0]
    return (whole + whole.T) / 2


def criterion_value(criterion: str, M: Array, K: Array | None) -> float:
    """Return ``log det M``, ``tr(K inv(M))``, or the smallest eigenvalue."""
    if criterion == "E":
        return float(np.linalg.eigvalsh(M)[0])
    unit = np.sqrt(np.maximum(M.diagonal(), np.finfo(float).tiny))
    root = root_of(M / unit / unit[:, None])
    if criterion == "D":
        return -np.inf if root is None else log_det(root) + 2 * float(np.log(unit).sum())
    if root is None:
        return np.inf
    half = np.linalg.solve(root, np.diag(1 / unit))
    return float(np.vdot(half.T @ half, np.eye(len(M)) if K is None else K))


def efficiency(criterion: str, value: float, bound: float, n: int) -> float:
    """Return the efficiency of a design of this value relative to a bound on all values."""
    if criterion == "D":
        return float(np.exp((value - bound) / n))
    return bound / value if criterion == "A" else max(value, 0.0) / bound


@dataclass(frozen=True, eq=False)
class WeightBounds:
    """The polytope ``lower <= u <= upper, sum(u) = total, costs @ u <= budget``.

    Parameters
    ----------
    lower, upper : arrays of shape (m,)
        ``upper`` is infinite where there is no bound.
    costs : array of shape (r, m)
    budget : array of shape (r,)
    total : float
    """

    lower: Array
    upper: Array
    costs: Array
    budget: Array
    total: float = 1.0

    @classmethod
    def simplex(cls, m: int) -> WeightBounds:
        """Return the bounds of weights that are only nonnegative."""
        return cls(np.zeros(m), np.full(m, np.inf), np.zeros((0, m)), np.zeros(0))

    @property
    def is_simplex(self) -> bool:
        """Whether weights are only nonnegative with sum one."""
        bounded = self.lower.any() or np.isfinite(self.upper).any() or len(self.budget)
        return not bounded and self.total == 1.0

    @property
    def free(self) -> Mask:
        """The weights that the bounds and the sum do not fix, shape ``(m,)``."""
        room = np.minimum(self.upper, self.total) - self.lower
        ends = (self.total - self.lower.sum(), self.upper.sum() - self.total)
        return room > _ROUND_OFF if min(ends) > _ROUND_OFF else np.zeros(len(room), dtype=bool)

    def fixed(self) -> Array:
        """Return the weights that are fixed, zero for others."""
        only_upper = self.upper.sum() - self.total <= _ROUND_OFF
        return np.where(self.free, 0.0, self.upper if only_upper else self.lower)

    def among(self, index: IntArray) -> WeightBounds:
        """Return the polytope of some weights when the others are :meth:`fixed`."""
        rest = self.fixed()
        costs, budget = self.costs[:, index], self.budget - self.costs @ rest
        return WeightBounds(
            self.lower[index], self.upper[index], costs, budget, self.total - float(rest.sum())
        )

    def inside(self) -> Array:
        """Return weights strictly within their bounds; budgets may be exceeded."""
        room = np.minimum(self.upper, self.total) - self.lower
        return self.lower + (self.total - self.lower.sum()) / (room.sum() or 1.0) * room

    def affords(self, u: Array, tol: float) -> bool:
        """Whether weights meet the budgets, up to a part `tol` of the largest costs."""
        if len(self.budget) == 0:
            return True
        room = tol * np.abs(self.costs).max(axis=1)
        return bool((self.costs @ u - self.budget <= room).all())

    def greatest(self, g: Array, prices: Array) -> float:
        """Return an upper bound on ``g @ u`` for all weights of the polytope.

        Parameters
        ----------
        g : array of shape (m,)
        prices : array of shape (r,)
            Multipliers of the budgets, none below 0. Each choice gives a valid bound, the best one is sharp.
        """
        if self.is_simplex:
            return float(g.max())
        h = g - prices @ self.costs
        order = np.argsort(-h)
        room = np.minimum(self.upper - self.lower, self.total)[order]
        left = self.total - self.lower.sum()
        filled = np.clip(left - np.concatenate([[0.0], np.cumsum(room)[:-1]]), 0.0, room)
        return float(h @ self.lower + h[order] @ filled + prices @ self.budget)

    def settled(self, u: Array, g: Array, prices: Array, own: float, share: float = 1.0) -> Array:
        """Return weights with those at their bounds that an optimum with such sensitivities has there.

        Near an optimum the product of the distance from a bound and of the multiplier of the bound is small,
        so one of the two is.

        Parameters
        ----------
        u, g : arrays of shape (m,)
        prices : array of shape (r,)
        own : float
            The unit of `g`.
        share : float
            Of the multiplier, below which the distance from the bound is the small one of the two.
        """
        h = (g - prices @ self.costs) / own
        most = np.minimum(self.upper, self.total)
        order = np.argsort(-h)
        room = np.cumsum((most - self.lower)[order])
        level = h[order[np.searchsorted(room, self.total - self.lower.sum())]]
        low, high = u - self.lower < share * (level - h), most - u < share * (h - level)
        u = np.where(low, self.lower, np.where(high, most, u))
        return self._summing(u)

    def allowed(self, u: Array) -> Array:
        """Return weights near `u` that meet everything, the sum up to round-off."""
        most = np.minimum(self.upper, self.total)
        u = np.clip(u, self.lower, most)
        u = self._summing(u)
        over = (self.costs @ u - self.budget).max(initial=0.0)
        if over <= 0:
            return u
        cheap, excess = _cheapest(self)
        return u + over / (over - excess) * (cheap - u) if excess < 0 else u

    def _summing(self, u: Array) -> Array:
        """Return weights within their bounds with the right sum; those at a bound stay there if possible."""
        missing = self.total - u.sum()
        share = np.minimum(u - self.lower, self.upper - u)
        if share.sum() < abs(missing):
            share = np.minimum(self.upper, self.total) - u if missing > 0 else u - self.lower
        return u + missing * share / share.sum() if share.any() else u


def _cheapest(bounds: WeightBounds) -> tuple[Array, float]:
    """Return weights whose largest excess over a budget is smallest, and that excess, at least -1."""
    from scipy.optimize import linprog  # its import takes long, and few designs have budgets

    r, m = bounds.costs.shape
    most = np.minimum(bounds.upper, bounds.total)
    found = linprog(
        np.append(np.zeros(m), 1.0),
        np.column_stack([bounds.costs, -np.ones(r)]),
        bounds.budget,
        np.append(np.ones(m), 0.0)[None],
        [bounds.total],
        bounds=np.column_stack([np.append(bounds.lower, -1.0), np.append(most, np.inf)]),
        method="highs",
    )
    if found.x is None:
        raise SolverError(f"HiGHS found no cheapest design: {found.message}")
    return found.x[:m], float(found.x[m])


def weight_bounds(m: int, lower: Any, upper: Any, costs: Any, budget: Any) -> WeightBounds:
    """Return the weights that the arguments of a design allow.

    Raises
    ------
    TypeError, ValueError
        If an argument is bad, or no weights meet all of them.
    """
    least = _bound(lower, "lower", m)
    most = np.full(m, np.inf) if upper is None else _bound(upper, "upper", m)
    if (least < 0).any():
        raise ValueError(f"lower has the value {least.min():g}; expected weights of at least 0")
    if (least > most).any():
        k = int(np.argmax(least > most))
        raise ValueError(f"lower is {least[k]:g} and upper is {most[k]:g} at {k}; expected lower <= upper")
    if least.sum() > 1 + _ROUND_OFF:
        raise ValueError(f"lower has the sum {least.sum():.6g}; expected at most 1, the sum of the weights")
    if most.sum() < 1 - _ROUND_OFF:
        raise ValueError(f"upper has the sum {most.sum():.6g}; expected at least 1, the sum of the weights")
    if (costs is None) != (budget is None):
        raise TypeError("costs or budget is missing; expected both or none")
    if costs is None:
        return WeightBounds(least, most, np.zeros((0, m)), np.zeros(0))
    rows = np.atleast_2d(finite_array(costs, "costs", ndim=(1, 2)))
    right = np.atleast_1d(finite_array(budget, "budget", ndim=(0, 1)))
    if rows.shape[1] != m:
        raise ValueError(f"costs has {rows.shape[1]} columns; expected {m}, a cost of each candidate")
    if right.shape != (len(rows),):
        raise ValueError(f"budget has {len(right)} values; expected {len(rows)}, one for each row of costs")
    size = np.abs(rows).max(axis=1, initial=0.0)
    size[size == 0] = 1.0
    bounds = WeightBounds(least, most, rows / size[:, None], right / size)
    _check_affordable(bounds, size)
    return bounds


def _bound(value: Any, name: str, m: int) -> Array:
    bound = finite_array(value, name, ndim=(0, 1))
    if bound.ndim == 1 and bound.shape != (m,):
        raise ValueError(
            f"{name} has shape {bound.shape}; expected a number or {(m,)}, one for each candidate"
        )
    return np.array(np.broadcast_to(bound, (m,)))


def _check_affordable(bounds: WeightBounds, size: Array) -> None:
    """Raise unless some weights are strictly below the budgets, which are in units of `size`."""
    u, excess = _cheapest(bounds)
    if excess < -_UNAFFORDABLE:
        return
    spent = bounds.costs @ u
    k = int((spent - bounds.budget).argmax())
    which = "budget" if len(size) == 1 else f"budget {k}"
    others = "" if len(size) == 1 else " if the others are kept"
    found, least = bounds.budget[k] * size[k], spent[k] * size[k]
    raise ValueError(f"{which} is {found:g}, and weights cost at least {least:g}{others}: raise it")


def root_inside(candidates: Candidates, bounds: WeightBounds, prior: Array | None) -> Array:
    """Return a lower triangular ``L`` with ``L L'`` the information of weights inside the bounds.

    Raises
    ------
    ValueError
        If that is singular.
    """
    u = bounds.inside()
    rows = np.sqrt(u)[:, None] * candidates.X if candidates.are_rows else _rows_of(candidates.information(u))
    if prior is not None:
        rows = np.concatenate([rows, _rows_of(prior)])
    unit = np.abs(rows).max(axis=0)
    unit[unit == 0] = 1.0
    R = qr(rows / unit, mode="r")[0][: candidates.n]
    spread = np.linalg.svd(R, compute_uv=False)
    rank = int((spread > candidates.n * INFORMATION_ROUND_OFF * spread[0]).sum())
    L = np.asarray((R * np.where(R.diagonal() < 0, -1.0, 1.0)[:, None] * unit).T)
    if (
        rank == candidates.n and not candidates.are_rows
    ):  # their sums have lost small eigenvalues in round-off
        M = candidates.information(u) if prior is None else candidates.information(u) + prior
        rank = int((np.linalg.eigvalsh(congruent(L, M)) > 0.5).sum())
    if rank < candidates.n:
        raise ValueError(
            f"candidates determine {rank} of {candidates.n} parameters; expected all of them: leave out "
            "columns that others combine to, or pass a positive definite prior"
        )
    return L


def _rows_of(M: Array) -> Array:
    """Return rows with the information ``M``; eigenvalues that are round-off in some units count as zero."""
    unit = np.sqrt(np.maximum(M.diagonal(), 0.0))
    unit[unit == 0] = 1.0
    eigenvalues, Q = np.linalg.eigh(M / unit / unit[:, None])
    eigenvalues[eigenvalues <= len(M) * INFORMATION_ROUND_OFF] = 0.0
    return np.asarray((Q * np.sqrt(eigenvalues)).T * unit)
