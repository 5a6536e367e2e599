"""Derivatives of nearest correlation matrices, beside the solve and beside CVXPY's backward.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/derivatives.py {solves,peers} [--quick]

Times are medians of processor time. In `solves` calls take turns, and ratios are medians of the turns.
Peers that are not installed are left out: ``pip install diffcp cvxpylayers torch``. The table of a full run
goes to benchmarks/results/derivatives_TABLE.md.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import bregopt as bo
from bregopt.layers import CorrelationStack
from bregopt.routes.derivatives.derivative import derivative_of

_RESULTS = Path(__file__).parent / "results"
_STEP = 1e-3  # of finite differences, relative
_TURNS = {50: 15, 200: 9, 500: 5}
_OWN_TURNS, _PEER_TURNS = 300, 3  # beside peers; short calls vary most on a busy machine
_STACK = 200  # matrices
Array = Any


def _matrix(n: int, divergence: str) -> Array:
    """Return an indefinite matrix for Frobenius, a covariance with variances from 0.5 to 2 for the others."""
    rng = np.random.default_rng(n)
    if divergence == "frobenius":
        B = rng.normal(size=(n, n))
        A = np.clip(0.3 * (B + B.T), -1, 1)
        np.fill_diagonal(A, 1.0)
        return A
    s = rng.uniform(0.7, 1.4, n)
    return np.corrcoef(rng.normal(size=(n, 3 * n))) * np.outer(s, s)


def _direction(n: int, seed: int) -> Array:
    G = np.random.default_rng(seed).normal(size=(n, n))
    return (G + G.T) / 2


def _seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def _error(A: Array, divergence: str, G: Array, gradient: Array) -> float:
    """Return the relative difference from central differences, extrapolated (Richardson)."""
    dA = _direction(len(A), 2)
    dA *= np.linalg.norm(A) / np.linalg.norm(dA)

    def value(t: float) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = derivative_of(bo.nearest_correlation(A + t * dA, divergence))
        return float(np.vdot(G, found.optimum.X[0]))

    def difference(h: float) -> float:
        return (value(h) - value(-h)) / (2 * h)

    # The step must not lead an eigenvalue of A + Diag(y) through zero.
    margin = derivative_of(bo.nearest_correlation(A, divergence)).differentiability.margin
    h = min(_STEP, 0.1 * margin)
    expected = (4 * difference(h / 2) - difference(h)) / 3
    return abs(float(np.vdot(gradient, dA)) - expected) / abs(expected)


def solves(quick: bool) -> Iterator[str]:
    """Yield the table of vector-Jacobian products beside solves."""
    yield "| n | divergence | solve, ms | vjp, ms | vjp / solve | next vjp / solve | finite differences |"
    yield "|---|---|---|---|---|---|---|"
    for n in (50,) if quick else (50, 200, 500):
        for divergence in ("frobenius", "logdet", "von_neumann"):
            A, G, times = _matrix(n, divergence), _direction(n, 1), []
            gradient = bo.nearest_correlation(A, divergence).vjp(G)
            for _ in range(_TURNS[n]):
                solve, solution = _seconds(lambda A=A, d=divergence: bo.nearest_correlation(A, d))
                first, _ = _seconds(lambda s=solution, G=G: s.vjp(G))
                further, _ = _seconds(lambda s=solution, G=G: s.vjp(G))
                times.append((solve, first, further))
            T = np.array(times)
            (a, b, _), ratios = 1e3 * np.median(T, axis=0), np.median(T[:, 1:] / T[:, :1], axis=0)
            error = _error(A, divergence, G, gradient)
            cells = [n, divergence, f"{a:.1f}", f"{b:.1f}", *(f"{r:.2f}" for r in ratios), f"{error:.0e}"]
            yield f"| {' | '.join(map(str, cells))} |"


def _ours(A: Array, G: Array) -> tuple[float, float, Array]:
    forward, solution = _seconds(lambda: bo.nearest_correlation(A))
    backward, gradient = _seconds(lambda: solution.vjp(G))
    return forward, backward, gradient


def _layer(A: Array, G: Array) -> tuple[float, float, Array]:
    import torch

    from bregopt.torch import nearest_correlation

    torch.set_num_threads(1)
    given = torch.tensor(A, requires_grad=True)
    forward, found = _seconds(lambda: nearest_correlation(given))
    backward, _ = _seconds(lambda: (found * torch.tensor(G)).sum().backward())
    return forward, backward, given.grad.numpy()


def _stack(A: Array, G: Array) -> tuple[float, float, Array]:
    """Return the seconds for each matrix of a stack."""
    stack = np.repeat(A[None], _STACK, axis=0)
    function = CorrelationStack(stack.shape, "frobenius", {})
    forward, (_, state) = _seconds(lambda: function.value(stack))
    backward, (gradient,) = _seconds(
        lambda: function.vjp([stack], state, [np.repeat(G[None], _STACK, axis=0)])
    )
    return forward / _STACK, backward / _STACK, gradient[0]


def _diffcp(A: Array, G: Array) -> tuple[float, float, Array]:
    X, P = cp.Variable(A.shape, PSD=True), cp.Parameter(A.shape)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - P)), [cp.diag(X) == 1])
    P.value = A
    forward, _ = _seconds(lambda: problem.solve(solver=cp.SCS, requires_grad=True, eps=1e-8))
    X.gradient = G
    backward, _ = _seconds(problem.backward)
    return forward, backward, (P.gradient + P.gradient.T) / 2


def _cvxpylayers(A: Array, G: Array) -> tuple[float, float, Array]:
    import torch
    from cvxpylayers.torch import CvxpyLayer

    torch.set_num_threads(1)
    X, P = cp.Variable(A.shape, PSD=True), cp.Parameter(A.shape)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - P)), [cp.diag(X) == 1])
    layer = CvxpyLayer(problem, parameters=[P], variables=[X])
    given = torch.tensor(A, requires_grad=True)
    forward, (found,) = _seconds(lambda: layer(given, solver_args={"eps": 1e-8}))
    backward, _ = _seconds(lambda: (found * torch.tensor(G)).sum().backward())
    gradient = given.grad.numpy()
    return forward, backward, (gradient + gradient.T) / 2


def peers(quick: bool) -> Iterator[str]:
    """Yield the table of forward and backward passes beside CVXPY's and those of cvxpylayers."""
    yield "| n | by | forward, ms | backward, ms | both / bregopt's | both / layer's | gradient differs by |"
    yield "|---|---|---|---|---|---|---|"
    known = {
        "bregopt.torch": (_layer, "torch"),
        f"bregopt, in a stack of {_STACK}": (_stack, "bregopt"),
        "CVXPY (diffcp)": (_diffcp, "diffcp"),
        "cvxpylayers": (_cvxpylayers, "cvxpylayers"),
    }
    for n in (20,) if quick else (20, 50):
        A, G = _matrix(n, "frobenius"), _direction(n, 1)
        own, reference = _medians(_ours, A, G, _OWN_TURNS)
        yield f"| {n} | bregopt | {1e3 * own[0]:.2f} | {1e3 * own[1]:.2f} | 1 | | |"
        layer = np.nan
        for name, (run, module) in known.items():
            if find_spec(module) is None:
                continue
            turns = _PEER_TURNS if run is not _layer else _OWN_TURNS
            (a, b), found = _medians(run, A, G, turns)
            layer = a + b if run is _layer else layer
            differs = np.linalg.norm(found - reference) / np.linalg.norm(reference)
            ratios = f"{(a + b) / own.sum():.2g} | {(a + b) / layer:.2g}"
            yield f"| {n} | {name} | {1e3 * a:.3g} | {1e3 * b:.3g} | {ratios} | {differs:.0e} |"


def _medians(run: Callable[..., Any], A: Array, G: Array, turns: int) -> tuple[Array, Array]:
    """Return the median seconds of both passes, and the gradient, after a first call."""
    run(A, G)
    times = []
    for _ in range(turns):
        forward, backward, gradient = run(A, G)
        times.append((forward, backward))
    return np.median(np.array(times), axis=0), gradient


def main() -> None:
    """Print a table, and save that of a full run."""
    tables = {"solves": solves, "peers": peers}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", choices=tables)
    parser.add_argument("--quick", action="store_true", help="the smallest order only; nothing is saved")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    found = []
    for line in tables[options.table](options.quick):
        print(line, flush=True)
        found.append(f"{line}\n")
    if not options.quick:
        (_RESULTS / f"derivatives_{options.table}.md").write_text("".join(found))


if __name__ == "__main__":
    main()
