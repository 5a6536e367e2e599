"""One model in two languages: a test writes a problem once, and builds it with bregopt and with CVXPY."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np

import bregopt as bo


def _entries(atom):
    """Return a CVXPY atom of a vector as one of all elements of an array."""
    return lambda x: atom(cp.vec(x, order="C") if x.ndim else cp.reshape(x, (1,), order="C"))


OURS = SimpleNamespace(
    **{name: getattr(bo, name) for name in bo.__all__},
)

CVXPY = SimpleNamespace(
    PSD=lambda n, name=None: cp.Variable((n, n), PSD=True, name=name),
    Variable=lambda shape=(), name=None, nonneg=False: cp.Variable(shape, name=name, nonneg=nonneg),
    Parameter=lambda shape=(), value=None, name=None, nonneg=True: cp.Parameter(
        shape, value=value, name=name, nonneg=nonneg
    ),
    Problem=cp.Problem,
    Minimize=cp.Minimize,
    Maximize=cp.Maximize,
    trace=cp.trace,
    diag=cp.diag,
    sum=cp.sum,
    inner=lambda A, X: cp.sum(cp.multiply(A, X)),
    quad_form=lambda Z, X: cp.sum(cp.multiply(np.atleast_2d(Z) @ X, np.atleast_2d(Z)), axis=1),
    sq_distance=lambda X, i, j: X[i, i] + X[j, j] - 2 * X[i, j],
    logdet_div=lambda X, X0: (
        cp.sum(cp.multiply(np.linalg.inv(X0), X)) - cp.log_det(X) + np.linalg.slogdet(X0)[1] - len(X0)
    ),
    frobenius_div=lambda X, X0: cp.sum_squares(X - X0),
    abs=cp.abs,
    pos=cp.pos,
    square=cp.square,
    maximum=cp.maximum,
    minimum=cp.minimum,
    max=cp.max,
    min=cp.min,
    norm1=_entries(cp.norm1),
    norm2=_entries(cp.norm2),
    norm_inf=_entries(cp.norm_inf),
    sum_squares=cp.sum_squares,
    quad_over_lin=cp.quad_over_lin,
    lambda_max=cp.lambda_max,
    lambda_min=cp.lambda_min,
    lambda_sum_largest=cp.lambda_sum_largest,
    sigma_max=cp.sigma_max,
    norm_nuc=lambda F: cp.normNuc(F),
    log=cp.log,
    log_det=cp.log_det,
    bmat=cp.bmat,
)
