"""Nearness in the largest entry: its rows in the modeling language, and the method for larger orders."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array, Mask
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.modeling.psd import PSD
from bregopt.modeling.variables import Variable
from bregopt.problems.correlation.entry_splitting import Entries, Splitting
from bregopt.problems.correlation.request import Request
from bregopt.program import Answer, Program, Start
from bregopt.routes.base import Capabilities, Settings
from bregopt.routes.monitor import Method, Monitor
from bregopt.routes.progress import Progress

__all__ = ["entry_rows", "measured", "splitting_route"]

_BATCH = 20  # iterations between certificates, whose cost is that of two iterations
_ITERATIONS = 10_000
_NOISE = 10  # round-off of the eigenvalues of S, which its multiple enlarges


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

    class Own(_EntrySplitting):
        pass

    Own.request, Own.first = request, first
    return Own


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
        self.splitting = Splitting.started(self._entries, first)

    def certificate(self, at: _Point) -> Certificate:
        return certify(PrimalDualPoint(self._program, (at.X,), at.u, at.y))

    def advance(self, at: _Point) -> _Point:
        for _ in range(_BATCH):
            self.splitting.iterate()
        return self.point()

    def point(self) -> _Point:
        """Return the iterate's psd part scaled to the diagonal, and its multipliers scaled to the costs."""
        Y, c = self.splitting.Y, self._entries.diagonal
        size = np.sqrt(c / np.maximum(Y.diagonal(), TINY))
        X = np.outer(size, size) * (Y + Y.T) / 2
        np.fill_diagonal(X, c)
        y = _multipliers(self._entries, self.splitting, self._request)
        return _Point(X, np.array([self._entries.distance(X)]), np.pad(y, (0, self._program.m - len(y))))


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


def _shares(entries: Entries, state: Splitting, on_diagonal: float) -> tuple[float, Array, Array]:
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


def _multipliers(entries: Entries, state: Splitting, request: Request) -> Array:
    """Return the multipliers of the rows, in their order."""
    n = request.n
    size, *shares = _shares(entries, state, _least(request))
    own, distances = np.zeros((2, n, n))
    own[entries.i, entries.j], distances[entries.i, entries.j] = shares
    unit = np.ones(n) if request.scale is None else request.scale
    rows = [-size * state.S.diagonal() / unit**2]
    for pairs in (request.fixed, request.bounded):
        i, j = np.minimum(pairs.i, pairs.j), np.maximum(pairs.i, pairs.j)
        rows.append(own[i, j] / (unit[i] * unit[j]))
    i, j = np.nonzero(measured(request)[1])
    return np.concatenate([*rows, np.minimum(distances[i, j], 0.0), np.maximum(distances[i, j], 0.0)])
