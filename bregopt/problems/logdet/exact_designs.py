"""Exact designs: whole numbers of runs, by rounding and by exchanges of single runs.

The best shares of runs bound the criterion of all numbers of runs, and so prove the efficiency of each design
that exchanges find (Pukelsheim 1993, Optimal Design of Experiments, chapter 12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bregopt.arrays import EPS, Array, ArrayOrFrame, IntArray
from bregopt.certify import bracket
from bregopt.linalg import inverse_of, root_of
from bregopt.problems.logdet.answer import ProvenAnswer
from bregopt.problems.logdet.candidates import (
    Candidates,
    WeightBounds,
    congruent,
    criterion_value,
    efficiency,
)
from bregopt.program import StopReason
from bregopt.records import dataclass, replace

if TYPE_CHECKING:
    import pandas as pd

_TOL = 1e-8  # of the efficiency, from which a design is the best of all
_BETTER = 1e-10  # relative gain of an exchange that is no round-off
_RIDGE = 1e-4  # part of the information of the shares that is added while that of the runs is singular
_BATCH = 2**21  # entries of matrices that are formed at once
_MOST = 10_000  # exchanges
_SINGULAR = 1e-6  # ratio of the diagonal of a triangular root below which formulas with inverses lose digits


@dataclass(frozen=True, eq=False, repr=False)
class ExactDesign(ProvenAnswer):
    """Numbers of runs, and a proof of their efficiency.

    Its status is "optimal" if the efficiency is one: then no design of any number of runs is better.
    Otherwise it is "locally_optimal": no exchange of one run for another improves it, within bounds and
    budgets.

    Attributes
    ----------
    criterion : str
        "D", "A" or "E".
    counts : int array or Series of shape (m,)
        The number of runs of each candidate.
    information : array or DataFrame of shape (n, n)
        ``M0 + sum_i (c_i / runs) M_i``.
    value, bound : float
        ``log det M``, ``tr(K inv(M))`` or the smallest eigenvalue, and the proven bound on that of every
        allowed design of shares, so of all numbers of runs.
    efficiency : float
        Proven: the design needs no more than ``1 / efficiency`` times the runs of the best one.
    gap : float
        ``1 - efficiency``.
    iterations : int
        Exchanges of all beginnings.
    """

    title: ClassVar[str] = "exact design"

    criterion: str
    counts: IntArray | pd.Series[int]
    information: ArrayOrFrame
    value: float
    bound: float
    efficiency: float

    @property
    def runs(self) -> int:
        """The number of all runs."""
        return int(np.asarray(self.counts).sum())

    def _facts(self) -> dict[str, str]:
        counts = np.asarray(self.counts)
        return {
            "runs": f"{self.runs}, on {np.count_nonzero(counts)} candidates",
            "value": f"{self.value:.8g}   bound {self.bound:.8g}",
            "efficiency": f"at least {self.efficiency:.6f}, proven",
            "effort": f"{self.iterations} exchanges",
        }


def apportioned(weights: Array, runs: int) -> IntArray:
    """Return counts with sum `runs` near ``runs * weights``: efficient apportionment.

    Parameters
    ----------
    weights : array of shape (m,)
        With sum one.
    runs : int

    Raises
    ------
    ValueError
        If there are fewer runs than positive weights.
    """
    support = np.flatnonzero(weights)
    if runs < len(support):
        raise ValueError(f"runs is {runs}; expected at least {len(support)}, the candidates with weight")
    w = weights[support]
    counts = np.ceil((runs - len(w) / 2) * w).astype(np.intp)
    while counts.sum() < runs:
        counts[np.argmin(counts / w)] += 1
    while counts.sum() > runs:
        counts[np.argmax((counts - 1) / w)] -= 1
    full = np.zeros(len(weights), dtype=np.intp)
    full[support] = counts
    return full


def exact_design(
    criterion: str,
    candidates: Candidates,
    bounds: WeightBounds,
    weights: Array,
    runs: int,
    prior: Array | None,
    K: Array | None,
    bound: float,
    starts: int,
    rng: np.random.Generator,
) -> ExactDesign:
    """Return the best design that exchanges find, with its efficiency; see :meth:`Design.exact`."""
    n = candidates.n
    if candidates.are_rows and prior is None and runs < n:
        raise ValueError(f"runs is {runs}; expected at least {n}, the number of parameters")
    given = _Exchanges(criterion, candidates, bounds, runs, prior, K)
    task = given if criterion == "E" else given.whitened(weights)
    least, most = task.least, task.most
    if least.sum() > runs or most.sum() < runs or (least > most).any():
        raise ValueError(
            f"runs is {runs}; the bounds on the shares allow {least.sum()} to {most.sum()} whole runs: take "
            "more runs, or wider bounds"
        )
    best, exchanges = None, 0
    for k in range(starts):
        counts: Any = rng.multinomial(runs, weights / weights.sum()) if k else None
        if k == 0 and runs >= np.count_nonzero(weights):
            counts = apportioned(weights, runs)
        elif k == 0:  # one for each of the largest weights
            counts = np.zeros(len(weights), dtype=np.intp)
            counts[np.argsort(-weights, kind="stable")[:runs]] = 1
        counts, steps = task.improved(_within(counts, weights * runs, least, most), weights)
        exchanges += steps
        if task.excess(counts) > 0 or not task.determines(counts):
            continue
        value = given.value(counts)
        sign = -1.0 if criterion == "A" else 1.0
        if np.isfinite(value) and (best is None or sign * value > sign * best[0]):
            best = value, counts
    if best is None:
        raise ValueError(
            f"no design of {runs} runs was found that meets the budgets and determines all {n} parameters; "
            "take more runs or starts, or a larger budget"
        )
    value, counts = best
    share = min(efficiency(criterion, value, bound, n), 1.0)
    proven = 1 - share <= _TOL
    return ExactDesign(
        status=bracket(1.0, share).status(_TOL, StopReason.LOCAL_OPTIMUM).value,
        stop_reason="The efficiency is one." if proven else "No exchange of one run is better.",
        gap=1 - share,
        iterations=exchanges,
        criterion=criterion,
        counts=counts,
        information=given.information(counts) / runs,
        value=value,
        bound=bound,
        efficiency=share,
    )


def _within(counts: Any, wanted: Array, least: IntArray, most: IntArray) -> IntArray:
    """Return counts of the same sum inside bounds, changed where they are nearest to the wanted numbers."""
    runs = int(np.sum(counts))
    inside: IntArray = np.clip(counts, least, most)
    while (more := runs - int(inside.sum())) != 0:
        room = inside < most if more > 0 else inside > least
        lack = np.where(room, (wanted - inside) * np.sign(more), -np.inf)
        inside[int(lack.argmax())] += int(np.sign(more))
    return inside


@dataclass(frozen=True, eq=False)
class _Exchanges:
    """The criterion of numbers of runs, and exchanges of one run for another that improve it."""

    criterion: str
    candidates: Candidates
    bounds: WeightBounds
    runs: int
    prior: Array | None
    K: Array | None

    def whitened(self, weights: Array) -> _Exchanges:
        """Return the same in coordinates in which the information of the shares is the identity."""
        M = self.information(weights * self.runs) / self.runs
        unit = np.sqrt(M.diagonal())
        root = root_of(M / unit / unit[:, None])
        if root is None:
            return self
        L, n = root * unit[:, None], len(M)
        K = None if self.criterion == "D" else congruent(L, np.eye(n) if self.K is None else self.K)
        prior = None if self.prior is None else congruent(L, self.prior)
        return replace(self, candidates=self.candidates.whitened(L), prior=prior, K=K)

    @property
    def least(self) -> IntArray:
        """The least numbers of runs, by the bounds on the shares."""
        lower = np.broadcast_to(self.bounds.lower, len(self.candidates))
        return np.ceil(lower * self.runs - 1e-9).astype(np.intp)

    @property
    def most(self) -> IntArray:
        """The largest numbers of runs."""
        upper = np.broadcast_to(np.minimum(self.bounds.upper, 1.0), len(self.candidates))
        return np.floor(upper * self.runs + 1e-9).astype(np.intp)

    def information(self, counts: Array | IntArray) -> Array:
        """Return the information of all runs, with the prior."""
        M = self.candidates.information(np.asarray(counts, dtype=float))
        return M if self.prior is None else M + self.runs * self.prior

    def value(self, counts: IntArray) -> float:
        """Return the criterion of the shares."""
        return criterion_value(self.criterion, self.information(counts) / self.runs, self.K)

    def determines(self, counts: IntArray) -> bool:
        """Whether the runs determine all parameters, beyond round-off."""
        eigenvalues = np.linalg.eigvalsh(self.information(counts))
        return bool(eigenvalues[0] > 8 * EPS * len(eigenvalues) * eigenvalues[-1])

    def excess(self, counts: Array | IntArray) -> float:
        """Return the cost above the budgets, relative to these."""
        if len(self.bounds.budget) == 0:
            return 0.0
        limit = self.bounds.budget * self.runs
        over = self.bounds.costs @ counts - limit
        return float(np.maximum(over / np.maximum(np.abs(limit), 1e-300) - 1e-12, 0.0).sum())

    def improved(self, counts: IntArray, weights: Array) -> tuple[IntArray, int]:
        """Return counts that no exchange improves, and the number of exchanges."""
        ridge = _RIDGE * self.candidates.information(weights * self.runs)
        steps = 0
        for base in (ridge, np.zeros_like(ridge)):
            if base.any() and root_of(self.information(counts)) is not None and self.excess(counts) == 0:
                continue
            while steps < _MOST:
                M = self.information(counts) + base
                pair = self._best(M, counts)
                if pair is None:
                    break
                counts = counts.copy()
                counts[pair[0]] -= 1
                counts[pair[1]] += 1
                steps += 1
        return counts, steps

    def _best(self, M: Array, counts: IntArray) -> tuple[int, int] | None:
        """Return the exchange of a run of the first candidate for one of the second that improves most."""
        given = np.flatnonzero(counts > self.least)
        taken = np.flatnonzero(counts < self.most)
        if len(given) == 0 or len(taken) == 0:
            return None
        excess = self.excess(counts)
        allowed = given[:, None] != taken
        if len(self.bounds.budget):
            # Exchanges meet the budgets; where these are not met, they come nearer to them.
            cost = self.bounds.costs @ counts
            limit = self.bounds.budget * self.runs
            change = self.bounds.costs[:, None, taken] - self.bounds.costs[:, given, None]
            size = np.maximum(np.abs(limit), 1e-300)
            over = (cost[:, None, None] + change - limit[:, None, None]) / size[:, None, None]
            after = np.maximum(over - 1e-12, 0.0).sum(axis=0)
            allowed &= after < excess if excess > 0 else after == 0
        if not allowed.any():
            return None
        gain = np.where(allowed, self._gains(M, given, taken), -np.inf)
        i, j = np.unravel_index(int(gain.argmax()), gain.shape)
        if excess == 0 and gain[i, j] <= _BETTER:
            return None
        return int(given[i]), int(taken[j])

    def _gains(self, M: Array, given: IntArray, taken: IntArray) -> Array:
        """Return the relative gain of each exchange, shape (k, l)."""
        root = None if self.criterion == "E" or not self.candidates.are_rows else root_of(M)
        if root is None or root.diagonal().min() <= _SINGULAR * root.diagonal().max():
            # The gains are those of the matrices after each exchange.
            n, unit = len(M), float(M.trace())
            own = max(float(self._score(M[None], unit)[0]), -1e300)  # minus infinity where M is singular
            matrices = self.candidates.X
            if self.candidates.are_rows:
                matrices = np.einsum("mi,mj->mij", matrices, matrices)
            gains = np.empty((len(given), len(taken)))
            batch = max(_BATCH // n**2, 1)
            for row, i in enumerate(given):
                for a in range(0, len(taken), batch):
                    part = taken[a : a + batch]
                    gains[row, a : a + batch] = self._score(M - matrices[i] + matrices[part], unit) - own
            return gains
        X, B = self.candidates.X, inverse_of(root)
        left, right = X[given] @ B, X[taken]
        g = left @ right.T
        di = np.einsum("ij,ij->i", left, X[given])[:, None]
        dj = np.einsum("ij,jk,ik->i", right, B, right)[None]
        ratio = (1 + dj) * (1 - di) + g**2  # of determinants
        if self.criterion == "D":
            return np.log(np.maximum(ratio, 1e-300))
        P = B @ B if self.K is None else B @ self.K @ B
        h = X[given] @ P @ right.T
        hi = np.einsum("ij,jk,ik->i", X[given], P, X[given])[:, None]
        hj = np.einsum("ij,jk,ik->i", right, P, right)[None]
        total = float(B.trace() if self.K is None else np.vdot(B, self.K))
        less = ((1 - di) * hj + 2 * g * h - (1 + dj) * hi) / np.maximum(ratio, 1e-12)
        return np.where(ratio > 1e-12, less / total, -np.inf)

    def _score(self, M: Array, unit: float) -> Array:
        """Return a number that grows as matrices, shape (b, n, n), improve; `unit` is that of eigenvalues."""
        eigenvalues = np.linalg.eigvalsh(M)
        if self.criterion == "E":
            return np.asarray(eigenvalues[:, 0] / unit)
        good = eigenvalues[:, 0] > 1e-13 * eigenvalues[:, -1]
        score = np.full(len(M), -np.inf)
        if self.criterion == "D":
            score[good] = np.log(eigenvalues[good]).sum(axis=1)
        else:
            inverse = np.linalg.inv(M[good])
            K = np.eye(M.shape[1]) if self.K is None else self.K
            score[good] = -np.log(np.einsum("bij,ij->b", inverse, K))
        return score
