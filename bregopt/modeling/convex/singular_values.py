"""Singular values of matrices: the largest, and their sum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.convex.arguments import copies_of, matrix_argument
from bregopt.modeling.convex.atom import Atom, Row
from bregopt.modeling.convex.eigenvalues import as_trace, lambda_max
from bregopt.modeling.convex.expression import CurvedExpression, curved
from bregopt.modeling.convex.symmetry import is_symmetric
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.matrix_inequalities import MatrixInequality
from bregopt.modeling.psd import PSD
from bregopt.modeling.stacking import bmat

__all__ = ["norm_nuc", "sigma_max"]


class SigmaMax(Atom):
    """The largest singular value: ``[[t I, F], [F', t I]]`` is psd.

    For a symmetric `F`, ``t I - F`` and ``t I + F`` are.
    """

    name, sign = "sigma_max", 1

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.norm(values[0], 2))

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        p, q = F.shape
        if is_symmetric(F):
            limit = t.times(np.eye(p))
            return [MatrixInequality(limit - F, self.label), MatrixInequality(limit + F, self.label)]
        whole = bmat([[t.times(np.eye(p)), F], [F.T, t.times(np.eye(q))]])
        return [MatrixInequality(whole, self.label)]


class NormNuc(Atom):
    """The sum of singular values: ``[[U, F], [F', V]]`` is psd with ``(tr U + tr V) / 2 <= t``.

    A symmetric `F` is a difference of two psd matrices, whose traces add up to ``t`` at most.

    References
    ----------
    Fazel, Hindi, Boyd (2001), A rank minimization heuristic with application to minimum order system
    approximation, Proceedings of the American Control Conference, lemma 2.
    """

    name, sign = "norm_nuc", 1

    def __init__(self, F: Any, copies: int = 1) -> None:
        self.copies = copies
        super().__init__(F)

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.norm(values[0], "nuc")) / self.copies

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        p, q = F.shape
        t = t.times(self.copies)
        if is_symmetric(F):
            P, N, own, upper = PSD(p), PSD(p), np.arange(p), np.triu_indices(p)
            return [P[upper] - N[upper] == F[upper], P[own, own].summed() + N[own, own].summed() <= t]
        W, own = PSD(p + q), np.arange(p + q)
        return [W[:p, p:] == F, W[own, own].summed() / 2 <= t]


def sigma_max(F: Operand) -> CurvedExpression:
    """Return the largest singular value of a matrix, its spectral norm; it is convex.

    Parameters
    ----------
    F : PSD, or affine expression of shape (p, q)
        Real or complex.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, no matrix, or contains no variable.
    """
    F = matrix_argument(F, "F of sigma_max")
    return lambda_max(F) if isinstance(F, PSD) else curved(SigmaMax(F))


def norm_nuc(F: Operand) -> CurvedExpression:
    """Return the sum of the singular values of a matrix, its nuclear norm; it is convex.

    That of a matrix variable as a whole is its trace.

    Parameters
    ----------
    F : PSD, or affine expression of shape (p, q)
        Real or complex.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, no matrix, or contains no variable.
    """
    copies = copies_of(F)
    F = matrix_argument(F, "F of norm_nuc")
    return as_trace(F) / copies if isinstance(F, PSD) else curved(NormNuc(F, copies))
