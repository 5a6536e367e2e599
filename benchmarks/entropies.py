"""Entropies of affine arguments: time, error and proven width, beside QICS, Clarabel and SCS, one thread.

    OPENBLAS_NUM_THREADS=1 python benchmarks/entropies.py [--quick]

Milliseconds of CPU are the median of three solves of a declared problem; those of peers are of their own
solve from the same data. Errors are differences from a closed form, or from Clarabel's value. The problems
are

- Key rates of two parts of order d, which agree in two mutually unbiased bases with an error rate of 5 %:
  log d - h(q) - q log(d - 1) (Sheridan and Scarani 2010). QICS is optional.
- Free energies of random Hamiltonians: -log tr exp(-H).
- Relative entropy of entanglement of pure states, which is the entropy of one part. QICS is optional.
- Maximum entropy of n numbers under linear expectations, and logistic regression, by CVXPY with Clarabel and
  SCS.

`width` is that of the interval that `verify()` proves. The table goes to benchmarks/results/entropies.md.
"""

import argparse
import importlib.util
import statistics
import time
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np

import bregopt as bo

RESULTS = Path(__file__).resolve().parent / "results" / "entropies.md"
ROUNDS, RATE = 3, 0.05


def main():
    """Run the benchmark and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only, and save nothing")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    lines = [
        "| problem | bregopt, ms | steps | error | width | proof, ms "
        "| QICS, ms | its error | Clarabel, ms | SCS, ms |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    print("\n".join(lines))
    for row in rows(quick):
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n")


def rows(quick):
    """Yield the rows of the table."""
    for d in (2,) if quick else (2, 3, 4, 5):
        problem, data = key_rate(d)
        exact = np.log(d) + RATE * np.log(RATE / max(d - 1, 1)) + (1 - RATE) * np.log(1 - RATE)
        yield row(f"key rate, two parts of order {d}", problem, exact, peer=lambda data=data: qics_of(*data))
    for n in (4,) if quick else (8, 16):
        yield row(f"free energy, n = {n}", *free_energy(n))
    for d in (2,) if quick else (2, 3):
        problem, data, exact = entanglement(d)
        peer = lambda data=data: qics_of_entanglement(*data)  # noqa: E731
        yield row(f"entanglement, two parts of order {d}", problem, exact, peer=peer)
    for n, m in ((50, 5),) if quick else ((1_000, 20), (5_000, 50)):
        own, peer = maximum_entropy(n, m)
        yield row(f"maximum entropy, n = {n:,}, {m} rows", own, None, clarabel=peer)
    for m, n in ((50, 4),) if quick else ((500, 20), (2_000, 50)):
        own, peer = logistic(m, n)
        yield row(f"logistic regression, {m:,} x {n}", own, None, clarabel=peer)


def row(name, problem, exact, peer=None, clarabel=None):
    """Return the cells of one problem."""
    times, sol = timed(lambda: problem.solve(tol=1e-9))
    begin = time.process_time()
    proven = sol.verify()
    seconds = time.process_time() - begin
    theirs, other, value = "", "", exact
    if peer is not None and importlib.util.find_spec("qics") is not None:
        spent, found = timed(peer)
        theirs, other = f"{1e3 * spent:.0f}", f"{abs(found - exact):.0e}"
    third = ["", ""]
    if clarabel is not None:
        for k, solver in enumerate((cp.SCS, cp.CLARABEL)):
            spent, value = timed(lambda solver=solver: clarabel.solve(solver=solver))
            third[1 - k] = f"{1e3 * spent:.0f}"
    width = proven.upper - proven.lower
    return [
        *(name, f"{1e3 * times:.0f}", str(sol.iterations), f"{abs(sol.value - value):.0e}"),
        *(f"{width:.0e}" if np.isfinite(width) else "", f"{1e3 * seconds:.0f}", theirs, other, *third),
    ]


def timed(solve):
    """Return the median time of several solves, and the last answer."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        answer = solve()
        times.append(time.process_time() - begin)
    return statistics.median(times), answer


def key_rate(d):
    """Return the problem of two parts of order `d`, and its data: operators of rows, bounds, projections."""
    identity = np.eye(d)
    fourier = np.exp(2j * np.pi * np.outer(range(d), range(d)) / d) / np.sqrt(d)
    agree = np.diag(identity.ravel()).astype(complex)
    turn = np.kron(fourier, fourier.conj())
    A = [np.eye(d * d, dtype=complex), agree, turn @ agree @ turn.conj().T]
    key = [np.kron(np.diag(e), identity) for e in identity]
    rho = bo.PSD(d * d, hermitian=True, name="rho")
    b = [1.0, 1 - RATE, 1 - RATE]
    rows_ = [bo.inner(M, rho) == value for M, value in zip(A, b, strict=True)]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows_), (d, A, b)


def qics_of(d, A, b):
    """Return the key rate by QICS, from the same rows."""
    import qics

    n = d * d
    table = np.array([np.stack([M.real, M.imag], -1).ravel() for M in A])
    key = [np.kron(np.diag(e), np.eye(d)).astype(complex) for e in np.eye(d)]
    cone = qics.cones.QuantKeyDist(n, key, iscomplex=True)
    c = np.zeros((1 + 2 * n * n, 1))
    c[0] = 1.0
    model = qics.Model(c=c, A=np.hstack([np.zeros((len(A), 1)), table]), b=np.array(b)[:, None], cones=[cone])
    return float(qics.Solver(model, verbose=0).solve()["p_obj"])


def free_energy(n):
    """Return the problem and its value."""
    rng = np.random.default_rng(n)
    H, rho = rng.standard_normal((n, n)), bo.PSD(n)
    H = (H + H.T) / np.sqrt(n)
    problem = bo.Problem(bo.Minimize(bo.inner(H, rho) - bo.von_neumann_entr(rho)), [bo.trace(rho) == 1])
    return problem, -np.log(np.exp(-np.linalg.eigvalsh(H)).sum())


def entanglement(d):
    """Return the problem of a pure state, its data and its value."""
    rng = np.random.default_rng(d)
    M = rng.standard_normal((d, d)) + 1j * rng.standard_normal((d, d))
    psi = M.ravel() / np.linalg.norm(M)
    pure, Y = np.outer(psi, psi.conj()), bo.PSD(d * d, hermitian=True)
    rows_ = [bo.trace(Y) == 1, bo.partial_transpose(Y, (d, d), 1) >> 0]
    p = np.linalg.svd(M / np.linalg.norm(M), compute_uv=False) ** 2
    return bo.Problem(bo.Minimize(bo.quantum_rel_entr(pure, Y)), rows_), (d, pure), -p @ np.log(p)


def qics_of_entanglement(d, pure):
    """Return the relative entropy of entanglement by QICS: variables t, X, Y and the transpose of Y."""
    import qics
    from qics.vectorize import mat_to_vec

    n = d * d
    cones = [qics.cones.QuantRelEntr(n, iscomplex=True), qics.cones.PosSemidefinite(n, iscomplex=True)]
    units = []  # of Hermitian matrices
    for i in range(n):
        for j in range(i, n):
            for z in (1.0, 1j) if i < j else (1.0,):
                E = np.zeros((n, n), dtype=complex)
                E[i, j], E[j, i] = z, np.conj(z)
                units.append(E)
    size, A, b = 2 * n * n, [], []
    none = np.zeros(size)
    for E in units:
        flipped = E.reshape(d, d, d, d).transpose(0, 3, 2, 1).reshape(n, n)
        vector = mat_to_vec(E)[:, 0]
        A += [np.r_[0, vector, none, none], np.r_[0, none, mat_to_vec(flipped)[:, 0], -vector]]
        b += [np.vdot(E, pure).real, 0.0]
    A.append(np.r_[0, none, mat_to_vec(np.eye(n, dtype=complex))[:, 0], none])
    c = np.zeros((1 + 3 * size, 1))
    c[0] = 1.0
    model = qics.Model(c=c, A=np.array(A), b=np.array([*b, 1.0])[:, None], cones=cones)
    return float(qics.Solver(model, verbose=0).solve()["p_obj"])


def maximum_entropy(n, m):
    """Return the problem, and CVXPY's."""
    rng = np.random.default_rng(n)
    F, p = rng.standard_normal((m - 1, n)), rng.random(n)
    b = F @ (p / p.sum())
    u, v = bo.Variable(n), cp.Variable(n)
    own = bo.Problem(bo.Maximize(bo.sum(bo.entr(u))), [bo.sum(u) == 1, F @ u == b])
    return own, cp.Problem(cp.Maximize(cp.sum(cp.entr(v))), [cp.sum(v) == 1, F @ v == b])


def logistic(m, n):
    """Return the problem, and CVXPY's."""
    rng = np.random.default_rng(m)
    margins = rng.choice([-1.0, 1.0], (m, 1)) * rng.standard_normal((m, n))
    u, v = bo.Variable(n), cp.Variable(n)
    own = bo.Problem(bo.Minimize(bo.sum(bo.logistic(margins @ u)) + 0.5 * bo.sum_squares(u)))
    peer = cp.Minimize(cp.sum(cp.logistic(margins @ v)) + 0.5 * cp.sum_squares(v))
    return own, cp.Problem(peer)


if __name__ == "__main__":
    main()
