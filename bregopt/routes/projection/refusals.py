"""Why the route `bregman` does not take a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.divergences import SCALARS, Divergence
from bregopt.presolve import presolve, reductions
from bregopt.program import Block, LowRank, Program
from bregopt.program.anchor import divergence_of
from bregopt.routes.projection.algorithms import (
    METHODS,
    algorithm_of,
    kind_of,
    kinds_of,
    method_of,
    with_proximal_terms,
)

__all__ = ["reduced", "refusal"]


def refusal(program: Program, settings: Any) -> str | None:
    """Return the reason why a program is not taken, None if it is."""
    without_divergence = _without_divergence(program, settings)
    if without_divergence is not None:
        return without_divergence
    program = with_proximal_terms(program)
    left = reduced(program, settings).k if program.k else 0
    if left:
        return f"of ordinary variables it takes slacks only (the problem has {left} other)"
    kinds = kinds_of(program)
    if algorithm_of(kinds, len(program.blocks) > 1, method_of(program, settings)) is None:
        return _not_taken(program, settings)
    beyond = _beyond_cap(program, settings)
    if beyond is not None:
        return beyond
    without = _without_start(program, settings)
    if without is not None:
        return without
    for kind in kinds:
        for penalty in program.bounds.penalties:
            if SCALARS[penalty].of_ratios and not kind.essentially_smooth:
                return f"rows with the {penalty.name.lower()} penalty do not go with {kind.phrase()}"
    return _boundary(program)


def reduced(program: Program, settings: Any) -> Program:
    """Return the program as the driver passes it to the route."""
    return presolve(program, reductions(("boxes", "slacks")), settings).program


def _without_divergence(program: Program, settings: Any) -> str | None:
    """Return the reason why matrices without a divergence are not taken, None if they are."""
    linear = [block.name for block in program.blocks if block.nearness is None]
    if not linear:
        return None
    kinds = [block.nearness.kind for block in program.blocks if block.nearness is not None]
    spectral = [kind.offers("spectrum") and not kind.barrier and not kind.weights for kind in kinds]
    if kinds and all(spectral) and settings.method != "cyclic":
        return None
    beside = " but beside von Neumann or Frobenius, method 'newton'" if kinds else ""
    return f"it does not take a linear objective (of {linear[0]}){beside}"


def _beyond_cap(program: Program, settings: Any) -> str | None:
    """Return the reason why a bound on eigenvalues is not taken: Newton's method on a spectrum takes it."""
    method = method_of(program, settings)
    for block in program.blocks:
        kind = kind_of(block)
        spectral = kind.takes_cap and kind.offers("spectrum") and not kind.barrier
        if block.cap is None or (method == "newton" and spectral):
            continue
        bounded = f"it takes no bound on eigenvalues with {kind.phrase()}, method {settings.method!r}"
        return f"{bounded}: only Newton's method for von Neumann and Frobenius does"
    return None


def _not_taken(program: Program, settings: Any) -> str:
    """Return the reason why no algorithm takes the divergences of a program."""
    asked, count = settings.method, len(program.blocks)
    methods = [name for name in METHODS[1:] if asked in ("auto", name)]

    def taken(kind: type[Divergence], several: bool) -> bool:
        return any(algorithm_of((kind,), several, method) for method in methods)

    for kind in kinds_of(program):
        if not taken(kind, several=count > 1):
            if not taken(kind, several=False):
                return f"method {asked!r} does not take {kind.phrase()}"
            alone = f"it takes {kind.phrase()} with method {asked!r} in 1 matrix variable"
            return f"{alone}, the problem has {count}"
    return f"method {asked!r} does not take these divergences together"


def _without_start(program: Program, settings: Any) -> str | None:
    """Return the reason why a method has no start: the dual of a LogDet term is not defined at zero.

    Newton's method for LogDet alone needs no such start.
    """
    cyclic, kinds = settings.method == "cyclic", kinds_of(program)
    if not any(kind.offers("recession") for kind in kinds) or not (cyclic or len(kinds) > 1):
        return None
    for block in presolve(program, reductions(("range space",)), settings).program.blocks:
        if kind_of(block).offers("recession") and not _has_start(block):
            needed = f"needs C + mu inv(X0) of {block.name} positive definite to start from"
            return f"method 'cyclic' {needed}" if cyclic else f"LogDet beside other divergences {needed}"
    return None


def _has_start(block: Block) -> bool:
    """Whether the dual of a block's term is defined at zero multipliers."""
    if block.cost is None or block.nearness is None or isinstance(block.nearness.X0, LowRank):
        return True
    divergence = divergence_of(block.nearness)
    return divergence.dual_term(block.C, block.nearness.mu, np.eye(block.n)) > -np.inf


def _boundary(program: Program) -> str | None:
    """Return the reason why no positive definite matrix satisfies the rows, if a single row shows it."""
    inside = [kind.essentially_smooth and kind.finite_on_boundary for kind in map(kind_of, program.blocks)]
    if not any(inside):
        return None
    bounds, sign = program.bounds, program.A.definite_signs
    pinned = bounds.hard & (((sign > 0) & (bounds.hi == 0)) | ((sign < 0) & (bounds.lo == 0)))
    for term in program.A.terms:
        where = np.flatnonzero(inside[term.block] & pinned[term.at] & (term.rows.norms() > 0))
        if len(where):
            name = program.row_name(int(term.at[where[0]]))
            return f"{name} holds only on the boundary of the psd cone, which projections do not reach"
    return None
