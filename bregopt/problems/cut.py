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
from bregopt.errors import ConvergenceWarning, did_you_mean
from bregopt.interop.graphs import Graph, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import Minimize, logdet_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.certified import certified
from bregopt.problems.rounding import best_partition
from bregopt.program import Certificate, LowRank, Program, certify
from bregopt.solvers.base import Settings
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import Solution, Status, StopReason

__all__ = ["Cut", "min_balanced_cut"]

_FALL = 0.3  # of mu from one nearness problem to the next
_FALLS = 25  # then mu is 1e-13 of what it was
_STEPS = 100  # at most, on one nearness problem: the next mu starts from wherever it is
_INSTANT = 1e-9  # seconds: what is left of a time limit that has passed
_MAX_STEPS = 2_000  # on all of them
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
    graph : networkx graph, adjacency matrix (sparse, dense or DataFrame) of shape (n, n), or edges
        Edges are an int array of shape ``(m, 2)`` or a pair of index arrays.
    weights : str or array of shape (m,), optional
        The networkx edge attribute, or the weights of the edges; every edge weighs one without.
    imbalance : float in [0, 1)
        The sides may differ by this fraction of the number of vertices, and always by one where it is odd.
    seed : int, at least 0
        Of the random hyperplanes of the rounding.
    **options
        ``tol`` (1e-2, of the relaxation's relative gap and residual), ``max_iter`` (2,000 steps on the
        nearness problems, all together), ``time_limit`` (seconds, of the relaxation), ``verbose``.

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
    settings = _settings(seed, options)
    parsed = read_graph(graph, weights)
    slack = _largest_imbalance(parsed.n, imbalance)
    solution, side = _relaxed_and_rounded(parsed, slack, settings)
    if solution.status != Status.OPTIMAL:
        warnings.warn(
            f"min_balanced_cut: the relaxation's certified gap is {solution.gap:.1e}, its residual "
            f"{solution.primal_residual:.1e} (tol {settings.tol:.1e}); the bound holds. "
            f"{solution.stop_reason}",
            ConvergenceWarning,
            stacklevel=2,
        )
    inherited = {f.name: getattr(solution, f.name) for f in fields(Solution)}
    return Cut(
        **inherited,
        partition=side,
        sides=tuple([parsed.nodes[k] for k in np.flatnonzero(side == sign)] for sign in (1, -1)),
        cut=parsed.cut(side),
        bound=min(max(solution.dual_value / 4, 0.0), parsed.cut(side)),  # above the cut by round-off only
    )


def _settings(seed: Any, options: dict[str, Any]) -> Settings:
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"min_balanced_cut has no option {name!r}{did_you_mean(name, _OPTIONS)}")
    return Settings(seed=seed, **{"tol": 1e-2, **options})


def _largest_imbalance(n: int, imbalance: Any) -> int:
    """Return the largest allowed difference of the sizes of the sides: of the parity of ``n``."""
    fraction = float(finite_array(imbalance, "imbalance", ndim=0))
    if not 0 <= fraction < 1:
        raise ValueError(f"imbalance is {fraction:g}; expected 0 <= imbalance < 1")
    slack = int(np.floor(fraction * n + 1e-9))
    return max(slack - (slack - n) % 2, n % 2)


def _relaxed_and_rounded(graph: Graph, slack: int, settings: Settings) -> tuple[Solution, IntArray]:
    """Return the relaxation's answer, by LogDet nearness for a falling ``mu``, and a partition.

    A partition ``s`` is an answer to the relaxation too, ``X = s s'``. It is the better one where the bound
    is the cut itself: there ``X`` of full rank comes near only as ``mu`` leaves what doubles resolve.
    """
    title = f"bregopt min_balanced_cut: {graph.n} vertices"
    progress = Progress(title, settings.verbose, settings.time_limit)
    rng = np.random.default_rng(settings.seed)
    relaxation = _Relaxation(graph, slack)
    first = graph.n / float((relaxation.root**2).sum())  # there tr X = n already
    budget, steps, reason = settings.max_iter or _MAX_STEPS, 0, StopReason.STALLED
    start: Solution | bool = False
    sides: list[IntArray] = []
    found: list[tuple[Certificate, Solution]] = []
    for mu in first * _FALL ** np.arange(_FALLS):
        limit = min(budget - steps, _STEPS)
        start = step = relaxation.nearness(mu, start, settings.tol / 2, limit, progress.remaining())
        steps += step.iterations
        sides.append(best_partition(graph, step.X, slack, rng))
        side = min(sides, key=graph.cut)
        y = relaxation.multipliers(step)
        for answer in (step, replace(step, X=LowRank(side[:, None]), rank=1)):
            found.append((relaxation.certificate(answer.X, y), answer))
        certificate, answer = min(found, key=lambda pair: (not pair[0].meets(settings.tol), pair[0].gap))
        progress.record(steps, certificate, mu=mu)
        ended = _why_stop(step, certificate, budget - steps, settings, progress)
        if ended is not None:
            reason = ended
            break
    solution = certified(
        answer,
        certificate,
        status=(Status.OPTIMAL if reason is StopReason.CONVERGED else Status.USER_LIMIT).value,
        stop_reason=reason.value,
        iterations=steps,
        history=progress.history(),
        timings={**answer.timings, "total": progress.seconds},
    )
    return solution, side


def _why_stop(
    step: Solution, certificate: Certificate, left: int, settings: Settings, progress: Progress
) -> StopReason | None:
    if certificate.meets(settings.tol):
        return StopReason.CONVERGED
    if StopReason.INTERRUPTED in step.stop_reason:
        return StopReason.INTERRUPTED
    if progress.out_of_time():
        return StopReason.TIME_LIMIT
    return StopReason.MAX_ITER if left <= 0 else None


class _Relaxation:
    """The relaxation of a balanced cut, and the LogDet nearness problems that lead to its answer.

    Where ``L`` has a null space beyond ``e`` (several components, or an imbalance that gives ``e`` a share),
    its inverse on the rest would pin ``X_ii`` to zero. So ``delta I`` is added: as tr X = n, this only shifts
    the objective, and ``delta`` comes off the multipliers of the diagonal again.
    """

    def __init__(self, graph: Graph, slack: int) -> None:
        self.n, self.slack = graph.n, slack
        self.laplacian = graph.laplacian.toarray()
        self.program = self._program()
        degree = graph.adjacency.sum() / graph.n
        self.delta = 0.0 if slack == 0 and graph.components == 1 else degree if degree > 0 else 1.0
        self.space = np.eye(self.n) if slack else _complement_of_ones(self.n)
        shifted = self.space.T @ (self.laplacian + self.delta * np.eye(self.n)) @ self.space
        eigenvalues, Q = np.linalg.eigh(shifted)
        self.root = self.space @ (Q / np.sqrt(eigenvalues))  # root root' inverts L + delta I on the space

    def _program(self) -> Program:
        X = PSD(self.n, name="X")
        rows = self._rows(X) if self.slack else [*self._rows(X), quad_form(np.ones(self.n), X) == 0]
        return Problem(Minimize(inner(self.laplacian, X)), rows).program()

    def _rows(self, X: PSD) -> list[Constraint]:
        """Return the rows of the relaxation that the space of the nearness problems does not imply."""
        held = diag(X) == 1
        return [held, quad_form(np.ones(self.n), X) <= float(self.slack**2)] if self.slack else [held]

    def nearness(
        self, mu: float, start: Solution | bool, tol: float, max_iter: int, time_limit: float | None
    ) -> Solution:
        """Return the answer to LogDet nearness to ``mu inv(L)``, as near as the limits let it come."""
        X = PSD(self.n, name="X")
        problem = Problem(Minimize(mu * logdet_div(X, LowRank(np.sqrt(mu) * self.root))), self._rows(X))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return problem.solve(
                solver="bregman",
                warm_start=start,
                tol=tol,
                max_iter=max_iter,
                time_limit=None if time_limit is None else max(time_limit, _INSTANT),
            )

    def multipliers(self, step: Solution) -> Array:
        """Return the multipliers of the relaxation's rows that a nearness problem ends with."""
        assert step._raw is not None
        y: Array = step._raw.duals.copy()
        y[: self.n] -= self.delta
        return y if self.slack else np.append(y, self._balance_multiplier(y))

    def certificate(self, X: LowRank, y: Array) -> Certificate:
        """Return what ``X`` and the multipliers prove; or none, with which the bound is 0, as L is psd."""
        proof = certify(self.program, (X.dense(),), np.zeros(0), y)
        return proof if proof.dual > 0 else certify(self.program, (X.dense(),), np.zeros(0), 0 * y)

    def _balance_multiplier(self, y: Array) -> float:
        """Return a multiplier of e'Xe = 0 with which ``L - diag(y) - t e e'`` is psd, on e as off it.

        By a Schur complement: off e the matrix is positive definite, so a multiplier low enough exists.
        """
        Z = self.laplacian - np.diag(y)
        e = np.ones(self.n) / np.sqrt(self.n)
        off = self.space.T @ (Z @ e)
        inside = self.space.T @ Z @ self.space
        needed = off @ np.linalg.solve(inside, off) - e @ Z @ e
        return -max(2 * float(needed), 0.0) / self.n


def _complement_of_ones(n: int) -> Array:
    """Return an orthonormal basis of the vectors that sum to zero, shape ``(n, n - 1)`` (Helmert's)."""
    k = np.arange(1, n)
    basis = np.triu(np.ones((n, n - 1)))
    basis[k, k - 1] = -k
    return basis / np.sqrt(k * (k + 1))
