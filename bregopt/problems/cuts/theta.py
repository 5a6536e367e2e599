"""Lovász's theta of a graph, between the independent sets and the covers by cliques that surround it.

With weights ``w >= 0`` of the vertices, and ``q`` their roots, theta is the largest ``q'X q`` over psd ``X``
of trace one with ``X_ij = 0`` on edges, and the least ``t`` with ``Z = t I - Y - qq'`` psd and ``Y`` of edges
alone (Lovász 1979; Grötschel, Lovász, Schrijver 1988). The first has a row for each edge, and its dual, which
`path` takes of dense graphs, one for each other pair. An independent set ``S`` is the matrix ``zz'`` with
``z = q_S / |q_S|``, of value ``w(S)``. So theta is at least that, and at most the sum of the largest weights
of cliques that cover the graph.

With ``X >= 0`` the value is Schrijver's, closer to independent sets; with ``X_ij <= 0`` on edges it is
Szegedy's, closer to covers. Both are on the same sides of them.

Vertices that others dominate are left out, and those apart from all others. The least ``t`` is that for
which some ``M`` with a zero diagonal makes ``Z = t I + M - qq'`` psd. Lovász's number has ``M`` of edges
alone, Schrijver's also entries ``M_ij <= 0`` on other pairs, and Szegedy's has ``M >= 0`` on edges. These are
the multipliers of the rows of ``X``.

A vertex ``u`` dominates its neighbor ``v`` if all neighbors of ``u`` are neighbors of ``v``, and ``v`` is not
heavier. Then each of the numbers is that of the graph without ``v``. It is at least that, by ``X`` with zeros
at ``v``. It is at most that: append ``s = q_v / q_u`` times the row and column of ``u`` to ``Z``, and add
``(1 - s^2) t`` to the new diagonal entry, which is then ``s^2 (t - w_u) + (1 - s^2) t = t - w_v``. The result
is psd. Its ``M`` is ``s t`` between ``u`` and ``v``, and otherwise ``s`` times that of ``u``: a pair of ``v``
without an edge comes from one of ``u`` without an edge. A vertex of weight zero has ``s = 0`` and any ``u``.

Vertices without neighbors become one vertex of their total weight ``W``. It stands for the unit vector ``p``
with their entries ``q_a / sqrt(W)``: the whole graph has ``V X V'`` and ``V M V'``, where ``V`` has ``p``
beside columns of the identity, as ``Z`` is ``V Z V'`` and ``t`` times a projector.

A vertex whose neighbors are a clique, none of them heavier, dominates all of them, and is then apart. Of
trees one vertex is left. Of points in a square with edges between near ones, a third of the vertices and half
of the edges go.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Unpack

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, minres

from bregopt import clock
from bregopt.arrays import EPS, TINY, Array, IntArray, finite_array
from bregopt.certify import Certificate
from bregopt.errors import ConvergenceWarning
from bregopt.io.graphs import Graph, GraphLike, read_graph
from bregopt.linalg import columns_at, rows_at
from bregopt.modeling.atoms import quad_form, trace
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.expression import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.program import StopReason
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.base import Settings
from bregopt.routes.driver import warn_unproven
from bregopt.routes.progress import Step
from bregopt.routes.registry import SolveOptions, check_arguments, time_limit, tuning
from bregopt.routes.solution import Solution

_SCHRIJVER = (True, "schrijver")  # values of `plus`

_LARGEST_DENSE = 1_500  # order of matrices with all their entries
_LARGEST_REPAIRED = 2_500  # order of an X that is made feasible, which takes two decompositions
# Orders for which `lowrank` is tried first, and edges a vertex for which it is. Random graphs of 1,000
# vertices and 10,000 edges take it 5 to 7 CPU seconds to 1e-3, and `lagrangian` 57.
_LOW_RANK_ORDERS, _LOW_RANK_DEGREES = (800, 2_500), (5, 20)
# Most steps of a round, twice as many after one that was too short, and the gap at which the first one ends.
_LOW_RANK_STEPS, _LOW_RANK_GAP = 100, 1e-2
# Least shift of a diagonal entry, relative to the largest. Of small worlds of 500 vertices, shifts by rows
# lose half of what equal ones lose.
_LEAST_SHIFT = 1e-2
# Residual and limit of the products in a step of a factor to rows that are orthogonal on edges, most of the
# steps, the least gain of a step before another one, relative to the gap, and the largest gap, in tolerances.
_ORTHOGONAL_TOL, _ORTHOGONAL_PRODUCTS, _ORTHOGONAL_STEPS, _GAIN, _NEAR = 1e-5, 100, 4, 0.1, 10
_STARTS = 20  # columns of X that lead to independent sets


@dataclass(frozen=True, eq=False, repr=False)
class ThetaNumber(Solution):
    """Lovász's theta: `value` is that of a feasible ``X``, and `dual_value` a bound from above.

    Attributes
    ----------
    independent_set : list
        Vertices without an edge between them, the heaviest set that was found; its weight is at most theta.
    cliques : tuple of lists
        Cliques that cover the graph; the sum of their largest weights is at least theta.
    graph : Graph
    """

    independent_set: list[Hashable] = field(default_factory=list)
    cliques: tuple[list[Hashable], ...] = ()
    graph: Graph | None = None

    def __repr__(self) -> str:
        head, *rest = super().__repr__().split("\n")
        sets = f"an independent set of {len(self.independent_set)}, a cover by {len(self.cliques)} cliques"
        return "\n".join([head, f"  around     {sets}", *rest])


def lovasz_theta(
    graph: GraphLike,
    weights: ArrayLike | Mapping[Hashable, float] | None = None,
    *,
    plus: bool | Literal["schrijver", "szegedy"] = False,
    **options: Unpack[SolveOptions],
) -> ThetaNumber:
    """Return Lovász's theta of a graph, which lies between its independence number and clique cover number.

    Parameters
    ----------
    graph
        As for :func:`min_balanced_cut`; weights of edges are ignored.
    weights : array_like of shape (n,), or mapping from vertices to numbers, optional
        Of the vertices, nonnegative; one by default.
    plus : bool, "schrijver" or "szegedy"
        "schrijver", or True, has ``X >= 0``: a smaller bound on independent sets. "szegedy" has ``X_ij <= 0``
        on edges: a larger bound on covers by cliques.
    **options
        Options of :meth:`bregopt.Problem.solve`. With ``time_limit`` the answer is never worse than an
        independent set and a cover by cliques that a search finds.

    Returns
    -------
    ThetaNumber
        Theta is its `value`; `dual_value` is an upper bound on theta and on all independent sets. `duals` are
        the multipliers of the trace, of edges and, for Schrijver's number, of other pairs, in the order of
        the rows of the upper triangle.

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has loops or fewer than two vertices, weights are negative or all zero, or
        an option is unknown.

    References
    ----------
    Lovász (1979), On the Shannon capacity of a graph, IEEE Trans. Inform. Theory 25; Schrijver (1979), A
    comparison of the Delsarte and Lovász bounds, ibid.; Szegedy (1994), A note on the theta number of Lovász
    and the generalized Delsarte bound, FOCS.
    """
    start = time.perf_counter()
    check_arguments(lovasz_theta, options)
    if plus not in (False, True, "schrijver", "szegedy"):
        raise ValueError(f"plus is {plus!r}; expected False, True, 'schrijver' or 'szegedy'")
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, signed=True, loops=False)
        w = _weights_of(parsed, weights)
        near = sp.csr_array(parsed.adjacency != 0)
        cover = _cover(near, w)
        answer = _answer(near, w, plus, options)
        chosen = max(_sets(near, w, answer.X), key=lambda own: float(w[own].sum()))
    above = sum(float(w[own].max()) for own in cover)
    answer = _between(answer, chosen, above, w, options.get("tol", Settings.tol))
    answer = replace(answer, timings={**answer.timings, "call": time.perf_counter() - start})
    return ThetaNumber(
        **{name: getattr(answer, name) for name in field_names(Solution)},
        independent_set=[parsed.nodes[v] for v in chosen],
        cliques=tuple([parsed.nodes[v] for v in own] for own in cover),
        graph=parsed,
    )


def _weights_of(graph: Graph, weights: ArrayLike | Mapping[Hashable, float] | None) -> Array:
    """Return the weights of the vertices in the order of the graph."""
    if weights is None:
        return np.ones(graph.n)
    if isinstance(weights, Mapping):
        missing = [v for v in graph.nodes if v not in weights]
        if missing:
            raise ValueError(f"weights has no number for vertex {missing[0]!r}; expected one for each vertex")
        weights = [weights[v] for v in graph.nodes]
    w = finite_array(weights, "weights", ndim=1)
    if w.shape != (graph.n,):
        raise ValueError(f"weights has shape {w.shape}; expected ({graph.n},), one number for each vertex")
    if w.min() < 0 or not w.any():
        raise ValueError(f"weights go from {w.min():g} to {w.max():g}; expected none below 0 and one above")
    return w


def _answer(near: Any, w: Array, plus: Any, options: Mapping[str, Any]) -> Solution:
    """Return the answer, from that of the graph without its dominated vertices."""
    graph = WithoutDominated(near, w)
    if not graph.changed:
        return _by_cost(near, np.sqrt(w), plus, options)
    answer = _by_cost(graph.near, graph.q, plus, options)
    if answer.X is None:
        return answer
    duals = answer.duals
    if duals is not None:
        t = float(duals[0])
        M = graph.multipliers(_slack_of(graph.near, duals), t)
        duals = _duals_of(near, M, t, plus)
    return replace(answer, X=graph.lifted(answer.X), duals=duals)


def _slack_of(near: Any, duals: Sequence[Any]) -> sp.csr_array:
    """Return ``M`` of multipliers: half of them on edges, minus a half on other pairs."""
    pairs, rest = [_edges(near)] if near.nnz else [], [np.asarray(own, dtype=float) / 2 for own in duals[1:]]
    if len(rest) > len(pairs):
        pairs.append(_other_pairs(near))
        rest[-1] = -rest[-1]
    M = sum(
        (sp.csr_array(own, near.shape) for own in zip(rest, pairs, strict=True)), sp.csr_array(near.shape)
    )
    return sp.csr_array(M + M.T)


def _duals_of(near: Any, M: sp.csr_array, t: float, plus: Any) -> tuple[Any, ...]:
    """Return the multipliers of ``t`` and ``M``, in the order of the rows."""
    edges, others = _edges(near), _other_pairs(near) if plus in _SCHRIJVER else ((), ())
    found = [*([2 * M[edges]] if len(edges[0]) else []), *([-2 * M[others]] if len(others[0]) else [])]
    return np.array(t), *found


def _edges(near: Any) -> tuple[IntArray, IntArray]:
    """Return the edges, each once."""
    i, j = sp.triu(near, 1).nonzero()
    return i, j


def _other_pairs(near: Any) -> tuple[IntArray, IntArray]:
    """Return the pairs of vertices without an edge, each once."""
    a, b = np.nonzero(np.triu(near.toarray() == 0, 1))
    return a, b


def _by_cost(near: Any, q: Array, plus: Any, options: Mapping[str, Any]) -> Solution:
    """Return the answer of the route that costs less, with a feasible ``X`` after a limit."""
    n, m = len(q), near.nnz // 2
    if plus or n > _LARGEST_REPAIRED:
        return _by_edges(near, q, plus, options)
    tol, best = options.get("tol", Settings.tol), None
    (fewest, largest), (least, most) = _LOW_RANK_ORDERS, _LOW_RANK_DEGREES
    sparse = fewest <= n <= largest and least * n <= m <= most * n
    # Pays on: theta of 1,000 vertices and 10,000 edges.
    if sparse and "solver" not in options and "max_iter" not in options:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = _by_factors(near, q, tol, options)
        if best.gap <= tol or best._stop not in (
            StopReason.MAX_ITER,
            StopReason.INACCURATE,
            StopReason.STALLED,
        ):
            warn_unproven(best, tol)
            return best
    answer = _feasible(_by_edges(near, q, plus, options), near, q, tol)
    return answer if best is None or not best.gap < answer.gap else best


def _by_factors(near: Any, q: Array, tol: float, options: Mapping[str, Any]) -> Solution:
    """Return the best of the answers of `lowrank` after rounds of stages, each from the last one.

    Its ``X`` misses edges of light vertices long after it has a feasible matrix nearby. A round ends where
    the gap of a stage promises half of that of the best answer, and at a number of steps.
    """
    constants: Any = tuning("lowrank")
    best, last, most, target, ended = None, None, _LOW_RANK_STEPS, _LOW_RANK_GAP, False
    watcher = options.get("callback")

    def ends(step: Step) -> bool:
        nonlocal ended
        stopped = watcher is not None and bool(watcher(step))
        ended = not stopped and step.gap <= target
        return stopped or ended

    own = {**options, "solver": "lowrank", "callback": ends}
    while True:
        last = _by_edges(near, q, False, {**own, "max_iter": most}, last)
        new = _feasible(last, near, q, tol)
        before, best = (np.inf, new) if best is None else (best.gap, _better(best, new, tol))
        if best.gap <= tol or not (ended or last._stop in (StopReason.MAX_ITER, StopReason.INACCURATE)):
            return best
        if last._stop is StopReason.INACCURATE:
            own["tol"] = own.get("tol", tol) / 2
        elif last._stop is StopReason.MAX_ITER:
            if best.gap > before / 2:
                return best
            most *= 2
        own["tuning"] = replace(constants, first_stage_tol=min(best.gap, constants.first_stage_tol))
        target, ended = min(target, max(best.gap / 2, tol)), False


def _better(one: Solution, other: Solution, tol: float) -> Solution:
    """Return the answer with the larger value of two and the smaller bound, as far as the other one went."""
    best = other if other.value > one.value else one
    proof = other if other.dual_value < one.dual_value else one
    steps = one.iterations + other.iterations
    both = replace(best, duals=proof.duals, _stop=other._stop, iterations=steps)
    return _replaced(both, best.X, best.value, proof.dual_value, tol)


def _by_edges(
    near: Any, q: Array, plus: Any, options: Mapping[str, Any], start: Solution | None = None
) -> Solution:
    """Return the answer of the form with a row for each edge, from that of an earlier solve."""
    n, (i, j) = len(q), _edges(near)
    X = PSD(n, name="X")
    rows: list[Constraint] = [trace(X) == 1]
    if len(i):
        rows.append(X[i, j] <= 0 if plus == "szegedy" else X[i, j] == 0)
    if plus in _SCHRIJVER:
        a, b = _other_pairs(near)
        rows += [X[a, b] >= 0] if len(a) else []
    return Problem(Maximize(quad_form(q, X)), rows).solve(**options, warm_start=start or False)


def _feasible(answer: Solution, near: Any, q: Array, tol: float) -> Solution:
    """Return an answer that was cut off before ``X`` met its rows, with a feasible ``X`` near it.

    Its bound is that of its multipliers, by all eigenvalues: the route proves it only as far as it has to.
    """
    if answer.X is None or answer.primal_residual <= tol:
        return answer
    bound, duals = answer.dual_value, answer.duals
    if duals is not None:
        M = _slack_of(near, duals)
        values = np.linalg.eigvalsh(M.toarray() - np.outer(q, q))
        t = -float(values[0]) + len(q) * EPS * float(np.abs(values).max())
        bound, duals = min(bound, t), _duals_of(near, M, t, False)
    X, best, value, more = answer.X, None, -np.inf, _ORTHOGONAL_STEPS
    while more:
        # Pays on: theta of a random graph of 1,000 vertices.
        more = more - 1 if isinstance(X, LowRank) and clock.remaining() > 0 else 0
        X = LowRank(_orthogonal(X.factor, near)) if isinstance(X, LowRank) and more else X
        found = _without_edges(X, near, q)
        new = -np.inf if found is None else float(q @ found @ q)
        gain, gap = new - value, bound - new
        best, value = (found, new) if gain > 0 else (best, value)
        if not (gain > _GAIN * gap and tol * bound < gap < _NEAR * tol * bound):
            break
    if best is None:
        return replace(answer, duals=duals, dual_value=bound)
    return _replaced(replace(answer, duals=duals), best, value, bound, tol)


def _orthogonal(R: Array, near: Any) -> Array:
    """Return `R` after a Gauss-Newton step to rows that are orthogonal on edges.

    It is the shortest change ``Y R`` that meets the linear equations, with ``Y`` on edges. They are nearly
    singular at light vertices. The residual of MINRES does not grow where it stops early.
    """
    i, j = _edges(near)
    m, n = len(i), len(R)
    links = sp.csr_array((np.tile(np.arange(m), 2), (np.append(i, j), np.append(j, i))), (n, n))
    square = np.einsum("nk,nk->n", R, R)
    scale = 1 / np.sqrt(square[i] + square[j] + TINY)

    def change(y: Array) -> Array:
        moved: Array = sp.csr_array(((scale * y)[links.data], links.indices, links.indptr), (n, n)) @ R
        return moved

    def product(y: Array) -> Array:
        D = change(y)
        both: Array = np.einsum("ek,ek->e", D[i], R[j]) + np.einsum("ek,ek->e", R[i], D[j])
        return scale * both

    missed = scale * np.einsum("ek,ek->e", R[i], R[j])
    system = LinearOperator((m, m), matvec=product, dtype=float)
    y, _ = minres(system, -missed, rtol=_ORTHOGONAL_TOL, maxiter=_ORTHOGONAL_PRODUCTS)
    return R + change(y)


def _without_edges(X: Matrix, near: Any, q: Array) -> Array | None:
    """Return a feasible matrix near ``X``; None if nothing of it is left.

    ``Z`` is ``X`` without its edges. Shifts of its diagonal in the ratio of what its rows lose make it psd.
    With a diagonal ``D``, matrices ``D Z D`` have no edges either, and an eigenvector gives the best one of
    trace one.
    """
    n, (i, j) = len(q), _edges(near)
    Z = np.array(X @ np.eye(n))
    size = np.sqrt(np.bincount(np.concatenate([i, j]), np.tile(Z[i, j] ** 2, 2), n))
    Z[i, j] = Z[j, i] = 0.0
    if not Z.any():
        return None
    size = np.maximum(size, _LEAST_SHIFT * size.max()) if size.any() else np.ones(n)
    root = np.sqrt(size)
    lowest = scipy.linalg.eigvalsh(Z / np.outer(root, root), subset_by_index=[0, 0])[0]
    Z[np.diag_indices(n)] += max(-float(lowest), 0.0) * size + n * EPS * float(np.linalg.norm(Z))
    root = np.sqrt(Z.diagonal())
    K = Z * np.outer(q / root, q / root)
    top = scipy.linalg.eigh(K, subset_by_index=[n - 1, n - 1])[1][:, 0]
    D = top / root
    found: Array = Z * np.outer(D, D)
    return found / found.trace()


def _between(answer: Solution, chosen: IntArray, cover: float, w: Array, tol: float) -> Solution:
    """Return an answer that is no worse than an independent set and a cover by cliques of this weight."""
    weight, value, bound = float(w[chosen].sum()), answer.value, answer.dual_value
    X = answer.X
    if X is None or not value >= weight or not answer.primal_residual <= tol:
        z = np.zeros(len(w))
        z[chosen] = np.sqrt(w[chosen] / weight)
        X, value = LowRank(z[:, None]) if isinstance(X, LowRank) else np.outer(z, z), weight
    if not bound <= cover:
        bound = cover
    bound = max(bound, value)
    if (value, bound) == (answer.value, answer.dual_value):
        return answer
    return _replaced(answer, X, value, bound, tol)


def _replaced(answer: Solution, X: Matrix, value: float, bound: float, tol: float) -> Solution:
    """Return the answer with another ``X`` or bound, and the status that follows."""
    residual = answer.primal_residual if X is answer.X else 0.0
    gap = abs(bound - value) / max(abs(bound), abs(value))
    status, stop = answer.status, answer._stop
    if stop is not None:
        certificate = Certificate(value, bound, gap, residual, 0.0, bound - value)
        stop = StopReason.CONVERGED if certificate.meets(tol) else stop
        status = certificate.status(tol, stop).value
    found = replace(answer, X=X, value=value, dual_value=bound, gap=gap, primal_residual=residual)
    if stop is not answer._stop and stop is not None:
        found = replace(found, _stop=stop, stop_reason=str(stop.value))
    return replace(found, status=status)


def _sets(near: Any, w: Array, X: Matrix | None) -> Iterable[IntArray]:
    """Yield maximal independent sets of vertices with weight: by degrees, and by columns of ``X``."""
    degree = np.asarray(near.sum(axis=1)).ravel()
    scores = [w / (1 + degree)]
    if X is not None:
        pull, every = np.asarray(X @ np.sqrt(w)), np.arange(len(w))
        scores.append(pull)
        scores += [X[every, v] for v in np.argsort(-pull)[:_STARTS].tolist()]
    for score in scores:
        free, taken = w > 0, []
        for v in np.argsort(-score, kind="stable").tolist():
            if free[v]:
                taken.append(v)
                free[v] = False
                free[near.indices[near.indptr[v] : near.indptr[v + 1]]] = False
        yield np.array(sorted(taken), dtype=np.intp)


def _cover(near: Any, w: Array) -> list[IntArray]:
    """Return cliques that cover the vertices, each grown from the heaviest one that is left."""
    degree = np.asarray(near.sum(axis=1)).ravel()
    left, cliques = np.ones(len(w), dtype=bool), []
    for v in np.lexsort((degree, -w)).tolist():
        if not left[v]:
            continue
        clique = [v]
        common = near.indices[near.indptr[v] : near.indptr[v + 1]]
        common = common[left[common]]
        while len(common):
            inside = np.diff(columns_at(rows_at(near, common), common).indptr)
            u = int(common[np.argmax(inside)])
            clique.append(u)
            own = near.indices[near.indptr[u] : near.indptr[u + 1]]
            common = np.intersect1d(common, own)
        left[clique] = False
        cliques.append(np.array(sorted(clique), dtype=np.intp))
    return cliques


class WithoutDominated:
    """A graph without its dominated vertices, in which one vertex stands for all that are apart.

    Parameters
    ----------
    near : csr_array of shape (n, n)
        Its adjacency.
    w : array of shape (n,)
        Weights of the vertices, nonnegative, one above zero.

    Attributes
    ----------
    near : csr_array of shape (k, k)
    q : array of shape (k,)
        Roots of the weights.
    changed : bool
        Whether it is another graph.
    """

    def __init__(self, near: Any, w: Array) -> None:
        self._q = np.sqrt(w)
        self._dropped, closed = _dominated(near, w)
        gone = {v for v, _ in self._dropped}
        left = [v for v in range(len(w)) if v not in gone]
        apart = [v for v in left if len(closed[v]) == 1]
        self.changed = bool(gone) or len(apart) > 1
        rest = [v for v in left if len(closed[v]) > 1]
        k, weight = len(rest), float(w[apart].sum())
        single = [sp.csr_array((1, 1), dtype=bool)] if apart else []
        self.near = sp.block_diag([near[rest][:, rest], *single], format="csr")
        self.q = np.append(self._q[rest], [np.sqrt(weight)] * len(single))
        values = np.concatenate([np.ones(k), self._q[apart] / np.sqrt(weight or 1.0)])
        columns = np.concatenate([np.arange(k), np.full(len(apart), k)])
        self._V = sp.csr_array((values, ([*rest, *apart], columns)), (len(w), len(self.q)))

    def lifted(self, X: Matrix) -> Matrix:
        """Return the matrix of the whole graph."""
        V = self._V
        if not isinstance(X, LowRank) and V.shape[0] > _LARGEST_DENSE:
            theta, Q = np.linalg.eigh(X)
            X = LowRank(Q * np.sqrt(np.maximum(theta, 0.0)))
        return LowRank(V @ X.factor) if isinstance(X, LowRank) else V @ (V @ X).T

    def multipliers(self, M: sp.csr_array, t: float) -> sp.csr_array:
        """Return ``M`` of the whole graph, from a sparse one of this graph and its ``t``."""
        rows: list[dict[int, float]] = [{} for _ in self._q]
        for a, b, value in zip(*map(np.ndarray.tolist, sp.find(self._V @ M @ self._V.T)), strict=True):
            rows[a][b] = value
        for v, u in reversed(self._dropped):
            s = self._q[v] / self._q[u]
            rows[v] = {j: s * value for j, value in rows[u].items()} | {u: s * t}
            for j, value in rows[v].items():
                rows[j][v] = value
        return _as_sparse(rows)


# Pays on: theta of 300 points in a square.
def _dominated(near: Any, w: Array) -> tuple[list[tuple[int, int]], list[set[int]]]:
    """Return dominated vertices, each with one that dominates it, and closed neighborhoods of the others."""
    closed = [{v, *near.indices[near.indptr[v] : near.indptr[v + 1]].tolist()} for v in range(len(w))]
    heaviest, weights, dropped = int(np.argmax(w)), w.tolist(), []
    queue = sorted(range(len(w)), key=lambda v: -len(closed[v]))
    waiting = set(queue)

    def drop(v: int, u: int) -> None:
        dropped.append((v, u))
        for j in closed[v] - {v}:
            closed[j].remove(v)
            if j not in waiting:
                waiting.add(j)
                queue.append(j)
        closed[v] = set()

    for v in np.flatnonzero(w == 0).tolist():
        drop(v, heaviest)
    while queue:
        u = queue.pop()
        waiting.discard(u)
        own = closed[u]
        for v in sorted(own - {u}):
            if weights[v] <= weights[u] and own <= closed[v]:
                drop(v, u)  # it leaves `own`, too
    return dropped, closed


def _as_sparse(rows: list[dict[int, float]]) -> sp.csr_array:
    """Return the matrix of rows that map columns to entries."""
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([j for row in rows for j in row], dtype=np.intp)
    values = np.array([value for row in rows for value in row.values()], dtype=float)
    return sp.csr_array((values, columns, ends), (len(rows), len(rows)))
