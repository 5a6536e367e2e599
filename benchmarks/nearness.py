"""Matrix nearness by bregopt and its peers: median CPU time to an equal certified gap, with one BLAS thread.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/nearness.py [--only distances real] [--quick]

The same code certifies all answers; the table shows the certified gap. Times include building the model. The
runs of an instance take turns with those of its unit: one ``numpy.linalg.eigh`` of its order or, for low
rank, one product V M. A ratio is the median of the ratios of the turns, if both have the same number of
turns. The table of a full run goes to benchmarks/results/nearness.md.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import re
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nearness_peers import (
    Entrant,
    Fixed,
    Verdict,
    by_bregopt,
    by_cvxpy,
    by_higham,
    by_model,
    by_qi_sun,
    by_qics,
    by_route,
    by_statsmodels,
    has_qics,
)
from nearness_problems import (
    Array,
    Make,
    correlation_problem,
    distance_problem,
    lifted,
    low_rank_problem,
    real_matrices,
    start_matrix,
    uniform_matrix,
)

import bregopt as bo

_REPEATS = (
    (0.03, 31),
    (0.1, 11),
    (1.0, 5),
    (math.inf, 3),
)  # seconds, and the number of repeats of shorter runs
_LONG = 5.0  # seconds: a run of this length is not repeated
_CYCLIC_LIMIT = 60.0  # time limit of the cyclic method in seconds
_DATA = Path(os.environ.get("BREGOPT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
# Minutes that Kulis et al. 2009, §7.2, report for 100,000 rows on 60,000 digits at rank 100.
_PAPER_MINUTES = {"logdet": 11.3, "von_neumann": 71.4}


# ----------------------------------------------------------------------------------------------------- timing


@dataclass(frozen=True)
class Timing:
    """The times of a run, turn by turn, and its result."""

    turns: tuple[float, ...]
    result: Any

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.turns)

    def over(self, other: Timing) -> float:
        """Return the median ratio of the turns, or the ratio of medians if their numbers of turns differ."""
        if len(self.turns) != len(other.turns):
            return self.seconds / other.seconds
        return statistics.median(own / its for own, its in zip(self.turns, other.turns, strict=True))


def race(runs: Sequence[Callable[[], Any]], long: float = _LONG) -> list[Timing]:
    """Return the times of each run; the runs take turns.

    The first round warms up and counts only for runs that are not repeated, as they take `long` seconds.
    """
    samples = [_once(run) for run in runs]
    repeats = [_repeats(seconds) if seconds < long else 0 for seconds, _ in samples]
    times = [[] if count else [seconds] for (seconds, _), count in zip(samples, repeats, strict=True)]
    for turn in range(max(repeats)):
        for own, run, count in zip(times, runs, repeats, strict=True):
            if turn < count:
                own.append(_once(run)[0])
    return [Timing(tuple(own), result) for own, (_, result) in zip(times, samples, strict=True)]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the median time of a run and its result."""
    timing = race([run])[0]
    return timing.seconds, timing.result


def _once(run: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()  # with one thread; other work on the machine does not count
    result = run()
    return time.process_time() - begin, result


def _repeats(seconds: float) -> int:
    return next(count for limit, count in _REPEATS if seconds < limit)


def eigh_unit(n: int) -> Entrant:
    """Return one full eigendecomposition of order `n`."""
    A = uniform_matrix(n, np.random.default_rng(0))
    return Entrant("unit: one numpy.linalg.eigh", lambda: np.linalg.eigh(A), _no_verdict)


def product_unit(m: int, r: int) -> Entrant:
    """Return one product of the vectors of `m` rows with a matrix of order `r`."""
    rng = np.random.default_rng(0)
    V, M = rng.normal(size=(m, r)), rng.normal(size=(r, r))
    out = np.empty_like(V)
    return Entrant("unit: one product V M", lambda: np.matmul(V, M, out=out), _no_verdict)


def _no_verdict(_: Any) -> Verdict:
    return Verdict(math.nan, math.nan)


# ------------------------------------------------------------------------------------------------------ table


class Table:
    """Lines of the report, printed as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._line(
            "instance", "solver", "seconds", "certified gap", "rows off", "steps", "in units", "beside ours"
        )
        self._line("---", "---", *["--:"] * 6)

    def contest(self, instance: str, unit: Entrant, *entrants: Entrant, long: float = _LONG) -> None:
        """Time a unit and entrants, ours first, and write their lines."""
        self._unit, *timings = race([e.run for e in (unit, *entrants)], long)
        self._ours = timings[0]
        self.write(instance, unit.solver, self._unit)
        for k, (entrant, timing) in enumerate(zip(entrants, timings, strict=True)):
            self.write(instance, entrant.solver, timing, entrant.judge(timing.result), beside=k > 0)

    def write(
        self, instance: str, solver: str, timing: Timing, verdict: Verdict | None = None, beside: bool = False
    ) -> None:
        """Write a line in the units of the last contest."""
        worth = verdict or Verdict(math.nan, math.nan)
        over = ">" if worth.stopped else ""
        self._line(
            instance,
            f"{solver}, stopped" if worth.stopped else solver,
            f"{timing.seconds:.3g}",
            _number(worth.gap),
            _number(worth.off),
            "" if worth.steps is None else str(worth.steps),
            f"{over}{timing.over(self._unit):.1f}",
            f"{over}{timing.over(self._ours):.3g}x" if beside else "",
        )

    def note(self, instance: str, text: str) -> None:
        """Write a line without numbers."""
        self._line(instance, text, *[""] * 6)

    def _line(self, *cells: str) -> None:
        self.lines.append(f"| {' | '.join(cells)} |")
        print(self.lines[-1], flush=True)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0e}"


# ------------------------------------------------------------------------------------------------ correlation

# The largest order at which a peer is run: above it a run takes many seconds or minutes.
_LARGEST = {
    "logdet": {"cyclic": 2000, "SCS": 100, "CLARABEL": 50, "QICS": 50},
    "von_neumann": {"cyclic": 50, "SCS": 20, "QICS": 100},
    "frobenius": {"cyclic": 200, "SCS": 200, "CLARABEL": 50, "Higham": 1000, "statsmodels": 100},
}
_LARGEST_REAL = {
    "logdet": {"cyclic": 200, "SCS": 12},
    "von_neumann": {"SCS": 12},
    "frobenius": {"SCS": 200, "Higham": 200, "statsmodels": 100},
}


def correlation_entrants(
    divergence: str, X0: Array, largest: dict[str, int], fixed: Fixed = None
) -> list[Entrant]:
    """Return the solvers of a nearest correlation problem; `largest` gives the largest order of each peer."""
    make = correlation_problem(divergence, X0, fixed)
    peers: dict[str, Callable[[], Entrant]] = {
        "cyclic": lambda: by_bregopt(make, tol=1e-8, method="cyclic", time_limit=_CYCLIC_LIMIT),
        "SCS": lambda: by_cvxpy(divergence, X0, fixed, "SCS"),
        "CLARABEL": lambda: by_cvxpy(divergence, X0, fixed, "CLARABEL"),
        "QICS": lambda: by_qics(divergence, X0),
        "Higham": lambda: by_higham(X0),
        "statsmodels": lambda: by_statsmodels(X0),
    }
    chosen = [peer() for name, peer in peers.items() if len(X0) <= largest.get(name, 0)]
    return [by_bregopt(make, tol=1e-8), *chosen]


def correlation(table: Table, quick: bool) -> None:
    """Nearest correlation matrices of growing order."""
    orders = {
        "logdet": (50, 100, 500, 1000, 2000),
        "von_neumann": (20, 50, 100, 500, 1000),
        "frobenius": (50, 100, 200, 500, 1000, 2000),
    }
    for divergence, sizes in orders.items():
        largest = dict(_LARGEST[divergence])
        if not has_qics():
            largest.pop("QICS", None)
        for n in sizes:
            if quick and n > 100:
                continue
            rng = np.random.default_rng(n)
            X0 = uniform_matrix(n, rng) if divergence == "frobenius" else start_matrix(n, rng)
            name = f"correlation, {divergence}, n = {n}"
            table.contest(name, eigh_unit(n), *correlation_entrants(divergence, X0, largest))


def real(table: Table, quick: bool, folder: Path) -> None:
    """Correlation matrices from practice that are not positive definite.

    Frobenius takes them unchanged, also with fixed entries; LogDet and von Neumann with lifted eigenvalues.
    """
    matrices = real_matrices(folder)
    if not matrices:
        table.note("real matrices", "skipped: they are not in the data folder, see --data")
    for name, (A, pattern) in matrices.items():
        n = len(A)
        if quick and n > 20:
            continue
        unit, plain = eigh_unit(n), f"{name}, n = {n}"
        peers = _LARGEST_REAL["frobenius"]
        table.contest(f"{plain}, frobenius", unit, *correlation_entrants("frobenius", A, peers))
        if pattern is not None:
            i, j = np.nonzero(np.triu(pattern, 1))
            stays = correlation_entrants("frobenius", A, {"SCS": peers["SCS"]}, (i, j, A[i, j]))
            table.contest(f"{plain}, frobenius, {len(i)} fixed entries", unit, *stays)
        X0 = lifted(A)
        for divergence in ("logdet", "von_neumann"):
            entrants = correlation_entrants(divergence, X0, _LARGEST_REAL[divergence])
            table.contest(f"{plain}, lifted, {divergence}", unit, *entrants)


def variants(table: Table, quick: bool) -> None:
    """Frobenius with fixed entries, bounds, a least eigenvalue and weights, compared with none of them."""
    n = 100 if quick else 500
    rng = np.random.default_rng(n)
    A = uniform_matrix(n, rng)
    H = rng.uniform(0.1, 1, size=(n, n))
    fixed = np.column_stack([np.zeros(20, dtype=int), np.arange(1, 21)])
    calm = A * 0.3 + 0.7 * np.eye(n)  # no correlation matrix has these entries of A itself
    cases: dict[str, tuple[Array, dict[str, Any]]] = {
        "plain": (A, {}),
        "20 fixed entries (of 0.3 A + 0.7 I)": (calm, {"fixed": fixed}),
        "all entries in [-0.2, 0.2]": (A, {"lower": -0.2, "upper": 0.2}),
        "least eigenvalue 0.01": (A, {"min_eigenvalue": 0.01}),
        "weights 0.1 to 1 of entries": (A, {"weights": (H + H.T) / 2}),
    }
    entrants = [_variant(case, *given) for case, given in cases.items()]
    table.contest(f"correlation, frobenius, n = {n}", eigh_unit(n), *entrants)


def newton(table: Table, quick: bool) -> None:
    """Plain Frobenius by the ready-made problem and by a declared one, beside a hand-written Newton."""
    for n in (30, 100) if quick else (30, 100, 300, 1000):
        A = uniform_matrix(n, np.random.default_rng(n))
        make = correlation_problem("frobenius", A, None)
        entrants = [_variant("bo.nearest_correlation", A, {}), by_bregopt(make, tol=1e-8), by_qi_sun(A)]
        table.contest(f"correlation, frobenius, n = {n}", eigh_unit(n), *entrants)


def _variant(case: str, A: Array, options: dict[str, Any]) -> Entrant:
    def run() -> bo.Solution:
        return bo.nearest_correlation(A, tol=1e-8, **options)

    return Entrant(
        f"bregopt newton, {case}", run, lambda sol: Verdict(sol.gap, sol.primal_residual, sol.iterations)
    )


# -------------------------------------------------------------------------------------------------- distances


def distances(table: Table, quick: bool) -> None:
    """LogDet with 5 n distances, hard and soft; Clarabel only at the smaller order, as it takes minutes."""
    for n in (50,) if quick else (50, 100):
        for soft in (False, True):
            make = distance_problem("logdet", n, 5 * n, soft)
            entrants = [
                by_bregopt(make, tol=1e-8),
                by_bregopt(make, tol=1e-8, method="cyclic", time_limit=_CYCLIC_LIMIT),
                by_model(make, "SCS", eps=1e-6, max_iters=20_000),
            ]
            if n == 50:
                entrants.append(by_model(make, "CLARABEL"))
            name = f"{5 * n} distances, {'soft' if soft else 'hard'}, logdet, n = {n}"
            table.contest(name, eigh_unit(n), *entrants)


# --------------------------------------------------------------------------------------------------- low rank


def low_rank(table: Table, quick: bool) -> None:
    """Soft distances on a low-rank kernel."""
    for divergence in ("logdet", "von_neumann"):
        make = low_rank_problem(divergence, 1000, 20, 5000)
        entrants = [by_bregopt(make, tol=1e-8)]
        if divergence == "logdet":
            entrants.append(by_bregopt(make, tol=1e-8, method="cyclic", time_limit=20.0))
            told = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-8)
            entrants.append(by_route(make, "CLARABEL", **told))
        table.contest(
            f"low rank, {divergence}, n = 1000, r = 20, m = 5000", product_unit(5000, 20), *entrants
        )
    for divergence in () if quick else ("logdet", "von_neumann"):
        _digits(table, divergence)


def _digits(table: Table, divergence: str) -> None:
    """Write the lines of the largest instance, which has the sizes of the paper's handwritten digits."""
    name = f"low rank, {divergence}, n = 60000, r = 100, m = 100000"
    make = _digits_problem(divergence)
    entrants = [by_bregopt(make, tol=1e-4)]
    if divergence == "logdet":
        entrants.append(by_bregopt(make, tol=1e-4, method="cyclic", time_limit=2 * _CYCLIC_LIMIT))
    table.contest(name, product_unit(100_000, 100), *entrants, long=_CYCLIC_LIMIT)
    minutes = _PAPER_MINUTES[divergence]
    table.write(
        name, f"Kulis et al. 2009: {minutes} minutes on digits", Timing((60 * minutes,), None), beside=True
    )
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        peak = pool.submit(_peak_memory, divergence).result()
    memory = "not told by this system" if peak is None else f"{peak / 1e9:.2f} GB"
    table.note(name, f"bregopt newton: peak memory of a process of its own {memory}")


def _digits_problem(divergence: str) -> Make:
    return low_rank_problem(divergence, 60_000, 100, 100_000)


def _peak_memory(divergence: str) -> int | None:
    """Return the peak memory of this process in bytes, after solving; None if the system reports none."""
    _digits_problem(divergence)().solve(solver="bregman", tol=1e-4)
    status = Path("/proc/self/status")  # getrusage includes the memory of the parent
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) * 1024 if status.exists() else None


# ------------------------------------------------------------------------------------------------------- main


def main() -> None:
    """Run the chosen sections; save the table of a full run."""
    sections = {
        "correlation": correlation,
        "real": lambda table, quick: real(table, quick, options.data / "nearcorr"),
        "variants": variants,
        "newton": newton,
        "distances": distances,
        "low-rank": low_rank,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sections, default=list(sections), help="sections to run")
    parser.add_argument("--quick", action="store_true", help="small instances only")
    parser.add_argument("--data", type=Path, default=_DATA, help="data folder; else that of BREGOPT_DATA")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore")
    if not has_qics():
        print("QICS is not installed (pip install qics): its lines are left out")
    table = Table()
    for section in options.only:
        sections[section](table, options.quick)
    if not options.quick and set(options.only) == set(sections):
        target = Path(__file__).parent / "results" / "nearness.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(table.lines) + "\n")


if __name__ == "__main__":
    main()
