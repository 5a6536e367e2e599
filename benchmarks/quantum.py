"""Quantum information: time of bregopt, QICS, toqito, SCS and Clarabel on five kinds of problems, one thread.

    OPENBLAS_NUM_THREADS=1 python benchmarks/quantum.py [--quick]

Seconds of CPU are those of a declaration and a solution, the least of three. Errors are differences from a
closed form: of the matrix for Gibbs states and tomography, of the value for the others. The problems are

- Gibbs states: the state nearest to the maximally mixed one in the von Neumann divergence, with the
  expectations of k random Pauli words; the answer is exp(sum theta_k A_k) / Z.
- Tomography: the state nearest to a noisy estimate of a GHZ state, by projection of its eigenvalues.
- Helstrom: the measurement that discriminates two random states best; (1 + ||p rho - q sigma||_1) / 2.
- Nearest PPT state: from an isotropic state; the isotropic state of fidelity 1/d.
- The functions of toqito for random states and channels; ours with the default tol of 1e-6, its own with its
  default solver.

QICS and toqito are optional; without them their columns are empty. The table goes to
benchmarks/results/quantum.md.
"""

import argparse
import functools
import importlib
import importlib.util
import os
import platform
import time
import warnings
from importlib import metadata
from pathlib import Path

import cvxpy as cp
import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

import bregopt as bo

PAULI = (np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1]))
REPEATS, LONG = 3, 20.0  # number of measurements, and seconds above which one is enough
REFERENCE_LIMIT = 120.0  # seconds
RESULTS = Path(__file__).resolve().parent / "results" / "quantum.md"


def main():
    """Run the benchmark and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only, and save nothing")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    lines = [__doc__.splitlines()[0], "", conditions(), ""]
    for section in (gibbs, tomography, helstrom, nearest_ppt, channels):
        for line in section(np.random.default_rng(0), quick):
            print(line, flush=True)
            lines.append(line)
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n")


def conditions():
    """Return the machine and the versions."""
    packages = ("numpy", "scipy", "cvxpy", "clarabel", "scs", "qics", "toqito")
    versions = [f"{name} {metadata.version(name)}" for name in packages if known(name)]
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    return f"{machine}, {', '.join(versions)}; BLAS threads: {threads}"


def timed(call):
    """Return the result of a call and the least seconds of CPU."""
    least = np.inf
    for _ in range(REPEATS):
        start = time.process_time()
        result = call()
        least = min(least, time.process_time() - start)
        if least > LONG:
            break
    return result, least


def heading(*cells):
    """Yield the heading of a table."""
    yield f"| {' | '.join(cells)} |"
    yield f"|{'---|' * len(cells)}"


def row(*cells):
    """Return a row of a table."""
    texts = ["" if c is None else f"{c:.2g}" if isinstance(c, float) else str(c) for c in cells]
    return f"| {' | '.join(texts)} |"


def known(package):
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None


def times(theirs, ours):
    """Return the ratio of two times as text, None without theirs."""
    return None if theirs is None else f"{theirs / ours:.2g}x"


def hermitian(n, rng):
    """Return a random Hermitian matrix."""
    G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return (G + G.conj().T) / 2


def state(n, rng):
    """Return a random density matrix."""
    G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return G @ G.conj().T / np.linalg.norm(G) ** 2


# Gibbs states


def pauli_words(q, k, rng):
    """Return `k` distinct Pauli words of `q` qubits, not the identity, as sparse matrices."""
    words = {}
    while len(words) < k:
        word = tuple(rng.integers(0, 4, q).tolist())
        if any(word):
            factors = [sp.csr_array(PAULI[letter]) for letter in word]
            words[word] = functools.reduce(functools.partial(sp.kron, format="csr"), factors)
    return list(words.values())


def gibbs(rng, quick):
    """Yield the table of Gibbs states."""
    yield from heading("Gibbs state, n", "k", "error", "gap", "s", "QICS, s", "QICS / bregopt")
    for q in (5,) if quick else (5, 6, 7, 8):
        n, k = 2**q, 7 * q + 1
        words = pauli_words(q, k, rng)
        exact = la.expm(sum(t * A for t, A in zip(0.3 * rng.normal(size=k), words, strict=True)).toarray())
        exact /= np.trace(exact).real
        b = np.array([A.multiply(exact.T).sum().real for A in words])
        sol, ours = timed(lambda: gibbs_state(n, words, b))  # noqa: B023 - called at once
        theirs = timed(lambda: qics_gibbs_state(n, words, b))[1] if known("qics") else None  # noqa: B023
        yield row(n, k, float(np.abs(sol.X - exact).max()), sol.gap, ours, theirs, times(theirs, ours))
    yield ""


def gibbs_state(n, words, b):
    """Return our answer."""
    X = bo.PSD(n, hermitian=True)
    rows = [bo.trace(X) == 1, bo.inner(words, X) == b]
    return bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(n) / n)), rows).solve(tol=1e-9)


def qics_gibbs_state(n, words, b):
    """Return the answer of QICS: least negative entropy, with the same expectations."""
    import qics

    vectors = [qics.vectorize.mat_to_vec(A.toarray().astype(complex)).T for A in (sp.eye_array(n), *words)]
    c, unit = np.zeros((2, 2 + 2 * n * n, 1))
    c[0] = unit[1] = 1.0
    A = np.vstack([np.hstack([np.zeros((len(vectors), 2)), np.vstack(vectors)]), unit.T])
    right = np.concatenate([[1.0], b, [1.0]])[:, None]
    model = qics.Model(c=c, A=sp.csr_matrix(A), b=right, cones=[qics.cones.QuantEntr(n, iscomplex=True)])
    return qics.Solver(model, verbose=0, tol_gap=1e-9, tol_feas=1e-9).solve()


# Tomography


def tomography(rng, quick):
    """Yield the table of nearest density matrices."""
    yield from heading("nearest density matrix, n", "error", "s", "SCS, error", "s", "SCS / bregopt")
    for n in (32,) if quick else (64, 128):
        ghz = np.zeros(n)
        ghz[[0, -1]] = np.sqrt(0.5)
        estimate = np.outer(ghz, ghz) + 0.05 * hermitian(n, rng)
        d, U = np.linalg.eigh(estimate)
        exact = (U * simplex(d)) @ U.conj().T
        X, ours = timed(lambda: nearest_state(estimate))  # noqa: B023
        Y, theirs = timed(lambda: scs_nearest_state(estimate))  # noqa: B023
        errors = (float(np.abs(answer - exact).max()) for answer in (X, Y))
        yield row(n, next(errors), ours, next(errors), theirs, times(theirs, ours))
    yield ""


def simplex(v):
    """Return the nearest vector of the unit simplex."""
    s = np.sort(v)[::-1]
    shift = (np.cumsum(s) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - shift[np.flatnonzero(s > shift)[-1]], 0)


def nearest_state(estimate):
    """Return our answer."""
    X = bo.PSD(len(estimate), hermitian=True)
    prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, estimate)), [bo.trace(X) == 1])
    return prob.solve(tol=1e-12).X


def scs_nearest_state(estimate):
    """Return the answer of SCS by CVXPY."""
    X = cp.Variable(estimate.shape, hermitian=True)
    prob = cp.Problem(cp.Minimize(cp.norm(X - estimate, "fro")), [X >> 0, cp.real(cp.trace(X)) == 1])
    prob.solve(solver="SCS", eps=1e-6)
    return X.value


# State discrimination


def helstrom(rng, quick):
    """Yield the table of the discrimination of two states."""
    yield from heading("Helstrom, n", "error", "s", "SCS, error", "s", "Clarabel, error", "s")
    for n in (8,) if quick else (16, 32):
        p, rho, sigma = 0.4, state(n, rng), state(n, rng)
        best = (1 + np.abs(np.linalg.eigvalsh(p * rho - (1 - p) * sigma)).sum()) / 2
        cells = []
        for solve in (
            discrimination,
            functools.partial(peer, "SCS", eps=1e-8),
            functools.partial(peer, "CLARABEL"),
        ):
            value, seconds = timed(lambda: solve([rho, sigma], [p, 1 - p]))  # noqa: B023
            cells += [float(abs(value - best)), seconds]
        yield row(n, *cells)
    yield ""


def discrimination(states, probabilities, exclude=False, tol=1e-8):
    """Return the best probability of success, or the least one of error of an exclusion."""
    n = len(states[0])
    M = [bo.PSD(n, hermitian=True) for _ in states]
    total = sum(bo.inner(p * rho, X) for p, rho, X in zip(probabilities, states, M, strict=True))
    complete = sum(M[1:], start=+M[0]) == np.eye(n)
    return bo.Problem(bo.Minimize(total) if exclude else bo.Maximize(total), [complete]).solve(tol=tol).value


def peer(solver, states, probabilities, **options):
    """Return the value of another solver by CVXPY."""
    n = len(states[0])
    M = [cp.Variable((n, n), hermitian=True) for _ in states]
    pairs = zip(probabilities, states, M, strict=True)
    total = cp.real(sum(cp.trace(p * rho @ X) for p, rho, X in pairs))
    return cp.Problem(cp.Maximize(total), [*(X >> 0 for X in M), sum(M) == np.eye(n)]).solve(
        solver, **options
    )


# Nearest states with a psd partial transpose


def nearest_ppt(_, quick):
    """Yield the table of nearest PPT states."""
    yield from heading(
        "nearest PPT state, d", "divergence", "error", "s", "reference, error", "s", "reference / bregopt"
    )
    F = 0.8
    for d in (3,) if quick else (4, 8):
        n = d * d
        distance = (F - 1 / d) ** 2 * n / (n - 1)
        entropy = np.log(1 / (d * F)) / d + (1 - 1 / d) * np.log((1 - 1 / d) / (1 - F))
        for name, atom, exact in (
            ("Frobenius", bo.frobenius_div, distance),
            ("von Neumann", bo.von_neumann_div, entropy),
        ):
            sol, ours = timed(lambda: ppt_problem(atom, d, F).solve(tol=1e-8))  # noqa: B023
            limit = {"solver": "cvxpy", "time_limit": REFERENCE_LIMIT}
            small = n <= 16 or name == "Frobenius"  # beyond, the reference needs more memory than there is
            other, theirs = timed(lambda: ppt_problem(atom, d, F).solve(**limit)) if small else (None, None)  # noqa: B023
            error = None if other is None else float(abs(other.value - exact))
            yield row(d, name, float(abs(sol.value - exact)), ours, error, theirs, times(theirs, ours))
    yield ""


def ppt_problem(atom, d, F):
    """Return the problem of the PPT state nearest to an isotropic one."""
    phi = np.eye(d).ravel() / np.sqrt(d)
    P = np.outer(phi, phi)
    X = bo.PSD(d * d, hermitian=True)
    ppt = bo.partial_transpose(X, (d, d), 1) >> 0
    isotropic = F * P + (1 - F) * (np.eye(d * d) - P) / (d * d - 1)
    return bo.Problem(bo.Minimize(atom(X, isotropic)), [bo.trace(X) == 1, ppt])


# The functions of toqito


def channels(rng, quick):
    """Yield the table of toqito's functions."""
    yield from heading("function of toqito", "sizes", "difference", "s", "toqito, s", "toqito / bregopt")
    for n, count in ((3, 3),) if quick else ((3, 3), (8, 6), (16, 6)):
        states = [state(n, rng) for _ in range(count)]
        for exclude in (False, True):
            name = "state_exclusion" if exclude else "state_distinguishability"
            ours = functools.partial(discrimination, states, [1 / count] * count, exclude, tol=1e-6)
            theirs = functools.partial(of_toqito, f"state_opt.{name}", states)
            yield compared(name, f"{count} states, n = {n}", ours, theirs)
    for d in (2,) if quick else (2, 3, 4):
        J = choi_matrix(d, 3, rng) - choi_matrix(d, 2, rng)
        for name, ours in (("diamond_distance", diamond_norm), ("completely_bounded_trace_norm", trace_norm)):
            first = functools.partial(of_toqito, "channel_metrics.completely_bounded_trace_norm", J)
            yield compared(name, f"d = {d}", functools.partial(ours, J), first)
    yield ""


def compared(name, sizes, ours, theirs):
    """Return the row of a function, ours and toqito's."""
    value, seconds = timed(ours)
    if not known("toqito"):
        return row(name, sizes, None, seconds, None, None)
    try:
        other, longer = timed(theirs)
    except ArithmeticError as error:  # of CVXOPT, its default solver
        return row(name, sizes, f"fails: {type(error).__name__}", seconds, None, None)
    return row(name, sizes, float(abs(value - other)), seconds, longer, times(longer, seconds))


def of_toqito(path, *arguments, **options):
    """Return the value of a function of toqito."""
    package, name = path.split(".")
    function = getattr(importlib.import_module(f"toqito.{package}"), name)
    found = function(*arguments, **options)
    return float(np.real(found[0] if isinstance(found, tuple) else found))


def choi_matrix(d, count, rng):
    """Return the Choi matrix of a random channel with `count` Kraus operators; the input comes first."""
    G = rng.normal(size=(count * d, d)) + 1j * rng.normal(size=(count * d, d))
    kraus = np.linalg.qr(G)[0].reshape(count, d, d)
    return sum(np.outer(K.T.ravel(), K.T.ravel().conj()) for K in kraus)


def diamond_norm(J):
    """Return the diamond norm of a difference of channels (Watrous 2009)."""
    d = round(np.sqrt(len(J)))
    W, rho = bo.PSD(d * d, hermitian=True), bo.PSD(d, hermitian=True)
    rows = [bo.kron(rho, np.eye(d)) - W >> 0, bo.trace(rho) == 1]
    return bo.Problem(bo.Maximize(2 * bo.inner(J, W)), rows).solve().value


def trace_norm(J):
    """Return the completely bounded trace norm of any map (Watrous 2012)."""
    n = len(J)
    d = round(np.sqrt(n))
    Z, t = bo.PSD(2 * n, hermitian=True), bo.Variable(2)
    traces = [bo.partial_trace(Z[k : k + n, k : k + n], (d, d), keep=0) for k in (0, n)]
    bounds = [t[k] * np.eye(d) - traces[k] >> 0 for k in (0, 1)]
    return bo.Problem(bo.Minimize(bo.sum(t) / 2), [Z[:n, n:] == -J, *bounds]).solve().value


if __name__ == "__main__":
    main()
