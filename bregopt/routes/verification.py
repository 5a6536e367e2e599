"""Rigorous bounds of an answer, with further solves for more interior points where its own do not suffice."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from bregopt.arrays import LARGEST, TINY, Array
from bregopt.errors import InfeasibleRowError, SolverError, UnsupportedProblemError
from bregopt.presolve.faces import has_rows_of_integers, singular_point
from bregopt.program import LowRank, Program
from bregopt.program.convex_terms import Tangent
from bregopt.program.rows import SparseRows, add_rows
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous.data import LARGEST_DENSE, Data, Side, data_of
from bregopt.rigorous.faces import IntegerFace
from bregopt.rigorous.file.certificate import BoundCertificate, Verification, rounded
from bregopt.rigorous.fractions.high_precision import (
    check_exact,
    coordinate_face,
    exact_digits,
    proven_by_digits,
)
from bregopt.rigorous.fractions.multipliers import exact_bound
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.proof import Candidate, Proven, best_lower, best_upper, homogeneous, inward, refutes
from bregopt.rigorous.reduction import Implied, Reduced, implied_bounds, reduced, with_bounded_slack
from bregopt.rigorous.upper import factor_bound, fixes_diagonal
from bregopt.routes import routing
from bregopt.routes.solution import Solution

_SHIFT = 1e-7  # of the cone, relative to the mean eigenvalue, in a further solve
_KEPT = 3  # answers of nodes whose multipliers bound the next one
_LOOSE = 1e-2  # tolerance of a further solve whose answer is farther from the boundary of the cones
_TOL = 1e-7  # of further solves
_SHARP_TOL = 1e-8  # of a further solve on a face, which ends in a few steps more
_FEW, _FEW_ROWS = 2, 300  # matrices and rows beside variables or inequalities, of which faces are sought
_SINGULAR = 1e-13  # least eigenvalue, relative to the trace, of an answer on a face
_NO_FARKAS = (
    "the Farkas vector is not proven: A*(y) is too near the boundary of the cone; relax the constraints that "
    "sol.conflict() names, or bound the trace"
)
_NO_RAY = (
    "the ray is not proven: it is on the boundary of the cone; bound the trace to see how far the value falls"
)
_GENERATED = "bo.cut_rows may generate further rows, so that no point is proven to be feasible"
_MIDPOINTS = "entropies take no intervals: the bounds are those at the values of {}"
_BOUNDED_SLACK = "the optimum is that of multipliers y whose slack C - A*(y) has a trace of at most {:g}"
_DEPENDENT = (
    "the columns of the factor of the X0 of {} are not proven independent: leave out those that others span"
)


def verified(
    program: Program,
    raw: Solution,
    resolve: bool,
    trace_bound: Any,
    eigenvalue_bound: Any,
    source: tuple[Program, Data, tuple[str, ...]] | None = None,
    *,
    generated: bool = False,
    exact: bool = False,
) -> Verification:
    """Return proven bounds of a program's optimum, in the user's sign; see :meth:`Solution.verify`.

    `source` has the program, its data, and the names of parameters with intervals, if they are known. With
    `generated` rows the program has only those that were generated: its points need not be feasible.
    """
    start = time.perf_counter()
    if not isinstance(resolve, bool):
        raise TypeError(f"resolve is {resolve!r}; expected True or False")
    tangent = _at_answer(program, raw) if program.terms else program.tangent
    if exact and (tangent is not None or generated):
        raise ValueError("exact=True takes linear problems with all their rows, not entropies or cut_rows")
    if tangent is not None:
        from bregopt.routes.entropy.proof import bounds_of_terms  # it bounds linear programs by this module

        bounds = bounds_of_terms(tangent, raw, resolve, trace_bound, eigenvalue_bound)
        names = ", ".join(() if source is None else source[2])
        return replace(bounds, given=(*bounds.given, _MIDPOINTS.format(names))) if names else bounds
    program, data, intervals = source or (program, data_of(program), ())
    traces = _stated_traces(program, trace_bound, eigenvalue_bound)
    face = _integer_face(program, raw, _SINGULAR)
    own = Reduced(data, (None,)) if _proves_factor(raw, data) else reduced(data, face)
    search = _Search(program, data, *own, raw, traces, resolve, face)
    certificate = search.refuted() if raw.X is None else search.bounded()
    if face is None and raw.X is not None and math.isinf(max(map(abs, certificate.claims))):
        face = _integer_face(program, raw, math.inf)
        if face is not None:
            other = _Search(program, data, *reduced(data, face), raw, traces, resolve, face, search.solves)
            found = other.bounded()
            if np.isfinite(found.claims).sum() > np.isfinite(certificate.claims).sum():
                search, certificate = other, found
    if generated and raw.X is not None:
        certificate = replace(certificate, point=None, claims=(certificate.claims[0], math.inf))
        search.reasons["upper"] = _GENERATED
    lower, upper = certificate.claims
    certificate = replace(certificate, claims=rounded(certificate.claims, data))
    if exact and raw.X is not None:
        certificate = search.with_digits(certificate)
        lower, upper = max(lower, certificate.claims[0]), min(upper, certificate.claims[1])
    reasons = {name: text for name, text in search.reasons.items() if text}
    if program.maximize:
        lower, upper = -upper, -lower
        reasons = {{"lower": "upper", "upper": "lower"}[name]: text for name, text in reasons.items()}
    seconds = time.perf_counter() - start
    return Verification(
        lower, upper, reasons, certificate.given, intervals, seconds, search.solves, certificate
    )


def _at_answer(program: Program, raw: Solution) -> Tangent:
    """Return the tangents of convex terms at an answer, as those of another one may be given."""
    X = () if raw.X is None else tuple(map(np.asarray, raw._point[0]))
    return Tangent(program, X, np.asarray(raw.u), 0.0, 0.0, np.zeros(program.k))


def verified_with_bounded_slack(program: Program, bound: Any, exact: bool) -> Verification:
    """Return proven bounds of the optimum given that the traces of ``C - A*(y)`` sum to at most a bound.

    For a minimization it is the largest bound that such multipliers prove; see :meth:`Solution.verify`.
    """
    start = time.perf_counter()
    if program.tangent is not None or program.terms:
        raise ValueError("trace= bounds the slack C - A*(y) of linear objectives and rows, not of entropies")
    size = float(_positive("trace", bound, 1)[0])
    if exact:
        data = data_of(program)
        check_exact(data)
        lower, upper = proven_by_digits(
            data, exact_digits(data, size), np.full(len(program.blocks), np.inf), size
        )
        found = Verification(*((-upper, -lower) if program.maximize else (lower, upper)))
    else:
        wider, data = with_bounded_slack(program, size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            raw = routing.solve(wider, warn=False, tol=_SHARP_TOL)
        found = verified(wider, raw, True, None, None, (wider, data, ()))
    given = (*found.given, _BOUNDED_SLACK.format(size))
    return replace(found, given=given, seconds=time.perf_counter() - start, solves=found.solves + 1)


class NodeBound(NamedTuple):
    """The bound of a minimization at a node of branch and bound, and the answer that led to it."""

    value: float
    reason: str
    answer: Solution | None


def node_bound(
    program: Program, earlier: tuple[Solution, ...], options: dict[str, Any]
) -> tuple[NodeBound, tuple[Solution, ...]]:
    """Return a proven bound of a node and its answers for later nodes, the last one first.

    Parameters
    ----------
    program : Program
    earlier : tuple of Solution
        Answers of other nodes. The solve starts from the first one, and the multipliers of all prove bounds.
    options : dict
        Of the solve.
    """
    if program.terms:
        return _node_bound_of_terms(program, earlier, options)
    whole = data_of(program)
    data, bases = reduced(whole)
    inverses, implied = tuple(map(_left_inverse, bases)), implied_bounds(data)
    ours = [lower_bound(data, raw._point[2], implied, candidate(raw, inverses).X) for raw in earlier]
    best = max(
        ours, key=lambda side: side.value, default=Side(-math.inf, "the solve ended without an answer")
    )
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            raw = routing.solve(program, start=earlier[0] if earlier else None, warn=False, **options)
    except (InfeasibleRowError, SolverError):
        return NodeBound(best.value, best.reason, None), earlier
    search = _Search(program, whole, data, bases, raw, np.full(len(program.blocks), np.inf), True)
    if raw.X is None:
        if raw.duals is not None and search.farkas() is not None:
            return NodeBound(math.inf, "", None), earlier
        return NodeBound(best.value, best.reason, None), earlier
    answer = candidate(raw, inverses)
    found = lower_bound(data, raw._point[2], implied, answer.X)
    if math.isinf(max(found.value, best.value)):  # a bound of no width to speak of is not worth a solve
        found = best_lower(data, answer, search.interior(answer, "dual"), implied).side
    if not found.value < best.value:
        best = found
    return NodeBound(best.value, best.reason, raw), (raw, *earlier[: _KEPT - 1])


def _node_bound_of_terms(
    program: Program, earlier: tuple[Solution, ...], options: dict[str, Any]
) -> tuple[NodeBound, tuple[Solution, ...]]:
    """Return the bound of a node with convex terms, from the tangents at its own answer."""
    try:
        raw = routing.solve(program, start=earlier[0] if earlier else None, warn=False, **options)
        found = verified(program, raw, True, None, None)
    except (InfeasibleRowError, SolverError, ValueError) as error:
        return NodeBound(-math.inf, str(error), None), earlier
    side, value = ("upper", -found.upper) if program.maximize else ("lower", found.lower)
    bound = NodeBound(value, found.reasons.get(side, ""), None if raw.X is None else raw)
    return bound, earlier if raw.X is None else (raw,)


@dataclass(eq=False)
class _Search:
    """The search for the points of a proof, on faces and ranges.

    `program` and `whole` are the problem before; `data` and `bases` are those of faces and ranges.
    """

    program: Program
    whole: Data
    data: Data
    bases: Sequence[Array | None]
    raw: Solution
    traces: Array
    resolve: bool
    face: IntegerFace | None = None
    solves: int = 0
    reasons: dict[str, str] = field(default_factory=dict)

    @cached_property
    def inverses(self) -> tuple[Array | None, ...]:
        """The left inverses of the bases."""
        return tuple(map(_left_inverse, self.bases))

    def bounded(self) -> BoundCertificate:
        """Return the certificate of bounds of an answer."""
        dependent = [b.name for b in self.data.matrices if b.anchor and b.anchor.factor is not None]
        if dependent:
            self.reasons = dict.fromkeys(("lower", "upper"), _DEPENDENT.format(dependent[0]))
            return BoundCertificate(self.whole, self.traces)
        answer = self._sharpest()
        implied = implied_bounds(self.data).with_traces(self.traces)
        if _proves_factor(self.raw, self.whole):
            return self._of_factor(answer, implied, self.raw.X[0].factor)
        lower = best_lower(self.data, answer, self.interior(answer, "dual"), implied)
        if lower.side.value == -math.inf and answer.y is not None:
            exact, _ = exact_bound(self.data, implied, answer.y)
            lower = Proven(Side(exact), y=answer.y) if exact > -math.inf else lower
        upper = best_upper(self.data, answer, self.interior(answer, "primal"))
        self.reasons = {"lower": lower.side.reason, "upper": upper.side.reason}
        return BoundCertificate(
            self.whole,
            self.traces,
            y=lower.y,
            X=answer.X if any(block.anchor is not None for block in self.data.matrices) else None,
            point=upper.point if upper.side.value < math.inf else None,
            claims=(lower.side.value, upper.side.value),
            face=self.face,
        )

    def with_digits(self, certificate: BoundCertificate) -> BoundCertificate:
        """Return a certificate with the bounds of high precision, where these are better."""
        check_exact(self.data)
        digits = exact_digits(self.data)
        exact = proven_by_digits(self.data, digits, self.traces)
        lower, upper = certificate.claims
        if math.isinf(min(exact[1], upper)) and self.face is None and self.data is self.whole:
            face = coordinate_face(self.whole)
            if face is not None:
                data = reduced(self.whole, face).data
                on_face = exact_digits(data)
                found = proven_by_digits(data, on_face, self.traces)
                if found[0] >= exact[0] and found[1] < math.inf:
                    digits, exact, certificate = on_face, found, replace(certificate, face=face)
        better = exact[0] >= lower, exact[1] <= upper
        self.solves += 1
        proven = zip(("lower", "upper"), exact, strict=True)
        self.reasons |= {side: "" for side, own in proven if math.isfinite(own)}
        return replace(
            certificate,
            digits=digits,
            y=None if better[0] else certificate.y,
            point=None if better[1] else certificate.point,
            claims=(exact[0] if better[0] else lower, exact[1] if better[1] else upper),
        )

    def _sharpest(self) -> Candidate:
        """Return the answer; on a face, where it costs a few steps, that to a smaller tolerance."""
        if self.face is None:
            return candidate(self.raw, self.inverses)
        raw, found = self.raw, self._solved(self.program, _SHARP_TOL)
        if found is not None and found.X is not None and found.error < raw.error:
            raw = found
        answer, y = candidate(raw, self.inverses), raw._y_on_faces
        # Multipliers of all rows have a large multiple of F, which costs digits.
        return answer if answer.y is None or y is None else answer._replace(y=y[: len(answer.y)])

    def _of_factor(self, answer: Candidate, implied: Implied, factor: Array) -> BoundCertificate:
        """Return the certificate of a cut: its factor, scaled to the diagonal, is exactly feasible."""
        lower = best_lower(self.data, answer, (), implied)
        upper = factor_bound(self.data, factor)
        self.reasons = {"lower": lower.side.reason, "upper": upper.reason}
        claims = lower.side.value, upper.value
        return BoundCertificate(self.whole, self.traces, y=lower.y, factor=factor, claims=claims)

    def refuted(self) -> BoundCertificate:
        """Return the certificate of an answer that there is no optimum."""
        if self.raw.duals is not None:
            farkas = self.farkas()
            if farkas is not None:
                return BoundCertificate(self.whole, self.traces, farkas=farkas, claims=(math.inf, math.inf))
            self.reasons = {"lower": _NO_FARKAS, "upper": "the problem may be infeasible"}
            return BoundCertificate(self.whole, self.traces)
        return self._unbounded()

    def farkas(self) -> Array | None:
        """Return multipliers that are proven to be a Farkas vector, None where none are found."""
        y = np.where(self.data.required, self.raw.duals, 0.0)

        def proves(z: Array) -> bool:
            return refutes(self.whole, z)

        if proves(y):
            return y
        # With the cost -I, multipliers of the dual cone have A*(y) below -I.
        blocks = tuple(
            replace(block, cost=SparseRows.trace(block.n, -1.0), nearness=None)
            for block in self.program.blocks
        )
        found = self._solved(replace(self.program, blocks=blocks, c=np.zeros(self.program.k)))
        if found is None or found.duals is None:
            return None
        inside = np.where(self.data.required, found.duals, 0.0)
        inside *= float(np.abs(y).max()) / max(float(np.abs(inside).max()), TINY)
        shares = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
        return next((z for z in (*(y + s * inside for s in shares), inside) if proves(z)), None)

    def _unbounded(self) -> BoundCertificate:
        """Return the certificate of an unbounded problem: a feasible point and a ray, both proven."""
        along = homogeneous(self.data)
        nothing = BoundCertificate(self.whole, self.traces)
        self.reasons = {"lower": _NO_RAY, "upper": "no feasible point is proven"}
        if along is None or self.raw._ray is None:
            return nothing
        ray = best_upper(along, Candidate(_symmetric(self.raw._ray), np.array(self.raw.u), None), ())
        blocks = tuple(replace(block, cost=None) for block in self.program.blocks)
        empty = replace(self.program, blocks=blocks, c=np.zeros(self.program.k))
        found = self._solved(empty)
        if found is None or found.X is None:
            return nothing
        answer = candidate(found, self.inverses)
        upper = best_upper(self.data, answer, self.interior(answer, "primal", empty))
        if upper.side.value == math.inf:
            return nothing
        falls = ray.point is not None and ray.side.value < 0
        self.reasons = {} if falls else {"lower": _NO_RAY}
        return BoundCertificate(
            self.whole,
            self.traces,
            point=upper.point,
            ray=ray.point if falls else None,
            claims=(-math.inf, -math.inf if falls else upper.side.value),
        )

    # Pays on: low rank with a logarithm.
    def interior(self, answer: Candidate, side: str, program: Program | None = None) -> Iterator[Candidate]:
        """Yield a looser answer, and one of the problem with a smaller cone, inside the own one.

        An answer with an inner iterate needs no looser one. Multipliers that rows move inside come first.
        """
        moved = inward(self.data, answer) if side == "dual" else None
        if moved is not None:
            yield moved
        if not self.resolve or answer.X is None or answer.y is None:
            return
        if answer.inner is None and self.loose is not None:
            yield self.loose
        shifted = _shifted(program or self.program, answer, side, self.data, self.bases)
        found = self._solved(shifted.program)
        if found is not None and found.X is not None:
            own = candidate(found, self.inverses)
            assert own.X is not None
            X = tuple(A + size * np.eye(len(A)) for A, size in zip(own.X, shifted.sizes, strict=True))
            yield Candidate(X, own.u + shifted.u, own.y)

    @cached_property
    def loose(self) -> Candidate | None:
        """An answer farther inside the cones, of the problem itself."""
        found = self._solved(self.program, _LOOSE)
        return None if found is None or found.X is None else candidate(found, self.inverses)

    def _solved(self, program: Program, tol: float = _TOL) -> Solution | None:
        if not self.resolve:
            return None
        self.solves += 1
        try:
            # Such problems may be infeasible, and their iterates grow until numbers overflow.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                return routing.solve(program, warn=False, tol=tol)
        except (InfeasibleRowError, SolverError, UnsupportedProblemError):
            return None


def _integer_face(program: Program, raw: Solution, largest: float) -> IntegerFace | None:
    """Return the face of integers of a point on the rows or of an answer, None where these show none.

    The least eigenvalue of the answer, relative to the trace, is below the `largest` one.
    """
    X = () if raw.X is None else raw._point[0]
    if not X or any(isinstance(M, LowRank) for M in X):
        return None
    plain = all(b.nearness is None and b.cap is None and b.face is None for b in program.blocks)
    few = plain and len(X) <= _FEW and program.m <= _FEW_ROWS and largest == math.inf
    integers = has_rows_of_integers(program)
    if not integers and not few:
        return None
    from bregopt.presolve.integer_faces import integer_face  # few programs wait

    # A second look, at any answer, follows one at a singular answer, which has seen the point.
    point = singular_point(program) if integers and largest < math.inf else None
    found = None if point is None else integer_face(program, point)
    if found is None:
        least = [float(np.linalg.eigvalsh(M)[0] / np.trace(M)) for M in X if np.trace(M) > 0]
        near = min(least, default=math.inf) < largest
        found = integer_face(program, X, optimum=few) if near else None
    return None if found is None else found.face


def _proves_factor(raw: Solution, data: Data) -> bool:
    """Whether the factor of an answer itself is near a feasible one."""
    return raw.X is not None and len(raw.X) == 1 and isinstance(raw.X[0], LowRank) and fixes_diagonal(data)


@dataclass(frozen=True, eq=False)
class _Shifted:
    """A program for ``M - s I`` and ``u - v`` with larger costs, and the sizes ``s`` and ``v``."""

    program: Program
    sizes: Sequence[float]
    u: Array


def _shifted(
    program: Program,
    answer: Candidate,
    side: str,
    data: Data,
    bases: Sequence[Array | None],
) -> _Shifted:
    """Return the problem in which the cone of matrices, or that of slacks, is smaller.

    The cones are those of ``M`` in ``X = H M H'``; the program is the given one.
    """
    assert answer.X is not None
    assert answer.y is not None
    bounded = np.isfinite(program.u_lo) | np.isfinite(program.u_hi)
    inward = np.where(np.isfinite(program.u_lo), 1.0, -1.0) * (bounded & (program.u_lo < program.u_hi))
    if side == "primal":
        sizes = [_SHIFT * float(np.trace(M)) / len(M) for M in answer.X]
        X = [
            size * np.eye(len(M)) if H is None else LowRank(math.sqrt(max(size, 0.0)) * H)
            for size, M, H in zip(sizes, answer.X, bases, strict=True)
        ]
        v = _SHIFT * float(np.abs(answer.u).mean()) * inward if program.k else answer.u
        v[program.cones.axes] = _SHIFT * np.abs(answer.u[program.cones.axes])
        moved = program.activity(X, v)
        moved[np.isinf(data.lo) & (program.bounds.lo == program.bounds.hi)] = 0.0  # exactly, on faces
        bounds = replace(program.bounds, lo=program.bounds.lo - moved, hi=program.bounds.hi - moved)
        return _Shifted(replace(program, bounds=bounds), sizes, v)
    blocks = []
    for b, block in enumerate(program.blocks):
        H, Z = bases[b], block.C - program.A.adjoint(answer.y, b)
        Z = Z if H is None else H.T @ Z @ H
        size = _SHIFT * float(np.abs(np.linalg.eigvalsh(Z)).mean())
        own = SparseRows.trace(block.n, -size)
        linear = block.nearness is None and block.cap is None
        cost = own if block.cost is None else add_rows(block.cost, own)
        blocks.append(replace(block, cost=cost) if linear else block)
    reduced = program.c - program.Bt @ answer.y
    size = abs(program.Bt) @ np.abs(answer.y) + np.abs(program.c)  # reduced costs themselves may all vanish
    c = program.c - (_SHIFT * float(size.mean()) * inward if program.k else 0.0)
    c[program.cones.axes] -= _SHIFT * np.abs(reduced[program.cones.axes])
    nothing = [0.0] * len(program.blocks)
    return _Shifted(replace(program, blocks=tuple(blocks), c=c), nothing, np.zeros(program.k))


def candidate(raw: Solution, inverses: Sequence[Array | None]) -> Candidate:
    """Return an answer with its inner iterate; matrices are dense, in the coordinates of the bases.

    Parameters
    ----------
    raw : Solution
    inverses : sequence of array or None
        The left inverses of the bases; None for the identity.
    """
    X, inner = raw._point[0], raw._inner
    y = None if raw.duals is None else np.asarray(raw.duals)
    return Candidate(
        _dense(X, inverses),
        np.array(raw.u, dtype=float),
        y,
        raw.value,
        raw.error,
        raw.dual_value,
        None
        if inner is None or y is None
        else Candidate(_dense(inner.X, inverses), inner.u, inner.y[: len(y)]),
    )


def _dense(X: Sequence[Any] | None, inverses: Sequence[Array | None]) -> tuple[Array, ...] | None:
    """Return matrices in the coordinates of the bases, symmetric to the last bit, None if one is large."""
    if X is None:
        return None
    own = [part if L is None else _coordinates(part, L) for part, L in zip(X, inverses, strict=True)]
    return _symmetric(own) if all(part.shape[0] <= LARGEST_DENSE for part in own) else None


def _left_inverse(H: Array | None) -> Array | None:
    if H is None:
        return None
    Q, R = np.linalg.qr(H)
    return scipy.linalg.solve_triangular(R, Q.T)


def _coordinates(X: Any, L: Array) -> Array:
    """Return the ``M`` for which ``H M H'`` is nearest to a matrix; `L` is the left inverse of ``H``."""
    if isinstance(X, LowRank):
        half = L @ X.factor
        return half @ half.T
    return L @ np.asarray(X) @ L.T


def _symmetric(X: Sequence[Any]) -> tuple[Array, ...]:
    dense = (part.dense() if isinstance(part, LowRank) else np.asarray(part) for part in X)
    return tuple((part + part.T) / 2 for part in dense)


def _stated_traces(program: Program, trace_bound: Any, eigenvalue_bound: Any) -> Array:
    """Return the bounds on traces that the caller states; infinite where there are none."""
    traces = np.full(len(program.blocks), np.inf)
    orders = np.array([block.n for block in program.blocks], dtype=float)
    for name, given, times in (
        ("trace_bound", trace_bound, 1.0),
        ("eigenvalue_bound", eigenvalue_bound, orders),
    ):
        if given is not None:
            traces = np.minimum(traces, np.nextafter(_positive(name, given, len(traces)) * times, np.inf))
    return traces


def _positive(name: str, given: Any, count: int) -> Array:
    parts: Sequence[Any] = given if isinstance(given, list | tuple) else [given] * count
    if len(parts) != count:
        raise ValueError(
            f"{name} has {len(parts)} numbers; expected one, or one for each of {count} matrices"
        )
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, Real):
            raise TypeError(f"{name} is {part!r}; expected a number, or one for each matrix")
        if not part < LARGEST or part <= 0:  # NaN, too; the float of an integer may overflow
            raise ValueError(f"{name} is {part!r}; expected a number above 0 and below {LARGEST:g}")
    return np.array(parts, dtype=float)
