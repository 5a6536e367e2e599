"""Margin SDPs by bregopt and its peers: medians of time, memory and certified gap, with one BLAS thread.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/margins.py [--only digits] [--quick]

    maximize  rho - C sum_r xi_r   over  X psd of trace one, xi >= 0,
    subject to  far_r' X far_r - near_r' X near_r >= rho - xi_r          (Shen et al. 2008, eq. 3)

Every solver runs in its own process. SCS and Clarabel get conic data built directly, CSDP a file (Debian:
coinor-csdp). The same code certifies every answer from the comparisons: X with the best rho gives a value,
and the multipliers give a bound. The table of a full run goes to benchmarks/results/margins.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sdp import SDP
from sdp_peers import PROGRAMS

import bregopt as bo

Array = Any
_ROOT = Path(__file__).resolve().parents[1]
_TRADE_OFF = 10.0  # C times the number of comparisons
_MEMORY = 6 * 2**30  # memory limit of a peer's process in bytes
_PATIENCE = 60.0  # seconds beyond the cap for a process to load, build its data and save its answer
_PENDIGITS = (1, 5, 7, 9)

# Our routes by the name in the table.
_ROUTES: dict[str, dict[str, Any]] = {
    "path": {"solver": "path"},
    "psdboost psd": {"solver": "psdboost", "master": "psd"},
    "psdboost lp": {"solver": "psdboost", "master": "lp"},
    "psdboost lp, plain": {"solver": "psdboost", "master": "lp", "cuts_per_round": 1, "smoothing": 0.0},
}
_CONIC = ("SCS", "Clarabel")
_ALL = (*_ROUTES, *_CONIC, "CSDP")
_OURS = tuple(_ROUTES)


# -------------------------------------------------------------------------------------------------- instances


@dataclass(frozen=True)
class Instance:
    """One problem: ``make`` returns its data, or None if they are not available.

    Parameters
    ----------
    name, group : str
    make : function to Data or None
    tol : float
        Tolerance of every solver.
    solvers : sequence of str
        Names of the solvers that run on it.
    """

    name: str
    group: str
    make: Callable[[], Data | None]
    tol: float = 1e-6
    solvers: Sequence[str] = _ALL


@dataclass(frozen=True)
class Data:
    """Comparisons; for a test of nearest neighbors also labeled points to learn from and to test."""

    far: Array
    near: Array
    train: tuple[Array, Array] | None = None
    test: tuple[Array, Array] | None = None


def instances(data: Path) -> list[Instance]:
    """Return all problems."""
    no_path, no_csdp = (*_OURS[1:], *_CONIC), (*_OURS, *_CONIC)
    overlapping = partial(classes, 4, 5000, 200, 5000, 0.0)
    return [
        Instance("600 points, D = 24, R = 550", "classes", partial(classes, 0, 600, 24, 550, 6.0)),
        Instance("digits, D = 64, R = 320", "digits", partial(digits, 320, 1, 320)),
        Instance("digits, D = 64, R = 2,880", "digits", partial(digits, 320, 3, 2880)),
        Instance("classes, D = 100, R = 1,000", "classes", partial(classes, 1, 1000, 100, 1000, 6.0)),
        Instance("classes, D = 200, R = 1,000", "classes", partial(classes, 2, 1000, 200, 1000, 6.0)),
        # CSDP's file would list 160 million entries.
        Instance(
            "classes, D = 400, R = 2,000", "classes", partial(classes, 3, 2000, 400, 2000, 6.0), 1e-6, no_csdp
        ),
        # One cloud: the margin of 5,000 triplets is a twentieth of that of 800.
        *(
            Instance(
                f"overlapping, D = 200, R = 5,000, to {tol:g}", "overlapping", overlapping, tol, _OURS[:2]
            )
            for tol in (1e-4, 1e-6)
        ),
        Instance("Pendigits 1, 5, 7, 9", "pendigits", partial(pendigits, data)),
        Instance("images, D = 900, R = 5,000", "large", images, 1e-4, no_path),
        Instance("digits, D = 64, R = 100,000", "large", partial(digits, 1797, 8, 100_000), 1e-4, _OURS),
        Instance("rank 20, D = 3,000, R = 2,000", "large", low_rank, 1e-4, _OURS[1:3]),
    ]


def classes(seed: int, count: int, D: int, R: int, apart: float) -> Data:
    """Return comparisons of normal points in four classes; the mean distance of centers is `apart`."""
    rng = np.random.default_rng(seed)
    label = rng.integers(4, size=count)
    centers = rng.normal(size=(4, D)) * apart / np.sqrt(2 * D)
    points = (centers[label] + rng.normal(size=(count, D))) / np.sqrt(D)
    return _first(*comparisons(points, label, 1), R)


def digits(count: int, neighbors: int, R: int) -> Data | None:
    """Return comparisons of scikit-learn's digits, of 8 x 8 pixels."""
    loaded = _load_digits()
    if loaded is None:
        return None
    points, label = loaded[0][:count], loaded[1][:count]
    return _first(*comparisons(points, label, neighbors), R)


def images() -> Data | None:
    """Return comparisons of the digits enlarged to 30 x 30 pixels."""
    from scipy.ndimage import zoom

    loaded = _load_digits()
    if loaded is None:
        return None
    large = zoom(loaded[0].reshape(-1, 8, 8), (1, 30 / 8, 30 / 8), order=1).reshape(-1, 900)
    return _first(*comparisons(large, loaded[1], 2), 5000)


def low_rank() -> Data:
    """Return comparisons of points in 3,000 dimensions that span 20."""
    rng = np.random.default_rng(4)
    label = rng.integers(4, size=2000)
    inner = rng.normal(size=(4, 20))[label] + rng.normal(size=(2000, 20))
    basis, _ = np.linalg.qr(rng.normal(size=(3000, 20)))
    return _first(*comparisons(inner @ basis.T, label, 1), 2000)


def pendigits(data: Path) -> Data | None:
    """Return comparisons of 80 points of each of four digits; all points of the other writers to test."""
    parts = [data / "uci" / name for name in ("pendigits.tra", "pendigits.tes")]
    if not all(part.exists() for part in parts):
        return None
    (points, label), test = (_labeled(np.loadtxt(part, delimiter=",")) for part in parts)
    order = np.random.default_rng(0).permutation(len(label))
    chosen = np.concatenate([order[label[order] == digit][:80] for digit in _PENDIGITS])
    train = points[chosen], label[chosen]
    far, near = comparisons(*train, 1)
    return Data(far, near, train, test)


def _labeled(table: Array) -> tuple[Array, Array]:
    wanted = np.isin(table[:, -1], _PENDIGITS)
    return table[wanted, :-1] / 100, table[wanted, -1].astype(int)


def _load_digits() -> tuple[Array, Array] | None:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return None
    loaded = load_digits()
    return loaded.data / 16, loaded.target


def _first(far: Array, near: Array, R: int) -> Data:
    return Data(far[:R], near[:R])


def comparisons(points: Array, label: Array, neighbors: int) -> tuple[Array, Array]:
    """Return all pairs of a difference to a near point of another class and one of the same class."""
    square = (points**2).sum(axis=1)
    distance = square[:, None] + square - 2 * points @ points.T
    np.fill_diagonal(distance, np.inf)
    same = label[:, None] == label
    ours = np.argsort(np.where(same, distance, np.inf), axis=1, kind="stable")[:, :neighbors]
    theirs = np.argsort(np.where(same, np.inf, distance), axis=1, kind="stable")[:, :neighbors]
    i = np.repeat(np.arange(len(points)), neighbors**2)
    j = np.repeat(ours, neighbors, axis=1).ravel()
    k = np.tile(theirs, (1, neighbors)).ravel()
    return points[i] - points[k], points[i] - points[j]


# ----------------------------------------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Proof:
    """The value and the bound that an answer proves."""

    value: float
    bound: float

    @property
    def gap(self) -> float:
        """The relative gap."""
        return (self.bound - self.value) / max(abs(self.bound), abs(self.value), 1e-300)


def certify(data: Data, X: Array, weights: Array) -> Proof:
    """Return the value of ``X``, made psd and of trace one, and the bound of the weights."""
    C = _TRADE_OFF / len(data.far)
    eigenvalues, Q = np.linalg.eigh((X + X.T) / 2)
    root = Q * np.sqrt(np.maximum(eigenvalues, 0.0) / np.maximum(eigenvalues, 0.0).sum())
    margins = ((data.far @ root) ** 2).sum(axis=1) - ((data.near @ root) ** 2).sum(axis=1)
    # At the best rho the weights C of the margins below it add up to one.
    rho = np.sort(margins)[min(int(np.ceil(len(margins) / _TRADE_OFF)) - 1, len(margins) - 1)]
    value = rho - C * np.maximum(rho - margins, 0.0).sum()
    w = _feasible(weights, C)
    H = data.far.T @ (w[:, None] * data.far) - data.near.T @ (w[:, None] * data.near)
    top = scipy.linalg.eigh(H, eigvals_only=True, subset_by_index=(len(H) - 1, len(H) - 1))[0]
    return Proof(float(value), float(top))


def _feasible(weights: Array, C: float) -> Array:
    """Return weights in [0, C] that add up to one, near those given."""
    w = np.clip(np.abs(weights), 0.0, C)
    if w.sum() >= 1:
        return w / w.sum()
    room = C - w
    return w + room * (1 - w.sum()) / room.sum()


def nearest_error(data: Data, X: Array) -> float:
    """Return the share of test points whose nearest neighbor under the metric is of another class."""
    if data.train is None or data.test is None:
        return np.nan
    eigenvalues, Q = np.linalg.eigh((X + X.T) / 2)
    root = Q * np.sqrt(np.maximum(eigenvalues, 0.0))
    (known, label), (asked, truth) = ((points @ root, own) for points, own in (data.train, data.test))
    distance = (asked**2).sum(axis=1)[:, None] + (known**2).sum(axis=1) - 2 * asked @ known.T
    return float(np.mean(label[distance.argmin(axis=1)] != truth))


# ---------------------------------------------------------------------------------------------------- solvers


@dataclass(frozen=True)
class Run:
    """One solver on one instance: its status, medians of seconds, memory in bytes, its answer."""

    solver: str
    says: str
    rounds: float = np.nan
    wall: float = np.nan
    cpu: float = np.nan
    memory: float = np.nan
    X: Array = None
    weights: Array = None


def run_in_process(solver: str, folder: Path, data: Data, tol: float, cap: float, repeats: int) -> Run:
    """Run a solver in its own process, which is stopped `_PATIENCE` after the time limits of its runs."""
    problem, answer = folder / "problem.npz", folder / "answer.npz"
    answer.unlink(missing_ok=True)
    np.savez(problem, far=data.far, near=data.near)
    command = [sys.executable, __file__, "--process", solver, str(problem), str(answer)]
    command += [str(tol), str(cap), str(repeats)]
    try:
        done = subprocess.run(
            command, timeout=repeats * cap + _PATIENCE, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return Run(solver, f"stopped at {cap:g} s")
    if not answer.exists():
        return Run(solver, _why_not(done.stdout + done.stderr))
    with np.load(answer) as saved:
        numbers = [float(saved[name]) for name in ("rounds", "wall", "cpu", "memory")]
        return Run(solver, str(saved["says"]), *numbers, saved["X"], saved["weights"])


def _why_not(text: str) -> str:
    """Return the reason why a process left no answer."""
    last = text.strip().splitlines()[-1] if text.strip() else "failed"
    if last.startswith("skipped"):
        return last
    if "memory" in last.lower():
        return f"out of memory ({_MEMORY / 2**30:g} GiB)"
    return last.replace("|", "/")[:120]


def process(solver: str, problem: str, answer: str, tol: str, cap: str, repeats: str) -> None:
    """Solve in this process, and save the answer with its times."""
    warnings.simplefilter("ignore")
    with np.load(problem) as saved:
        far, near = saved["far"], saved["near"]
    solve = partial(_ours, solver) if solver in _ROUTES else {"SCS": _scs, "Clarabel": _clarabel}[solver]
    if solver not in _ROUTES:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    samples: list[tuple[float, float]] = []
    while len(samples) < int(repeats) and (not samples or samples[-1][0] < 5):
        says, rounds, X, weights, *seconds = solve(far, near, float(tol), float(cap))
        samples.append(tuple(seconds))
    wall, cpu = np.median(samples, axis=0)
    memory = 1024 * _peak_memory()
    np.savez(answer, says=says, rounds=rounds, X=X, weights=weights, wall=wall, cpu=cpu, memory=memory)


def _peak_memory() -> int:
    """Return the peak memory of this process, in KiB; getrusage would include the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def _ours(name: str, far: Array, near: Array, tol: float, cap: float) -> tuple[Any, ...]:
    options = dict(_ROUTES[name])
    if "master" in options and not _has_master() and options.pop("master") != "lp":
        sys.exit("skipped: psdboost has no option master")
    begin, cpu = time.perf_counter(), time.process_time()
    sol = bo.soft_margin((far, near), C=_TRADE_OFF / len(far), tol=tol, time_limit=cap, **options)
    seconds = time.perf_counter() - begin, time.process_time() - cpu
    return sol.status, sol.iterations, np.asarray(sol.X), np.asarray(sol.duals[0]), *seconds


def _has_master() -> bool:
    from bregopt.routes.matrix_generation import PSDBoostSettings

    return "master" in {field.name for field in dataclasses.fields(PSDBoostSettings)}


def _conic(far: Array, near: Array, lower: bool) -> tuple[Array, Any, Array, Array, Array]:
    """Return ``c, A, b`` of ``min c'x, b - A x`` in zero, R + R nonnegative and one semidefinite cone.

    ``x`` is the triangle of ``X``, column by column and scaled, then rho and xi. The last results are the
    places of the triangle in ``X`` and its scales.
    """
    R, D = far.shape
    # Of a symmetric matrix, the lower triangle by columns is the upper one by rows.
    i, j = np.triu_indices(D) if lower else np.tril_indices(D)
    scale = np.where(i == j, 1.0, np.sqrt(2.0))
    size = len(i)
    rows = (far[:, i] * far[:, j] - near[:, i] * near[:, j]) * scale
    c = np.concatenate([np.zeros(size), [-1.0], np.full(R, _TRADE_OFF / R)])
    margins = sp.hstack([sp.csr_array(-rows), np.ones((R, 1)), -sp.eye_array(R)])
    trace = sp.csr_array(np.concatenate([np.where(i == j, 1.0, 0.0), np.zeros(R + 1)])[None])
    slacks = sp.hstack([sp.csr_array((R, size + 1)), -sp.eye_array(R)])
    cone = sp.hstack([-sp.eye_array(size), sp.csr_array((size, R + 1))])
    A = sp.csc_array(sp.vstack([trace, margins, slacks, cone]))
    b = np.concatenate([[1.0], np.zeros(2 * R + size)])
    return c, A, b, i * D + j, scale


def _matrix(D: int, x: Array, place: Array, scale: Array) -> Array:
    X = np.zeros(D * D)
    X[place] = x[: len(place)] / scale
    X = X.reshape(D, D)
    return X + X.T - np.diag(np.diag(X))


def _scs(far: Array, near: Array, tol: float, cap: float) -> tuple[Any, ...]:
    try:
        import scs
    except ImportError:
        sys.exit("skipped: not installed")
    (R, D), (c, A, b, place, scale) = far.shape, _conic(far, near, lower=True)
    options = {"eps_abs": tol, "eps_rel": tol, "time_limit_secs": cap, "max_iters": 10**7, "verbose": False}
    begin, cpu = time.perf_counter(), time.process_time()
    found = scs.SCS({"A": A, "b": b, "c": c}, {"z": 1, "l": 2 * R, "s": [D]}, **options).solve()
    seconds = time.perf_counter() - begin, time.process_time() - cpu
    info, X = found["info"], _matrix(D, found["x"], place, scale)
    return info["status"], info["iter"], X, found["y"][1 : R + 1], *seconds


def _clarabel(far: Array, near: Array, tol: float, cap: float) -> tuple[Any, ...]:
    try:
        import clarabel
    except ImportError:
        sys.exit("skipped: not installed")
    (R, D), (c, A, b, place, scale) = far.shape, _conic(far, near, lower=False)
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * R), clarabel.PSDTriangleConeT(D)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, cap, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
    begin, cpu = time.perf_counter(), time.process_time()
    zero = sp.csc_array((len(c), len(c)))
    found = clarabel.DefaultSolver(zero, c, A, b, cones, settings).solve()
    seconds = time.perf_counter() - begin, time.process_time() - cpu
    X = _matrix(D, np.asarray(found.x), place, scale)
    return str(found.status), found.iterations, X, np.asarray(found.z)[1 : R + 1], *seconds


def run_csdp(folder: Path, data: Data, cap: float, repeats: int) -> Run:
    """Run CSDP on a file; its time includes reading the file."""
    csdp = PROGRAMS[0]
    if csdp.missing():
        return Run("CSDP", csdp.missing())
    (R, D), path = data.far.shape, folder / "problem.dat-s"
    X, rho, xi = bo.PSD(D), bo.Variable(), bo.Variable(R, nonneg=True)
    margins = bo.quad_form(data.far, X) - bo.quad_form(data.near, X)
    rows = [margins >= rho - xi, bo.trace(X) == 1]
    bo.write_sdpa(bo.Problem(bo.Maximize(rho - _TRADE_OFF / R * bo.sum(xi)), rows), path)
    lines = (line for line in path.open() if line[:1] not in ('"', "*"))
    _, _, orders = (next(lines) for _ in range(3))
    sdp = SDP(
        np.zeros(1), tuple(int(n) for n in orders.translate(str.maketrans("{}(),", "     ")).split()), ()
    )
    found = csdp.run(sdp, path, repeats, cap, dict(os.environ))
    if found.point is None:
        return Run("CSDP", found.says)
    own = next(k for k, n in enumerate(sdp.orders) if n == D)
    return Run(
        "CSDP", found.says, np.nan, found.wall, found.cpu, np.nan, found.point.X[own], found.point.y[:R]
    )


# ------------------------------------------------------------------------------------------------------ table


_PREAMBLE = """# Margin SDPs beside their peers

maximize rho - C sum xi_r over metrics X of trace one, far_r' X far_r - near_r' X near_r >= rho - xi_r, with
C = 10 / R. Comparisons of points with the nearest ones of the same class and of others. One BLAS thread;
medians of up to {repeats} runs, one where a run takes 5 s or more; stopped at {cap:g} s.

Value and bound are recomputed from the comparisons for every answer by the same code: the best rho for X
(psd, trace one), and the largest eigenvalue of sum w_r A_r for the multipliers, brought into [0, C] and to
the sum one. Seconds of SCS and Clarabel are without building their data and without CVXPY, those of CSDP
with reading its file, ours with building the model. The last column is the CPU time over that of our
fastest route that has the asked gap; below 0.05 s times mean little.
"""
_HEADING = [
    "| instance | solver | says | rounds | wall s | CPU s | peak MB | value | bound | gap | rank "
    "| 1-NN error, % | beside ours |",
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
]


def table(chosen: list[Instance], options: argparse.Namespace) -> list[str]:
    """Solve each instance by every solver; return (and print as they come) the lines of the table."""
    lines = [*_PREAMBLE.format(repeats=options.repeat, cap=options.cap).splitlines(), "", *_HEADING]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as folder:
        for instance in chosen:
            data = instance.make()
            if data is None:
                added = [f"| {instance.name} | skipped: its data are not there |" + " |" * 11]
            else:
                added = rows_of(instance, data, Path(folder), options)
            lines += added
            print("\n".join(added), flush=True)
    return lines


def rows_of(instance: Instance, data: Data, folder: Path, options: argparse.Namespace) -> list[str]:
    """Return the table's rows of one instance."""
    runs = []
    for solver in instance.solvers:
        if solver not in options.solvers:
            continue
        if solver == "CSDP":
            runs.append(run_csdp(folder, data, options.cap, options.repeat))
        else:
            runs.append(run_in_process(solver, folder, data, instance.tol, options.cap, options.repeat))
    proofs = [None if run.X is None else certify(data, run.X, run.weights) for run in runs]
    done = [
        run.cpu
        for run, proof in zip(runs, proofs, strict=True)
        if run.solver in _ROUTES and proof is not None and proof.gap <= 2 * instance.tol
    ]
    fastest = min(done, default=np.nan)
    return [_line(instance, data, run, proof, fastest) for run, proof in zip(runs, proofs, strict=True)]


def _line(instance: Instance, data: Data, run: Run, proof: Proof | None, fastest: float) -> str:
    """Return one row of the table."""
    if proof is None:
        return f"| {instance.name} | {run.solver} | {run.says} |" + " |" * 10
    eigenvalues = np.linalg.eigvalsh(run.X)
    rank = int((eigenvalues > 1e-4 * eigenvalues[-1]).sum())
    numbers = [_number(run.rounds, ".0f"), _number(run.wall, "#.3g"), _number(run.cpu, "#.3g")]
    numbers += [_number(run.memory / 1e6, ".0f"), f"{proof.value:.8g}", f"{proof.bound:.8g}"]
    numbers += [f"{proof.gap:.0e}", str(rank), _number(100 * nearest_error(data, run.X), ".2f")]
    beside = _number(run.cpu / fastest, ".2g")
    return f"| {' | '.join([instance.name, run.solver, run.says, *numbers, beside and beside + 'x'])} |"


def _number(value: float, form: str) -> str:
    return "" if np.isnan(value) else format(value, form)


# ------------------------------------------------------------------------------------------------------- main


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="groups or beginnings of instances' names")
    parser.add_argument("--solvers", nargs="+", choices=_ALL, default=_ALL, help="solvers to run")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is taken")
    parser.add_argument("--cap", type=float, default=180.0, help="seconds allowed for one solve")
    parser.add_argument("--quick", action="store_true", help="the first two instances, one run each")
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared" / "data", help="data folder")
    parser.add_argument("--output", type=Path, help="where the table goes; for a full run the results folder")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 first")
    if options.quick:
        options.repeat = 1
    elif not options.only and options.output is None:
        options.output = Path(__file__).parent / "results" / "margins.md"
    return options


def main() -> None:
    """Run the chosen instances and save the table."""
    options = arguments()
    every = instances(options.data)
    chosen = every[:2] if options.quick else every
    if options.only:
        wanted = tuple(options.only)
        chosen = [i for i in every if i.group in wanted or i.name.startswith(wanted)]
    lines = table(chosen, options)
    if options.output is not None:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        process(*sys.argv[2:])
    else:
        main()
