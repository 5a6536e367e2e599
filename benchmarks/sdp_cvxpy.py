"""Semidefinite programs as users write them in CVXPY, solved by our two hooks and by Clarabel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sdp import SDP
from sdp_peers import TOL

Array = Any

METHOD, SOLVER, CLARABEL, SCS = "bregopt method", "bregopt BREGOPT", "Clarabel by CVXPY", "SCS by CVXPY"
HOWS = (METHOD, SOLVER, CLARABEL)


def options_of(how: str, cap: float) -> dict[str, Any]:
    """Return the arguments of ``cvxpy.Problem.solve``."""
    if how == METHOD:
        return {"method": "bregopt", "tol": TOL, "time_limit": cap}
    if how == SOLVER:
        return {"solver": "BREGOPT", "tol": TOL, "time_limit": cap}
    if how == SCS:
        return {"solver": "SCS", "eps_abs": TOL, "eps_rel": TOL, "time_limit_secs": cap, "max_iters": 10**7}
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOL)
    return {"solver": "CLARABEL", "time_limit": cap, "max_threads": 1, **tolerances}


def model_of(sdp: SDP, form: str, how: str, cap: float) -> Callable[[], tuple[str, Array, Array, Array]]:
    """Return the function that compiles and solves a new problem, and returns its status, X, Z and y.

    Parameters
    ----------
    sdp : SDP
    form : {"inequality", "matrix"}
        The dual side, linear matrix inequalities in y, or the primal side, equations in psd matrices.
    how : str
        One of `HOWS`.
    cap : float
        Time limit in seconds.
    """
    problem, point = {"inequality": inequality_form, "matrix": matrix_form}[form](sdp)
    import bregopt.cvxpy  # noqa: F401 - the hooks

    def solve() -> tuple[str, Array, Array, Array]:
        problem.solve(**options_of(how, cap))
        X, y = point()
        if X is None:
            return problem.status, np.empty(0), np.empty(0), np.empty(0)
        return problem.status, X, np.concatenate([Z.ravel() for Z in sdp.slack(y)]), y

    return solve


def inequality_form(sdp: SDP) -> tuple[Any, Callable[[], tuple[Array | None, Array]]]:
    """Return  min b'y,  sum_i y_i F_i - F0 psd,  and the function that gives X and y once solved."""
    import cvxpy as cp

    y = cp.Variable(sdp.m)
    rows = []
    for n, F in zip(sdp.orders, sdp.F, strict=True):
        slack = F.T.tocsr()[:, 1:] @ y - F[[0]].toarray().ravel()
        rows.append(cp.reshape(slack, (n, n), order="C") >> 0 if n > 0 else slack >= 0)

    def point() -> tuple[Array | None, Array]:
        if y.value is None or rows[0].dual_value is None:
            return None, y.value
        return np.concatenate([np.ravel(row.dual_value) for row in rows]), y.value

    return cp.Problem(cp.Minimize(sdp.b @ y), rows), point


def matrix_form(sdp: SDP) -> tuple[Any, Callable[[], tuple[Array | None, Array]]]:
    """Return  max <F0, X>,  <F_i, X> = b_i,  X psd,  and the function that gives X and y once solved."""
    import cvxpy as cp

    X = [cp.Variable((n, n), PSD=True) if n > 0 else cp.Variable(-n, nonneg=True) for n in sdp.orders]
    flat = [cp.vec(X_k, order="C") if X_k.ndim == 2 else X_k for X_k in X]
    met = [k for k, F in enumerate(sdp.F) if F[1:].nnz]
    equation = sum(sdp.F[k][1:] @ flat[k] for k in met) == sdp.b
    value = sum(F[[0]].toarray().ravel() @ x for F, x in zip(sdp.F, flat, strict=True) if F[[0]].nnz)

    def point() -> tuple[Array | None, Array]:
        if X[0].value is None or equation.dual_value is None:
            return None, np.empty(0)
        return np.concatenate([np.ravel(X_k.value) for X_k in X]), np.asarray(equation.dual_value)

    return cp.Problem(cp.Maximize(value), [equation]), point
