"""Nearness in the largest entry and in the spectral norm: semidefinite programs, and methods without them.

In the spectral norm mostly the smallest eigenvalue alone decides, by one smaller problem. Let ``v`` be a unit
eigenvector of the smallest eigenvalue ``-d < 0`` of ``A``. Then ``v'(X - A)v >= d`` for every psd ``X``, so
no distance is below ``d``. A matrix at this distance has ``Xv = 0``: it is ``Q M Q'`` with an orthonormal
basis ``Q`` of the complement of ``v``. Among these, the one nearest to ``A`` in the Frobenius norm is a
candidate. It is optimal if ``|Q'(X - A)Q| <= d``, which an eigendecomposition proves. It is on 8 of the 10
indefinite matrices of the tests' data folder, and on the random ones of the tests.

Larger problems in the largest entry are solved by Douglas-Rachford splitting (Eckstein, Bertsekas 1992), with
Anderson's acceleration (Walker, Ni 2011):

    minimize  d   subject to   |Y_ij - a_ij| <= d k_ij,   l_ij <= Y_ij <= u_ij,   Y_ii = c_i,   Y psd.

The psd matrices and the other rows alternate, at the cost of one eigendecomposition. The negative part of the
matrix that is projected onto the psd matrices is a multiplier of ``Y psd``, so each iterate has a bound.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask, is_one_of
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.errors import ConvergenceWarning, UnsupportedProblemError
from bregopt.modeling.convex.expression import Minimize
from bregopt.modeling.objectives import frobenius_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.problems.arguments import divergence_class
from bregopt.problems.correlation.answer import bracketed
from bregopt.problems.correlation.infeasibility import explained
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.solve import correlation_rows, solve_request
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.base import Capabilities, Settings
from bregopt.routes.driver import warn_unproven
from bregopt.routes.progress import Method, Monitor, Progress
from bregopt.routes.solution import Solution, Status

# Largest order at which `path`, in less than a second, replaces a splitting that is slow, and the iterations
# after which it is: 1 in 10 of random problems of orders 24 to 40.
_SMALL, _TRIAL = 40, 1_000
_FINER, _FINEST = 1e-2, 1e-9  # tolerance of the candidate's problem, relative to the answer's; the least one
_CITATION = "Qi, Sun (2006), A Quadratically Convergent Newton Method, SIAM J. Matrix Anal. Appl. 28"

# Of the splitting:
_BATCH = 20  # iterations between certificates, whose cost is that of two iterations
_ITERATIONS = 10_000
_NOISE = 10  # round-off of the eigenvalues of S, which its multiple enlarges
_RELAXATION = 1.6  # of the steps; 1 is without, 2 the limit of convergence
_MEMORY = 8  # differences of Anderson's acceleration; with 15 it needs as many iterations at order 200
_RIDGE = 1e-10  # regularization of its normal equations, relative to their trace
_LARGEST_MIX = 1e3  # sum of its coefficients beyond which they are round-off
_GROWTH = 2.0  # of the residual, at which the acceleration starts again
_LAST_BALANCE = 1_280  # iteration after which the penalty stays as it is: a constant one converges
_BALANCED, _LARGEST_CHANGE = 1.5, 5.0  # ratios of the residuals, and of penalties
_ROUNDS = 60  # of the search over the distance; it ends after about four


def solve_norm(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return a correlation matrix nearest to ``A`` in the largest entry or in the spectral norm.

    Raises
    ------
    TypeError, UnsupportedProblemError
        If an argument does not go with the norm.
    """
    if isinstance(request.A, LowRank):
        raise TypeError("A is LowRank, whose range no norm keeps: pass A.dense()")
    if request.divergence == "spectral":
        if request.H is not None:
            which = "unknown entries" if request.unknown is not None else "weights of entries"
            raise UnsupportedProblemError(
                f"the spectral norm is of all entries at once and takes no {which}; use weights of rows, or "
                "divergence='largest_entry'"
            )
        found = _of_smallest_eigenvalue(request, options)
        if found is not None:
            return _shifted(found, request)
    if request.divergence == "largest_entry" and _splits(request, options):
        return _of_splitting(request, options)
    return _shifted(_problem(request).solve(**options), request)


def _problem(request: Request) -> Problem:
    """Return the semidefinite program."""
    Y, d = PSD(request.n, name="X"), Variable(nonneg=True, name="distance")
    declare = _spectral if request.divergence == "spectral" else entry_rows
    rows = [*correlation_rows(Y, replace(request, s=np.ones(request.n))), *declare(Y, d, request)]
    if request.condition is not None:
        rows += _condition(Y, request)
    return Problem(Minimize(d), rows)


# Pays on: nearest in the largest entry, n = 60.
def _splits(request: Request, options: Mapping[str, Any]) -> bool:
    """Whether the splitting takes the problem and its options, rather than `path`."""
    plain = is_one_of(options.get("solver", "auto"), ("auto",)) and request.condition is None
    known = {*field_names(Settings), "solver", "warm_start"}
    return plain and options.keys() <= known and bool(measured(request)[1].any())


def _of_splitting(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the answer of the splitting.

    If entries are fixed or have bounds it starts from the nearest matrix in the Frobenius norm, which exists
    or is proven not to exist. Where the splitting does not end, the routes for all programs go on.
    """
    first = np.array(request.A)
    np.fill_diagonal(first, 1.0)
    if len(request.fixed.i) or len(request.bounded.i):
        nearest = _in_frobenius(request, options)
        if nearest.status == Status.INFEASIBLE:
            return nearest
        first = first if nearest.X is None else nearest.X
    first = first - request.t * np.eye(request.n)
    problem, own = _problem(request), {**options, "solver": splitting_route(request, first)}
    if options.get("max_iter") is not None:
        return _shifted(problem.solve(**own), request)
    own["max_iter"] = _TRIAL if request.n <= _SMALL else _ITERATIONS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = problem.solve(**own)
    # Pays on: a slow splitting, n = 40.
    if found._stop is StopReason.MAX_ITER:
        found = problem.solve(**options)
    elif found.status != Status.OPTIMAL:
        warn_unproven(found, options.get("tol", Settings.tol))
    return _shifted(found, request)


def _in_frobenius(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the nearest matrix in the Frobenius norm without weights, or the proof that there is none."""
    kind, s = divergence_class("frobenius"), np.ones(request.n)
    plain = replace(request, divergence="frobenius", kind=kind, s=s, H=None, unknown=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not converge
        return solve_request(plain, {name: options[name] for name in {"time_limit", "tol"} & options.keys()})


def _shifted(solution: Solution, request: Request) -> Solution:
    """Return the solution in terms of ``X = Y + Diag(t)``."""
    if solution.X is None:
        return explained(solution, request)
    unique = f"the minimizer of {request.divergence} need not be unique"
    reason, X = f"derivatives are known for divergences; {unique}", solution.X + request.t * np.eye(request.n)
    np.fill_diagonal(X, np.where(np.abs(X.diagonal() - 1) <= 4 * EPS, 1.0, X.diagonal()))  # round-off
    return replace(solution, X=X, _restated=reason)


def _spectral(Y: PSD, d: Variable, request: Request) -> list[Any]:
    """Return ``-d I <= S (X - A) S <= d I``, divided by ``S`` on both sides."""
    A, W = np.asarray(request.A) - request.t * np.eye(request.n), np.diag(1 / request.s**2)
    return [(A + d * W >> Y).named("above"), (Y >> A - d * W).named("below")]


def _condition(Y: PSD, request: Request) -> list[Any]:
    """Return ``l I <= D X D <= kappa l I`` with a variable ``l``, divided by ``D`` on both sides."""
    least, n = Variable(nonneg=True, name="least eigenvalue"), request.n
    unit = np.eye(n) if request.scale is None else np.diag(request.scale**-2.0)
    X = Y + request.t * np.eye(n)
    assert request.condition is not None
    return [X >> least * unit, X << request.condition * least * unit]


class _Candidate(NamedTuple):
    """``Y = S (X - Diag(t)) S``, the largest violation of a row, and the steps of Newton's method."""

    Y: Array
    violation: float
    iterations: int


# Pays on: nearest in the spectral norm, n = 60.
def _of_smallest_eigenvalue(request: Request, options: Mapping[str, Any]) -> Solution | None:
    """Return the answer if its distance is minus the smallest eigenvalue, None if this is not proven."""
    if not is_one_of(options.get("solver", "auto"), ("auto",)) or request.condition is not None:
        return None
    begin, tol, s = time.perf_counter(), options.get("tol", Settings.tol), request.s
    B = s[:, None] * (np.asarray(request.A) - request.t * np.eye(request.n)) * s
    eigenvalues, V = np.linalg.eigh(B)
    least = max(-float(eigenvalues[0]), 0.0)
    if least:
        candidate = _candidate(request, eigenvalues[1:], V[:, 1:], max(_FINER * tol, _FINEST))
    else:
        candidate = _scaled(request, B, 0)
    if candidate is None or candidate.violation > tol:
        return None
    distance = float(np.abs(np.linalg.eigvalsh(candidate.Y - B)).max())
    v = V[:, 0] * s if least else np.zeros(request.n)
    n, kept = request.n, [len(rows.i) for rows in (request.fixed, request.bounded) if len(rows.i)]
    solution = bracketed(
        value=distance,
        lower=least,
        scale=float(np.abs(eigenvalues).max()),
        tol=tol,
        X=candidate.Y / np.outer(s, s),
        u={"distance": distance},
        duals=(np.zeros(n), *map(np.zeros, kept), np.outer(v, v), np.zeros((n, n))),
        residual=candidate.violation,
        iterations=candidate.iterations,
        solver="bregman",
        citation=_CITATION,
        begin=begin,
    )
    return solution if solution.gap <= tol else None


def _candidate(request: Request, eigenvalues: Array, Q: Array, tol: float) -> _Candidate | None:
    """Return the matrix ``Q M Q'`` nearest to ``Q diag(eigenvalues) Q'`` that satisfies the rows."""
    if Q.shape[1] == 0:
        return None
    M = PSD(Q.shape[1], name="M")
    rows = correlation_rows(Q @ M @ Q.T, request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate need not converge
        found = Problem(Minimize(frobenius_div(M, np.diag(eigenvalues))), rows).solve(tol=tol)
    if found.status not in ("optimal", "optimal_inaccurate"):
        return None
    Y = Q @ found.X @ Q.T
    return _scaled(request, (Y + Y.T) / 2, found.iterations)


def _scaled(request: Request, Y: Array, iterations: int) -> _Candidate | None:
    """Return a matrix scaled to the diagonal of the rows; None if it has none."""
    if Y.diagonal().min() <= 0:
        return None
    size = np.sqrt(request.s**2 * (1 - request.t) / Y.diagonal())
    Y = Y * np.outer(size, size)
    np.fill_diagonal(Y, request.s**2 * (1 - request.t))
    violations = [0.0]
    for entries in (request.fixed, request.bounded):
        at = Y[entries.i, entries.j] / (request.s[entries.i] * request.s[entries.j])
        violations += [float(np.max(gap, initial=0.0)) for gap in (entries.lo - at, at - entries.hi)]
    return _Candidate(Y, max(violations), iterations)


def entry_rows(Y: PSD, d: Variable, request: Request) -> list[Any]:
    """Return ``H_ij |X_ij - A_ij| <= d`` for the entries that can move."""
    A, (H, free), least = np.asarray(request.A), measured(request), _least(request)
    i, j = np.nonzero(free)
    if len(i) == 0:
        return [d == least]
    slack = (1 / H[i, j]) * d
    rows: list[Any] = [
        (Y[i, j] - slack <= A[i, j]).named("above"),
        (Y[i, j] + slack >= A[i, j]).named("below"),
    ]
    return [*rows, d >= least] if least else rows


def measured(request: Request) -> tuple[Array, Mask]:
    """Return the weights of the entries, and the mask of the pairs ``i < j`` whose distance counts."""
    H = np.outer(request.s, request.s) if request.H is None else request.H
    free = np.triu(H > 0, 1)
    free[request.fixed.i, request.fixed.j] = False
    return H, free


def _least(request: Request) -> float:
    """Return the distance on the diagonal."""
    weights = request.s**2 if request.H is None else request.H.diagonal()
    return float(np.abs(weights * (1 - np.asarray(request.A).diagonal())).max())


def splitting_route(request: Request, first: Array) -> type[_EntrySplitting]:
    """Return the route that starts at a matrix, for one block and the variable of :func:`entry_rows`."""
    return type("EntrySplitting", (_EntrySplitting,), {"request": request, "first": first})


class _EntrySplitting:
    """Douglas-Rachford splitting for one request, whose program it gets."""

    name: ClassVar[str] = "splitting"
    summary: ClassVar[str] = "nearness in the largest entry, one eigendecomposition an iteration"
    citation: ClassVar[str] = (
        "Eckstein, Bertsekas (1992), On the Douglas-Rachford Splitting Method, Mathematical Programming 55"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}), blocks=1, penalties=frozenset(), matrices=30
    )
    Settings: ClassVar[type[Settings]] = Settings
    request: ClassVar[Request]
    first: ClassVar[Array]

    def refusal(self, program: Program, settings: Any) -> str | None:
        return None

    def choice(self, program: Program, settings: Any) -> str:
        return ""

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        first = self.first if start is None or not start.X else np.asarray(start.X[0])
        method = _Batches(program, self.request, first)
        limit = -(-(settings.max_iter or _ITERATIONS) // _BATCH)
        found = Monitor(program, settings, progress).follow(method, method.point(), limit)
        return Answer((found.at.X,), found.at.u, found.at.y, found.stop, method.splitting.iterations)


class _Point(NamedTuple):
    """A feasible matrix and its distance, up to the residual of the rows, and multipliers."""

    X: Array
    u: Array
    y: Array


class _Batches(Method):
    """Iterations of the splitting between certificates."""

    tests_multipliers = False

    def __init__(self, program: Program, request: Request, first: Array) -> None:
        self._program, self._request = program, request
        self._entries = _entries(request)
        self.splitting = _Splitting.started(self._entries, first)

    def certificate(self, at: _Point) -> Certificate:
        return certify(PrimalDualPoint(self._program, (at.X,), at.u, at.y))

    def advance(self, at: _Point) -> _Point:
        for _ in range(_BATCH):
            self.splitting.iterate()
        return self.point()

    def point(self) -> _Point:
        """Return the iterate's psd part scaled to the diagonal, and its multipliers scaled to the costs."""
        entries, request = self._entries, self._request
        Y, c = self.splitting.Y, entries.diagonal
        size = np.sqrt(c / np.maximum(Y.diagonal(), TINY))
        X = np.outer(size, size) * (Y + Y.T) / 2
        np.fill_diagonal(X, c)
        share, *shares = _shares(entries, self.splitting, _least(request))
        own, distances = np.zeros((2, *X.shape))
        own[entries.i, entries.j], distances[entries.i, entries.j] = shares
        unit = np.ones(request.n) if request.scale is None else request.scale
        rows = [-share * self.splitting.S.diagonal() / unit**2]
        for pairs in (request.fixed, request.bounded):
            i, j = np.minimum(pairs.i, pairs.j), np.maximum(pairs.i, pairs.j)
            rows.append(own[i, j] / (unit[i] * unit[j]))
        i, j = np.nonzero(measured(request)[1])
        y = np.concatenate([*rows, np.minimum(distances[i, j], 0.0), np.maximum(distances[i, j], 0.0)])
        return _Point(X, np.array([entries.distance(X)]), np.pad(y, (0, self._program.m - len(y))))


def _entries(request: Request) -> Entries:
    """Return the rows as arrays over the pairs."""
    A, (H, free), n = np.asarray(request.A), measured(request), request.n
    k = np.zeros((n, n))
    k[free] = 1 / H[free]
    lo, hi = np.full((n, n), -np.inf), np.full((n, n), np.inf)
    for own in (request.fixed, request.bounded):
        i, j = np.minimum(own.i, own.j), np.maximum(own.i, own.j)
        lo[i, j], hi[i, j] = own.lo, own.hi
    forced = np.maximum(lo - A, A - hi)[free] * H[free]
    i, j = np.triu_indices(n, 1)
    return Entries(
        i=i,
        j=j,
        a=A[i, j],
        k=k[i, j],
        lo=lo[i, j],
        hi=hi[i, j],
        least=max(_least(request), float(forced.max(initial=0.0))),
        diagonal=np.broadcast_to(1 - request.t, n).astype(float),
    )


def _shares(entries: Entries, state: _Splitting, on_diagonal: float) -> tuple[float, Array, Array]:
    """Return the best multiple of ``S``, and with it the multipliers of the bounds and of the distances.

    The proven bound is linear in the multiple as long as the multipliers of the distances, weighted by ``k``,
    add up to at most one. If they add up to less, the entry whose own bounds force the least distance, or the
    diagonal, has the rest.
    """
    n, k, S = len(state.S), entries.k, state.S
    y = -(S[entries.i, entries.j] + S[entries.j, entries.i])
    lower, upper = entries.ends(state.d)
    of_bounds = np.where(y > 0, lower == entries.lo, upper == entries.hi) | (k == 0)
    end = np.where(of_bounds, np.where(y > 0, entries.lo, entries.hi), entries.a)
    y[~np.isfinite(end)] = 0.0  # nothing holds an unknown entry
    used = float(np.abs(np.where(of_bounds, 0.0, y)) @ k)
    gain = float(y @ np.where(y == 0, 0.0, end)) - float(S.diagonal() @ entries.diagonal)
    noise = _NOISE * EPS * n * float(np.linalg.norm(state.Y))
    size = (1 - 4 * EPS) / used if used and gain - noise > entries.least * used else 0.0
    of_bound, of_distance = size * np.where(of_bounds, y, 0.0), size * np.where(of_bounds, 0.0, y)
    forced = np.maximum(entries.lo - entries.a, entries.a - entries.hi)
    at = int(np.argmax(np.where(k > 0, forced / np.maximum(k, TINY), -np.inf)))
    if k[at] > 0 and forced[at] > on_diagonal * k[at]:
        rest = (1 - size * used) / k[at] * (1.0 if entries.a[at] > entries.hi[at] else -1.0)
        of_bound[at] -= rest
        of_distance[at] += rest
    return size, of_bound, of_distance


@dataclass(frozen=True, eq=False)
class Entries:
    """The rows on the pairs ``i < j`` and the diagonal, with ``k = 0`` where no distance is measured.

    Parameters
    ----------
    i, j : integer array of shape (p,)
    a, k, lo, hi : array of shape (p,)
    least : float
        A lower bound on ``d``; no bound ``lo <= Y <= hi`` forces a larger one.
    diagonal : array of shape (n,)
    """

    i: IntArray
    j: IntArray
    a: Array
    k: Array
    lo: Array
    hi: Array
    least: float
    diagonal: Array

    def ends(self, d: float) -> tuple[Array, Array]:
        """Return the least and the largest values of the pairs at the distance ``d``."""
        width = np.where(self.k > 0, d * self.k, np.inf)
        return np.maximum(self.lo, self.a - width), np.minimum(self.hi, self.a + width)

    def matrix(self, values: Array) -> Array:
        """Return the symmetric matrix of the pairs' values, with the given diagonal."""
        Z = np.diag(self.diagonal)
        Z[self.i, self.j] = Z[self.j, self.i] = values
        return Z

    def distance(self, Y: Array) -> float:
        """Return the least ``d`` that a matrix allows, and at least `least`."""
        moved, measured = np.abs(Y[self.i, self.j] - self.a), self.k > 0
        return max(self.least, float((moved[measured] / self.k[measured]).max(initial=0.0)))


def distance_of(entries: Entries, r: Array, price: float, d: float) -> float:
    """Return the ``d >= least`` that minimizes ``price d + dist(r, [lo(d), hi(d)])^2 / 2``.

    The derivative is nondecreasing and piecewise linear: Newton's method from `d`, with bisection at jumps.
    """
    k = entries.k
    moved = np.abs(r - entries.a)
    reach = np.minimum(moved, np.where(r > entries.a, entries.hi - entries.a, entries.a - entries.lo))
    measured = (k > 0) & (reach > entries.least * k)
    k, moved, reach = k[measured], moved[measured], reach[measured]
    if float(k @ (moved - entries.least * k)) <= price:
        return entries.least
    low, high = entries.least, float((moved / k).max())
    d = min(max(d, low), high)
    for _ in range(_ROUNDS):
        active = reach > d * k
        own = k[active]
        slope = float(own @ own)
        excess = float(own @ moved[active]) - slope * d - price
        low, high = (d, high) if excess > 0 else (low, d)
        new = d + excess / slope if slope else low
        if abs(new - d) <= 1e-15 * high:
            return new
        d = new if low < new < high else (low + high) / 2
    return d


class _Anderson:
    """Anderson's acceleration of a nonexpansive iteration ``w -> w + g(w)``.

    A point whose residual is far larger than the least one is dropped for a plain step from the one before,
    whose residual is not larger.
    """

    def __init__(self, size: int) -> None:
        # Differences of residuals, and of residuals plus points.
        self._G, self._T = np.empty((2, _MEMORY, size))
        self.restart()

    def restart(self) -> None:
        """Forget all points, as the iteration changes."""
        self._held, self._least = 0, np.inf
        self._before = np.zeros(0), np.zeros(0)

    def next(self, w: Array, g: Array) -> Array:
        """Return the next point, from the point `w` and its residual `g`."""
        old, last = self._before
        size = float(np.linalg.norm(g))
        if self._held and not size <= _GROWTH * self._least:
            self._held = 0
            return old + last
        self._least = min(self._least, size)
        if self._held:
            at = (self._held - 1) % _MEMORY
            np.subtract(g, last, out=self._G[at])
            np.subtract(w, old, out=self._T[at])
            self._T[at] += self._G[at]
        self._held += 1
        self._before = w, g
        count = min(self._held - 1, _MEMORY)
        if count < 2:
            return w + g
        G, T = self._G[:count], self._T[:count]
        normal = G @ G.T
        normal.flat[:: count + 1] += _RIDGE * np.trace(normal) + TINY
        mix = np.linalg.solve(normal, G @ g)
        if not np.abs(mix).sum() <= _LARGEST_MIX:  # a NaN is none
            return w + g
        accelerated: Array = w + g - mix @ T
        return accelerated


@dataclass
class _Splitting:
    """The state of the iteration.

    Parameters
    ----------
    entries : Entries
    W : array of shape (n, n)
        The fixed point's iterate: ``Y - S / penalty``.
    d : float
        The distance.
    penalty : float

    Attributes
    ----------
    Y, S : array of shape (n, n)
        The positive part of ``W``, and the negative one, a multiple of the multiplier of ``Y psd``.
    """

    entries: Entries
    W: Array
    d: float
    penalty: float
    Y: Array = field(init=False)
    S: Array = field(init=False)
    iterations: int = 0
    _last: Array | None = None

    def __post_init__(self) -> None:
        self._anderson = _Anderson(self.W.size)
        self.split()

    @classmethod
    def started(cls, entries: Entries, W: Array) -> _Splitting:
        """Return the state at a matrix; the penalty is that of a distance spread over all its entries."""
        eigenvalues = np.linalg.eigvalsh(W)
        negative = float(np.maximum(-eigenvalues, 0.0).sum())
        size = max(negative, 1e-3 * float(np.abs(eigenvalues).max()), TINY)
        return cls(entries, W, 0.0, 1 / (np.sqrt(len(W)) * size))

    def split(self) -> None:
        """Split ``W`` into its positive and negative parts, from the smaller one."""
        checkpoint(len(self.W))
        eigenvalues, Q = np.linalg.eigh(self.W)
        first = int(np.searchsorted(eigenvalues, 0.0))
        if 2 * first > len(Q):
            self.Y = (Q[:, first:] * eigenvalues[first:]) @ Q[:, first:].T
            self.S = self.Y - self.W
        else:
            self.S = -(Q[:, :first] * eigenvalues[:first]) @ Q[:, :first].T
            self.Y = self.W + self.S

    def iterate(self) -> None:
        """Do one iteration."""
        rows, R = self.entries, self.Y + self.S
        r = (R[rows.i, rows.j] + R[rows.j, rows.i]) / 2
        # Each pair stands twice in the squared distance.
        self.d = distance_of(rows, r, 1 / (2 * self.penalty), self.d)
        Z = rows.matrix(np.clip(r, *rows.ends(self.d)))
        step = Z - self.Y
        self.iterations += 1
        if not self._balanced(Z, step):
            new = self._anderson.next(self.W.ravel(), (_RELAXATION * step).ravel())
            self.W = new.reshape(self.W.shape)
        self._last = Z
        self.split()

    def _balanced(self, Z: Array, step: Array) -> bool:
        """Change the penalty, at iterations 20, 40, 80, ..., if one residual is far larger."""
        turn, rest = divmod(self.iterations, 20)
        if rest or turn & (turn - 1) or self.iterations > _LAST_BALANCE or self._last is None:
            return False
        primal = np.linalg.norm(step) / max(float(np.linalg.norm(self.Y)), TINY)
        dual = np.linalg.norm(Z - self._last) / max(float(np.linalg.norm(self.S)), TINY)
        change = float(np.sqrt(primal / (dual + TINY)))
        if 1 / _BALANCED <= change <= _BALANCED:
            return False
        change = float(np.clip(change, 1 / _LARGEST_CHANGE, _LARGEST_CHANGE))
        self.penalty *= change
        self.W = self.Y + (_RELAXATION * step - self.S) / change
        self._anderson.restart()
        return True
