"""A matrix of fixed trace, updated by one row at a time (Tsuda et al. 2005, Algorithm 2).

For ``X = t W`` with ``tr W = 1``, a row ``<A, X> = b`` is ``tr(W C) = 0`` with ``C = A - (b/t) I``. A step
along it is ``log W - alpha C``, rescaled to the trace; ``alpha A`` in place of ``alpha C`` gives the same
``W``. With eigenvalues of ``C`` from ``least < 0`` to ``largest > 0`` and ``r = tr(W C)``, the trace before
scaling is at most

    exp(-alpha largest) (r - least) / range + exp(-alpha least) (largest - r) / range,

by Golden and Thompson and the convexity of the exponential. Its minimizer is the approximate step

    alpha = log((1 - r/least) / (1 - r/largest)) / range,

which is eq. 4.6 with corrected signs. This step increases the dual by at least ``2 (r / range)^2``
(Hoeffding). Steps on rows go on until the certificate meets the tolerance.

One row of the program fixes the trace, and no other row may be feasible only on the boundary of the cone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.divergences import VonNeumann
from bregopt.divergences.rows import increasing_root
from bregopt.divergences.spectrum import exp_divided_differences
from bregopt.errors import UnsupportedProblemError
from bregopt.program import Answer, LinearMap, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.records import dataclass
from bregopt.routes.base import Tuning
from bregopt.routes.progress import Progress, reason

_NO_VARIABLES = np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class DefiniteBoostTuning(Tuning):
    """Constants of DefiniteBoost, besides those of every method.

    Parameters
    ----------
    default_max_iter : int
        Limit on the number of iterations where the option `max_iter` gives none.
    certified_steps : int
        Number of iterations up to which each is certified. Later ones are certified at intervals of their
        number divided by this, so that certificates remain a small part of the time.
    least_margin_tol : float
        Least tolerance of a search over the margin. Each further digit takes 100 times as many steps.
    step_round_off : float
        Distance of a row's value from its bound, relative to the row's range and the trace, at which an exact
        step ends: round-off.
    row_round_off : float
        Round-off of the norm and of the eigenvalues of a row, relative to these. It decides whether a
        row fixes the trace, and whether it holds only on the boundary of the cone.
    tied_rows : float
        Difference of the errors of two rows, relative to the larger one, below which they count as equal. A
        step takes the first of equal rows. Round-off, which depends on the processor, would take another one.
    """

    # boost.py and route.py
    default_max_iter: int = 20_000
    certified_steps: int = 20
    least_margin_tol: float = 1e-2
    # boost.py
    step_round_off: float = 1e-15
    row_round_off: float = 1e-12
    tied_rows: float = 1e-9


class Boost:
    """``X = t W`` with ``log X = exponent + A*(y)``, up to a multiple of the identity.

    Parameters
    ----------
    A : LinearMap
        The rows, on one matrix.
    exponent : array of shape (n, n)
        The logarithm of the first matrix.
    trace : float
        ``t``.
    exact : bool
        Whether a step goes exactly onto its row (eq. 4.3), or by the formula above.
    corrections : bool
        Whether steps also decrease nonzero multipliers of satisfied rows.
    tuning : DefiniteBoostTuning

    Attributes
    ----------
    y : array of shape (m,)
        Multipliers, positive at lower bounds.
    X : array of shape (n, n)
    level : float
        ``log X = exponent + A*(y) + level I``.
    least, largest : array of shape (m,)
        The smallest and the largest eigenvalue of each row's matrix.
    largest_divergence : float
        The largest divergence from the first matrix, in units of the trace.
    """

    def __init__(
        self,
        A: LinearMap,
        exponent: Array,
        trace: float,
        exact: bool,
        corrections: bool,
        tuning: DefiniteBoostTuning,
    ) -> None:
        self._A, self._exponent, self.trace, self._tuning = A, exponent, trace, tuning
        self._exact, self._corrections = exact, corrections
        self._factors = A.factors()
        (n,) = A.orders
        self.least, self.largest = _spectrum_ends(self._factors, n, tuning.row_round_off)
        self.range = self.largest - self.least
        self.reset(np.zeros(A.m))
        self.largest_divergence = math.log(trace) - self.level - float(self.theta[0])

    def reset(self, y: Array) -> None:
        """Set the multipliers, and remove the round-off of earlier steps."""
        self.y = y.copy()
        self._L = self._exponent + self._A.adjoint(y)
        self._decompose()

    def violations(self, lo: Array, hi: Array) -> Array:
        """Return the violation of each row, in units of the trace times its range."""
        activity = self._A.apply((self.X,))
        outside = np.maximum(np.maximum(lo - activity, activity - hi), 0.0)
        return self._relative(outside)

    def step(self, lo: Array, hi: Array) -> int:
        """Step on the row with the largest increase of the dual; return the number of steps."""
        errors = self._errors(self._A.apply((self.X,)), self.y, lo, hi)
        size = self._relative(np.abs(errors))
        k = int(np.argmax(size >= (1 - self._tuning.tied_rows) * size.max()))
        if errors[k] == 0 or self.range[k] == 0:
            return 0
        self._move(k, float(errors[k]), lo[k] == hi[k])
        return 1

    def sweep(self, lo: Array, hi: Array) -> int:
        """Step on every row with an error, in order; return the number of steps."""
        moves = 0
        for k in np.flatnonzero(self.range > 0).tolist():
            error = float(self._errors(self.trace * self._mean(k), self.y[k], lo[k], hi[k]))
            if error:
                self._move(k, error, lo[k] == hi[k])
                moves += 1
        return moves

    def _errors(self, activity: Any, y: Any, lo: Any, hi: Any) -> Any:
        """Return the signed distances of activities from the targets of their rows.

        The target is the active bound, by the sign of the multiplier, or else the nearest feasible value;
        without corrections always the latter.
        """
        target = np.clip(activity, lo, hi)
        if self._corrections:
            target = np.where(y > 0, lo, np.where(y < 0, hi, target))
        return activity - target

    def _relative(self, size: Array) -> Array:
        range_ = np.where(self.range > 0, self.range, np.inf)
        return size / (self.trace * range_)

    def _move(self, k: int, error: float, equality: bool) -> None:
        """Step along a row; the multiplier of an inequality stops at zero instead of changing its sign."""
        checkpoint(len(self.X))
        r = error / self.trace
        alpha = self._exact_step(k, r) if self._exact else self._approximate_step(k, r)
        new, old = self.y[k] - alpha, self.y[k]
        if not equality and new * old < 0:
            new = 0.0
        U, d = self._factors[k]
        self._L += (U * ((new - old) * d)) @ U.T
        self.y[k] = new
        self._decompose()

    def _approximate_step(self, k: int, r: float) -> float:
        a = self._mean(k)  # tr(W A); the ends below are those of C
        least, largest = self.least[k] - a + r, self.largest[k] - a + r
        return (math.log1p(-r / least) - math.log1p(-r / largest)) / float(self.range[k])

    def _exact_step(self, k: int, r: float) -> float:
        """Return the ``alpha`` at which ``tr(W C)`` vanishes (eq. 4.4), in the eigenvectors of ``log W``."""
        U, d = self._factors[k]
        w = self.V.T @ U
        C = (w * d) @ w.T - (self._mean(k) - r) * np.eye(len(self.theta))
        round_off = self._tuning.step_round_off * self.range[k]

        def negative_mean(alpha: float) -> tuple[float, float]:
            theta, Q = np.linalg.eigh(np.diag(self.theta) - alpha * C)
            shifted = theta - theta[-1]
            weight, inside = np.exp(shifted), Q.T @ C @ Q
            mean = float(weight @ np.diagonal(inside)) / weight.sum()
            variance = float(np.vdot(exp_divided_differences(shifted), inside**2)) / weight.sum() - mean**2
            return 0.0 if abs(mean) <= round_off else -mean, variance

        return increasing_root(negative_mean, -math.inf, math.inf)

    def _mean(self, k: int) -> float:
        U, d = self._factors[k]
        return float(d @ np.einsum("ir,ir->r", U, self.X @ U)) / self.trace

    def _decompose(self) -> None:
        self.theta, self.V = np.linalg.eigh(self._L)
        weight = np.exp(self.theta - self.theta[-1])
        total = float(weight.sum())
        self.level = math.log(self.trace / total) - float(self.theta[-1])
        half = self.V * np.sqrt(self.trace / total * weight)
        self.X: Array = half @ half.T


def _spectrum_ends(factors: list[tuple[Array, Array]], n: int, round_off: float) -> tuple[Array, Array]:
    """Return the smallest and the largest eigenvalue of each ``U diag(d) U'`` of order `n`."""
    least, largest = np.zeros(len(factors)), np.zeros(len(factors))
    for k, (U, d) in enumerate(factors):
        checkpoint()
        R = np.asarray(np.linalg.qr(U, mode="r"))
        eigenvalues = np.linalg.eigvalsh((R * d) @ R.T) if len(d) else np.zeros(1)
        singular = len(d) < n  # then zero is an eigenvalue, too
        least[k] = min(eigenvalues[0], 0.0) if singular else eigenvalues[0]
        largest[k] = max(eigenvalues[-1], 0.0) if singular else eigenvalues[-1]
    # The identity has range zero, up to round-off.
    level = largest - least <= round_off * np.maximum(np.abs(least), np.abs(largest))
    least[level] = largest[level]
    return least, largest


@dataclass(frozen=True)
class Trace:
    """The row ``weight tr X = weight value``."""

    row: int
    weight: float
    value: float

    def with_trace_multiplier(self, program: Program, y: Array) -> Array:
        """Return multipliers whose trace part makes ``A*(y)`` just negative semidefinite."""
        rest = np.where(np.arange(program.m) == self.row, 0.0, y)
        rest[self.row] = -float(np.linalg.eigvalsh(program.A.adjoint(rest))[-1]) / self.weight
        return rest


def trace_row(program: Program, tuning: DefiniteBoostTuning) -> Trace | None:
    """Return the first hard equality on a multiple of the identity with a positive trace."""
    for row, weight in _identities(program, tuning):
        if program.bounds.equal[row] and program.bounds.lo[row] / weight > 0:
            return Trace(row, weight, float(program.bounds.lo[row]) / weight)
    return None


def no_trace(program: Program, tuning: DefiniteBoostTuning) -> str:
    """Return why no row fixes the trace: the row that comes nearest, if there is one."""
    (block,) = program.blocks
    needed = f"it needs one row that fixes the trace of {block.name}, such as bo.trace({block.name}) == 1"
    for row, _ in _identities(program, tuning):
        why = "asks for no positive trace" if program.bounds.equal[row] else "bounds the trace only"
        return f"{needed}; {program.row_name(row)} {why}"
    return needed


def _identities(program: Program, tuning: DefiniteBoostTuning) -> Iterator[tuple[int, float]]:
    """Yield the hard rows on a multiple of the identity, with the multiple."""
    (block,) = program.blocks
    n = block.n
    for term in program.A.terms:
        if term.rows.rank is not None and term.rows.rank < n:
            continue
        hard = np.flatnonzero(program.bounds.hard[term.at])
        t = term.rows.slice(hard).coordinates()
        own = t.i == t.j
        weight = np.bincount(t.row[own], t.value[own], len(hard)) / n
        norm = term.norms[hard]
        # The diagonal mean equals the root mean square over all entries only for multiples of the identity.
        identity = np.abs(weight) * np.sqrt(n) >= norm * (1 - tuning.row_round_off)
        for k in np.flatnonzero(identity & (norm > 0)):
            yield int(term.at[hard[k]]), float(weight[k])


def impossible(
    program: Program, boost: Boost, lo: Array, hi: Array, tuning: DefiniteBoostTuning
) -> Array | None:
    """Return a Farkas vector of a row that no matrix of the trace satisfies, None if there is none.

    Raises
    ------
    UnsupportedProblemError
        If a row holds only on the boundary of the cone, which steps cannot reach.
    """
    size = tuning.row_round_off * boost.trace * np.maximum(np.abs(boost.least), np.abs(boost.largest))
    distance = np.maximum(boost.trace * boost.least - hi, lo - boost.trace * boost.largest)
    beyond = np.flatnonzero(distance > size)
    if len(beyond):
        farkas = np.zeros(program.m)
        farkas[beyond[0]] = 1.0 if lo[beyond[0]] > boost.trace * boost.largest[beyond[0]] else -1.0
        return farkas
    edge = np.flatnonzero((distance >= -size) & (boost.range > 0))
    if len(edge):
        raise UnsupportedProblemError(
            f"{program.row_name(int(edge[0]))} holds only on the boundary of the psd cone at this trace, "
            "which DefiniteBoost does not reach"
        )
    return None


def iteration_bound(largest_divergence: float, violation: float) -> float:
    """Return a bound on the steps on rows violated by more than `violation`, for a feasible problem.

    Corollary 4.2. Each such step increases the dual by at least ``2 violation**2`` (unless it stops at a zero
    multiplier), and the dual is at most `largest_divergence`. Violations are relative to the range of the
    eigenvalues of the row, which is ``2 lambda`` in the paper.
    """
    return math.inf if violation == 0 else largest_divergence / (2 * violation**2)


def certifies_after(step: int, tuning: DefiniteBoostTuning) -> bool:
    """Whether to certify after this step: always at first, later at intervals that grow with the step."""
    return step % max(1, step // tuning.certified_steps) == 0


def project(program: Program, trace: Trace, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a problem with a von Neumann term, hard rows and a fixed trace (Tsuda et al. 2005, eq. 4.1)."""
    run = _Projection(program, trace, settings, progress)
    farkas = impossible(program, run.boost, program.bounds.lo, program.bounds.hi, settings.tuning)
    if farkas is not None:
        return run.answer(StopReason.INFEASIBLE, 0, farkas)
    if start is not None:
        y = program.bounds.clip(start.y) / run.mu
        y[trace.row] = 0.0
        run.boost.reset(y)
    limit, iteration = settings.max_iter or settings.tuning.default_max_iter, 0
    stop = run.look(0)
    try:
        while stop is None:
            iteration += 1
            run.advance()
            if certifies_after(iteration, settings.tuning) or iteration >= limit or progress.stop():
                stop = run.look(iteration)
                stop = stop or (StopReason.MAX_ITER if iteration >= limit else None)
    except CutShort as cut:
        stop = reason(cut)
    return run.answer(stop, iteration, run.boost.y)


class _Projection:
    """The current matrix, and the records of the run."""

    def __init__(self, program: Program, trace: Trace, settings: Any, progress: Progress) -> None:
        (block,) = program.blocks
        assert block.nearness is not None
        divergence = divergence_of(block.nearness)
        assert isinstance(divergence, VonNeumann)
        self.program, self.trace, self.settings, self.progress = program, trace, settings, progress
        self.block, self.mu, self.trace_X0 = block, block.nearness.mu, divergence.trace
        exponent = divergence.log_X0 - block.C / self.mu
        self.boost = Boost(
            program.A, exponent, trace.value, settings.exact, settings.corrections, settings.tuning
        )
        self.first_dual = self.certificate().dual
        self.steps, self.least_violation = 0, math.inf

    def advance(self) -> None:
        """Do one iteration: a step on the most promising row, or one on each row."""
        lo, hi = self.program.bounds.lo, self.program.bounds.hi
        self.steps += self.boost.sweep(lo, hi) if self.settings.cyclic else self.boost.step(lo, hi)

    def look(self, iteration: int) -> StopReason | None:
        """Record the current state; return the reason to stop, None if there is none."""
        boost, bounds = self.boost, self.program.bounds
        boost.reset(boost.y)  # removes the round-off of the steps
        certificate = self.certificate()
        violation = float(boost.violations(bounds.lo, bounds.hi).max(initial=0.0))
        self.least_violation = min(self.least_violation, violation)
        self.progress.record(
            iteration,
            certificate,
            steps=self.steps,
            violation=violation,
            iteration_bound=iteration_bound(boost.largest_divergence, self.least_violation),
        )
        tol = self.settings.tol
        if certificate.meets(tol):
            return StopReason.CONVERGED
        # A dual above every divergence proves the rows infeasible. The step bound guarantees this increase.
        increase = (certificate.dual - self.first_dual) / (self.mu * boost.trace)
        if violation > tol and increase > boost.largest_divergence:
            return StopReason.INFEASIBLE
        if not self.settings.corrections and violation <= tol:
            return StopReason.CONVERGED  # no row is left to step on
        return self.progress.stop()

    def certificate(self) -> Certificate:
        """Return the certificate of the matrix and its multipliers, from known values."""
        boost, program = self.boost, self.program
        y, activity = self.multipliers(), program.A.apply((boost.X,))
        constant = self.trace_X0 - boost.trace
        # log X - log X0 = (A*(y) - C) / mu
        divergence = (float(y @ activity) - self.block.cost_value(boost.X)) / self.mu + constant
        known = Known(activity=activity, divergences=(divergence,), cone_residual=0.0)
        known["matrix_terms"] = (self.mu * constant,)
        return certify(PrimalDualPoint(program, (boost.X,), np.zeros(0), y, **known))

    def multipliers(self) -> Array:
        """Return the multipliers of all rows; that of the trace follows from the level of ``log X``."""
        y = self.mu * self.boost.y
        y[self.trace.row] = self.mu * self.boost.level / self.trace.weight
        return y

    def answer(self, stop: StopReason, iteration: int, y: Array) -> Answer:
        """Return the matrix with its multipliers, or with the proof `y` of infeasibility."""
        infeasible = stop is StopReason.INFEASIBLE
        return Answer(
            (self.boost.X,),
            _NO_VARIABLES,
            self.trace.with_trace_multiplier(self.program, y) if infeasible else self.multipliers(),
            stop,
            iteration,
            iteration_bound=iteration_bound(self.boost.largest_divergence, self.settings.tol),
        )
