"""Logarithms and log-determinants beside variables: whole solves beside CVXPY with Clarabel."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from correlation_tools import Array

import bregopt as bo

_TOL = 1e-7
_TURNS = 3
_TITLES = ("problem", "bregopt (s)", "Clarabel (s)", "ratio", "difference", "R rho R (s)", "difference")


def pauli_frequencies(qubits: int, shots: int = 200) -> tuple[Any, Array]:
    """Return vectors and frequencies of the outcomes of all Pauli settings on a noisy GHZ state."""
    rng, n = np.random.default_rng(0), 2**qubits
    psi = np.zeros(n)
    psi[[0, -1]] = np.sqrt(0.5)
    rho = 0.9 * np.outer(psi, psi) + 0.1 * np.eye(n) / n
    h, y = np.array([[1, 1], [1, -1]]) / np.sqrt(2), np.array([[1, 1], [1j, -1j]]) / np.sqrt(2)
    V, counts = [], []
    for setting in itertools.product([np.eye(2), h, y], repeat=qubits):
        U = np.ones((1, 1))
        for basis in setting:
            U = np.kron(U, basis)
        p = np.maximum(np.einsum("ia,ij,ja->a", U.conj(), rho, U).real, 0)
        V.append(U.T)
        counts.append(rng.multinomial(shots, p / p.sum()))
    f = np.concatenate(counts) / (shots * 3**qubits)
    return np.concatenate(V)[f > 0], f[f > 0]


def r_rho_r(V: Any, f: Array, tol: float = 1e-7) -> float:
    """Return the largest likelihood by the iteration R rho R, to a proven gap."""
    rho = np.eye(V.shape[1]) / V.shape[1]
    while True:
        p = np.einsum("ki,ij,kj->k", V.conj(), rho, V).real
        R = (V.T * (f / p)) @ V.conj()
        if np.linalg.eigvalsh(R)[-1] - 1 <= tol:
            return float(f @ np.log(p))
        rho = R @ rho @ R
        rho /= np.trace(rho).real


def tomography(qubits: int) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """Return the calls of the maximum-likelihood state: ours, CVXPY's, and R rho R."""
    V, f = pauli_frequencies(qubits)
    n = V.shape[1]

    def ours() -> float:
        X = bo.PSD(n, name="X", hermitian=True)
        objective = f @ bo.log(bo.quad_form(V, X))
        return bo.Problem(bo.Maximize(objective), [bo.trace(X) == 1]).solve(tol=_TOL).value

    def theirs() -> float:
        X = cp.Variable((n, n), hermitian=True)
        rows = np.einsum("ki,kj->kij", V, V.conj()).reshape(len(V), -1)
        p = cp.real(rows.conj() @ cp.reshape(X, (n * n,), order="C"))
        problem = cp.Problem(cp.Maximize(f @ cp.log(p)), [X >> 0, cp.real(cp.trace(X)) == 1])
        problem.solve(solver="CLARABEL")
        return problem.value

    return ours, theirs, lambda: r_rho_r(V, f)


def design(m: int, d: int) -> tuple[Callable[[], Any], Callable[[], Any], None]:
    """Return the calls of D-optimal weights of random candidates, as ordinary variables."""
    V = np.random.default_rng(0).normal(size=(m, d))
    i, j = np.triu_indices(d)

    def ours() -> float:
        u, M = bo.Variable(m, name="u"), bo.PSD(d, name="M")
        rows = [M[i, j] == (V[:, i] * V[:, j]).T @ u, bo.sum(u) == 1, u >= 0]
        return bo.Problem(bo.Maximize(bo.log_det(M)), rows).solve(tol=_TOL).value

    def theirs() -> float:
        u = cp.Variable(m, nonneg=True)
        problem = cp.Problem(cp.Maximize(cp.log_det(V.T @ cp.diag(u) @ V)), [cp.sum(u) == 1])
        problem.solve(solver="CLARABEL")
        return problem.value

    return ours, theirs, None


def latent(n: int) -> tuple[Callable[[], Any], Callable[[], Any], None]:
    """Return the calls of a graphical lasso with latent variables: sparse minus low rank."""
    A = np.random.default_rng(0).normal(size=(3 * n, n)) + np.random.default_rng(1).normal(size=(3 * n, 1))
    S = A.T @ A / len(A)

    def objective(m: Any, K: Any, R: Any, L: Any) -> Any:
        return (
            (m.inner(S, R) if m is bo else cp.trace(S @ R))
            - m.log_det(R)
            + 0.1 * m.norm1(K)
            + 0.3 * m.trace(L)
        )

    def ours() -> float:
        R, L = bo.PSD(n, name="R"), bo.PSD(n, name="L")
        return bo.Problem(bo.Minimize(objective(bo, R + L, R, L))).solve(tol=_TOL).value

    def theirs() -> float:
        R, L = cp.Variable((n, n), PSD=True), cp.Variable((n, n), PSD=True)
        vector = cp.vec(R + L, order="C")
        problem = cp.Problem(
            cp.Minimize(cp.trace(S @ R) - cp.log_det(R) + 0.1 * cp.norm1(vector) + 0.3 * cp.trace(L))
        )
        problem.solve(solver="CLARABEL")
        return problem.value

    return ours, theirs, None


PROBLEMS = {
    "tomography, GHZ, n = 8": lambda: tomography(3),
    "tomography, GHZ, n = 16": lambda: tomography(4),
    "D-optimal weights, 30 candidates in d = 4": lambda: design(30, 4),
    "D-optimal weights, 200 candidates in d = 10": lambda: design(200, 10),
    "latent-variable graphical lasso, n = 10": lambda: latent(10),
    "latent-variable graphical lasso, n = 20": lambda: latent(20),
}


def _least(call: Callable[[], Any] | None) -> tuple[float, float]:
    """Return the value of a call and the least CPU seconds of a few turns; NaN without a call."""
    value, least = np.nan, np.nan
    for _ in range(_TURNS if call else 0):
        begin = time.process_time()
        assert call is not None
        value = call()
        least = min(time.process_time() - begin, np.inf if np.isnan(least) else least)
        if least > 5:
            break
    return value, least


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    warnings.simplefilter("ignore")
    yield f"| {' | '.join(_TITLES)} |"
    yield f"|{'---|' * len(_TITLES)}"
    for name, make in list(PROBLEMS.items())[: 1 if quick else None]:
        ours, theirs, exact = make()
        (value, own), (other, peer), (truth, seconds) = _least(ours), _least(theirs), _least(exact)
        last = ["", ""] if exact is None else [f"{seconds:.2g}", f"{abs(value - truth):.0e}"]
        cells = [name, f"{own:.2g}", f"{peer:.2g}", f"{peer / own:.1f}", f"{abs(value - other):.0e}", *last]
        yield f"| {' | '.join(cells)} |"
