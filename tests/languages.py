"""One model in two languages: a test writes a problem once, and builds it with bregopt and with CVXPY."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np

import bregopt as bo


def _entries(atom):
    """Return a CVXPY atom of a vector as one of all elements of an array."""
    return lambda x: atom(cp.vec(x, order="C") if x.ndim else cp.reshape(x, (1,), order="C"))


def _product(L, X, R):
    """Return ``L @ X @ R`` as our expression."""
    p, q = len(L), R.shape[1]
    n, r = X.shape
    flat = X[np.indices((n, r)).reshape(2, -1)[0], np.indices((n, r)).reshape(2, -1)[1]]
    return (np.kron(L, R.T) @ flat)[np.arange(p * q).reshape(p, q)]


def _block(rows):
    """Return a symmetric block matrix; of blocks below the diagonal, None, are the mirrored ones."""
    ends = np.cumsum([0, *(row[k].shape[0] for k, row in enumerate(rows))])
    n, total = ends[-1], 0
    for k, row in enumerate(rows):
        for j in range(k, len(rows)):
            left, right = np.eye(n)[:, ends[k] : ends[k + 1]], np.eye(n)[ends[j] : ends[j + 1]]
            if isinstance(row[j], np.ndarray):
                placed = left @ row[j] @ right
                total = total + (placed if j == k else placed + placed.T)
            else:
                placed = _product(left, row[j], right)
                total = total + placed
                total = total if j == k else total + placed[np.arange(n)[None, :], np.arange(n)[:, None]]
    return total


def _cvxpy_block(rows):
    return cp.bmat(
        [[rows[j][k].T if j < k else row[j] for j in range(len(row))] for k, row in enumerate(rows)]
    )


OURS = SimpleNamespace(
    **{name: getattr(bo, name) for name in bo.__all__},
    product=_product,
    block=_block,
    psd=lambda F: bo.lambda_min(F) >= 0,
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
    log_det=cp.log_det,
    product=lambda L, X, R: L @ X @ R,
    block=_cvxpy_block,
    psd=lambda F: (F + F.T) / 2 >> 0,
)
