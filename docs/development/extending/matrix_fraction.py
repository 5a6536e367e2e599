"""A convex atom: ``x' inv(P) x`` of a vector and a positive definite matrix, both of variables."""

import numpy as np

import bregopt as bo
from bregopt.modeling.convex.atom import Atom
from bregopt.modeling.convex.expression import curved, curved_argument, symmetric_argument


class MatrixFraction(Atom):
    """``x' inv(P) x``, which is ``t`` at most where ``[[P, x], [x', t]]`` is psd: the Schur complement."""

    name, sign = "matrix_fraction", 1

    def numbers(self, *values):
        x, P = values
        return float(x @ np.linalg.solve(P, x))

    def epigraph(self, t, *arguments):
        x, P = arguments
        return [bo.bmat([[P, x[:, None]], [x[None, :], t]]) >> 0]


def matrix_fraction(x, P):
    """Return ``x' inv(P) x``; it is convex in both together.

    Parameters
    ----------
    x : affine expression of shape (n,)
    P : PSD, or affine expression of shape (n, n)
        Symmetric. Where it is singular, `x` must be in its range.

    Returns
    -------
    CurvedExpression
        A scalar.
    """
    x, P = curved_argument(x, "x of matrix_fraction"), symmetric_argument(P, "P of matrix_fraction")
    if x.shape != P.shape[:1]:
        raise ValueError(f"x of matrix_fraction has shape {x.shape}; expected {P.shape[:1]}, as P has")
    return curved(MatrixFraction(x, P))
