"""Proven bounds of programs with convex terms: at the answer, and at more central points.

From below, the tangent at any point proves a bound, by multipliers of its linear program. Two things spend
digits there. A slack ``S`` that vanishes has no room for round-off: rows that combine to a definite matrix
give it some, at a cost of the same size (:func:`bregopt.rigorous.proof.inward`). And the logarithm of an
eigenvalue ``d`` that is known to ``e`` is known to ``e / d``: points farther inside the cone keep more digits
of it, and an answer near the central path has the slack ``S = mu inv(X)``, which is large where ``d`` is
small (Winick, Lütkenhaus and Coles 2018).

From above, a feasible point near the answer is proven to exist, and its value enclosed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bregopt.arrays import IntArray
from bregopt.certify import Status
from bregopt.errors import InfeasibleRowError, SolverError, UnsupportedProblemError
from bregopt.presolve import Tolerances
from bregopt.presolve.faces import implied_faces
from bregopt.presolve.variables import boxes
from bregopt.program import Program
from bregopt.program.convex_terms import Tangent, row_vectors
from bregopt.records import replace
from bregopt.rigorous.ball import up
from bregopt.rigorous.convex_terms import data_of_tangent, value_of_terms, violated_row, with_epigraph
from bregopt.rigorous.data import data_of
from bregopt.rigorous.file.certificate import BoundCertificate, Verification, rounded
from bregopt.rigorous.proof import Candidate, best_upper
from bregopt.rigorous.upper import Point, distance
from bregopt.routes import routing
from bregopt.routes.entropy.route import least_eigenvalue, revealed, rows_alone
from bregopt.routes.entropy.standard_form import StandardForm
from bregopt.routes.solution import Solution
from bregopt.routes.verification import candidate, verified

# Tolerances of further solves. At a larger one the answer is farther inside the cones, and keeps more digits.
_TOLS = 1e-10, 1e-9, 1e-8
_INWARD = (0.0, 1e-13, 1e-11, 1e-9, 1e-7)  # shares of its mean eigenvalue by which a matrix moves inside
_ENOUGH = 1e-9  # distance of both bounds, relative to the value, below which nothing more is tried
_SINGULAR = 1e-9  # least eigenvalue, relative to the largest, of an answer that may be on a face
_SMALL = 0.1  # part of the objective's terms that stands for a value that is smaller
_LARGEST_FIT = 200_000  # coefficients of rows whose multipliers are fitted to the slopes
_ROOM = (1e-13, 1e-11)  # of the bounds of a file, relative to the terms, which may cancel
_ROUNDED = "the arguments of entropies are the linear maps of the program, in doubles"


def bounds_of_terms(
    tangent: Tangent, raw: Solution, resolve: bool, trace_bound: Any, eigenvalue_bound: Any
) -> Verification:
    """Return proven bounds of a program with convex terms, by its tangent program and a feasible point.

    Raises
    ------
    ValueError
        If the answer says that there is no optimum.
    """
    start, program, stated = time.perf_counter(), tangent.program, (trace_bound, eigenvalue_bound)
    if raw.X is None:
        if raw.duals is None or any(term.rows is not None for term in program.terms):
            raise ValueError(f"the answer is {raw.status}; verify() has no proof of that for entropies")
        return verified(replace(program, terms=()), raw, resolve, *stated)  # the rows contradict each other
    found = _Bounds(program, *stated)
    found.improve(tangent, raw)
    reduced = None
    if resolve and not found.within(_ENOUGH) and any(map(_is_singular, raw.X)):
        reduced = _on_faces(program)
    if reduced is not None:
        return _better(_answer(found, program, start, 0), reduced, start)
    solves = 0
    best = raw
    for tol in _TOLS if resolve else ():
        if found.within(max(tol, _ENOUGH)):
            break
        options: dict[str, Any] = {"central": True} if raw.solver == "entropy" else {}
        solves += 1
        sharper = routing.solve(program, raw.solver if options else "auto", warn=False, tol=tol, **options)
        if sharper.X is not None and sharper.status in (Status.OPTIMAL, Status.OPTIMAL_INACCURATE):
            assert sharper._program is not None
            assert sharper._program.tangent is not None
            found.improve(sharper._program.tangent, sharper)
            best = sharper
        if found.upper == math.inf:
            solves += 1
            found.improve_upper(best, resolve=True)
        if len(_curved_rows(program)) and not found.within(max(tol, _ENOUGH)):
            solves += 1
            found.improve_upper(
                routing.solve(_tightened(program, tol), "auto", warn=False, tol=tol, **options)
            )
        if not options:
            break
    return _answer(found, program, start, solves)


def _is_singular(X: Any) -> bool:
    d = np.linalg.eigvalsh(np.asarray(X))
    return bool(d[0] <= _SINGULAR * d[-1])


def _on_faces(program: Program) -> Verification | None:
    """Return proven bounds on the faces that the rows imply up to round-off, None where they imply none."""
    rows = rows_alone(program)
    if any(program.divergences) or not program.bounds.hard.all():
        return None
    faces = implied_faces(rows) or revealed(rows)
    if faces is None or not all(face.order for face in faces.program.faces):
        return None
    own = StandardForm(program, faces).program_on_faces()
    raw = routing.solve(own, "entropy", warn=False, tol=_TOLS[1])
    if raw.X is None:
        return None
    assert raw._program is not None
    assert raw._program.tangent is not None
    found = bounds_of_terms(raw._program.tangent, raw, True, None, None)
    orders = zip(program.blocks, faces.program.faces, strict=True)
    named = [f"{block.name} of order {face.order}" for block, face in orders if face.codimension]
    given = f"up to round-off the rows imply faces, {', '.join(named)}, and there some rows of others"
    return replace(found, given=(*found.given, given))


def _better(whole: Verification, reduced: Verification, start: float) -> Verification:
    """Return the bounds of the whole program, or the nearer ones on faces."""
    lower, upper = max(whole.lower, reduced.lower), min(whole.upper, reduced.upper)
    reasons = {side: text for side, text in whole.reasons.items() if side in reduced.reasons}
    nearer = (lower, upper) != (whole.lower, whole.upper)
    given = reduced.given if nearer else whole.given
    seconds = time.perf_counter() - start
    return replace(
        whole,
        lower=lower,
        upper=upper,
        reasons=reasons,
        given=given,
        seconds=seconds,
        solves=1 + reduced.solves,
    )


def _answer(found: _Bounds, program: Program, start: float, solves: int) -> Verification:
    """Return the best bounds, in the user's sign."""
    bottom, top, reasons = found.lower, found.upper, found.reasons
    if program.maximize:
        bottom, top = -top, -bottom
        reasons = {"lower": reasons["upper"], "upper": reasons["lower"]}
    shown = {name: text for name, text in reasons.items() if text}
    seconds = time.perf_counter() - start
    given = () if found.best is None else found.best.given
    # The form of a certificate, the epigraph, takes as long to prove as the bounds: it waits until asked for.
    return Verification(bottom, top, shown, (*given, _ROUNDED), (), seconds, solves, found.certificate)


class _Bounds:
    """The best bounds of a minimization so far."""

    def __init__(self, program: Program, trace_bound: Any, eigenvalue_bound: Any) -> None:
        self._program, self._stated = program, (trace_bound, eigenvalue_bound)
        self.lower, self.upper, self._value, self._size = -math.inf, math.inf, math.inf, 0.0
        self.best: Verification | None = None
        self._point: Point | None = None
        self._scale = 0.0  # of the terms at the point
        self.reasons = {"lower": "", "upper": ""}
        linear, curved = replace(program, terms=(), maximize=False), _curved_rows(program)
        others = np.setdiff1d(np.arange(program.m), curved)
        boxed = boxes(_of_rows(linear, others), Tolerances(_TOLS[0], _TOLS[0]))
        self._kept, self._terms = None, program.terms
        if boxed is not None and boxed.farkas is None:
            self._kept = kept = np.union1d(others[boxed.kept], curved)
            linear = _of_rows(linear, kept)
            linear = replace(linear, u_lo=boxed.program.u_lo, u_hi=boxed.program.u_hi)
            self._terms = tuple(
                t if t.rows is None else replace(t, rows=np.searchsorted(kept, t.rows)) for t in program.terms
            )
        self._linear = linear
        free = linear.bounds.hi.copy()
        free[_curved_rows(self._whole)] = np.inf  # their terms are counted apart
        plain = replace(linear, bounds=replace(linear.bounds, hi=free))
        self._rows, self._plain = data_of(linear), data_of(plain)

    @property
    def _whole(self) -> Program:
        return replace(self._linear, terms=self._terms)

    def within(self, share: float) -> bool:
        """Whether the lower bound is as near the value as a share of the objective, and both are known."""
        width = min(self.upper, self._value) - self.lower  # no solve narrows enclosures above the value
        near = share * max(abs(self.upper), abs(self.lower), _SMALL * self._size)
        return self.upper < math.inf and self.lower > -math.inf and width <= near

    def improve(self, tangent: Tangent, raw: Solution) -> None:
        """Try the answer and its tangents for both bounds."""
        self._value = raw.value
        self._size = raw.error / raw.gap if raw.gap > 0 else 0.0  # which gaps are relative to
        if self._kept is not None and raw.duals is not None:
            raw = replace(raw, duals=np.asarray(raw.duals)[self._kept])
        tangent = replace(tangent, program=self._whole)
        self.improve_upper(raw)
        for share in _INWARD:
            own, data, reason = data_of_tangent(tangent, share)
            if own is None or data is None:
                if self.lower == -math.inf:
                    self.reasons["lower"] = reason
                continue
            for y in (raw.duals, *_of_least_slack(own, raw.duals)):
                found = verified(own, replace(raw, duals=y), False, *self._stated, (own, data, ()))
                if found.lower > self.lower or self.best is None:
                    self.lower, self.best = found.lower, found
                    self.reasons["lower"] = found.reasons.get("lower", "")
                if self.within(_ENOUGH):
                    return

    def improve_upper(self, raw: Solution, resolve: bool = False) -> None:
        """Try the matrices of an answer, mixed with a feasible point far inside the cones."""
        program = self._program
        own = candidate(raw, (None,) * len(program.blocks))._replace(y=None, value=math.nan)
        found = best_upper(self._plain, own, self._inside() if resolve else ())
        if found.point is None or found.side.value == math.inf:
            self.reasons["upper"] = found.side.reason if self.upper == math.inf else ""
            return
        point = found.point
        at = point.X, point.u, distance(self._plain, point)
        if any(term.rows is not None for term in program.terms):
            row = violated_row(self._whole, self._rows, *at)
            if row is not None:
                self.reasons["upper"] = f"row {row} is not proven to hold" if self.upper == math.inf else ""
                return
        terms = value_of_terms(program, *at)
        if up(found.side.value + terms) < self.upper:
            self.upper, self._point, self._scale = up(found.side.value + terms), point, abs(terms)
        self.reasons["upper"] = "" if self.upper < math.inf else "the answer is not proven inside the domain"

    def certificate(self) -> BoundCertificate | None:
        """Return the certificate of both bounds, or of the lower one where a file has no form for both."""
        certificate = None if self.best is None else self.best.certificate
        if certificate is None:
            return None
        # What is above the tangents need not be above the entropies.
        lower = replace(certificate, point=None, claims=(certificate.claims[0], math.inf))
        return self._with_upper(lower) or lower

    def _with_upper(self, certificate: BoundCertificate) -> BoundCertificate | None:
        """Return a certificate of both bounds on the epigraph, None where a file has no form for it."""
        data, point = certificate.data, self._point
        if point is None or certificate.y is None:
            return None
        found = with_epigraph(self._whole, data)
        if found is None:
            return None
        data, terms = found
        y = np.zeros(data.m)
        y[: certificate.data.m] = certificate.y
        y[certificate.data.m] = 1.0
        for room in _ROOM:
            spare = room * max(abs(self.upper), self._scale)
            t, least = self.upper + spare, certificate.claims[0] - spare
            at = replace(point, u=np.append(point.u, [1.0, t]))
            own = replace(certificate, data=data, y=y, point=at, terms=terms)
            with np.errstate(all="ignore"):
                claims = own.bounds()
            if claims[0] >= least and claims[1] < math.inf:
                return replace(own, claims=(least, rounded(claims, data)[1]))
        return None

    def _inside(self) -> Iterator[Candidate]:
        """Yield the matrices of the rows with the largest least eigenvalue."""
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found = routing.solve(
                    least_eigenvalue(rows_alone(self._linear), 0.0), warn=False, tol=_TOLS[0]
                )
        except (InfeasibleRowError, SolverError, UnsupportedProblemError):
            return
        if found.X is not None:
            own = candidate(found, (None,) * len(self._linear.blocks))
            assert own.X is not None
            u, t = own.u[:-1], float(own.u[-1])
            yield Candidate(tuple(X + t * np.eye(len(X)) for X in own.X), u, None)


def _of_least_slack(program: Program, y: Any) -> Iterator[Any]:
    """Yield the multipliers of equalities that leave the least slack: the best where a matrix is definite."""
    columns = sum(block.n**2 for block in program.blocks) + program.k
    if y is None or not program.bounds.equal.all() or program.m * columns > _LARGEST_FIT:
        return
    tables = [row_vectors(program.A, b).toarray() for b in range(len(program.blocks))]
    costs = [np.ravel(block.C) for block in program.blocks]
    table = np.hstack([*tables, program.B.toarray()]).T
    yield np.linalg.lstsq(table, np.concatenate([*costs, program.c]), rcond=None)[0]


def _tightened(program: Program, share: float) -> Program:
    """Return the program whose rows with terms have less room, so that its points hold the rows."""
    rows, hi = _curved_rows(program), program.bounds.hi.copy()
    hi[rows] -= share * np.maximum(np.abs(hi[rows]), np.abs(hi[rows]).max(initial=0.0) or 1.0)
    return replace(program, bounds=replace(program.bounds, hi=hi))


def _curved_rows(program: Program) -> IntArray:
    """Return the rows with terms."""
    rows = [term.rows for term in program.terms if term.rows is not None]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *rows]))


def _of_rows(program: Program, rows: Any) -> Program:
    """Return a program with some of its rows."""
    return replace(program.of_rows(rows), parameter_slopes=())
