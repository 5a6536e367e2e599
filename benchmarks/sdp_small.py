"""The time of a step of the route `path` on small margin problems, from a cold and from a warm start."""

from __future__ import annotations

import time

import numpy as np
from sdp_peers import TOL

import bregopt as bo

_SMALL = ((5, 60), (10, 60), (10, 100), (10, 300), (10, 1000), (20, 1000), (60, 1000))  # order, rows


def small_table(repeats: int) -> list[str]:
    """Return (and print) the time of a step on small margin problems, from a cold and from a warm start."""
    lines = [
        "| order | hinge rows | steps | ms a step | ms in all | warm: steps | ms in all |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    print("\n".join(lines))
    for order, rows in _SMALL:
        problem, asked = margin(order, rows)
        cold = [_stepped(problem, False) for _ in range(10 * repeats)]
        warm = []
        for k in range(10 * repeats):
            asked.value = 0.01 * np.random.default_rng(k).normal(size=rows)
            warm.append(_stepped(problem, True))
        (steps, step, total), (again, _, warmed) = np.median(cold, axis=0), np.median(warm, axis=0)
        cells = [order, rows, f"{steps:.0f}", f"{step:.3g}", f"{total:.3g}", f"{again:.0f}", f"{warmed:.3g}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        print(lines[-1], flush=True)
    return lines


def margin(order: int, rows: int) -> tuple[bo.Problem, bo.Parameter]:
    """Return  max rho - sum hinges of <A_r, X> - rho >= asked_r, tr X <= 1,  the small master of psdboost."""
    far, near = np.random.default_rng(0).normal(size=(2, rows, order))
    X, rho, asked = bo.PSD(order), bo.Variable(), bo.Parameter(rows)
    asked.value = np.zeros(rows)
    body = bo.quad_form(1.3 * far, X) - bo.quad_form(near, X)
    rows_ = bo.soft(body - rho >= asked, gamma=10 / rows)
    return bo.Problem(bo.Maximize(rho), [bo.trace(X) <= 1, rows_]), asked


def _stepped(problem: bo.Problem, warm: bool) -> tuple[float, float, float]:
    """Return the steps of a solve, the milliseconds of a step, and those of the whole solve."""
    begin = time.perf_counter()
    solution = problem.solve(solver="path", tol=TOL, warm_start=warm)
    total, clock = time.perf_counter() - begin, solution.history["seconds"]
    steps = max(solution.iterations, 1)
    return solution.iterations, 1e3 * float(clock[-1] - clock[0]) / steps, 1e3 * total
