"""Bounds on cuts by relaxations, solved as far as they matter, and exact statements on their weights.

If all weights of edges are multiples of a unit, so are those of partitions, and a bound that is below the
next multiple proves a partition. Doubles are multiples of a power of two; multiples of other units, such as
0.1, are rounded, and the distance from them is counted. All partitions of a small graph are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from operator import le
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import Certificate, PrimalDualPoint, trace_bounds
from bregopt.clock import affords, threads_for
from bregopt.io.graphs import Graph
from bregopt.linalg import turned
from bregopt.modeling.problem import Problem
from bregopt.program import LowRank, StopReason
from bregopt.program.rows.base import Matrix
from bregopt.records import replace
from bregopt.rigorous.ball import Ball, gamma, inflated
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.reduction import implied_bounds, reduced
from bregopt.routes.driver import warn_unproven
from bregopt.routes.progress import Step
from bregopt.routes.solution import Solution, Status

_MARGIN = 1e-9  # that a bound which ends a relaxation has for its rounding errors, relative to all weights
_OPERATIONS = 4  # roundings of a coefficient beside the sum of the weights at a vertex
_ALWAYS = 500  # vertices up to which the bound of an answer has all rounding errors: 60 ms at most
_SMALL = 200  # vertices of a small graph
TOL = 1e-3  # of other relaxations
ENUMERATION = "enumeration"  # the solver of an answer that compared all partitions
_SHARE = 0.1  # relative to the distance of bound and cut; a smaller gap does not matter
_ROUNDED = 2.0**-50  # of a weight: what two products and the quotient of two weights may round
_LARGEST_DIVISOR = 2**22  # of the least weight
_MOST_ENTRIES = 2**25  # of all partitions times the pairs of vertices

_PROVEN = "The bound proves that no partition is better."
_COMPARED = "All partitions were compared."
_GAIN = 1e-6  # of the cut: a bound that moved by less has gained nothing
_NOTHING = "time_limit ended the relaxation before it proved a bound: raise it, or pass bound=False."
_SHARP = "A sharper bound of this relaxation would not matter: the cut is farther from it."


class Proof:
    """The best bound on all partitions of a graph so far, and what it proves.

    Certificates are computed in floating point. They end searches and relaxations; only a bound with all
    rounding errors, a partition that nothing can improve, or an enumeration makes a partition optimal. That
    bound is also the answer's, up to 500 vertices. It may take long for larger graphs; of these the answer
    has the certificate's bound, less a billionth of all weights.

    Parameters
    ----------
    graph : Graph
    largest : bool
        Whether large cuts are better.
    """

    def __init__(self, graph: Graph, largest: bool) -> None:
        edges = graph.adjacency.tocoo()
        once = edges.row < edges.col
        self._i, self._j, self._weights = edges.row[once], edges.col[once], edges.data[once]
        self._lattice = Lattice.of(self._weights)
        self._rigorous: Callable[[], float] = lambda: np.inf if largest else -np.inf
        self.n, self.largest = graph.n, largest
        gains = self._weights[self._weights > 0]
        self.bound = self._sure = _beyond(gains, above=True) if largest else 0.0  # without any work

    @property
    def small(self) -> bool:
        """Whether relaxations of the graph take so little time that they never end early."""
        return self.n <= _SMALL

    def add(self, bound: float) -> None:
        """Keep the bound of a certificate if it is the best."""
        if not np.isnan(bound):
            self.bound = min(self.bound, bound) if self.largest else max(self.bound, bound)

    def relaxed_by(self, problem: Problem, answer: Solution) -> None:
        """Add the answer to a relaxation: the bound of its certificate, and its multipliers."""
        self.add(answer.dual_value)
        if answer.X is not None:
            self._rigorous = lambda: _rigorous_bound(problem, answer)

    def proven_by(self, rigorous: Callable[[], float]) -> None:
        """Take a function that returns a bound with all rounding errors."""
        self._rigorous = rigorous

    def weight(self, part: IntArray) -> float:
        """Return the weight of the edges between the parts, which are numbers or signs of the vertices."""
        return math.fsum(self._weights[self._cut(part)].tolist())

    def distance(self, part: IntArray) -> float:
        """Return the distance of a partition's weight from the bound."""
        away = self.bound - self.weight(part)
        return max(away if self.largest else -away, 0.0)

    def suggests(self, part: IntArray) -> bool:
        """Whether no partition is better than this one if the bound of the certificate holds."""
        return self.decides(self.bound, part)

    def decides(self, bound: float, part: IntArray, margin: float = 0.0) -> bool:
        """Whether no partition is better than this one if a bound holds, with a margin for its round-off."""
        bound = self._less(bound, margin)
        return self._unimprovable(part) or self._lattice.proves(bound, self.weight(part), self.largest)

    def settled(self, part: IntArray, every: IntArray | None) -> Settled:
        """Return the best partition that is known, the bound, and whether it is proven that none is better.

        Parameters
        ----------
        part : int array of shape (n,)
            The best partition of the search.
        every : int array of shape (count, n), optional
            All allowed partitions. They are compared where the bound does not decide.
        """
        weight = self.weight(part)
        if self._unimprovable(part):
            return Settled(part, self._beyond_weight(part), True)
        bound, optimal = self._less(self.bound, _MARGIN), False
        if self.n <= _ALWAYS or self.suggests(part):
            rigorous = self._better(self._rigorous())
            optimal = self._lattice.proves(rigorous, weight, self.largest)
            bound = rigorous if optimal or self.n <= _ALWAYS else bound
        bound = self._better(bound)
        if optimal and not self._lattice.distance:
            return Settled(part, bound, True)
        if every is None:
            return Settled(part, bound, optimal)
        found = self.compared(every)
        return found._replace(bound=bound) if optimal else found

    def compared(self, every: IntArray) -> Settled:
        """Return the best of all allowed partitions, shape (count, n)."""
        W = np.zeros((self.n, self.n))
        W[self._i, self._j] = W[self._j, self._i] = self._weights
        best: IntArray = every[strongest(every, W, self.largest)].astype(np.intp)
        return Settled(best, self._beyond_weight(best), True)

    def _better(self, bound: float) -> float:
        """Return a bound, or the one without any work if that is better."""
        return min(bound, self._sure) if self.largest else max(bound, self._sure)

    def _less(self, bound: float, margin: float) -> float:
        """Return a bound that proves less, by a share of all weights."""
        allowance = margin * float(np.abs(self._weights).sum())
        return bound + (allowance if self.largest else -allowance)

    def _beyond_weight(self, part: IntArray) -> float:
        """Return the weight of a partition, rounded such that it is a bound if no partition is better."""
        return _beyond(self._weights[self._cut(part)], self.largest)

    def _cut(self, part: IntArray) -> Mask:
        cut: Mask = part[self._i] != part[self._j]
        return cut

    def _unimprovable(self, part: IntArray) -> bool:
        """Whether the partition cuts no edge, or for large cuts those with weights above zero."""
        cut = self._cut(part)
        return not (cut != (self._weights > 0)).any() if self.largest else not cut.any()


class Settled(NamedTuple):
    """A partition, a bound on the weights of all, and whether it is proven that none is better."""

    part: IntArray
    bound: float
    optimal: bool


def _beyond(terms: Array, above: bool) -> float:
    """Return the sum of numbers, rounded upward or downward; exact where it is a double."""
    total = math.fsum(terms.tolist())
    missing = math.fsum([*terms.tolist(), -total])
    if missing == 0 or (missing < 0) == above:
        return total
    return math.nextafter(total, math.inf if above else -math.inf)


def _rigorous_bound(problem: Problem, answer: Solution) -> float:
    """Return the bound of an answer's multipliers with all rounding errors.

    Those of the coefficients count too: sums of weights, and fractions such as ``(k-1) / (2k)``.
    """
    compiled, raw = problem._compiled, answer._in_program or answer
    assert raw._program is not None
    program, whole, _ = compiled.proof_data(raw._program)
    data, _ = reduced(whole)
    rounded = gamma(program.blocks[0].n + _OPERATIONS)
    data = replace(
        data,
        matrices=tuple(
            replace(block, C=Ball(block.C.mid, inflated(block.C.rad + rounded * np.abs(block.C.mid))))
            for block in data.matrices
        ),
        lo_rad=inflated(data.lo_rad + rounded * np.where(np.isfinite(data.lo), np.abs(data.lo), 0.0)),
        hi_rad=inflated(data.hi_rad + rounded * np.where(np.isfinite(data.hi), np.abs(data.hi), 0.0)),
    )
    with threads_for(program.blocks[0].n):
        bound = lower_bound(data, _lifted(raw), implied_bounds(data)).value
    return -bound if program.maximize else bound


def _lifted(raw: Solution) -> Array:
    """Return the multipliers, those of the diagonal raised by the least eigenvalue of ``C - A*(y)``.

    As the trace is fixed, a certificate counts that eigenvalue; a rigorous bound counts none above zero.
    """
    X, u, y = raw._point
    assert raw._program is not None
    (trace,) = trace_bounds(raw._program)
    if trace is None or not trace.exact or isinstance(X[0], LowRank):
        return np.asarray(y)
    (least,) = PrimalDualPoint(raw._program, X, u, y).smallest_eigenvalues
    lifted: Array = y + least * trace.multipliers
    return lifted


def relaxed(
    problem: Problem,
    proof: Proof,
    best: Callable[[], IntArray],
    options: Mapping[str, Any],
) -> Solution:
    """Return the answer to a relaxation and add its bound to the proof.

    Beyond 200 vertices it ends when the bound proves the best cut. Without the option ``tol`` it also ends at
    a gap that is small against the distance of bound and cut, at most 1e-3, which is then the tolerance; not
    if the value would prove the cut as a bound, as a sharper bound may come as near. The status is that of
    the relaxation, also where the bound proves the cut.

    Parameters
    ----------
    problem : Problem
    proof : Proof
    best : function
        Returns the best partition so far.
    options : dict
    """
    asked = options.get("callback")
    why, before = "", proof.bound

    def callback(step: Step) -> bool:
        nonlocal why
        if asked is not None and asked(step):
            return True
        proof.add(step.bound)
        if proof.small:
            return False
        if proof.decides(step.bound, best(), _MARGIN):  # its multipliers will prove it, no earlier ones
            why = _PROVEN
        elif "tol" not in options and max(step.gap, step.primal_residual, step.dual_residual) <= _tol(
            proof, best()
        ):
            why = "" if proof.decides(step.value, best()) else _SHARP
        return bool(why)

    answer = problem._solve(
        options.get("solver", "auto"),
        None,
        False,
        {name: value for name, value in options.items() if name not in ("solver", "rounds")}
        | {"callback": callback},
    )
    proof.relaxed_by(problem, answer)
    tol = options.get("tol", TOL if why else 1e-6)
    if why and answer.status == Status.USER_LIMIT:  # the limit was ours
        certificate = Certificate(
            *(answer.value, answer.dual_value, answer.gap),
            *(answer.primal_residual, answer.dual_residual, answer.error),
        )
        return replace(answer, status=certificate.status(tol, StopReason.INACCURATE).value, stop_reason=why)
    useless = abs(proof.bound - before) <= _GAIN * abs(proof.weight(best()))
    if answer._stop is StopReason.TIME_LIMIT and useless and not proof.suggests(best()):
        answer = replace(answer, stop_reason=_NOTHING)
    warn_unproven(answer, tol)
    return answer


def _tol(proof: Proof, part: IntArray) -> float:
    """Return the relative gap beyond which a sharper bound does not matter."""
    largest = max(abs(proof.bound), abs(proof.weight(part)))
    return min(TOL, _SHARE * proof.distance(part) / largest) if largest else 0.0


def status_of(closed: bool) -> Status:
    """Return the status of a search: that of a gap of zero once it is closed, otherwise of a limit."""
    gap = 0.0 if closed else np.inf
    return Certificate(0.0, -gap, gap, 0.0, 0.0, gap).status(TOL, StopReason.TIME_LIMIT)


def unrelaxed(bound: float, compared: int = 0) -> Solution:
    """Return the answer without a relaxation: none was asked for, or so many partitions were compared."""
    error = 0.0 if compared else np.nan
    return Solution(
        status=status_of(bool(compared)).value,
        stop_reason=_COMPARED if compared else "No relaxation was asked for: bound=False.",
        value=bound if compared else np.nan,
        X=None,
        u={},
        duals=None,
        dual_value=bound,
        gap=error,
        primal_residual=error,
        dual_residual=error,
        error=error,
        iterations=compared,
        timings={},
        solver=ENUMERATION if compared else "search",
        history={},
        citation="",
    )


def principal(X: Matrix) -> Array:
    """Return ``F`` with ``X = F F'`` and orthogonal columns, the longest first.

    If there is no time for the eigendecomposition, ``F`` is ``X`` itself: roundings then have another
    distribution.
    """
    with threads_for(X.shape[0]):
        if isinstance(X, LowRank):
            return turned(X.factor)
        if not affords(len(X)):
            return X
        eigenvalues, U = np.linalg.eigh(X)
        return np.asarray((U * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1])


# --- The lattice of weights --------------------------------------------------------------------------


class Lattice(NamedTuple):
    """The multiples of a unit, near which all sums of weights lie.

    Parameters
    ----------
    unit : Fraction
        Zero where no unit is large enough to separate sums.
    distance : Fraction
        The largest distance of a sum of weights from a multiple of the unit, round-off of the sum included.
        It is at most a quarter of the unit.
    """

    unit: Fraction
    distance: Fraction

    @staticmethod
    def of(weights: Array) -> Lattice:
        """Return the coarsest lattice of some weights.

        Weights count as multiples of a unit if they are to within the rounding of two products.
        """
        sizes = np.unique(np.abs(weights[weights != 0]))
        if not len(sizes):
            return Lattice(Fraction(1), Fraction(0))
        total = Fraction(math.fsum(np.abs(weights)))
        exact, near = _exact_unit(sizes), _near_unit(sizes)
        rounded = total * Fraction(8 * _ROUNDED)
        if near > exact and 4 * rounded <= near:
            return Lattice(near, rounded)
        # Sums of multiples of the unit are exact in doubles up to 2^53 units.
        return Lattice(exact if total <= 2**53 * exact else Fraction(0), Fraction(0))

    def proves(self, bound: float, weight: float, largest: bool) -> bool:
        """Whether a bound on all partitions is below the next multiple beyond the weight of one of them."""
        if not self.unit or not math.isfinite(bound):
            return False
        own = Fraction(weight)
        room = Fraction(bound) - own if largest else own - Fraction(bound)
        away = abs(own - round(own / self.unit) * self.unit)
        return room < self.unit - self.distance - away


def _exact_unit(sizes: Array) -> Fraction:
    """Return the greatest common divisor of doubles."""
    mantissa, exponent = np.frexp(sizes)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    twos = np.bitwise_and(whole, -whole)  # the largest power of two that divides each
    odd = whole // twos
    least = int((np.frexp(twos.astype(float))[1] - 1 + exponent - 53).min())
    return int(np.gcd.reduce(odd)) * Fraction(2) ** least


def _near_unit(sizes: Array) -> Fraction:
    """Return the largest unit of which sorted doubles are multiples up to round-off, zero for none.

    It divides the least one. Each that is no multiple yet gives a factor of the divisor: the denominator of
    the simplest fraction near their quotient.
    """
    quotient, divisor = sizes / sizes[0], 1
    while True:
        multiple = divisor * quotient
        off = np.abs(multiple - np.rint(multiple)) > _ROUNDED * multiple
        if not off.any():
            whole = np.rint(multiple)
            if whole[-1] >= 2.0**53:
                return Fraction(0)
            common = int(np.gcd.reduce(whole.astype(np.int64)))
            return Fraction(float(sizes[0])) * common / divisor
        part = Fraction(float(multiple[off][0])).limit_denominator(_LARGEST_DIVISOR // divisor)
        divisor *= part.denominator
        if part.denominator == 1 or 2 * divisor > _LARGEST_DIVISOR:
            return Fraction(0)


# Pays on: 9 vertices in 3 parts.
def partitions(sizes: Iterable[Sequence[int]]) -> IntArray | None:
    """Return all partitions of ``n`` vertices whose parts have allowed sizes, shape (count, n).

    Parts are numbered in the order of their first vertices. The answer is None if comparing all partitions
    would take long.

    Parameters
    ----------
    sizes : iterable of sequences of k ints
        The allowed sizes of all parts, in any order, with sum ``n``; a part may be empty.
    """
    wanted = {tuple(sorted(each, reverse=True)) for each in sizes}
    n, count = sum(next(iter(wanted))), 0
    for each in wanted:
        if n**2 * (count := count + _count(each) if n**2 <= _MOST_ENTRIES else 1) > _MOST_ENTRIES:
            return None

    @cache
    def completable(used: tuple[int, ...]) -> bool:
        return any(all(map(le, used, each)) for each in wanted)

    k = len(next(iter(wanted)))
    kind = np.min_scalar_type(-k)
    found = {(0,) * k: np.zeros((1, 0), dtype=kind)}  # the partitions of the first vertices by sizes
    for vertex in range(n):
        longer: dict[tuple[int, ...], list[tuple[IntArray, int]]] = {}
        for used, parts in found.items():
            for part in range(min(k - used.count(0) + 1, k)):
                more = (*used[:part], used[part] + 1, *used[part + 1 :])
                if completable(tuple(sorted(more, reverse=True))):
                    longer.setdefault(more, []).append((parts, part))
        found = {}
        for used, pieces in longer.items():
            found[used] = np.empty((sum(len(parts) for parts, _ in pieces), vertex + 1), dtype=kind)
            np.concatenate([parts for parts, _ in pieces], out=found[used][:, :vertex])
            found[used][:, vertex] = np.repeat([part for _, part in pieces], [len(p) for p, _ in pieces])
    return np.concatenate(list(found.values()))


def _count(sizes: Sequence[int]) -> int:
    """Return the number of partitions with parts of these sizes."""
    orders = math.prod(map(math.factorial, [*sizes, *Counter(s for s in sizes if s).values()]))
    return math.factorial(sum(sizes)) // orders


def strongest(parts: IntArray, W: Array, largest: bool) -> int:
    """Return the number of the partition with the largest or smallest weight between parts, compared exactly.

    Parameters
    ----------
    parts : int array of shape (count, n)
    W : array of shape (n, n)
        The weights of the edges, symmetric.
    largest : bool
    """
    gain = np.zeros(len(parts))  # twice the weight inside the parts, or its negative
    for p in np.unique(parts):
        inside = (parts == p).astype(float)
        gain += np.einsum("ij,ij->i", inside @ (-W if largest else W), inside)
    i, j = np.nonzero(np.triu(W, 1))
    weights = W[i, j]
    if not len(weights):
        return 0
    total, unit = float(np.abs(weights).sum()), _exact_unit(np.abs(weights))
    if 2 * total <= 2**53 * unit:  # then the sums are exact
        return int(np.argmax(gain))
    close = np.flatnonzero(gain >= gain.max() - len(weights) * 2.0**-51 * total)
    whole = np.array([int(Fraction(w) / unit) for w in weights.tolist()], dtype=object)
    cut = parts[close][:, i] != parts[close][:, j]
    exact = (cut * (whole if largest else -whole)).sum(axis=1)
    return int(close[np.argmax(exact)])
