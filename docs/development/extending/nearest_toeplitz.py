"""A ready-made problem: the nearest Toeplitz covariance."""

import numpy as np

import bregopt as bo


def nearest_toeplitz(A, **options):
    """Return the positive semidefinite Toeplitz matrix nearest to `A` in the Frobenius norm.

    Parameters
    ----------
    A : array_like of shape (n, n)
        Symmetric: the sample covariance of a stationary process, for instance.
    **options
        For :meth:`bregopt.Problem.solve`.

    Returns
    -------
    bregopt.Solution
    """
    A = np.asarray(A, dtype=float)
    X = bo.PSD(len(A), name="X")
    i, j = np.triu_indices(len(A) - 1)
    rows = [X[i, j] == X[i + 1, j + 1]] if len(i) else []
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows).solve(**options)
