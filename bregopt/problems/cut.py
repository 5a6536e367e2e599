"""Minimum balanced cut: a bound by semidefinite relaxation, a partition by rounding (Kulis et al. §6.4).

The relaxation is  min <L, X>  subject to  diag(X) = e,  e'X e <= s^2,  X psd,  with ``L`` the Laplacian and
``s`` the largest imbalance allowed. It is solved as the paper says: LogDet nearness to ``mu inv(L)`` for a
falling ``mu``. In the objective ``mu D(X, mu inv(L)) = <L, X> - mu logdet X + constant`` the multipliers are
those of the relaxation itself, so each ``mu`` starts from the last one's, and any of them proves a bound.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, finite_array
from bregopt.errors import ConvergenceWarning, did_you_mean, require
from bregopt.interop.graphs import Graph, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import Minimize, logdet_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.program import Certificate, LowRank, Program, certify
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import Solution, Status, StopReason

__all__ = ["Cut", "min_balanced_cut"]

_FALL = 0.3  # of mu from one nearness problem to the next
_HYPERPLANES = 50
_OPTIONS = ("tol", "max_iter", "time_limit", "verbose")


@dataclass(frozen=True, eq=False, repr=False)
class Cut(Solution):
    """A partition with a proof: `cut` is what it cuts, and no balanced partition cuts less than `bound`.

    Attributes
    ----------
    partition : int array of shape (n,)
        The side of each vertex, 1 or -1, in the order of the graph.
    sides : tuple of two lists
        The vertices of each side, by their names in the graph.
    cut : float
        Weight of the edges between the sides.
    bound : float
        Proven lower bound on the weight of any cut of the allowed imbalance: a quarter of `dual_value`.
    """

    partition: Any = None
    sides: Any = None
    cut: float = np.nan
    bound: float = -np.inf

    def __repr__(self) -> str:
        sizes = " and ".join(str(len(side)) for side in self.sides)
        return f"cut of weight {self.cut:g} into {sizes} vertices, proven at least {self.bound:.6g}\n" + (
            super().__repr__()
        )


def min_balanced_cut(
    graph: Any, weights: Any = None, imbalance: float = 0.0, *, seed: int = 0, **options: Any
) -> Cut:
    """Return a small balanced cut of a graph, and a bound that no balanced cut beats.

    Parameters
    ----------
    graph : networkx graph, sparse or dense adjacency matrix of shape (n, n), or edges
        Edges are an int array of shape ``(m, 2)`` or a pair of index arrays.
    weights : str or array of shape (m,), optional
        The networkx edge attribute, or the weights of the edges; every edge weighs one without.
    imbalance : float in [0, 1)
        The sides may differ by this fraction of the number of vertices, and always by one where it is odd.
    seed : int
        Of the random hyperplanes.
    **options
        ``tol`` (1e-2, of the relaxation's relative gap and residual), ``max_iter`` (cycles of projections,
        20,000), ``time_limit`` (seconds), ``verbose``.

    Returns
    -------
    Cut
        Its ``X`` and its certificate are those of the relaxation, ``X`` as :class:`~bregopt.LowRank`.

    Raises
    ------
    TypeError, ValueError
        Directed graphs, loops, negative weights, fewer than two vertices, unknown options.

    Warns
    -----
    ConvergenceWarning
        If the relaxation's certificate does not meet `tol`; the bound is proven all the same.

    References
    ----------
    Lang (2005), Fixing two weaknesses of the spectral method; Kulis, Sustik, Dhillon (2009), §6.4.
    """
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"min_balanced_cut has no option {name!r}{did_you_mean(name, _OPTIONS)}")
    parsed = read_graph(graph, weights)
    fraction = float(finite_array(imbalance, "imbalance", ndim=0))
    if not 0 <= fraction < 1:
        raise ValueError(f"imbalance is {fraction:g}; expected 0 <= imbalance < 1")
    slack = _largest_imbalance(parsed.n, fraction)
    solution = _Path(parsed, slack, **options).follow()
    side = _best_partition(parsed, solution.X, slack, np.random.default_rng(seed))
    inherited = {f.name: getattr(solution, f.name) for f in fields(Solution)}
    return Cut(
        **inherited,
        partition=side,
        sides=tuple([parsed.nodes[k] for k in np.flatnonzero(side == sign)] for sign in (1, -1)),
        cut=parsed.cut(side),
        bound=max(solution.dual_value / 4, 0.0),
    )


def _largest_imbalance(n: int, fraction: float) -> int:
    """Return the largest allowed difference of the sizes of the sides: of the parity of ``n``."""
    slack = int(np.floor(fraction * n + 1e-9))
    return max(slack - (slack - n) % 2, n % 2)


class _Path:
    """LogDet nearness for a falling ``mu``, each certified as the relaxation."""

    def __init__(
        self,
        graph: Graph,
        slack: int,
        tol: float = 1e-2,
        max_iter: int = 20_000,
        time_limit: float | None = None,
        verbose: bool = False,
    ) -> None:
        self._tol, self._cycles = tol, max_iter
        self._n, self._slack = graph.n, slack
        self._relaxation = _relaxation(graph, slack)
        self._progress = Progress(f"bregopt min_balanced_cut: {graph.n} vertices", verbose, time_limit)
        # Where L has a null space beyond e (several components, or an imbalance that gives e a share), its
        # inverse on the rest would pin X_ii to zero; as tr X = n, adding delta I only shifts the objective.
        degree = graph.adjacency.sum() / graph.n
        self._delta = 0.0 if slack == 0 and graph.components == 1 else degree if degree > 0 else 1.0
        self._space = _complement_of_ones(graph.n) if slack == 0 else np.eye(graph.n)
        L = self._space.T @ (graph.laplacian @ self._space)
        self._shifted = L + self._delta * np.eye(len(L))
        self._laplacian = graph.laplacian

    def follow(self) -> Solution:
        """Return the relaxation's answer at the last ``mu``, as a solution of the relaxation."""
        eigenvalues, Q = np.linalg.eigh(self._shifted)
        G = self._space @ (Q / np.sqrt(eigenvalues))  # G G' is the inverse of L + delta I on the space
        mu = self._n / float((G**2).sum())  # there tr X = n already
        done: Solution | bool = False
        cycles, best = 0, None
        while True:
            step = self._nearness(G, mu, done, self._cycles - cycles)
            cycles += step.iterations
            certificate, X = self._certified(step)
            self._progress.record(cycles, certificate, mu=mu)
            if best is None or certificate.gap < best[1].gap or certificate.meets(self._tol):
                best = step, certificate, X
            reached = best[1].meets(self._tol)
            if (
                reached
                or cycles >= self._cycles
                or self._progress.out_of_time()
                or step.status == "user_limit"
            ):
                return self._solution(*best, cycles)
            done, mu = step, _FALL * mu

    def _nearness(self, G: Array, mu: float, start: Solution | bool, cycles: int) -> Solution:
        X = PSD(self._n, name="X")
        problem = Problem(Minimize(mu * logdet_div(X, LowRank(np.sqrt(mu) * G))), _rows(X, self._slack))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return problem.solve(
                solver="bregman",
                warm_start=start,
                tol=self._tol / 2,
                max_iter=max(cycles, 1),
                time_limit=self._progress.remaining(),
            )

    def _certified(self, step: Solution) -> tuple[Certificate, Array]:
        """Return what the multipliers of a nearness problem prove about the relaxation, and its dense X."""
        raw = step._raw
        assert raw is not None
        X = np.asarray(step.X)
        y = raw.duals.copy()
        y[: self._n] -= self._delta
        if self._slack == 0:
            y = np.append(y, self._balance_multiplier(y))
        return certify(self._relaxation, (X,), np.zeros(0), y), X

    def _balance_multiplier(self, y: Array) -> float:
        """Return a multiplier of e'Xe = 0 with which ``L - diag(y) - t e e'`` is psd, on e as off it.

        By a Schur complement: off e the matrix is positive definite, so a multiplier low enough exists.
        """
        Z = np.asarray(self._laplacian.todense()) - np.diag(y)
        e = np.ones(self._n) / np.sqrt(self._n)
        off = self._space.T @ (Z @ e)
        inside = self._space.T @ Z @ self._space
        needed = off @ np.linalg.solve(inside, off) - e @ Z @ e
        return -max(2 * float(needed), 0.0) / self._n

    def _solution(self, step: Solution, certificate: Certificate, X: Array, cycles: int) -> Solution:
        met = certificate.meets(self._tol)
        reason = StopReason.TIME_LIMIT if self._progress.out_of_time() else StopReason.MAX_ITER
        solution = replace(
            step,
            status=(Status.OPTIMAL if met else Status.USER_LIMIT).value,
            stop_reason=(StopReason.CONVERGED if met else reason).value,
            value=certificate.primal,
            dual_value=certificate.dual,
            gap=certificate.gap,
            primal_residual=certificate.primal_residual,
            dual_residual=certificate.dual_residual,
            error=certificate.error,
            iterations=cycles,
            history=self._progress.history(),
            timings={**step.timings, "total": self._progress.seconds},
        )
        if not met:
            warnings.warn(
                f"min_balanced_cut: the relaxation's certified gap is {solution.gap:.1e}, its residual "
                f"{solution.primal_residual:.1e} (tol {self._tol:.1e}); the bound holds. "
                f"{solution.stop_reason}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return solution


def _rows(X: PSD, slack: int) -> list[Constraint]:
    """Return the rows of the relaxation that the range space does not imply."""
    rows = [diag(X) == 1]
    return [*rows, quad_form(np.ones(X.n), X) <= float(slack**2)] if slack else rows


def _relaxation(graph: Graph, slack: int) -> Program:
    X = PSD(graph.n, name="X")
    rows = _rows(X, slack) or []
    if slack == 0:
        rows.append(quad_form(np.ones(graph.n), X) == 0)
    return Problem(Minimize(inner(graph.laplacian, X)), rows).program()


def _complement_of_ones(n: int) -> Array:
    """Return an orthonormal basis of the vectors that sum to zero, shape ``(n, n - 1)`` (Helmert's)."""
    k = np.arange(1, n)
    basis = np.triu(np.ones((n, n - 1)))
    basis[k, k - 1] = -k
    return basis / np.sqrt(k * (k + 1))


def _best_partition(graph: Graph, X: LowRank, slack: int, rng: np.random.Generator) -> IntArray:
    """Return the best of several roundings of the relaxation's answer, each repaired to balance."""
    U, s, _ = np.linalg.svd(X.factor, full_matrices=False)
    leading = (U * s)[:, :3]
    random = X.factor @ rng.normal(size=(X.rank, _HYPERPLANES))
    directions = np.column_stack([leading, random])
    candidates = [side for d in directions.T for side in _splits(d, slack)]
    cuts = np.array([graph.cut(side) for side in candidates])
    order = np.argsort(cuts, kind="stable")
    best = [candidates[k] for k in order[:3]]
    return min((_improved(graph, side) for side in best), key=graph.cut)


def _splits(score: Array, slack: int) -> list[IntArray]:
    """Return the partitions into high and low scores, of every allowed size."""
    n = len(score)
    rank = np.empty(n, dtype=np.intp)
    rank[np.argsort(score, kind="stable")] = np.arange(n)
    sizes = {(n + difference) // 2 for difference in range(-slack, slack + 1) if (n + difference) % 2 == 0}
    return [np.where(rank < size, 1, -1) for size in sorted(sizes) if 0 < size < n]


def _improved(graph: Graph, side: IntArray) -> IntArray:
    """Return a partition of the same sizes after swaps by Kernighan and Lin, where networkx is installed."""
    try:
        networkx = require("networkx", "graph")
    except ImportError:
        return side
    if abs(int(side.sum())) > 1:
        return side  # networkx swaps within halves only
    G = networkx.from_scipy_sparse_array(graph.adjacency)
    halves = tuple(set(np.flatnonzero(side == sign).tolist()) for sign in (1, -1))
    first, _ = networkx.community.kernighan_lin_bisection(G, halves, max_iter=50, seed=0)
    swapped = -np.ones(graph.n, dtype=np.intp)
    swapped[list(first)] = 1
    return swapped if graph.cut(swapped) < graph.cut(side) else side
