"""A small nearest correlation matrix as a stack of one: its problem is declared when it is asked for.

To declare, compile and route a problem of order 20 takes as long as to solve it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, ArrayOrFrame
from bregopt.io.pandas_labels import labeled, pandas_module
from bregopt.problems.correlation.answer import Asked, CorrelationSolution
from bregopt.problems.correlation.request import Request
from bregopt.problems.stacked_method import METHOD, has_method, stack_settings
from bregopt.program import LowRank, StopReason
from bregopt.routes.derivatives.restated import Congruence
from bregopt.routes.driver import log_answer
from bregopt.routes.progress import Progress
from bregopt.routes.registry import route
from bregopt.routes.solution import MatricesLike
from bregopt.threads import threads_for

__all__ = ["solve_directly"]


@dataclass(frozen=True, eq=False, repr=False)
class _Direct(CorrelationSolution):
    """An answer that has its derivative at hand."""

    _proven: Any = field(kw_only=True)

    def vjp(self, G: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        return self._proven.products.vjp(G, self.X)

    def jvp(self, dA: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        return self._proven.products.jvp(dA, self.X)


def solve_directly(request: Request, options: Mapping[str, Any]) -> CorrelationSolution | None:
    """Return the nearest correlation matrix; None where the method does not take it, or does not prove it."""
    if not _is_plain(request) or not has_method(request.divergence, options) or clock.remaining() <= 0:
        return None
    begin = time.perf_counter()
    settings, method = stack_settings(options), route(METHOD)
    progress = Progress(method.name)
    with threads_for(request.n):
        proven = method.nearest_correlations(np.asarray(request.A)[None], settings)
    if proven is None:
        return None
    certificate, labels = proven.certificate.of(0), request.labels
    progress.record(proven.steps, certificate)
    dual = 0.0 - proven.y[0]
    seconds = time.perf_counter() - begin  # of all at once: the method proves its answers
    solution = _Direct(
        status=certificate.status(settings.tol, StopReason.CONVERGED).value,
        stop_reason=StopReason.CONVERGED.value,
        value=certificate.primal,
        X=proven.X[0],
        u={},
        duals=(dual,),
        dual_value=certificate.dual,
        gap=certificate.gap,
        primal_residual=certificate.primal_residual,
        dual_residual=certificate.dual_residual,
        error=certificate.error,
        iterations=proven.steps,
        timings={"setup": 0.0, "solve": seconds, "certify": 0.0, "total": seconds},
        solver=method.name,
        history=progress.history(),
        citation=proven.citation,
        duals_by_name={"diagonal": dual if labels is None else pandas_module().Series(dual.copy(), labels)},
        _stop=StopReason.CONVERGED,
        _restated=Congruence(request.s, request.n, request.fixed.i, request.fixed.j),
        _asked=Asked.of(request),
        _request=request,
        _proven=proven,
    )
    log_answer(solution)
    return labeled(solution, labels)


def _is_plain(request: Request) -> bool:
    """Whether nothing but the matrix is given, and the distance is Frobenius's."""
    given = (request.H, request.unknown, request.condition, request.groups, request.rank, request.scale)
    if request.divergence != "frobenius" or any(part is not None for part in given):
        return False
    if isinstance(request.A, LowRank) or len(request.fixed.i) or len(request.bounded.i):
        return False
    largest = float(np.abs(request.A).max())
    return request.floor == 0 and bool((request.s == 1).all()) and SMALLEST <= largest <= LARGEST
