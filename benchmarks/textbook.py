"""Textbook semidefinite programs in CVXPY: seconds of both hooks, Clarabel and SCS, and what they answer.

    OPENBLAS_NUM_THREADS=1 python benchmarks/textbook.py [ORDER ...]

A time is the CPU time of the whole `problem.solve`, with CVXPY's compilation: the median over three solves
of fresh problems (one where a solve takes more than five seconds). A cell without a time says why there is
none: another status than "optimal", an error, or the limit of 20 seconds. Values are compared: "differs"
marks an answer that is off by more than 1e-4 of the larger of value and 1. The table of a full run, with the
orders 12, 40 and 100, goes to benchmarks/results/textbook.md.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from textbook_problems import PROBLEMS

from bregopt.cvxpy import BREGOPT

RESULTS = Path(__file__).parent / "results" / "textbook.md"
ORDERS = (12, 40, 100)
WAYS: dict[str, dict[str, Any]] = {
    'method="bregopt"': {"method": "bregopt", "tol": 1e-8},
    'solver="BREGOPT"': {"solver": BREGOPT},
    "Clarabel": {"solver": cp.CLARABEL},
    "SCS": {"solver": cp.SCS, "eps": 1e-6},
}
LIMIT, ROUNDS, LONG, OFF = 20, 3, 5.0, 1e-4


def solve(found: Connection, name: str, n: int, options: dict[str, Any]) -> None:
    """Send seconds, status and value of one solve after the other, then None."""
    times: list[float] = []
    while len(times) < ROUNDS and not (times and times[-1] > LONG):
        problem = PROBLEMS[name](n, np.random.default_rng(1))
        begin = time.process_time()
        try:
            problem.solve(**options)
            status, value = problem.status, float(np.nan if problem.value is None else problem.value)
        except cp.SolverError:
            status, value = "error", np.nan
        times.append(time.process_time() - begin)
        found.send((times[-1], status, value))
    found.send(None)


def solved(name: str, n: int, options: dict[str, Any]) -> tuple[float, str, float]:
    """Return the median time, the status and the value, of solves in a process that the limit ends."""
    found, sent = Pipe(duplex=False)
    child = get_context("fork").Process(target=solve, args=(sent, name, n, options))
    child.start()
    answers = []
    while found.poll(LIMIT) and (answer := found.recv()) is not None:
        answers.append(answer)
    child.kill()
    child.join()
    if not answers:
        return np.nan, f"over {LIMIT} s", np.nan
    return statistics.median(seconds for seconds, _, _ in answers), *answers[-1][1:]


def row(name: str, n: int) -> str:
    """Return the line of a problem: the seconds of each way, or what it says instead."""
    answers = [solved(name, n, options) for options in WAYS.values()]
    proven = [value for _, status, value in answers[:2] if status == "optimal"]
    known = proven or [value for _, status, value in answers if status == "optimal"]
    cells = []
    for seconds, status, value in answers:
        cell = f"{seconds:.3f}" if status == "optimal" else status
        if status == "optimal" and abs(value - known[0]) > OFF * max(abs(known[0]), 1.0):
            cell += ", differs"
        cells.append(cell)
    return f"| {name.replace('_', ' ')} | {n} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, and save it if it is whole."""
    orders = tuple(map(int, sys.argv[1:])) or ORDERS
    warnings.simplefilter("ignore")
    lines = [f"| problem | n | {' | '.join(WAYS)} |", "|:--|--:|" + "--:|" * len(WAYS)]
    print("\n".join(lines))
    for name in PROBLEMS:
        for n in orders:
            lines.append(row(name, n))
            print(lines[-1], flush=True)
    if orders == ORDERS:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
