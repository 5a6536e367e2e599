"""The route `entropy`: semidefinite programs with convex terms, such as entropies, in objective and rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.certify import NEAR
from bregopt.linalg import without_noise
from bregopt.presolve import REVEALED
from bregopt.presolve.faces import OnFaces, OnRevealedFaces, implied_faces
from bregopt.presolve.revealed_faces import revealed_faces
from bregopt.program import Answer, Bounds, Penalty, Program, Start, StopReason
from bregopt.program.convex_terms import ConvexTerm, tangent_inside, tangent_program, with_constant_terms
from bregopt.program.matrix_entropies import is_infinite
from bregopt.program.scale import scale_of
from bregopt.records import dataclass, replace
from bregopt.rigorous import contradicts, proves_unbounded
from bregopt.routes import base
from bregopt.routes.alternatives import elastic, steepest_ray, with_margin
from bregopt.routes.base import Capabilities, behind
from bregopt.routes.entropy.blahut_arimoto import BlahutArimoto, MaximumEntropy
from bregopt.routes.entropy.interior_point import Barrier, EntropyPath
from bregopt.routes.entropy.standard_form import StandardForm
from bregopt.routes.progress import Monitor, Progress

_STEPS, _PROJECTIONS = 200, 60
# Gap, relative to the tolerance, that the interior-point method aims at and goes no lower: without, and with
# the option `central`. Pays on: correlation matrices nearest to one of rank one in relative entropy, n = 25.
_NEAREST = 0.01, 0.5
# Fraction of the tolerance on revealed faces: multipliers of all rows are large there, and multiply what the
# rows lack.
_ON_REVEALED = 1e-3
# Worst error after which the barrier method is tried.
_LOST = 1e-6
# Tolerance of the search for a proof that there is no optimum, and the parts of a Farkas vector, relative to
# its largest, up to which they are tried as zero.
_TOL, _NOISE = 1e-8, (1e-14, 1e-10, 1e-7)
_LARGEST_SQUARES = 40  # order of matrices with a squared distance; on larger ones first-order methods win
_SAMPLES = 3  # generic matrices on a face, whose ranges are those of all
_FACES = ("faces", "face coordinates")
_MARGIN = 1e-5  # largest least eigenvalue, relative to the matrix, of matrices that rows hold on a face
# Least violation of the rows, relative to them, that is said without a proof if it is known to `_FAIR`.
_VIOLATED, _FAIR = 1e-3, 1e-4


@dataclass(frozen=True, kw_only=True)
class EntropySettings(base.Settings):
    """Options of the route.

    Parameters
    ----------
    projections : bool
        Whether Bregman projections are tried first. Their dual slack vanishes, where that of the
        interior-point method has a distance from the boundary of the cone, which a proof needs.
    central : bool
        Whether the interior-point method stays near the central path, at half the tolerance: both the matrix
        and its dual slack are definite there. Projections are not tried.
    """

    projections: bool = True
    central: bool = False


class Entropy:
    """A primal-dual interior-point method with the terms' own second derivatives."""

    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "entropies and other convex functions of affine arguments, beside psd matrices"
    citation: ClassVar[str] = (
        "Nesterov, Todd (1997), Self-scaled barriers and interior-point methods for convex programming, "
        "Mathematics of Operations Research 22"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "von_neumann", "logdet", "frobenius"}),
        penalties=frozenset({Penalty.HINGE, Penalty.SQUARE, Penalty.LOG}),
        cones=True,
        matrices=8,
        terms=True,
    )
    Settings: ClassVar[type[base.Settings]] = EntropySettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        # Pays on: von Neumann nearness beside a variable, n = 10.
        kinds = [block.nearness.kind for block in program.blocks if block.nearness is not None]
        curved = [kind for kind in kinds if not kind.barrier]
        if program.terms or any(not kind.quadratic for kind in curved):
            return None
        if not curved:
            return "the problem has no entropy or other convex term; path is faster"
        if max(program.A.orders) > _LARGEST_SQUARES:
            return f"of squared distances alone it takes those of order up to {_LARGEST_SQUARES}"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        divergences = (block.nearness.kind.name for block in program.blocks if block.nearness is not None)
        names = dict.fromkeys([*(term.function.name for term in program.terms), *divergences])
        return f"an interior-point method with the second derivatives of {', '.join(names)}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        if program.terms:
            return self._solve(program, settings, start, progress)
        return behind(_FACES, self._solve)(program, settings, start, progress)

    def _solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        rows = rows_alone(program)
        faces = None if any(program.divergences) else implied_faces(rows)
        if faces is not None:
            farkas = faces.contradiction()
            if farkas is not None:
                return Answer.without_point(program, farkas, StopReason.INFEASIBLE)
        if _is_infinite(program, faces):
            return Answer.without_point(program, _exposing(program, faces), StopReason.INFEASIBLE)
        answer, worst = _followed(program, faces, settings, progress)
        if answer.stop is not StopReason.STALLED or worst <= settings.tol:
            return answer
        on_faces = None if any(program.divergences) else revealed(rows)
        if on_faces is not None and _is_infinite(program, on_faces):
            return Answer.without_point(program, _exposing(program, on_faces), StopReason.INFEASIBLE)
        if on_faces is not None:
            found, least = _followed(program, on_faces, settings, progress, answer.iterations)
            if least < worst:
                program.reductions[REVEALED] = on_faces  # for the certificate
                answer, worst, faces = found, least, on_faces
        if worst > max(settings.tol, _LOST) and (program.blocks or program.cones.count):
            found, least = _followed(program, faces, settings, progress, answer.iterations, Barrier)
            if least < worst:
                answer, worst = found, least
        return answer if worst <= NEAR else _without_optimum(program, answer) or answer


def _followed(
    program: Program,
    faces: OnFaces | None,
    settings: Any,
    progress: Progress,
    step: int = 0,
    kind: type[EntropyPath] = EntropyPath,
) -> tuple[Answer, float]:
    """Return the answer on faces, and the worst error of its certificate there."""
    form = StandardForm(program, faces)
    if faces is None and not step and settings.projections and not settings.central:
        found = _projected(program, form, settings, progress)
        if found is not None:
            return found
    method = kind(program, form, settings.tol * _NEAREST[settings.central])
    limit = step + (settings.max_iter or _STEPS)
    share = _ON_REVEALED if isinstance(faces, OnRevealedFaces) else 1.0
    monitor = Monitor(program, settings, progress, share)
    at, stop, step, _ = monitor.follow(method, method.first(), limit, step)
    X, u = form.point(at.x)
    answer = Answer(tuple(X), u, at.y, stop, step)
    worst = 0.0 if stop is StopReason.CONVERGED else method.certificate(at).worst
    tangent = tangent_inside(program, X, u) if method.reduced else None
    if tangent is None:
        return answer, worst
    y = form.priced(at.y, tangent)
    answer = replace(answer, y=y)
    if faces is not None:
        kept = np.union1d(faces.kept, np.flatnonzero(y))
        answer = replace(faces, whole=tangent, kept=kept).restore(replace(answer, y=y[kept]))
    return answer, worst


# Pays on: a key rate of two parts of order 5.
def _projected(
    program: Program, form: StandardForm, settings: Any, progress: Progress
) -> tuple[Answer, float] | None:
    """Return the answer by projections, None where they do not apply or do not meet the tolerance."""
    methods = (own for own in (BlahutArimoto, MaximumEntropy) if own.takes(form))
    kind = next(methods, None)
    if kind is None:
        return None
    method = kind(program, form)
    first = method.first()
    if first is None:
        return None
    limit = min(settings.max_iter or _PROJECTIONS, _PROJECTIONS)
    at, stop, step, _ = Monitor(program, settings, progress).follow(method, first, limit)
    if stop is StopReason.STALLED or (stop is StopReason.MAX_ITER and limit == _PROJECTIONS):
        return None
    X, u = form.point(at.x)
    worst = 0.0 if stop is StopReason.CONVERGED else method.certificate(at).worst
    return Answer(tuple(X), u, at.y, stop, step), worst


def rows_alone(program: Program) -> Program:
    """Return the program with its linear rows alone, and no objective."""
    bounds = program.bounds
    free = ~bounds.hard
    for term in program.terms:
        if term.rows is not None:
            free[term.rows] = True
    return replace(
        program,
        blocks=tuple(replace(block, cost=None, nearness=None) for block in program.blocks),
        bounds=Bounds.of_hard_rows(np.where(free, -np.inf, bounds.lo), np.where(free, np.inf, bounds.hi)),
        c=np.zeros(program.k),
        offset=0.0,
        terms=(),
    )


def revealed(rows: Program) -> OnFaces | None:
    """Return the program on the faces that combinations of rows imply, None where they imply none.

    The multipliers of the largest ``t`` with ``X - t I`` psd expose them where it is zero.
    """
    if not rows.blocks:
        return None
    least = _Solved(least_eigenvalue(rows, -np.inf))
    return revealed_faces(rows, least.y) if abs(least.u[-1]) <= _MARGIN * scale_of(rows).primal else None


def _is_infinite(program: Program, on_faces: OnFaces | None) -> bool:
    """Whether a term is infinite at all points that meet the rows, as ``-tr log X`` is on a face.

    It is tried at generic matrices on the faces and generic variables, those apart that a row alone fixes.
    """
    rng, faces = np.random.default_rng(0), (program if on_faces is None else on_faces.program).faces
    B, bounds = sp.csr_array(program.B), program.bounds
    fixing = np.flatnonzero(bounds.equal & (np.diff(B.indptr) == 1) & (program.A.norms() == 0))
    first = B.indptr[fixing]

    def sample() -> tuple[list[Array], Array]:
        factors = [face.embed(rng.normal(size=(face.order, max(face.order, 1)))) for face in faces]
        u = rng.normal(size=program.k)
        u[B.indices[first]] = bounds.lo[fixing] / B.data[first]
        return [W @ W.T for W in factors], u

    samples = [sample() for _ in range(_SAMPLES)]
    largest = [max(float(np.linalg.norm(X[b])) for X, _ in samples) for b in range(len(faces))]
    most = np.abs([u for _, u in samples]).max(axis=0)

    def sizes(term: ConvexTerm) -> Array:
        total = abs(term.B) @ most + np.abs(term.b)
        for own in term.A.terms:
            total[own.at] += own.norms * largest[own.block]
        return total

    return any(
        is_infinite(term.function, np.array([term.arguments(*own) for own in samples]), sizes(term))
        for term in program.terms
    )


def _exposing(program: Program, on_faces: OnFaces | None) -> Array:
    """Return the multipliers of the rows that leave a matrix no interior."""
    y = np.zeros(program.m)
    for exposure in () if on_faces is None else on_faces.exposures:
        y[exposure.rows] -= exposure.weight
    return y


def least_eigenvalue(rows: Program, least: float) -> Program:
    """Return the program of the largest ``t`` from `least` to the scale of ``X`` with ``X - t I`` psd."""
    return with_margin(rows, [1.0] * len(rows.blocks), least, scale_of(rows).primal)


def _without_optimum(program: Program, answer: Answer) -> Answer | None:
    """Return a proof that the program has no optimum, None where none is found.

    It is a Farkas vector of the tangents of the rows, at a point of least violation, or of the linear rows
    alone, or a ray along which no argument of a term changes.
    """
    feasibility = replace(program, terms=tuple(term for term in program.terms if term.rows is not None))
    for rows in (feasibility, rows_alone(program))[: 1 + bool(feasibility.terms)]:
        least = _Solved(elastic(rows))
        tangent = tangent_program(rows, least.X, least.u)
        if tangent is None:
            continue
        y = tangent.bounds.clip_required(least.y)
        candidates = [without_noise(y, y, part) for part in (0.0, *_NOISE)]
        proven = next((own for own in candidates if contradicts(tangent, own)), None)
        if proven is not None or least.bound > _VIOLATED:
            y = y if proven is None else proven
            return replace(answer, X=tuple(least.X), u=least.u, y=y, stop=StopReason.INFEASIBLE)
    fixed = with_constant_terms(program)
    ray = _Solved(steepest_ray(fixed))
    sizes = np.append(ray.u, [np.trace(X_b) for X_b in ray.X])
    for part in _NOISE:
        own = without_noise(sizes, sizes, part)
        u, X = own[: program.k], [X_b * (t > 0) for X_b, t in zip(ray.X, own[program.k :], strict=True)]
        if proves_unbounded(fixed, X, u):
            y = np.zeros(fixed.m)
            return replace(answer, X=tuple(X), u=u, y=y, stop=StopReason.UNBOUNDED)
    return None


class _Solved:
    """Matrices, variables, multipliers and the bound of a program that has a solution."""

    def __init__(self, program: Program) -> None:
        method = EntropyPath(program, StandardForm(program))
        monitor = Monitor(program, base.Settings(tol=_TOL), Progress(""))
        with np.errstate(over="ignore", invalid="ignore"):  # on rows without a point, multipliers grow
            at = monitor.follow(method, method.first(), _STEPS).at
        self.X, self.u = method.form.point(at.x)
        self.y, certificate = at.y, method.certificate(at)
        self.bound = certificate.dual if certificate.meets(_FAIR) else -np.inf
