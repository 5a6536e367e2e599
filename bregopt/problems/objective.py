"""The nearness objective of a ready-made problem, chosen by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bregopt.divergences import DIVERGENCES, Divergence
from bregopt.errors import did_you_mean, is_one_of
from bregopt.linalg import is_definite
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.objectives import bregman_div
from bregopt.modeling.variables import PSD
from bregopt.program.lowrank import LowRank, Matrix

__all__ = ["check_definite", "divergence_class", "nearness"]


def divergence_class(divergence: Any, norms: Iterable[str] = ()) -> type[Divergence]:
    """Return the class of a divergence by the name that a user gives; messages also name the `norms`."""
    if not is_one_of(divergence, DIVERGENCES):
        known = (*DIVERGENCES, *norms)
        raise ValueError(f"divergence is {divergence!r}{did_you_mean(str(divergence), known)}")
    return DIVERGENCES[divergence]


def nearness(divergence: str, X: PSD, X0: Matrix, name: str, **parameters: Any) -> CurvedExpression:
    """Return the divergence of `X` from `X0`; messages call `X0` by the `name` of the user's argument."""
    kind = divergence_class(divergence)
    if isinstance(X0, LowRank):
        if not kind.keeps_range:
            refused = f"whose range {kind.__name__} does not keep"
            raise TypeError(f"{name} is LowRank, {refused}: pass {name}.dense()")
    elif kind.definite_start:
        check_definite(X0, name, divergence)
    return bregman_div(X, X0, divergence, **parameters)


def check_definite(X0: Any, name: str, divergence: str) -> None:
    """Refuse a matrix that is not positive definite."""
    if not is_definite(X0):
        eigenvalues = np.linalg.eigvalsh(X0)
        raise ValueError(
            f"{name} is not positive definite (eigenvalues from {eigenvalues[0]:.3g} to "
            f"{eigenvalues[-1]:.3g}), which "
            f"divergence={divergence!r} needs: use divergence='frobenius', add a multiple of the identity, "
            "or, where it is singular, pass bo.LowRank(factor)"
        )
