"""Trials with many hostile and random inputs: ``python tests/library/fuzz.py`` or ``make fuzz``.

Trial `k` of seed `s` is a function of these two numbers. It passes if the library answers, or refuses with a
documented exception that it raises itself; it fails if

- another exception is raised, such as one of NumPy, which names no argument, the process dies, or the trial
  exceeds its time limit,
- an answer is wrong: a point that violates the rows, a bound above the value at a known point, a false claim
  that a problem is infeasible or unbounded,
- an input array is modified.

A failure is printed with the command that repeats it alone. Worker processes run the trials one by one, so
that a trial that hangs or dies stops no other trial.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import block_truth
import fuzz_atoms
import fuzz_logdet
import fuzz_proofs
import fuzz_scale
import fuzz_security
import numpy as np
import scipy.io
import scipy.sparse as sp
import truth
from fuzz_values import QUICK, hostile, is_refusal, optional, quiet, require, sensible, symmetric, unmodified

import bregopt as bo
from bregopt import cli
from bregopt.io.matrices import read_matrix
from bregopt.io.spec import load_spec

TRIALS, SECONDS, PROCESSES = 100_000, 60.0, 2
MEMORY = 6 * 2**30  # bytes of address space of a worker: large sizes are refused as on a small machine
DOCUMENTED = (ValueError, TypeError, bo.SolverError, FileNotFoundError)
LINEAR = ("auto", "path", "psdboost", "lowrank", "cvxpy")
DIVERGENCES = {"frobenius": bo.frobenius_div, "logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


# --- Targets: calls with values of every kind ---------------------------------------------------------


def language(rng):
    """Declare a problem with one hostile value, and solve it."""
    n = 3
    X, u = bo.PSD(n), bo.Variable(n)
    a, b, c = (sensible(rng, n) for _ in range(3))
    declarations = [
        lambda: bo.inner(a, X) <= b,
        lambda: bo.quad_form(a, X) >= b,
        lambda: bo.sq_distance(X, a, b) <= c,
        lambda: bo.between(bo.trace(X), a, b),
        lambda: bo.soft(bo.diag(X) <= a, gamma=b, penalty=c if rng.random() < 0.3 else None),
        lambda: X[a, b] == c,
        lambda: X == a,
        lambda: u.__rmatmul__(a) + b == c,  # as pandas does not defer to it
        lambda: a * u[0] - bo.trace(X) / b >= c,
        lambda: u <= bo.Parameter(n, value=a),
        lambda: bo.PSD(a, name=b)[0, 0] >= c,
        lambda: bo.Variable(a, lower=b, upper=c) == 0,
        lambda: bo.diag(X) @ a >= b,
    ]
    objectives = [
        lambda: bo.inner(a, X),
        lambda: bo.frobenius_div(X, a, weights=b if rng.random() < 0.5 else None),
        lambda: bo.logdet_div(X, a, **({"complement": b} if rng.random() < 0.3 else {})),
        lambda: bo.von_neumann_div(X, a),
        lambda: a * bo.frobenius_div(X, np.eye(n)) + bo.trace(X) * b,
        lambda: bo.logdet_div(X, bo.LowRank(a)),
    ]
    options = dict(QUICK)
    if rng.random() < 0.3:
        names = [
            "tol",
            "max_iter",
            "time_limit",
            "seed",
            "rank_tol",
            "verbose",
            "method",
            "backend",
            "no_such",
        ]
        options[str(rng.choice(names))] = sensible(rng, n)
    with unmodified(a, b, c):
        rows = [declarations[rng.integers(len(declarations))](), bo.trace(X) <= 5]
        objective = bo.Minimize(objectives[rng.integers(len(objectives))]())
        return quiet(lambda: bo.Problem(objective, rows).solve(**options)).status


def ready_made(rng):
    """Call a ready-made function with mostly good values."""
    v = [sensible(rng, 4) for _ in range(4)]
    some = lambda **k: {name: value for name, value in k.items() if rng.random() < 0.3}  # noqa: E731
    name = str(rng.choice(list(DIVERGENCES)))
    calls = [
        lambda: bo.nearest_correlation(
            v[0],
            divergence=name,
            **some(fixed=v[1], lower=v[2], upper=v[3], min_eigenvalue=v[1], weights=v[2]),
            **QUICK,
        ),
        lambda: bo.nearest_correlation(v[0], max_rank=v[1], **some(weights=v[2]), **QUICK),
        lambda: bo.factor_correlation(
            v[0],
            int(rng.integers(1, 4)),
            **some(min_specific_variance=v[1], weights=v[2], starts=v[3]),
            **QUICK,
        ),
        lambda: bo.nearest_psd(v[0], divergence=name, **some(constraints=v[1]), **QUICK),
        lambda: bo.learn_kernel(
            v[0],
            v[1],
            v[2],
            divergence=name,
            **some(upper=v[1], lower=v[2], gamma=v[3], shrink=v[3]),
            **QUICK,
        ),
        lambda: bo.soft_margin((v[0], v[1]) if rng.random() < 0.8 else v[0], **some(C=v[2]), **QUICK),
        lambda: bo.LowRank(v[0]),
        lambda: bo.cross_check(v[0]),
        lambda: bo.from_cvxpy(v[0]),
    ]
    with unmodified(*v):
        status = getattr(calls[rng.integers(len(calls))](), "status", "held")
        return status if isinstance(status, str) else "a stack"


def graphs(rng):
    """Call the functions of graphs with adjacency matrices, edge lists and invalid graphs."""
    n = int(rng.integers(2, 7))
    A = np.triu(rng.random((n, n)) < 0.5, 1).astype(float)
    edges = np.argwhere(A)
    graph = [A + A.T, A, edges, edges.tolist(), edges.astype(float), sp.csr_array(A + A.T), hostile(rng, n)]
    graph = graph[rng.integers(len(graph))]
    weights = [None, rng.random(len(edges)), -rng.random(len(edges)), hostile(rng, n)][rng.integers(4)]
    with unmodified(graph, weights):
        choice = rng.integers(3)
        if choice == 0:
            found = bo.max_cut(graph, weights, **QUICK)
            require(found.cut <= found.bound * (1 + 1e-12), "a cut above its bound")
            return "cut"
        if choice == 1:
            return bo.lovasz_theta(graph, **QUICK).status
        bo.min_balanced_cut(graph, weights, imbalance=sensible(rng, n), **QUICK)
        return "cut"


def learners(rng):
    """Fit an estimator of `bregopt.learn` or `bregopt.online` with mostly good values."""
    if optional("sklearn") is None:
        return "skipped"
    from bregopt import learn, online

    if rng.random() < 0.6:
        named = [getattr(online, name) for name in online.__all__]
        classes = [cls for cls in named if hasattr(cls, "fit")]
        cls = classes[rng.integers(len(classes))]
    else:
        names = [name for name in learn.__all__ if name[0].isupper()]
        cls = getattr(learn, names[rng.integers(len(names))])
    own = {"OnlineToBatch": (online.MatrixWinnow(),), "GridSearchCV": (learn.KernelLearner(), {})}
    model = cls(*own.get(cls.__name__, ()))
    for name in rng.permutation(list(model.get_params(deep=False)))[: rng.integers(0, 3)]:
        model.set_params(**{str(name): sensible(rng)})
    T, n = 12, 3
    scale = 10.0 ** rng.choice([0, 0, 0, -30, 30, -200, 200])
    X = [
        rng.normal(size=(T, n)) * scale,
        rng.normal(size=(T, n, n)),
        np.abs(rng.normal(size=(T, n))),
        hostile(rng),
    ]
    y = [rng.integers(0, 2, T), rng.choice([-1, 1], T), rng.random(T), rng.random(T) * scale, hostile(rng)]
    X, y = X[rng.choice(4, p=[0.5, 0.2, 0.2, 0.1])], y[rng.choice(5, p=[0.3, 0.3, 0.2, 0.1, 0.1])]
    X, y = (
        0 if isinstance(value, int) and abs(value) > 1e300 else value for value in (X, y)
    )  # scikit-learn's
    with unmodified(X, y):
        model.fit(X, y)
        for method in ("predict", "transform"):
            if hasattr(model, method):
                getattr(model, method)(X)
    return "fitted"


# --- Targets: files -----------------------------------------------------------------------------------

SPEC = """title = "T"
[data]
A = [[2.0, 0.5], [0.5, 1.0]]
B = { file = "A.csv" }
i = [0]
b = 1
[variables]
X = { psd = 2 }
u = { shape = 2, lower = 0, upper = 3 }
[problem]
minimize = "frobenius_div(X, A) + sum(u)"
subject_to = ["diag(X) == b", "X[0, i] <= 1.5", "between(trace(X) + u[0], 0, 5)", "soft(inner(B, X) >= 3)"]
[solve]
tol = 1e-4
time_limit = 3
"""
SDPA = """"A comment
2 = m
2
(2, -2)
{1.0, 2.0}
0 1 1 2 0.5
0 2 1 1 -1
1 1 1 1 1
1 2 2 2 1
2 1 2 2 1
2 2 1 1 1
"""
CBF = """VER
1
OBJSENSE
MIN
PSDVAR
1
2
VAR
5 3
F 1
Q 3
L+ 1
PSDCON
1
2
CON
4 3
L= 1
L+ 1
QR 2
OBJFCOORD
2
0 0 0 1.0
0 1 1 2.0
OBJACOORD
2
0 1
4 0.5
FCOORD
2
0 0 1 0 1
1 0 0 0 1
ACOORD
4
0 1 1
1 4 1
2 1 1
3 4 1
BCOORD
1
0 -1
HCOORD
1
0 0 0 0 1
DCOORD
2
0 0 0 1
0 1 1 1
"""
WORDS = [
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "9" * 12,
    "1_0",
    ",",
    "{",
    "\n",
    "\x00",
    "\xff",
    "é",
    " ",
    "%",
    '"',
]
NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "-2.5",
    "3",
    "1e-9",
    "1e9",
    "1e60",
    "-1e-60",
    "100",
    "1e5",
    "123456789",
]
WORDS += ["psd", "X", "solver", "general", "symmetric", "integer", "complex", "[", "]", "=", "**", "'", "#"]


def mutated(rng, content):
    """Return the bytes with some removed, changed, repeated or inserted, or with words replaced."""
    words = list(re.finditer(rb"[\w.+-]+", content))
    if rng.random() < 0.6:  # such a file is often valid, and reaches later code
        old, new = (words[k] for k in rng.integers(len(words), size=2))
        word = new.group() if rng.random() < 0.5 else NUMBERS[rng.integers(len(NUMBERS))].encode()
        return content[: old.start()] + word + content[old.end() :]
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, kind = int(rng.integers(len(content) + 1)), rng.integers(6)
        if kind == 0:
            del content[at:]
        elif kind == 1:
            del content[at : at + int(rng.integers(1, 8))]
        elif kind == 2 and at < len(content):
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == 3:
            content[at:at] = content[at : at + int(rng.integers(1, 40))]
        elif kind == 4:
            content[at:at] = WORDS[rng.integers(len(WORDS))].encode()
        else:
            end = at + int(rng.integers(1, 4))
            content[at:end] = WORDS[rng.integers(len(WORDS))].encode()
    return bytes(content)


def spec_files(rng):
    """Load a damaged spec, and solve the problem if there is one."""
    folder = Path.cwd()
    folder.joinpath("A.csv").write_text("1,0\n0,1\n")
    path = folder / "spec.toml"
    path.write_bytes(mutated(rng, SPEC.encode()))
    spec = load_spec(path)
    options = {**spec.options, "verbose": False, "time_limit": 3.0}
    return spec.problem.solve(spec.solver, **options).status


def sdpa_files(rng):
    """Read a damaged SDPA file, and check the answer against the data that were read."""
    packed = rng.random() < 0.3
    path = Path("a.dat-s.gz" if packed else "a.dat-s")
    if packed and rng.random() < 0.5:
        content = mutated(rng, gzip.compress(SDPA.encode()))
    else:
        content = mutated(rng, SDPA.encode())
        content = gzip.compress(content) if packed else content
    path.write_bytes(content)
    problem = bo.read_sdpa(path)
    require(np.isfinite(problem.program().bounds.lo).all(), "a right-hand side that is not finite")
    return problem.solve(**QUICK).status if rng.random() < 0.3 else "read"


def cbf_files(rng):
    """Read a damaged CBF file, and solve the problem if there is one."""
    packed = rng.random() < 0.2
    path = Path("a.cbf.gz" if packed else "a.cbf")
    content = mutated(rng, CBF.encode())
    path.write_bytes(gzip.compress(content) if packed else content)
    problem = bo.read_cbf(path)
    require(np.isfinite(problem.program().A.norms()).all(), "a coefficient that is not finite")
    return problem.solve(**QUICK).status if rng.random() < 0.3 else "read"


def written_specs(rng):
    """Write a problem as a spec, load it damaged, and solve what there is."""
    X, u, t = bo.PSD(3, name="X"), bo.Variable(2, name="u"), bo.Parameter(value=2.0, name="t")
    rows = [X[[0, 1], [1, 2]] - u >= [0.1, 0.2], bo.trace(X) == t, bo.norm2(u - 1) <= 3]
    soft = bo.soft(bo.sq_distance(X, [0, 1], [1, 2]) <= [1.0, 2.0], gamma=[1.0, 2.0])
    path = Path("a.toml")
    bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3)) + bo.sum(u)), [*rows, soft]).to_spec(path)
    path.write_bytes(mutated(rng, path.read_bytes()))
    problem = bo.load_spec(path).problem
    return problem.solve(**QUICK).status if rng.random() < 0.3 else "read"


def matrix_files(rng):
    """Read a damaged matrix; if it is accepted, its values are finite."""
    A = np.round(rng.normal(size=(4, 4)), 2)
    A = A + A.T
    name = str(rng.choice(["csv", "labels.csv", "npy", "npz", "packed.npz", "dense.mtx", "sparse.mtx"]))
    path = Path(f"A.{name}")
    if name == "csv":
        np.savetxt(path, A, delimiter=",", fmt="%g")
    elif name == "labels.csv":
        path.write_text(",a,b\na,1,0.5\nb,0.5,1\n")
    elif name == "npy":
        np.save(path, A.astype(rng.choice(["f8", "f4", "i8", ">f8", "c16"])))
    elif name.endswith("npz"):
        (np.savez if name == "npz" else np.savez_compressed)(path, A=A)
    else:
        stored = A if name == "dense.mtx" else sp.coo_array(A)
        scipy.io.mmwrite(path, stored, symmetry=str(rng.choice(["general", "symmetric"])))
    path.write_bytes(mutated(rng, path.read_bytes()))
    values = read_matrix(path).values
    values = values.data if sp.issparse(values) else values
    require(np.isfinite(values).all(), "values that are not finite")
    return "read"


def command_line(rng):
    """Run the command line with arguments of every kind; its status is a documented one."""
    folder = Path.cwd()
    folder.joinpath("A.csv").write_text("2,0.5\n0.5,1\n")
    folder.joinpath("s.toml").write_bytes(
        SPEC.encode() if rng.random() < 0.5 else mutated(rng, SPEC.encode())
    )
    folder.joinpath("a.dat-s").write_bytes(
        SDPA.encode() if rng.random() < 0.5 else mutated(rng, SDPA.encode())
    )
    folder.joinpath("B.csv").write_bytes(mutated(rng, b",a,b\na,1,0.5\nb,0.5,1\n"))
    words = [
        "solve",
        "check",
        "explain",
        "A.csv",
        "s.toml",
        "a.dat-s",
        "B.csv",
        "none.toml",
        ".",
        "/dev/zero",
    ]
    words += [
        "--solver",
        "path",
        "cvxpy",
        "auto",
        "bregman",
        "--problem",
        "nearest-psd",
        "nearest-correlation",
    ]
    words += ["--tol", "1e-3", "nan", "-1", "--max-iter", "5", "1" * 40, "--time-limit", "2", "--divergence"]
    words += [
        "logdet",
        "--key",
        "x",
        "--output",
        "o.csv",
        "o.npz",
        "o.json",
        "o.txt",
        "no/o.csv",
        "--verbose",
    ]
    arguments = ["solve", str(rng.choice(["A.csv", "B.csv", "s.toml", "a.dat-s"]))]
    arguments[0] = str(rng.choice(["solve", "solve", "check", "explain"]))
    if arguments[1].endswith("csv") and rng.random() < 0.9:
        arguments += ["--problem", str(rng.choice(["nearest-psd", "nearest-correlation"]))]
    arguments += ["--time-limit", "3"] if arguments[0] != "explain" else []
    arguments += [str(word) for word in rng.choice(words, size=rng.integers(0, 4))]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            status = cli.main(arguments)
        except SystemExit as stop:
            status = stop.code
    require(status in (0, 2, 3, 4), f"status {status!r} of {arguments}")
    require(status != 2 or errors.getvalue(), f"status 2 without a word of {arguments}")
    return f"status {status}"


# --- Targets: problems of known truth -----------------------------------------------------------------


def linear(rng):
    """Solve a linear problem with a known feasible point, or one that is known to be infeasible."""
    n, m = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    scale, price = 10.0 ** rng.choice([0, 0, 0, -8, 8, -40, 40], size=2)
    A = np.array([np.eye(n), *(symmetric(rng, n) for _ in range(m))])
    root = rng.normal(size=(n, int(rng.integers(1, n + 1))))
    known = root @ root.T * scale
    b = np.einsum("kij,ij->k", A, known)
    C = symmetric(rng, n) * price
    kind = rng.choice(["feasible", "feasible", "feasible", "infeasible"])
    X = bo.PSD(n)
    senses = rng.integers(0, 3, m + 1)
    senses[0] = 0  # an equation for the trace bounds the problem
    rows = [
        [e == r, e <= r, e >= r][s] for e, r, s in zip([bo.inner(M, X) for M in A], b, senses, strict=True)
    ]
    if kind == "infeasible":
        rows.append(bo.inner(A[0], X) <= b[0] / 2)
    solver = str(rng.choice(LINEAR))
    with unmodified(A, b, C):
        found = bo.Problem(bo.Minimize(bo.inner(C, X)), rows).solve(solver, **QUICK)
    says = f"{found.status} by {found.solver} of a problem that is {kind}"
    require(not found.status.startswith("unbounded") or "inaccurate" in found.status, says)
    if kind == "infeasible":
        require(found.status not in ("optimal", "unbounded"), says)
    else:
        require(found.status != "infeasible", says)
    if kind == "feasible" and found.status == "optimal":
        M, size = np.asarray(found.X), np.linalg.norm(known)
        off = np.einsum("kij,ij->k", A, M) - b
        off = np.where(senses == 0, np.abs(off), np.where(senses == 1, off, -off)) / np.linalg.norm(
            A, axis=(1, 2)
        )
        require(off.max() <= 1e-3 * size, f"{says}: rows missed by {off.max() / size:.1e}")
        require(np.linalg.eigvalsh(M)[0] >= -1e-5 * size, f"{says}: X is not psd")
        reach = np.linalg.norm(C) * size
        at, here = float(np.vdot(C, known)), float(np.vdot(C, M))
        require(abs(here - found.value) <= 1e-6 * reach, f"{says}: the value is not that of X")
        require(found.value <= at + 1e-4 * reach, f"{says}: {found.value} above {at}")
        # Weak duality, from the multipliers and the data.
        y = np.where(senses == 2, 1, -1) * np.array([float(dual) for dual in found.duals])  # CVXPY's signs
        require((np.where(senses == 0, 0.0, y * (senses - 1.5)) >= 0).all(), f"{says}: signs of multipliers")
        Z = C - np.einsum("k,kij->ij", y, A)
        bound = float(y @ b) + min(0.0, float(np.linalg.eigvalsh(Z)[0])) * np.trace(known)
        require(bound >= found.value - 1e-3 * reach, f"{says}: bound {bound} of the value {found.value}")
    return found.status


def many_blocks(rng):
    """Solve a problem of known truth in many matrices, at every scale; judge the claims about it."""
    kind = str(rng.choice(block_truth.KINDS))
    orders = block_truth.orders_of(rng, int(rng.integers(2, 20)), str(rng.choice(block_truth.ORDERS)))
    blocks = block_truth.many_blocks(rng, orders, kind).scaled(*10.0 ** rng.choice([0, 0, -6, 6, -12, 12], 2))
    tol, solver = float(rng.choice(truth.TOLS)), str(rng.choice(LINEAR))
    if solver in ("psdboost", "lowrank"):  # which take one matrix
        blocks = blocks.merged([range(len(orders))])
    found = blocks.problem().solve(solver, tol=tol, **QUICK)
    case = blocks.case(kind, kind)
    verdict = truth.judge(case, tol, found.status, found.value, found.dual_value, found.error)
    require(
        verdict.true, f"{verdict} by {found.solver}: {found.value} +- {found.error}, truth {blocks.value}"
    )
    return found.status


def near(rng):
    """Solve a nearness problem with a known feasible point."""
    n = int(rng.integers(2, 6))
    scale = 10.0 ** rng.choice([0, 0, 0, -8, 8, -40, 40])
    name = str(rng.choice(list(DIVERGENCES)))
    M = rng.normal(size=(n, n))
    X0 = (M @ M.T + 0.1 * np.eye(n)) * scale
    X0 = symmetric(rng, n) * scale if name == "frobenius" else X0
    known = (lambda R: R @ R.T * scale)(rng.normal(size=(n, n)))
    A = np.array([symmetric(rng, n) for _ in range(rng.integers(1, 4))])
    b = np.einsum("kij,ij->k", A, known)
    X = bo.PSD(n)
    senses = rng.integers(0, 3, len(A))
    rows = [
        [e == r, e <= r, e >= r][s] for e, r, s in zip([bo.inner(M, X) for M in A], b, senses, strict=True)
    ]
    objective = DIVERGENCES[name](X, X0)
    solver = str(rng.choice(["auto", "bregman", "cvxpy"]))
    with unmodified(A, b, X0):
        found = bo.Problem(bo.Minimize(objective), rows).solve(solver, **QUICK)
    says = f"{found.status} by {found.solver} of a feasible nearness to {name}"
    require(found.status not in ("infeasible", "unbounded"), says)
    if found.status == "optimal":
        at = distance(name, known, X0)
        unit = {"frobenius": scale**2, "von_neumann": scale, "logdet": 1.0}[name]
        require(found.value <= at + 1e-3 * (abs(at) + unit), f"{says}: {found.value} above {at}")
        require(
            found.dual_value <= at + 1e-6 * (abs(at) + unit), f"{says}: bound {found.dual_value} above {at}"
        )
        off = np.einsum("kij,ij->k", A, np.asarray(found.X)) - b
        off = np.where(senses == 0, np.abs(off), np.where(senses == 1, off, -off))
        size = np.linalg.norm(found.X) + np.linalg.norm(known)
        require(off.max() <= 1e-3 * size, f"{says}: rows missed by {off.max() / size:.1e}")
    return found.status


def distance(name, X, X0):
    if name == "frobenius":
        return float(np.sum((X - X0) ** 2))
    if name == "logdet":
        ratio = np.linalg.solve(X0, X)
        return float(np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(X))
    (w, V), (w0, V0) = np.linalg.eigh(X), np.linalg.eigh(X0)
    w = np.maximum(w, 0)
    entropy = float(np.sum(np.where(w > 0, w * np.log(np.where(w > 0, w, 1)), 0)))
    cross = float(np.sum(((V0.T @ V) ** 2 * w) * np.log(w0)[:, None]))
    return entropy - cross - float(w.sum()) + float(w0.sum())


def scales(rng):
    """Solve with mixed data of every magnitude that is accepted; the call must return in time."""
    n = 3
    scale = 10.0 ** rng.uniform(-75, 75, size=4)
    M = rng.normal(size=(n, n))
    S = M @ M.T + 0.1 * np.eye(n)
    X = bo.PSD(n)
    name = str(rng.choice(list(DIVERGENCES)))
    calls = [
        lambda: bo.nearest_correlation(S * scale[0], divergence=name, **QUICK),
        lambda: bo.nearest_correlation(S, weights=np.ones((n, n)) * scale[0] + S**2 * scale[1], **QUICK),
        lambda: bo.nearest_correlation(S * scale[0], max_rank=1, weights=scale[1] * np.ones(n), **QUICK),
        lambda: bo.factor_correlation(S * scale[0], 1, weights=scale[1] * np.ones(n), **QUICK),
        lambda: bo.nearest_psd(S * scale[0], lambda X: bo.trace(X) <= scale[1], divergence=name, **QUICK),
        lambda: bo.soft_margin((M * scale[0], S * scale[1]), **QUICK),
        lambda: bo.Problem(
            bo.Minimize(scale[3] * DIVERGENCES[name](X, S * scale[0])),
            [bo.soft(bo.inner(S * scale[1], X) <= scale[2], gamma=scale[3]), X[0, 1] >= -scale[2]],
        ).solve(**QUICK),
        lambda: bo.Problem(
            bo.Minimize(bo.inner(S * scale[0], X)),
            [bo.inner(S * scale[1], X) == scale[2], X[0, 0] <= scale[3]],
        ).solve(str(rng.choice(LINEAR)), **QUICK),
    ]
    return calls[rng.integers(len(calls))]().status


def cvxpy_problems(rng):
    """Solve a small CVXPY problem by the method or the conic solver, and compare with Clarabel's value."""
    import cvxpy as cp

    from bregopt.cvxpy import BREGOPT

    n = int(rng.integers(2, 5))
    X, C, A = cp.Variable((n, n), PSD=True), symmetric(rng, n), symmetric(rng, n)
    known = (lambda R: R @ R.T)(rng.normal(size=(n, n)))
    u = cp.Variable(2, nonneg=True)
    objective = [
        cp.trace(C @ X) + cp.sum(u),
        cp.sum_squares(X - C),
        cp.norm(X - C, "fro") + u[0],
        cp.lambda_max(X - C),
        -cp.log_det(X + 0.1 * np.eye(n)) + cp.trace(X),
    ][rng.integers(5)]
    rows = [cp.trace(X) == np.trace(known), cp.trace(A @ X) <= np.vdot(A, known) + u[1]]
    rows += [[X >= known.min() - 1], [cp.diag(X) <= np.diag(known) + 1], [u <= 5], []][rng.integers(4)]
    problem = cp.Problem(cp.Minimize(objective), rows)
    try:
        expected = problem.solve(solver="CLARABEL")
        how = {"method": "bregopt"} if rng.random() < 0.5 else {"solver": BREGOPT}
        value = problem.solve(**how, **QUICK)
    except cp.SolverError:
        return "refused"
    require("infeasible" not in problem.status, f"{problem.status} of a feasible problem, by {how}")
    if problem.status == "optimal":
        require(
            abs(value - expected) <= 1e-3 * (1 + abs(expected)), f"{value} by {how}; Clarabel has {expected}"
        )
    return problem.status


# --- Trials -------------------------------------------------------------------------------------------

# The frequency of each target; targets that solve take longer, and are less frequent.
TARGETS = {
    language: 18,
    ready_made: 12,
    graphs: 6,
    learners: 10,
    spec_files: 12,
    sdpa_files: 10,
    cbf_files: 6,
    written_specs: 6,
    matrix_files: 12,
    command_line: 5,
    linear: 6,
    many_blocks: 3,
    near: 4,
    scales: 3,
    cvxpy_problems: 2,
    fuzz_atoms.atoms: 8,
    fuzz_atoms.convex_problems: 3,
    fuzz_atoms.hermitian_problems: 2,
    fuzz_logdet.family: 6,
    fuzz_logdet.lasso: 3,
    fuzz_logdet.completions: 2,
    fuzz_logdet.ellipsoids: 3,
    fuzz_logdet.designs: 3,
    fuzz_logdet.channels: 2,
    fuzz_logdet.correlations: 4,
    fuzz_logdet.repairs: 2,
    fuzz_logdet.structured: 3,
    fuzz_security.certificates: 4,
    fuzz_security.flipped: 1,
    fuzz_security.checkpoints: 1,
    fuzz_security.plugins: 1,
    fuzz_security.executors: 1,
    fuzz_security.masks: 1,
    fuzz_security.saves: 1,
    fuzz_proofs.proofs: 4,
    fuzz_proofs.dependent: 4,
    fuzz_proofs.node_bounds: 3,
    fuzz_proofs.conflicts: 2,
    fuzz_proofs.derivatives: 4,
    fuzz_scale.partitions: 2,
    fuzz_scale.cuts: 3,
    fuzz_scale.thetas: 2,
    fuzz_scale.many: 4,
    fuzz_scale.stacks: 6,
    fuzz_scale.generated_rows: 4,
    fuzz_scale.row_chunks: 6,
    fuzz_scale.triplet_chunks: 4,
    fuzz_scale.learned: 6,
    fuzz_scale.round_trips: 5,
    fuzz_scale.cross_checks: 3,
}
_TURNS = [target for target, times in TARGETS.items() for _ in range(times)]


def target_of(trial):
    """Return the function that a trial runs; neighbors run different ones."""
    return _TURNS[(trial * 37) % len(_TURNS)]  # 37 shares no divisor with the number of turns


def run_trial(seed, trial):
    """Run one trial in the working folder; return its outcome, and a traceback where it failed."""
    rng = np.random.default_rng([seed, trial])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return target_of(trial)(rng), ""
    except DOCUMENTED as error:
        if is_refusal(error):
            return f"refused: {type(error).__name__}", ""
        return f"FAILED: {error!r}", traceback.format_exc(limit=-6)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"FAILED: {type(error).__name__}: {str(error)[:200]}", traceback.format_exc(limit=-6)


def _work(pipe, seed):
    """Send "ready", then run the trials that a pipe brings, in a temporary folder, until it brings None."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pipe.send("ready")
        for trial in iter(pipe.recv, None):
            pipe.send(run_trial(seed, trial))


class Fuzz:
    """A run, which gives trials to processes; a thread watches each process."""

    def __init__(self, seed, trials, seconds, work=_work):
        self.seed, self.seconds, self.work = seed, seconds, work
        self.outcomes, self.failures, self.over = Counter(), [], False
        self._todo, self._lock = iter(trials), threading.Lock()

    def run(self, processes):
        threads = [threading.Thread(target=self._watch, daemon=True) for _ in range(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _watch(self):
        process, pipe = self._start()
        while (trial := self._next()) is not None:
            pipe.send(trial)
            try:
                answered = pipe.poll(self.seconds)
                outcome, trace = pipe.recv() if answered else (f"FAILED: no end in {self.seconds:g} s", "")
            except EOFError:
                process.join()
                outcome, trace = f"FAILED: the process died with {process.exitcode}", ""
                answered = False
            self._note(trial, outcome, trace)
            if not answered:
                process.kill()
                process, pipe = self._start()
        pipe.send(None)
        process.join()

    def _start(self):
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=self.work, args=(theirs, self.seed), daemon=True)
        process.start()
        theirs.close()
        ours.recv()  # "ready"
        return process, ours

    def _next(self):
        with self._lock:
            return next(self._todo, None)

    def _note(self, trial, outcome, trace):
        with self._lock:
            if self.over:  # after an interrupt the workers end with this process
                return
            name = target_of(trial).__name__
            failed = outcome.startswith("FAILED")
            self.outcomes[name, "FAILED" if failed else outcome] += 1
            if failed:
                self.failures.append(trial)
                again = f"python tests/library/fuzz.py --seed {self.seed} --only {trial}"
                print(f"{name}: {outcome}\n{trace}again: {again}\n", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--seed", type=int, help="of all trials; by default a new one, which is printed")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which a trial counts as hung")
    parser.add_argument("--only", type=int, metavar="TRIAL", help="run one trial here, to see its traceback")
    options = parser.parse_args()
    seed = int(np.random.SeedSequence().entropy % 2**32) if options.seed is None else options.seed
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            print(target_of(options.only).__name__, *run_trial(seed, options.only), sep="\n")
        return 0
    trials = range(options.first, options.first + options.trials)
    print(f"seed {seed}, trials {trials.start} to {trials.stop - 1}", flush=True)
    begin, fuzz = time.perf_counter(), Fuzz(seed, trials, options.seconds)
    with contextlib.suppress(KeyboardInterrupt):  # the trials until then are reported
        fuzz.run(options.processes)
    fuzz.over = True
    for (name, outcome), count in sorted(fuzz.outcomes.items()):
        print(f"{count:8d}  {name:<16} {outcome}")
    seconds = time.perf_counter() - begin
    count = fuzz.outcomes.total()
    print(f"{len(fuzz.failures)} failures in {count} trials, {seconds:.0f} s, seed {seed}")
    return 1 if fuzz.failures else 0


if __name__ == "__main__":
    sys.exit(main())
