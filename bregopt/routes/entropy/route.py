"""The route `entropy`: semidefinite programs with convex terms, such as entropies, in objective and rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bregopt.certify import NEAR
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.program.convex_terms import tangent_program, with_constant_terms
from bregopt.records import replace
from bregopt.rigorous import contradicts, proves_unbounded
from bregopt.routes import base
from bregopt.routes.alternatives import elastic, steepest_ray, without_noise
from bregopt.routes.base import Capabilities
from bregopt.routes.entropy.interior_point import EntropyPath
from bregopt.routes.monitor import Monitor
from bregopt.routes.progress import Progress

__all__ = ["Entropy"]

_STEPS = 200
# Tolerance of the search for a proof that there is no optimum, and the parts of a Farkas vector, relative to
# its largest, up to which they are tried as zero.
_TOL, _NOISE = 1e-8, (1e-14, 1e-10, 1e-7)
# Least violation of the rows, relative to them, that is said without a proof if it is known to `_FAIR`.
_VIOLATED, _FAIR = 1e-3, 1e-4


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
    Settings: ClassVar[type[base.Settings]] = base.Settings

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.terms:
            return "the problem has no entropy or other convex term; path is faster"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        names = dict.fromkeys(term.function.name for term in program.terms)
        return f"an interior-point method with the second derivatives of {', '.join(names)}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        method = EntropyPath(program)
        monitor = Monitor(program, settings, progress)
        at, stop, step, _ = monitor.follow(method, method.first(), settings.max_iter or _STEPS)
        X, u = method.form.point(at.x)
        answer = Answer(tuple(X), u, at.y, stop, step)
        if stop is not StopReason.STALLED or method.certificate(at).worst <= NEAR:
            return answer
        return _without_optimum(program, answer) or answer


def _without_optimum(program: Program, answer: Answer) -> Answer | None:
    """Return a proof that the program has no optimum, None where none is found.

    It is a Farkas vector of the tangents of the rows, at a point of least violation, or a ray along which no
    argument of a term changes.
    """
    feasibility = replace(program, terms=tuple(term for term in program.terms if term.rows is not None))
    least = _Solved(elastic(feasibility))
    tangent = tangent_program(feasibility, least.X, least.u)
    if tangent is not None:
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
        method = EntropyPath(program)
        monitor = Monitor(program, base.Settings(tol=_TOL), Progress(""))
        at = monitor.follow(method, method.first(), _STEPS).at
        self.X, self.u = method.form.point(at.x)
        self.y, certificate = at.y, method.certificate(at)
        self.bound = certificate.dual if certificate.meets(_FAIR) else -np.inf
